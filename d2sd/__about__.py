"""Which version this is, and where the files that are no modules lie."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.2.0"
# Where assets/, app/ and app.py lie: beside the package in a checkout, in its folder "home" once it is installed.
_INSTALLED = Path(__file__).resolve().parent / "home"
HOME = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1]
