"""Training text: JSONL files and the target's own responses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from d2sd.errors import InputError
from d2sd.trace.files import write_whole

MAX_LINE = 4_000_000


def read_jsonl(path: Path, *wanted: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSONL file. Raises ``InputError`` naming the line if a row lacks one of the fields ``wanted``."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if len(line) > MAX_LINE:
                raise InputError(f"{path}, line {number}: longer than {MAX_LINE} characters")
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number}: not JSON ({error.msg})") from None
            missing = [f for f in wanted if not isinstance(row, dict) or f not in row]
            if missing:
                raise InputError(f"{path}, line {number}: has no field {missing[0]!r}")
            yield row


@dataclass(frozen=True, slots=True)
class Responses:
    """Prompts with the target's responses: ids (N, S) padded with the end token, and both lengths (N,)."""

    ids: Tensor
    prompt_lengths: Tensor
    lengths: Tensor


def read_responses(path: Path, max_length: int, pad_id: int) -> Responses:
    """Read a file written by ``regenerate``: lines with ``prompt_ids`` and ``response_ids``."""
    rows = [
        (row["prompt_ids"], (row["prompt_ids"] + row["response_ids"])[:max_length])
        for row in read_jsonl(path, "prompt_ids", "response_ids")
    ]
    rows = [(p, ids) for p, ids in rows if len(ids) >= len(p) + 2]
    if not rows:
        raise InputError(f"{path} holds no response of at least two tokens")
    width = max(len(ids) for _, ids in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.int32)
    for i, (_, row) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return Responses(ids, torch.tensor([len(p) for p, _ in rows]), torch.tensor([len(row) for _, row in rows]))


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def normalise(text: str) -> str:
    """Letters and digits only, lower case: what two prompts are compared by when held-out text is checked."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def frequent_tokens(data: Responses, count: int, vocabulary: int) -> list[int]:
    """The ``count`` tokens that the responses hold most often, ascending; rarer ids fill up where there are too few."""
    if not 1 <= count <= vocabulary:
        raise InputError(f"the draft vocabulary must hold 1 to {vocabulary} tokens, not {count}")
    at = torch.arange(data.ids.shape[1])
    written = (at >= data.prompt_lengths[:, None]) & (at < data.lengths[:, None])
    seen = torch.bincount(data.ids[written].long(), minlength=vocabulary)
    return sorted(seen.argsort(descending=True, stable=True)[:count].tolist())
