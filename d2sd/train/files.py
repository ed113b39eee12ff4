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
            place = f"{path}, line {number}"
            require(len(line) <= MAX_LINE, f"{place}: longer than {MAX_LINE} characters")
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{place}: not JSON ({error.msg})") from None
            for field in fields:
                require(isinstance(row, dict) and field in row, f"{place}: has no field {field!r}")
            yield row


def whole_lines(path: Path) -> list[bytes]:
    """Returns the lines of a file without an unfinished last line, which a killed run may have left; [] if there is no file."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line for line in lines if line.endswith(b"\n")]


def read_conversations(path: Path) -> list[list[str]]:
    """Returns, for each conversation in a JSONL file, the texts of the user's turns.

    Raises ``InputError``, naming the row, if a row has no texts under ``prompt``, ``turns`` or ``messages``.
    """
    conversations = []
    for number, row in enumerate(read_jsonl(path), 1):
        row = row if isinstance(row, dict) else {}
        turns, messages = row.get("turns", [row.get("prompt")]), row.get("messages")
        if isinstance(messages, list):
            turns = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
        texts = isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns)
        require(texts, f"{path}, row {number}: needs a text under prompt, or texts under turns or messages")
        if turns[0].strip():
            conversations.append(turns)
    return conversations


def check_turns(conversations: Sequence[Sequence[str]], chat: bool) -> None:
    """Raises ``InputError`` for conversations of several turns without a chat template. chat: whether prompts are put into one."""
    single = all(len(turns) <= 1 for turns in conversations)
    require(chat or single, "conversations of several turns need the target's chat template; add --chat")


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
    # ``train pair`` saves drafters beside the folder of its checkpoint
    for place in (folder, folder.parent / "training"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads((place / "checkpoint" / "state.json").read_bytes())
            return int(state["step"]) if state["step"] == state["identity"]["steps"] else None
    return None


def digest_of(value: Any) -> str:
    """Returns a short digest of data. A run is resumed, and files are reused, only if the digest is unchanged.

    value: JSON-ready data, and paths, which count as texts.
    """
    return hashlib.sha256(orjson.dumps(value, str, orjson.OPT_SORT_KEYS)).hexdigest()[:16]
