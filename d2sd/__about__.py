"""The version of the package, the folder of its data files, and lazy imports of public names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

__version__ = "0.2.0"
# Folder that contains assets/, app/ and app.py: in a checkout, the parent of d2sd/; once installed, d2sd/home/.
_INSTALLED = Path(__file__).resolve().parent / "home"
HOME = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1]


def on_zero_gpu() -> bool:
    """Returns whether this process runs in a Hugging Face Space on ZeroGPU, where a process has a GPU only during decorated calls."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the functions ``__getattr__`` and ``__dir__`` (PEP 562) of a package that imports its public names on first use.

    Importing the package to read traces and logs then does not import torch.

    package: name of the package.
    homes: for each module, the public names that it defines.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get, lambda: sorted(modules)
