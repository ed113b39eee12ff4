"""Prompts from JSON lines with ``prompt`` or ``turns`` (the first turn is used), or from a data set of the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2sd.__about__ import HOME
from d2sd.bench import hub_prompts
from d2sd.errors import InputError

FOLDER = HOME / "assets" / "prompts"
MAX_LINE = 200_000
MAX_PROMPTS = 2000


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and the group that its results are reported under."""

    text: str
    domain: str


def names() -> list[str]:
    """Returns the names of the bundled prompt sets."""
    return sorted(p.stem for p in FOLDER.glob("*.jsonl"))


def prompt_file(source: str) -> Path:
    """Returns the path of a bundled set or a JSONL file."""
    path = FOLDER / f"{source}.jsonl" if source in names() else Path(source)
    if not path.is_file():
        raise InputError(
            f"there is no prompt file {source}; give a .jsonl file, org/name:split:column of a hub data set, or one of: "
            f"{', '.join(names())}"
        )
    return path


def read_prompts(source: str, limit: int | None = None) -> list[Prompt]:
    """Returns prompts of a bundled set, a JSONL file or a hub data set (``hub_prompts``); errors name the line.

    ``limit``: at most so many, taken in turn from every domain; of a data set the first. Raises ``InputError``.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, not {limit}")
    if hub_prompts.fits(source):
        return [_short(Prompt(text, "all"), source) for text in hub_prompts.read_texts(source, limit)]
    path = prompt_file(source)
    prompts = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                prompts.append(_prompt(line, f"{path.name}, line {number}"))
    if not prompts:
        raise InputError(f"{source} holds no prompts")
    return _spread(prompts, limit)


def digest(source: str, prompts: Iterable[Prompt]) -> str:
    """Returns the SHA-256 of the prompt file, or of the texts of a data set."""
    if hub_prompts.fits(source):
        raw = "\0".join(prompt.text for prompt in prompts).encode("utf-8", "replace")
    else:
        raw = prompt_file(source).read_bytes()
    return hashlib.sha256(raw).hexdigest()


def parse_prompts(text: str, name: str, limit: int | None = None) -> list[Prompt]:
    """Prompts that somebody pasted or brought as a file called ``name``: JSON lines, or else one prompt a line.

    The line at fault is named; ``limit``: see ``read_prompts``.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError(f"{name}: no prompts; give one a line, or JSON lines with a text under prompt")
    if len(lines) > MAX_PROMPTS:
        raise InputError(f"{name}: {len(lines)} prompts; at most {MAX_PROMPTS} are read at once")
    if lines[0][1].lstrip().startswith("{"):
        prompts = [_prompt(line, f"{name}, line {number}") for number, line in lines]
    else:
        prompts = [Prompt(line.strip(), "all") for _, line in lines]
    return _spread(prompts, limit)


def _short(prompt: Prompt, where: str) -> Prompt:
    if len(prompt.text) > MAX_LINE:
        raise InputError(f"{where}: a prompt is longer than {MAX_LINE} characters")
    return prompt


def _prompt(line: str, where: str) -> Prompt:
    if len(line) > MAX_LINE:
        raise InputError(f"{where}: longer than {MAX_LINE} characters")
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({str(error)[:100]})") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: not an object")
    text = row.get("prompt")
    if text is None and isinstance(row.get("turns"), list) and row["turns"]:
        text = row["turns"][0]
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: needs a text under prompt or turns")
    return Prompt(text, str(row.get("domain", "all")))


def _spread(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """Returns at most ``limit`` prompts, taken from every domain in turn, so that a short run covers all of them."""
    if limit is None or limit >= len(prompts):
        return prompts
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.domain, []).append(prompt)
    queues = [list(reversed(g)) for g in groups.values()]
    picked: list[Prompt] = []
    while len(picked) < limit:
        picked += [q.pop() for q in queues if q][: limit - len(picked)]
    return picked
