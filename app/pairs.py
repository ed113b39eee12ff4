"""Targets with their drafters that the page offers by name: published ones, and those that the owner of this page lists.

The owner's list is JSON, in the file that the environment variable ``D2SD_MODELS`` names or in the variable itself::

    [{"name": "mine", "target": "Qwen/Qwen3-4B", "drafter": "/models/my-drafter", "vp": "/models/my-vp", "dtype": "bfloat16"}]

``target`` and ``drafter`` are hub ids or folders. ``vp`` (a VP-Drafter), ``eagle3`` and ``dtype`` may be left out, and of
``drafter`` and ``eagle3`` one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import d2sd
from app import presets
from d2sd.folders.loading import BUNDLED

VARIABLE = "D2SD_MODELS"
PARTS = ("target", "drafter", "vp", "eagle3")
FIELDS = ("name", *PARTS, "dtype")
DTYPE_NAMES = ("float32", "bfloat16", "float16")
MAX_BYTES = 200_000
MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its drafters, each a hub id or a folder.

    parameters: of the target, in 10⁹, from its model card; None if unknown.
    fault: a sentence that says why the pair cannot be used; empty if it can."""

    name: str
    target: str = ""
    drafter: str = ""
    vp: str = ""
    eagle3: str = ""
    dtype: str = "bfloat16"
    parameters: float | None = None
    fault: str = ""


PUBLISHED = (
    Pair("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16", parameters=4.0),
    Pair("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16", parameters=8.2),
)


TINY = BUNDLED / "tiny"
DSPARK = Pair(presets.DSPARK, str(TINY / "target"), str(TINY / "dspark"), str(TINY / "vp"), dtype="float32")


@cache
def pairs() -> dict[str, Pair]:
    """Returns all pairs by name; unusable ones of the owner's list state the reason."""
    known = {p.name: p for p in (DSPARK, *PUBLISHED)}
    for pair in listed(os.environ.get(VARIABLE, "")):
        taken = pair.name in known or pair.name in d2sd.presets()
        name = f"{pair.name} (again)" if taken else pair.name
        known[name] = Pair(name, fault="this name is taken; give it another") if taken else pair
    return known


def listed(source: str) -> list[Pair]:
    """Returns the pairs of the owner's list. Invalid entries become pairs with a ``fault``, which the page shows.

    source: value of the variable: a path, or the list as JSON."""
    if not source.strip():
        return []
    try:
        rows = json.loads(_text(source.strip()))
    except json.JSONDecodeError as error:
        return [Pair(VARIABLE, fault=f"line {error.lineno} of the list of models is not JSON ({error.msg})")]
    except OSError as error:
        return [Pair(VARIABLE, fault=f"the list of models cannot be read: {error.strerror or error}")]
    if not isinstance(rows, list):
        return [Pair(VARIABLE, fault="the list of models must be a JSON list: [{…}, …]")]
    return [_read(row, number) for number, row in enumerate(rows, 1)]


def _text(source: str) -> str:
    if source[0] in "[{":
        return source
    with Path(source).expanduser().open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_BYTES)


def _read(row: Any, number: int) -> Pair:
    """Returns one entry."""
    name = f"entry {number} of the list"
    if not isinstance(row, Mapping):
        return Pair(name, fault="it must be an object with target and drafter")
    if isinstance(row.get("name"), str) and row["name"].strip():
        name = row["name"].strip()[:MAX_TEXT]
    elif isinstance(row.get("target"), str) and row["target"].strip():
        target = row["target"].strip()[:MAX_TEXT]
        name = "/".join(Path(target).parts[-2:]) if is_folder(target) else target  # no path for visitors
    fault = _fault(row)
    if fault:
        return Pair(name, fault=fault)
    sources = [(row.get(part) or "").strip() for part in PARTS]
    target, drafter, vp, eagle3 = (str(Path(s).expanduser()) if is_folder(s) else s for s in sources)
    return Pair(name, target, drafter, vp, eagle3, dtype=row.get("dtype") or Pair(name).dtype)


def _fault(row: Mapping[str, Any]) -> str:
    """Returns what is wrong with an entry; empty if it is valid."""
    unknown = [str(key)[:40] for key in row if key not in FIELDS]
    if unknown:
        return f"{unknown[0]!r} is not known; an entry has {', '.join(FIELDS)}"
    for field in FIELDS:
        value = row.get(field)
        if value is not None and (not isinstance(value, str) or len(value) > MAX_TEXT):
            return f"{field} must be a text"
    if not (row.get("target") or "").strip():
        return "it needs a target: a hub id or a folder"
    if not any((row.get(part) or "").strip() for part in ("drafter", "eagle3")):
        return "it needs a drafter or an eagle3: a hub id or a folder"
    if row.get("dtype") and row["dtype"] not in DTYPE_NAMES:
        return f"dtype must be one of {', '.join(DTYPE_NAMES)}"
    for field in PARTS:
        path = (row.get(field) or "").strip()
        if is_folder(path) and not Path(path).expanduser().is_dir():
            return f"the folder of its {field}, {path}, is not there"
    return ""


def is_folder(source: str) -> bool:
    """Returns whether a source is a folder; a hub id is one name, or two names with a slash between them."""
    return source.startswith(("/", ".", "~")) or source.count("/") > 1
