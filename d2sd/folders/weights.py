"""Weight files of model folders, and short digests of loaded weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor, nn

from d2sd.errors import require
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.models import Models

CONVERT = (
    "python -c \"import torch, safetensors.torch as s; w = torch.load('pytorch_model.bin', weights_only=True); "
    "s.save_file({k: v.contiguous() for k, v in w.items()}, 'model.safetensors')\""
)
LFS = b"version https://git-lfs"  # first bytes of a Git LFS pointer
DIGESTED = 1024  # number of values of each parameter in a digest; few, so that little is copied to the host


def weight_files(source: str) -> list[Path]:
    """Returns the safetensors files of a folder or hub id. If there is an index, only files that it names are returned.

    Raises ``InputError`` if there are no such files, a file that the index names is missing, or a file is a Git LFS pointer.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = Path(snapshot_download(source, allow_patterns=["*.json", "*.safetensors"]))
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [f for f in files if f.name in names]
        require(len(files) >= len(names), "some of the safetensors files that its index names are missing")
    require(
        files,
        "it has no safetensors weights; pickle files (pytorch_model.bin) are refused, since opening them may run code: "
        f"convert them in their folder with {CONVERT}",
    )
    for path in files:
        with path.open("rb") as file:
            require(
                file.read(len(LFS)) != LFS,
                f"{path.name} is a Git LFS pointer and holds no weights; run git lfs pull in its folder",
            )
    return files


def stored(files: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    """Yields the name of each tensor in the files, and the open file that contains the tensor. Within a file, names are sorted."""
    for path in files:
        with safe_open(path, "pt") as file:
            for key in sorted(file.keys()):
                yield key, file


def tensor_shapes(files: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all tensors by stored name. Only the headers of the files are read."""
    return {key: tuple(file.get_slice(key).get_shape()) for key, file in stored(files)}


def read_weights(files: Iterable[Path], wanted: Callable[[str], bool] = lambda _: True) -> dict[str, Tensor]:
    """Returns tensors by stored name.

    wanted: function that returns whether to read the tensor of this name.
    """
    return {key: file.get_tensor(key) for key, file in stored(files) if wanted(key)}


# Digests, which distinguish the checkpoints of recorded runs.


def weights_digest(net: nn.Module) -> str:
    """Returns a short digest of the first values of every parameter of a network. Since training changes all parameters, it changes
    the digest.
    """
    heads = [p.detach().flatten()[:DIGESTED].float().cpu() for p in net.parameters() if not p.is_meta]
    return hashlib.sha256(torch.cat(heads).numpy().tobytes()).hexdigest()[:16]


def parts(models: Models) -> dict[str, dict[str, Any]]:
    """Returns a description of each model in a set, by the model's key in ``Models.names``.

    Each description has name, weights (a digest), dtype, layout (the network's class) and rope (rotary parameters). A target or
    draft model with a chat template also has chat_template (a digest). Drafters also have taps (the target layers that they read,
    as a string). Block drafters also have block_size (γ as trained) and mask_token_id.
    """
    descriptions = {}
    for part, target in (("target", models.target), ("draft_model", models.draft_model)):
        if target is not None:
            descriptions[part] = {**_of(target.model, target.config, target.name), "dtype": target.numbers}
            if template := target.tokenizer.chat_template:
                descriptions[part]["chat_template"] = hashlib.sha256(str(template).encode()).hexdigest()[:16]
    for part, drafter in models.drafters.items():
        descriptions[part] = _of(drafter, drafter.config, drafter.config.name_or_path)
        descriptions[part]["taps"] = " ".join(map(str, drafter.target_layer_ids))
        if isinstance(drafter, DFlashDraftModel):
            descriptions[part] |= {"block_size": drafter.block_size, "mask_token_id": drafter.mask_token_id}
    return descriptions


def _of(net: Any, config: Any, name: str) -> dict[str, Any]:
    rope = getattr(config, "rope_parameters", None) or {}
    return {
        "name": name,
        "weights": weights_digest(net),
        "dtype": str(next(net.parameters()).dtype).removeprefix("torch."),
        "layout": type(net).__name__,
        "rope": ", ".join(f"{key} {value}" for key, value in sorted(rope.items())),
    }
