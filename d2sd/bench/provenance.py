"""Provenance of measured figures: the versions, hardware, commit, command line, seeds and prompts with which they were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any

from d2sd.__about__ import HOME, __version__
from d2sd.bench.prompts import Prompt, digest
from d2sd.calibration.text import Table
from d2sd.costs.kept import processor

if TYPE_CHECKING:  # imports torch
    from d2sd.engine import Engine
    from d2sd.nets.target import Target

PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "safetensors", "numpy", "flashinfer-python")


def provenance(
    engine: Engine, argv: list[str], source: str, prompts: Iterable[tuple[Prompt, object]], seeds: dict[str, int]
) -> dict[str, Any]:
    """Returns everything that is needed to repeat and judge a measurement. To be called when the measurement begins.

    argv: arguments of the command line.
    source: name of the prompt set, or path of its file.
    prompts: the prompts, with their token ids.
    seeds: seeds by purpose.
    """
    return {
        **circumstances(engine.models.target, argv),
        "seeds": seeds,
        "prompts": {"source": source, "sha256": digest(source, (prompt for prompt, _ in prompts))},
        "models": engine.models.names(),
    }


def circumstances(target: Target, argv: list[str]) -> dict[str, Any]:
    """Returns date, command line, commit, versions and hardware of a measurement on this target."""
    import torch

    installed = {name: package.version for name in PACKAGES for package in distributions(name=name)}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": argv,
        "commit": _commit(),
        "versions": {"d2sd-explorer": __version__, "python": platform.python_version(), **installed},
        "hardware": {
            "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
            "cpu": processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load_average": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
            "system": platform.platform(),
            "dtype": target.numbers,
        },
    }


def _commit() -> str | None:
    """Returns the commit of the checkout; None if it is unknown. If tracked files differ from the commit, the text says so."""
    if not (HOME / ".git").exists():  # otherwise git may report the checkout of an enclosing project
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(HOME), *arguments], capture_output=True, encoding="utf-8", check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def described(origin: dict[str, Any]) -> Table:
    """Returns a provenance as a table with a name and a text in each row. origin: result of ``provenance``."""
    hardware, versions = origin["hardware"], origin["versions"]
    command = f"`python -m d2sd {' '.join(origin['argv'])}`"
    rows = [
        ("command", f"{command}, {origin['date']}, commit {origin['commit'] or 'unknown'}"),
        (
            "hardware",
            f"{hardware['device']} in {hardware['dtype']}; CPU {hardware['cpu']}, {hardware['cores']} cores, {hardware['threads']} threads; "
            f"load average at the start {hardware['load_average']}; {hardware['system']}",
        ),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    if "models" in origin:
        prompts = origin["prompts"]
        rows += [
            ("models", ", ".join(f"{part} {name}" for part, name in origin["models"].items() if name)),
            ("prompts", f"{prompts['source']}, sha256 {prompts['sha256']}"),
            ("seeds", ", ".join(f"{what} {seed}" for what, seed in origin["seeds"].items())),
        ]
    return Table(("", ""), tuple(rows))


def as_markdown(origin: dict[str, Any]) -> str:
    return "\n".join(("## Provenance\n", *(f"* {name}: {text}" for name, text in described(origin).rows)))
