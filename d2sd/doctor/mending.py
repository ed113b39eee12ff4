"""Writes a drafter's folder again with the changes that restored its acceptance."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor

from d2sd.doctor.changes import TOKEN_IDS, Variant
from d2sd.errors import InputError
from d2sd.models.drafter_folder import MAPS, own_name
from d2sd.models.eagle3_folder import eagle3_name, is_eagle3, published_config
from d2sd.models.weight_files import read_weights, weight_files

SHARD = "5GB"
OTHERS = (".json", ".md", ".txt", ".model", ".jinja")  # files beside the weights that are copied


def mend(source: str, changes: Sequence[Variant], out: Path) -> None:
    """Write the folder or hub id ``source`` to ``out`` with these changes, applied in order.

    Weights keep their published names and dtype. Raises ``InputError`` if ``out`` exists or a change cannot be written.
    """
    if out.exists():
        raise InputError(f"{out} is there already; name a folder that is not")
    if (other := next((v for v in changes if not v.writable), None)) is not None:
        raise InputError(
            f"no folder can say it ({other.said}); {other.mend or 'the weights have to be fetched or trained again'}"
        )
    config: dict[str, Any] = json.loads(json.dumps(published_config(source)))
    rename = eagle3_name if is_eagle3(config) else own_name
    files = weight_files(source)
    stored = read_weights(files)
    names = {own: key for key in stored if (own := rename(key)) is not None}
    weights = {own: stored[key] for own, key in names.items() if own not in MAPS}
    if "d2t" in names:
        weights[TOKEN_IDS] = stored[names["d2t"]].long() + torch.arange(len(stored[names["d2t"]]))
    for change in changes:
        config = config if change.rewrite is None else change.rewrite(config)
        if change.edit is not None:
            weights |= change.edit(weights)
    stored |= _published(weights, names, stored)
    out.mkdir(parents=True)
    for path in files[0].parent.iterdir():
        if path.is_file() and path.suffix in OTHERS and not path.name.endswith(".index.json"):
            shutil.copyfile(path, out / path.name)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_torch_state_dict({k: v.contiguous().clone() for k, v in stored.items()}, out, max_shard_size=SHARD)


def _published(weights: dict[str, Tensor], names: dict[str, str], stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Changed weights by their published names, in their type; the map of a draft vocabulary as differences."""
    found = {names[own]: w.to(stored[names[own]].dtype).cpu() for own, w in weights.items() if own in names}
    if (ids := weights.get(TOKEN_IDS)) is not None:
        found[names["d2t"]] = (ids - torch.arange(len(ids))).to(stored[names["d2t"]].dtype)
        if "t2d" in names:
            found[names["t2d"]] = torch.zeros_like(stored[names["t2d"]]).index_fill(0, ids, True)
    return found
