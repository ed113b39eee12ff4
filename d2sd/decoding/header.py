"""The first line of a trace: method, settings, models, versions and hardware."""

from __future__ import annotations

import platform
import uuid
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from d2sd.config import DecodeConfig
from d2sd.models.models import Models
from d2sd.trace.schema import SCHEMA

PACKAGES = ("torch", "transformers")


def make_header(
    models: Models, parts: dict[str, dict[str, Any]], config: DecodeConfig, prompt: str | None
) -> dict[str, Any]:
    """Returns the first line of a trace, with a new ``run`` identifier.

    parts: descriptions of the models from ``d2sd.models.identity.parts``.
    """
    target = models.target
    return {
        "event": "Header",
        "schema": SCHEMA,
        "run": uuid.uuid4().hex,
        "method": config.method,
        "config": asdict(config),
        "models": models.names(),
        "parts": parts,
        "versions": _versions(),
        "hardware": {
            "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "dtype": target.numbers,
        },
        "prompt": prompt,
    }


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}}
