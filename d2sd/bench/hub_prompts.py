"""Prompts of a data set on the Hugging Face hub, streamed with ``datasets`` if that is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from d2sd.errors import InputError, first_line

FORM = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?:([\w.\[\]%-]+):(\w[\w .-]*)")
MAX_ROWS = 20_000
MIN_VERSION = 4  # older ones can run code that a data set brings along


def fits(source: str) -> bool:
    """Returns whether a source names a data set: ``org/name:split:column``, or ``org/name/configuration:split:column``."""
    return FORM.fullmatch(source) is not None and not Path(source).is_file()


def read_texts(source: str, limit: int | None = None) -> list[str]:
    """Returns the first prompts of the data set, ``limit`` of them or else ``MAX_ROWS``. Raises ``InputError``."""
    match = FORM.fullmatch(source)
    assert match is not None
    name, configuration, split, column = match.groups()
    rows = _stream(name, configuration, split)
    try:
        texts = list(islice(_texts(rows, column, source), MAX_ROWS + 1 if limit is None else limit))
    except InputError:
        raise
    except Exception as error:  # of the network, of files, of the hub: what they raise is not listed anywhere
        raise _unreadable(source, error) from None
    if not texts:
        raise InputError(f"{source} holds no prompts")
    if len(texts) > MAX_ROWS:
        raise InputError(f"{source} has more than {MAX_ROWS} rows; say with --limit how many of them to use")
    return texts


def _stream(name: str, configuration: str | None, split: str) -> Iterable[Mapping[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise InputError(
            "prompts of a hub data set need the package datasets (pip install datasets); or give a .jsonl file"
        ) from None
    if int(datasets.__version__.split(".")[0]) < MIN_VERSION:
        raise InputError(
            f"prompts of a hub data set need datasets {MIN_VERSION} or newer, not {datasets.__version__}; install it anew"
        )
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(name, configuration, split=split, streaming=True)
    except Exception as error:
        raise _unreadable(name, error) from None
    return rows


def _unreadable(source: str, error: Exception) -> InputError:
    return InputError(f"cannot read the data set {source}: {first_line(error, 200)}")


def _texts(rows: Iterable[Mapping[str, Any]], column: str, source: str) -> Iterator[str]:
    for number, row in enumerate(rows, 1):
        if column not in row:
            raise InputError(f"{source}: there is no column {column}; it has {', '.join(map(str, row))[:160]}")
        text = _prompt(row[column])
        if text is None:
            raise InputError(f"{source}, row {number}: neither a text, nor turns, nor messages of a chat")
        if text.strip():
            yield text


def _prompt(value: Any) -> str | None:
    """A text; of turns the first, of the messages of a chat the first of the user."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        value = next((m.get("content") for m in value if m.get("role") == "user"), None)
    elif isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None
