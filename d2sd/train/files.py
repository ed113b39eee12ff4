"""Files of training runs: JSON lines, the prompts of conversations, the step of a saved drafter, and digests of settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from d2sd.errors import InputError, require
from d2sd.trace.files import utf8_lines

MAX_LINE = 4_000_000  # maximum characters of a line


def read_jsonl(path: Path, *fields: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSONL file. Raises ``InputError``, naming the line, if a row is invalid or lacks one of ``fields``."""
    require(path.is_file(), f"there is no prompt file {path}")
    with path.open("rb") as file:
        for number, line in utf8_lines(file, path):
            if not line.strip():
                continue
            if len(line) > MAX_LINE:
                raise InputError(f"{path}, line {number}: longer than {MAX_LINE} characters")
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number}: not JSON ({error.msg})") from None
            missing = [f for f in fields if not isinstance(row, dict) or f not in row]
            if missing:
                raise InputError(f"{path}, line {number}: has no field {missing[0]!r}")
            yield row


def read_conversations(path: Path) -> list[list[str]]:
    """Returns, for each conversation in a JSONL file, the texts of the user's turns.

    Raises ``InputError``, naming the row, if a row has no texts under ``prompt``, ``turns`` or ``messages``.
    """
    conversations = []
    for number, row in enumerate(read_jsonl(path), 1):
        turns = row.get("turns", [row.get("prompt")]) if isinstance(row, dict) else []
        if isinstance(row, dict) and isinstance(row.get("messages"), list):
            turns = [m.get("content") for m in row["messages"] if isinstance(m, dict) and m.get("role") == "user"]
        if not isinstance(turns, list) or not turns or not all(isinstance(t, str) for t in turns):
            raise InputError(f"{path}, row {number}: needs a text under prompt, or texts under turns or messages")
        if turns[0].strip():
            conversations.append(turns)
    return conversations


def check_turns(conversations: Sequence[Sequence[str]], chat: bool) -> None:
    """Raises ``InputError`` for conversations of several turns without a chat template. chat: whether prompts are put into one."""
    if not chat and any(len(turns) > 1 for turns in conversations):
        raise InputError("conversations of several turns need the target's chat template; add --chat")


def training_step(source: str | Path | None) -> int | None:
    """Returns the number of training steps of a drafter; None if unknown.

    It is unknown for the newest drafter of an unfinished run, since training goes on after each save.

    source: folder that a training run wrote. For a hub id and for None, the number is unknown.
    """
    if source is None:
        return None
    folder = Path(source)
    if saved := re.fullmatch(r"step-(\d+)", folder.name):
        return int(saved[1])
    for place in (
        folder,
        folder.parent / "training",
    ):  # ``train pair`` saves drafters beside the folder of its checkpoint
        with suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads((place / "checkpoint" / "state.json").read_bytes())
            return int(state["step"]) if state["step"] == state["identity"]["steps"] else None
    return None


def digest_of(value: Any) -> str:
    """Returns a short digest of JSON-ready data. A run is resumed, and files are reused, only if the digest is unchanged."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
