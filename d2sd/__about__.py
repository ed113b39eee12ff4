"""Version, installation path, and location of the package's data files."""

from __future__ import annotations

import os
from pathlib import Path

__version__ = "0.2.0"
# Where assets/, app/ and app.py lie: beside the package in a checkout, in its folder "home" once it is installed.
_INSTALLED = Path(__file__).resolve().parent / "home"
HOME = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1]


def on_zero_gpu() -> bool:
    """Whether this is a Hugging Face Space on ZeroGPU, which lends its GPU to one call at a time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
