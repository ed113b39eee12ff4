"""Changes of a drafter: other settings for reading its weights, and edits of the weights.

A ``Variant`` is applied to a loaded drafter; most variants can also be written to a folder. A ``FolderEdit`` changes only a folder.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from torch import Tensor, nn

from d2sd.doctor.redraft import Drafter
from d2sd.errors import InputError, first_line
from d2sd.folders.drafters import MAPS, eagle3_name, is_eagle3, own_name, published_config
from d2sd.folders.weights import read_weights, weight_files
from d2sd.nets.eagle3 import Eagle3Config
from d2sd.nets.layouts import DrafterForm

Kind = Literal[
    "taps", "mask", "rope", "window", "causal", "reads", "rows", "layer", "sublayer", "rotary", "swapped", "transposed",
    "norms", "order", "tables", "map", "eps", "head_dim", "residual", "output", "scale",
]  # fmt: skip
Form = DrafterForm | Eagle3Config
WeightEdit = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
ConfigEdit = Callable[[dict[str, Any]], dict[str, Any]]

MIN_GAIN = 0.02
TOKEN_IDS = "token_ids"  # key in a dict of weights: target id of each token of the draft vocabulary
# Changes of these kinds often raise acceptance a little, whatever the cause. A gain from them alone proves nothing.
UNSPECIFIC: frozenset[Kind] = frozenset({"mask", "rope", "window", "causal", "layer", "sublayer", "output", "norms"})
SHARD = "5GB"
COPIED = (".json", ".md", ".txt", ".model", ".jinja")  # suffixes of the files that are copied besides the weights


@dataclass(frozen=True, slots=True)
class Variant:
    """A drafter with one change.

    description: the change, in a few words.
    fix: what to change in the folder; None if no change of the folder has this effect.
    form: settings with which the weights are read.
    edit_weights: returns the changed weights, given all weights by name; None if no weight changes.
    edit_config: returns the changed config, given the folder's config; None if the config stays the same or cannot express the change.
    left_out: the layer, or the part of a layer, that this variant disables; None if it disables nothing.
    min_gain: smallest relative gain that counts as help.
    as_target: whether the change replaces a setting of the drafter by the target's setting.
    """

    kind: Kind
    description: str
    fix: str | None
    form: Form
    edit_weights: WeightEdit | None = None
    edit_config: ConfigEdit | None = None
    left_out: str | None = None
    min_gain: float = MIN_GAIN
    as_target: bool = False

    @property
    def key(self) -> object:
        """Changes with the same effect have equal keys."""
        form = self.form
        read = form if isinstance(form, DrafterForm) else (form.layer.to_dict(), replace(form, layer=None))
        return read, self.description if self.edit_weights is not None else ""

    @property
    def unspecific(self) -> bool:
        """Whether a gain proves nothing, since changes of this kind often help a little, whatever the cause.

        False if the change takes over the target's setting.
        """
        return self.kind in UNSPECIFIC and not self.as_target

    @property
    def writable(self) -> bool:
        return self.left_out is None and (self.edit_weights is not None or self.edit_config is not None)

    @property
    def taps(self) -> tuple[int, ...]:
        return self.form.taps if isinstance(self.form, DrafterForm) else self.form.target_layer_ids

    def apply(self, model: Any) -> Any:
        """Returns a copy of the drafter ``model`` with this change. The copy shares the unchanged weights."""
        changed = _with_own_modules(model)
        _set_form(changed, self.form)
        if self.edit_weights is not None:
            for name, weight in self.edit_weights(weights_of(changed)).items():
                _set_weight(changed, name, weight)
        return changed


@dataclass(frozen=True, slots=True)
class FolderEdit:
    """A repair of a published folder. It does not need a loaded drafter.

    description: the change, in a few words.
    edit_tensors: returns the tensors of the repaired folder, given the published tensors. The keys are published names.
    """

    description: str
    edit_tensors: WeightEdit


def weights_of(model: Drafter) -> dict[str, Tensor]:
    """Returns a drafter's weights by name. If there is a draft vocabulary, ``TOKEN_IDS`` holds its target ids."""
    weights: dict[str, Tensor] = dict(model.named_parameters())
    if model.token_ids is not None:
        weights[TOKEN_IDS] = model.token_ids
    return weights


def _with_own_modules(module: Any) -> Any:
    """Copies the module and its submodules, but not their weights. A deep copy would take as long as the drafting."""
    other = copy.copy(module)
    for part in ("_parameters", "_buffers"):
        other.__dict__[part] = dict(module.__dict__[part])
    modules = module.__dict__["_modules"]
    other.__dict__["_modules"] = {name: inner and _with_own_modules(inner) for name, inner in modules.items()}
    return other


def _set_form(model: Any, form: Form) -> None:
    if isinstance(form, DrafterForm):
        model.__dict__.update(model.reformed(form).__dict__)
        model.config = copy.deepcopy(model.config)
        model.config.rms_norm_eps = form.shape["rms_norm_eps"]
        _set_eps(model, form.shape["rms_norm_eps"])
        return
    model.config = form
    _set_eps(model, form.layer.rms_norm_eps)
    model.layer.norm_before_residual = form.norm_before_residual
    model.layer.self_attn.head_dim = form.layer.head_dim
    model.rotary_emb = type(model.rotary_emb)(form.layer).to(model.device)


def _set_eps(model: nn.Module, eps: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.RMSNorm):
            module.eps = eps


def _set_weight(model: Any, name: str, weight: Tensor) -> None:
    if name == TOKEN_IDS:
        model.token_ids = weight
        return
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, nn.Parameter(weight, requires_grad=False))


def set_keys(values: Mapping[str, Any]) -> ConfigEdit:
    """Returns an edit that sets these keys of a config. "a.b" is key b of the object a. The value None removes a key."""

    def edit(config: dict[str, Any]) -> dict[str, Any]:
        config = copy.deepcopy(config)
        for path, value in values.items():
            *outer, last = path.split(".")
            inner = config
            for part in outer:
                inner = inner.setdefault(part, {})
            if value is None:
                inner.pop(last, None)
            else:
                inner[last] = value
        return config

    return edit


def config_line(values: Mapping[str, Any]) -> str:
    line = ", ".join(f"{path}: {json.dumps(value)}" for path, value in values.items() if value is not None)
    removed = [path for path, value in values.items() if value is None]
    return line + (f" (and no {', no '.join(removed)})" if removed else "")


def write_changed(source: str, changes: Sequence[Variant | FolderEdit], out: Path) -> None:
    """Writes the drafter ``source`` (folder or hub id) with these changes to the new folder ``out``.

    Folder edits are applied before variants. Weights keep their published names and dtypes. Raises ``InputError`` if ``out`` exists
    or a change cannot be written, and ``OSError`` if writing fails. A failure leaves no partial folder.
    """
    if out.exists():
        raise InputError(f"{out} already exists; name a new folder")
    variants = [change for change in changes if isinstance(change, Variant)]
    if (other := next((v for v in variants if not v.writable), None)) is not None:
        raise InputError(
            f"this change cannot be written to a folder ({other.description}); {other.fix or 'fetch or train the weights again'}"
        )
    config: dict[str, Any] = json.loads(json.dumps(published_config(source)))
    to_own = eagle3_name if is_eagle3(config) else own_name
    files = weight_files(source)
    published = read_weights(files)
    for edit in changes:
        if isinstance(edit, FolderEdit):
            published = edit.edit_tensors(published)
    names = {own: key for key in published if (own := to_own(key)) is not None}
    weights = {own: published[key] for own, key in names.items() if own not in MAPS}
    if "d2t" in names:
        weights[TOKEN_IDS] = published[names["d2t"]].long() + torch.arange(len(published[names["d2t"]]))
    for change in variants:
        config = config if change.edit_config is None else change.edit_config(config)
        if change.edit_weights is not None:
            weights |= change.edit_weights(weights)
    for own, weight in weights.items():
        if own in names:
            published[names[own]] = weight.to(published[names[own]].dtype).cpu()
    if (ids := weights.get(TOKEN_IDS)) is not None:  # published as target id − draft id
        published[names["d2t"]] = (ids - torch.arange(len(ids))).to(published[names["d2t"]].dtype)
        if "t2d" in names:
            published[names["t2d"]] = torch.zeros_like(published[names["t2d"]]).index_fill(0, ids, True)
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
