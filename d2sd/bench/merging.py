"""Results of several machines as one: each ran its part of the prompts, and they share no more than files.

A folder of ``bench --out`` holds ``results.json``, which says what was measured, and ``runs.jsonl`` with every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from d2sd.bench.runner import Named, Run
from d2sd.bench.summary import pooled
from d2sd.config import DecodeConfig
from d2sd.errors import InputError

# What all of them must have in common, and how it is called.
SAME = {
    "model": "model",
    "prompts_sha256": "prompt set",
    "prompts_asked": "number of prompts (--limit)",
    "entries": "list of methods and settings",
    "calculated": "costs",
    "repeats": "number of repeats",
    "dtype": "type of numbers",
}
Result = dict[str, Any]


def merge(folders: Sequence[Path]) -> tuple[Result, list[Run]]:
    """The result of all prompts of all folders, and their runs. Raises ``InputError``, also where a prompt is in two folders."""
    results = [_read(folder) for folder in folders]
    first, known = results[0], _known(results[0])
    runs: list[Run] = []
    whose: dict[int, int] = {}
    for number, (folder, result) in enumerate(zip(folders, results, strict=True)):
        for field, value in _known(result).items():
            if value != known[field]:
                raise InputError(
                    f"{folder}: its {SAME[field]} is not that of {folders[0]}; merge parts of one benchmark"
                )
        own = _runs(folder)
        for prompt in {r.prompt for r in own}:
            if (other := whose.setdefault(prompt, number)) != number:
                raise InputError(
                    f"{folder}: prompt {prompt + 1} is in {folders[other]} too; give every machine its own part, such as --part 1/2"
                )
        runs += own
    origins = [result["provenance"] for result in results]
    seed = first["provenance"]["seeds"]["bootstrap"]
    about = {
        **first,
        "part": None,
        "stopped": any(result["stopped"] for result in results),
        "provenance": {
            "machines": origins,
            **{k: first["provenance"][k] for k in ("seeds", "prompts", "bootstrap_resamples", "repeats")},
        },
    }
    return pooled(about, runs, _entries(first), seed), runs


def _known(result: Result) -> dict[str, Any]:
    """What ``SAME`` names."""
    origin = result["provenance"]
    return {
        **{k: result[k] for k in ("model", "prompts_asked", "calculated")},
        "prompts_sha256": origin["prompts"]["sha256"],
        "entries": [(row["label"], row["method"], row["config"]) for row in result["rows"]],
        "repeats": origin["repeats"],
        "dtype": origin["hardware"]["dtype"],
    }


def _read(folder: Path) -> Result:
    path = folder / "results.json"
    try:
        result = orjson.loads(path.read_bytes())
        _known(result)
        _entries(result)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; bench --out writes it") from None
    except (orjson.JSONDecodeError, KeyError, TypeError, InputError):
        raise InputError(f"{path}: this is no result of bench --out, or one that was merged already") from None
    return dict(result)


def _runs(folder: Path) -> list[Run]:
    path = folder / "runs.jsonl"
    try:
        return list(msgspec.json.Decoder(Run).decode_lines(path.read_bytes()))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; bench --out writes it") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {str(error)[:160]}") from None


def _entries(result: Result) -> list[Named]:
    return [
        Named(row["label"], row["method"], row["config"] and DecodeConfig(**row["config"])) for row in result["rows"]
    ]
