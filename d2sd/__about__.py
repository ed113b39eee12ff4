"""Version of the package, location of its data files, and how its public names are imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

__version__ = "0.2.0"
# Where assets/, app/ and app.py lie: beside the package in a checkout, in its folder "home" once it is installed.
_INSTALLED = Path(__file__).resolve().parent / "home"
HOME = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1]


def on_zero_gpu() -> bool:
    """Whether this is a Hugging Face Space on ZeroGPU, which lends its GPU to one call at a time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns ``__getattr__`` and ``__dir__`` of a package (PEP 562), which import a public name when it is first used. Reading traces
    and logs therefore needs no torch.

    homes: its public names, by the module that defines them.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get, lambda: sorted(modules)
