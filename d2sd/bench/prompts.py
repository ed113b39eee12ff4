"""Prompts from JSON lines with the key ``prompt`` or ``turns`` (only the first turn is used), or from a hub data set."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from d2sd.__about__ import HOME
from d2sd.errors import InputError, first_line, require
from d2sd.trace.files import utf8_lines

FOLDER = HOME / "assets" / "prompts"
MAX_LINE = 200_000  # maximum number of characters of a line
MAX_PROMPTS = 2000
FORM = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?:([\w.\[\]%-]+):(\w[\w .-]*)")
MAX_ROWS = 20_000
MIN_VERSION = 4  # minimum version of the package ``datasets``; older versions can run code from a data set


class Prompt(NamedTuple):
    """A prompt, and its domain: the group in which its results are reported."""

    text: str
    domain: str


def names() -> list[str]:
    return sorted(p.stem for p in FOLDER.glob("*.jsonl"))


def prompt_file(source: str) -> Path:
    """Returns the path of a bundled set or a JSONL file."""
    path = FOLDER / f"{source}.jsonl" if source in names() else Path(source)
    require(
        path.is_file(),
        f"there is no prompt file {source}; give a .jsonl file, org/name:split:column of a hub data set, or one of: "
        f"{', '.join(names())}",
    )
    return path


def read_prompts(source: str, limit: int | None = None) -> list[Prompt]:
    """Returns the prompts of a bundled set, a JSONL file or a hub data set.

    source: name of the set, path of the file, or a source as for ``is_data_set``.
    limit: maximum number of prompts; None for all. A data set gives its first prompts, and a file prompts of every domain in turn.

    Raises ``InputError`` if the source cannot be read; the error names an invalid line.
    """
    require(limit is None or limit >= 1, f"limit must be at least 1, not {limit}")
    if is_data_set(source):
        return [Prompt(text, "all") for text in read_data_set(source, limit)]
    path = prompt_file(source)
    with path.open("rb") as file:
        lines = [(f"{path.name}, line {number}", line) for number, line in utf8_lines(file, path) if line.strip()]
    prompts = [_prompt(line, where) for where, line in lines]
    require(prompts, f"{source} has no prompts")
    return _spread(prompts, limit)


def digest(source: str, prompts: Iterable[Prompt]) -> str:
    """Returns the SHA-256 of a prompt file; if ``source`` is a data set, that of the texts of ``prompts``."""
    if is_data_set(source):
        raw = "\0".join(prompt.text for prompt in prompts).encode("utf-8", "replace")
    else:
        raw = prompt_file(source).read_bytes()
    return hashlib.sha256(raw).hexdigest()


def parse_prompts(text: str, name: str, limit: int | None = None) -> list[Prompt]:
    """Returns the prompts in a text that consists of JSON lines, or has one prompt per line.

    name: name of the text, for error messages.
    limit: maximum number of prompts, taken from every domain in turn; None for all.

    Raises ``InputError``, which names the invalid line.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    require(lines, f"{name}: no prompts; give one per line, or JSON lines with a text under prompt")
    require(len(lines) <= MAX_PROMPTS, f"{name}: {len(lines)} prompts; at most {MAX_PROMPTS} are allowed")
    if lines[0][1].lstrip().startswith("{"):
        prompts = [_prompt(line, f"{name}, line {number}") for number, line in lines]
    else:
        prompts = [Prompt(line.strip(), "all") for _, line in lines]
    return _spread(prompts, limit)


def _prompt(line: str, where: str) -> Prompt:
    require(len(line) <= MAX_LINE, f"{where}: longer than {MAX_LINE} characters")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({str(error)[:100]})") from None
    require(isinstance(row, dict), f"{where}: not an object")
    text = row.get("prompt")
    if text is None and isinstance(row.get("turns"), list) and row["turns"]:
        text = row["turns"][0]
    require(isinstance(text, str) and text.strip(), f"{where}: needs a text under prompt or turns")
    return Prompt(text, str(row.get("domain", "all")))


def _spread(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """Returns at most ``limit`` prompts, taken from every domain in turn, so that a short run covers all domains."""
    if limit is None or limit >= len(prompts):
        return prompts
    domains = dict.fromkeys(prompt.domain for prompt in prompts)
    rounds = zip_longest(*([p for p in prompts if p.domain == domain] for domain in domains))
    return [prompt for turn in rounds for prompt in turn if prompt is not None][:limit]


# Prompts of a data set on the Hugging Face hub, streamed with the package ``datasets`` if it is installed.


def is_data_set(source: str) -> bool:
    """Returns whether a source has the form of a hub data set: ``org/name:split:column`` or ``org/name/configuration:split:column``."""
    return FORM.fullmatch(source) is not None and not Path(source).is_file()


def read_data_set(source: str, limit: int | None = None) -> list[str]:
    """Returns the first ``limit`` prompts of a hub data set, or all of them if ``limit`` is None.

    Raises ``InputError`` if the data set cannot be read, or if more than ``MAX_ROWS`` prompts would be read.
    """
    try:
        texts = list(islice(_texts(source), MAX_ROWS + 1 if limit is None else limit))
    except InputError:
        raise
    except Exception as error:  # the errors that the package raises are not documented
        raise InputError(f"cannot read the data set {source}: {first_line(error, 200)}") from None
    require(texts, f"{source} has no prompts")
    require(len(texts) <= MAX_ROWS, f"{source} has more than {MAX_ROWS} rows; set --limit to the number to use")
    return texts


def _texts(source: str) -> Iterator[str]:
    match = FORM.fullmatch(source)
    assert match is not None
    name, configuration, split, column = match.groups()
    try:
        import datasets
    except ImportError:
        raise InputError(
            "prompts of a hub data set need the package datasets (pip install datasets); or give a .jsonl file"
        ) from None
    require(
        int(datasets.__version__.split(".")[0]) >= MIN_VERSION,
        f"prompts of a hub data set need datasets {MIN_VERSION} or newer, not {datasets.__version__}; upgrade it",
    )
    rows = datasets.load_dataset(name, configuration, split=split, streaming=True)
    for number, row in enumerate(rows, 1):
        if column not in row:
            raise InputError(f"{source}: there is no column {column}; the columns are {', '.join(map(str, row))[:160]}")
        text = _text_of(row[column])
        if text is None:
            raise InputError(f"{source}, row {number}: {column} has neither a text, nor turns, nor chat messages")
        require(len(text) <= MAX_LINE, f"{source}, row {number}: a prompt is longer than {MAX_LINE} characters")
        if text.strip():
            yield text


def _text_of(value: Any) -> str | None:
    """Returns the prompt in a cell of a data set: a text, the first of several turns, or the user's first message of a chat.

    Returns None if the cell has no prompt.
    """
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        value = next((m.get("content") for m in value if m.get("role") == "user"), None)
    elif isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None
