"""One variant of a drafter: a changed reading of its weights, or changed weights, and the config line for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor, nn

from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.eagle3 import Eagle3Config, Eagle3DraftModel
from d2sd.models.form import DrafterForm

Kind = Literal[
    "taps", "mask", "rope", "window", "causal", "reads", "rows", "layer", "sublayer", "dtype", "rotary", "swapped", "transposed",
    "norms", "order", "tables", "map", "head_dim", "residual", "output",
]  # fmt: skip
Form = DrafterForm | Eagle3Config
Drafter = DFlashDraftModel | Eagle3DraftModel
Weights = Mapping[str, Tensor]
Edit = Callable[[Weights], dict[str, Tensor]]
Rewrite = Callable[[dict[str, Any]], dict[str, Any]]

WORTH = 0.02
TOKEN_IDS = "token_ids"  # among weights: the target's ids of a draft vocabulary
# Where a drafter is broken in another way, these often make it a little better, so that a gain alone proves nothing.
SOFT: frozenset[Kind] = frozenset({"mask", "rope", "window", "causal", "layer", "sublayer", "output", "norms"})


@dataclass(frozen=True, slots=True)
class Variant:
    """A drafter with one change.

    said: the change, in a few words.
    mend: what to change in the folder; None if nothing there would undo it.
    form: how its weights are read.
    edit: maps all weights to the changed ones, by our names.
    rewrite: maps the folder's config to a changed one; None if it is unchanged, or cannot express the change.
    without: layers that are left out, or parts of one.
    widened: whether its weights are read in float32.
    worth: relative gain from which on it is reported.
    """

    kind: Kind
    said: str
    mend: str | None
    form: Form
    edit: Edit | None = None
    rewrite: Rewrite | None = None
    without: str | None = None
    widened: bool = False
    worth: float = WORTH

    @property
    def key(self) -> object:
        """Identifies the change."""
        form = self.form
        read = form if isinstance(form, DrafterForm) else (form.layer.to_dict(), replace(form, layer=None))
        return read, self.widened, self.said if self.edit is not None else ""

    @property
    def soft(self) -> bool:
        """Returns whether it may help although another fault is the cause."""
        return self.kind in SOFT

    @property
    def writable(self) -> bool:
        """Returns whether a folder with this change can be written."""
        return self.without is None and (self.edit is not None or self.rewrite is not None)

    def of(self, model: Any) -> Any:
        """Returns the drafter with this change; unchanged weights are shared."""
        other = _shared(model)
        _reform(other, self.form)
        if self.edit is not None:
            for name, weight in self.edit(weights_of(other)).items():
                _put(other, name, weight)
        return copy.deepcopy(other).float() if self.widened else other


def weights_of(model: Drafter) -> dict[str, Tensor]:
    """Returns all weights by our names, and the ids of the draft vocabulary if it has one."""
    found: dict[str, Tensor] = dict(model.named_parameters())
    if model.token_ids is not None:
        found[TOKEN_IDS] = model.token_ids
    return found


def keys(changed: Mapping[str, Any]) -> Rewrite:
    """A config with these keys, dots between an object and what is in it; None takes a key out."""

    def rewrite(config: dict[str, Any]) -> dict[str, Any]:
        config = copy.deepcopy(config)
        for path, value in changed.items():
            *outer, last = path.split(".")
            inner = config
            for part in outer:
                inner = inner.setdefault(part, {})
            if value is None:
                inner.pop(last, None)
            else:
                inner[last] = value
        return config

    return rewrite


def line(changed: Mapping[str, Any]) -> str:
    """Returns the same keys as a line for people."""
    there = ", ".join(f"{path}: {json.dumps(value)}" for path, value in changed.items() if value is not None)
    gone = [path for path, value in changed.items() if value is None]
    return there + (f" (and no {', no '.join(gone)})" if gone else "")


def _shared(module: Any) -> Any:
    """The same modules anew, around the same weights; a deep copy would take as long as the drafting."""
    other = copy.copy(module)
    for part in ("_parameters", "_buffers"):
        other.__dict__[part] = dict(module.__dict__[part])
    other.__dict__["_modules"] = {name: inner and _shared(inner) for name, inner in module.__dict__["_modules"].items()}
    return other


def _reform(model: Any, form: Form) -> None:
    """Let a model of its own modules read its weights by this convention."""
    if isinstance(form, DrafterForm):
        model.__dict__.update(model.reformed(form).__dict__)
        return
    model.config = form
    model.layer.norm_before_residual = form.norm_before_residual
    model.layer.self_attn.head_dim = form.head_dim
    model.rotary_emb = type(model.rotary_emb)(form.layer).to(model.device)


def _put(model: Any, name: str, weight: Tensor) -> None:
    if name == TOKEN_IDS:
        model.token_ids = weight
        return
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, nn.Parameter(weight, requires_grad=False))
