"""Changes of a drafter: other settings for reading its weights, or other weights.

A ``Variant`` is applied to a loaded drafter; most variants can also be written to a folder. The ``mend`` of a ``Check``
(``d2sd.folders.checks``) changes only a folder.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from torch import Tensor, nn

from d2sd.doctor.settings import set_keys
from d2sd.errors import InputError, first_line, require
from d2sd.folders.checks import Check, own_name
from d2sd.folders.configs import published_config
from d2sd.folders.weights import read_weights, weight_files
from d2sd.nets.layouts import Eagle3Form, Form
from d2sd.replay.anchors import Drafter

WeightEdit = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor | None]]

TOKEN_IDS = "token_ids"  # key in a dict of weights: target id of each token of the draft vocabulary
SHARD = "5GB"
COPIED = (".json", ".md", ".txt", ".model", ".jinja")  # suffixes of the files that are copied besides the weights


@dataclass(frozen=True, slots=True)
class Variant:
    """A drafter with one change.

    kind: kind of the change, such as "taps". Changes of the same kind are alternatives to each other.
    description: the change, in a few words.
    form: settings with which the weights are read.
    values: config keys that express the change (``set_keys``); None if no keys do.
    edit_weights: function that takes all weights by name and returns those that change; the value None removes a tensor. None if
        the change does not edit weights.
    fix: what to change in the folder; None if no change of the folder has this effect.
    lag: number of positions by which the target's features reach the drafter too late.
    ahead: for a block drafter, number of positions by which the block is ahead of the text; for EAGLE-3, number of positions by
        which the embeddings are early.
    common: whether the change undoes a mistake that converters and configs are known to make.
    """

    kind: str
    description: str
    form: Form
    values: Mapping[str, Any] | None = None
    edit_weights: WeightEdit | None = None
    fix: str | None = None
    lag: int = 0
    ahead: int = 0
    common: bool = False

    @property
    def key(self) -> str:
        """A key that is equal for changes with the same effect."""
        return repr((self.form, self.lag, self.ahead, self.edit_weights and self.description))

    @property
    def writable(self) -> bool:
        return self.edit_weights is not None or self.values is not None

    def apply(self, model: Any) -> Any:
        """Returns a copy of the drafter ``model`` with this change. The copy shares the unchanged weights."""
        changed = _with_own_modules(model)
        if self.edit_weights is not None:
            for name, weight in self.edit_weights(weights_of(changed)).items():
                _set_weight(changed, name, weight)
        _set_form(changed, self.form)
        return changed


def weights_of(model: Drafter) -> dict[str, Tensor]:
    """Returns a drafter's weights by name. For a draft vocabulary, the entry ``TOKEN_IDS`` holds the target's id of each draft
    token.
    """
    weights: dict[str, Tensor] = dict(model.named_parameters())
    if model.token_ids is not None:
        weights[TOKEN_IDS] = model.token_ids
    return weights


def _with_own_modules(module: Any) -> Any:
    """Returns a copy of a module and its submodules that shares their weights. Copying the weights would take as long as drafting."""
    other = copy.copy(module)
    for part in ("_parameters", "_buffers"):
        other.__dict__[part] = dict(module.__dict__[part])
    modules = module.__dict__["_modules"]
    other.__dict__["_modules"] = {name: inner and _with_own_modules(inner) for name, inner in modules.items()}
    return other


def _set_form(model: Any, form: Form) -> None:
    model.form, model.config = form, copy.deepcopy(model.config)
    for key, value in form.shape.items():
        setattr(model.config, key, value)
    for module in model.modules():
        if isinstance(module, nn.RMSNorm):
            module.eps = form.shape["rms_norm_eps"]
    model.rotary_emb = type(model.rotary_emb)(model.config).to(model.device)
    if isinstance(form, Eagle3Form):
        model.layers[0].norm_before_residual = form.norm_before_residual
        model.layers[0].self_attn.head_dim = form.shape["head_dim"]
    else:  # weights that were packed or merged for the former settings
        model._packed, model._merged, model._rows = None, {}, None


def _set_weight(model: Any, name: str, weight: Tensor | None) -> None:
    if name == TOKEN_IDS:
        model.token_ids = weight
        return
    owner, _, last = name.rpartition(".")
    if weight is None:
        setattr(model, owner, None)
    elif getattr(model, owner, model) is None:  # a part that was the target's until now
        made = nn.Embedding if owner.startswith("embed") else partial(nn.Linear, bias=False)
        with torch.device("meta"):
            setattr(model, owner, made(*weight.shape[:: 1 if made is nn.Embedding else -1]))
    if weight is not None:
        setattr(model.get_submodule(owner), last, nn.Parameter(weight, requires_grad=False))


def write_changed(source: str, changes: Sequence[Variant | Check], out: Path) -> None:
    """Writes the drafter ``source`` (folder or hub id) with these changes to the new folder ``out``.

    The changes are applied in this order. Weights keep their published names and dtypes. Raises ``InputError`` if ``out`` exists or a
    change cannot be written, and ``OSError`` if writing fails. A failure leaves no partial folder.
    """
    if out.exists():
        raise InputError(f"{out} already exists; name a new folder")
    config, files = published_config(source), weight_files(source)
    published = read_weights(files)
    for change in changes:
        if isinstance(change, Check):
            assert change.mend is not None
            try:
                published = change.mend(published)
            except (KeyError, RuntimeError) as error:
                raise InputError(f"the tensors do not allow this change ({first_line(error)})") from None
            continue
        require(change.writable, f"no change of the folder has the effect of {change.description}")
        set_keys(config, change.values or {})
        published_names = {name: key for key in published if (name := own_name(key)) is not None}
        weights = {name: published[key] for name, key in published_names.items()}
        for name, weight in (change.edit_weights(weights) if change.edit_weights else {}).items():
            if name == TOKEN_IDS and weight is not None:  # published as target id − draft id
                ids = weight.cpu()
                published[published_names.get("d2t", "d2t")] = ids - torch.arange(len(ids))
                if "t2d" in published_names:
                    published[published_names["t2d"]] = torch.zeros_like(weights["t2d"]).index_fill(0, ids, True)
            else:
                held = published.pop(published_names.get(name, name), weight)
                if weight is not None and held is not None:
                    published[published_names.get(name, name)] = weight.to(held.dtype).cpu()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            folder = Path(scratch) / out.name
            folder.mkdir()
            for path in files[0].parent.iterdir():
                if path.is_file() and path.suffix in COPIED and not path.name.endswith(".index.json"):
                    shutil.copyfile(path, folder / path.name)
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            save_torch_state_dict(
                {k: v.contiguous().clone() for k, v in published.items()}, folder, max_shard_size=SHARD
            )
            folder.rename(out)
    except SafetensorError as error:  # raised on a full disk; it is not an OSError
        raise InputError(first_line(error)) from None
