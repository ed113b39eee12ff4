"""Safetensors files of a folder: which of them are read, and names, shapes and sizes of their tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import snapshot_download
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from d2sd.errors import InputError

CONVERT = (
    "python -c \"import torch, safetensors.torch as s; w = torch.load('pytorch_model.bin', weights_only=True); "
    "s.save_file({k: v.contiguous() for k, v in w.items()}, 'model.safetensors')\""
)


def weight_files(source: str) -> list[Path]:
    """Returns the safetensors files of a folder or hub id; with an index, only the files named there.

    Raises ``InputError`` if there are none, or some are missing.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = Path(snapshot_download(source, allow_patterns=["*.json", "*.safetensors"]))
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [f for f in files if f.name in names]
        if len(files) < len(names):
            raise InputError("some of the safetensors files that its index names are missing")
    if not files:
        raise InputError(
            "it has no safetensors weights; pickled ones (pytorch_model.bin) may run code when they are read and are not opened "
            f"here: convert them in their folder with {CONVERT}"
        )
    return files


def tensor_shapes(files: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all tensors by stored name, from the files' headers alone."""
    found: dict[str, tuple[int, ...]] = {}
    for path in files:
        with safe_open(path, "pt") as file:
            found |= {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118 (not a dict)
    return found


def read_weights(files: Iterable[Path]) -> dict[str, Tensor]:
    """Returns all tensors by stored name."""
    return {key: tensor for file in files for key, tensor in load_file(file).items()}
