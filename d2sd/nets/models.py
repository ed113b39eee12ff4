"""The set of models that a generation uses, with checks that they fit together and that their outputs are finite."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from d2sd.errors import InputError
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.target import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """A target with drafters that fit it; methods whose drafter is missing cannot run.

    name: name of the set.
    first: DFlash drafter.
    second: second drafter, a VP-Drafter or the same drafter as ``first``.
    draft_model: a small causal LM with the target's vocabulary.
    eagle3: EAGLE-3 drafter.

    Raises ``InputError`` if a drafter was made for another target.
    """

    target: Target
    first: DFlashDraftModel | None = None
    second: DFlashDraftModel | None = None
    draft_model: Target | None = None
    name: str = "custom"
    eagle3: Eagle3DraftModel | None = None

    def __post_init__(self) -> None:
        for drafter in {id(d): d for d in (self.first, self.second) if d is not None}.values():
            check_fit(self.target, drafter)
            self.target.taps.add(drafter.target_layer_ids)
        if self.eagle3 is not None:
            check_eagle3(self.target, self.eagle3)
            self.target.taps.add(self.eagle3.target_layer_ids)
        if self.draft_model is not None:
            own, theirs = self.draft_model, self.target
            same = own.config.vocab_size == theirs.config.vocab_size
            if not same or own.tokenizer.get_vocab() != theirs.tokenizer.get_vocab():
                raise InputError(
                    f"draft model {own.name} has a different vocabulary from the target {theirs.name}: they do not fit"
                )
        for note in self.notes():
            log.warning("%s", note)

    def notes(self) -> list[str]:
        """Warnings about these drafters, one sentence each, without a full stop."""
        found = []
        for drafter in {id(d): d for d in (self.first, self.second) if d is not None}.values():
            name = drafter.config.name_or_path
            if drafter is self.first and drafter.form.second_role and self.second is not drafter:
                found.append(f"drafter {name} was trained as a second drafter; give it as --second-drafter")
            if warning := late_taps(drafter.target_layer_ids, self.target.config.num_hidden_layers):
                found.append(f"drafter {name} {warning}")
        return found

    def names(self) -> dict[str, str | None]:
        return {
            "preset": self.name,
            "target": self.target.name,
            "first_drafter": self.first.config.name_or_path if self.first else None,
            "second_drafter": self.second.config.name_or_path if self.second else None,
            "draft_model": self.draft_model.name if self.draft_model else None,
            "eagle3": self.eagle3.config.name_or_path if self.eagle3 else None,
        }


def check_fit(target: Target, drafter: DFlashDraftModel) -> None:
    """Raise ``InputError`` if this drafter was made for another target."""
    name, c, t = drafter.config.name_or_path, drafter.config, target.config
    if c.hidden_size != t.hidden_size:
        raise InputError(f"drafter {name} has hidden size {c.hidden_size}, the target {t.hidden_size}: they do not fit")
    if max(drafter.target_layer_ids) >= t.num_hidden_layers:
        raise InputError(
            f"drafter {name} reads target layer {max(drafter.target_layer_ids)}, but the target has "
            f"{t.num_hidden_layers} layers (0 to {t.num_hidden_layers - 1}): they do not fit"
        )
    if c.vocab_size != t.vocab_size or not 0 <= drafter.mask_token_id < t.vocab_size:
        raise InputError(
            f"drafter {name} was made for a vocabulary of {c.vocab_size} tokens (mask token {drafter.mask_token_id}), "
            f"but the target has {t.vocab_size} tokens: they do not fit"
        )


def late_taps(taps: Sequence[int], layers: int) -> str | None:
    """Returns a warning if a drafter reads later target layers than published drafters do, else None."""
    last, latest = max(taps), max(layers - 3, 1)  # for very small targets, layer 1
    if last <= latest:
        return None
    return (
        f"reads the output of target layer {last}; published drafters read no layer after {latest}, and other engines apply the "
        "final norm to the last layer's output, so this drafter may perform worse in those engines (docs/drafter-format.md)"
    )


def check_eagle3(target: Target, drafter: Eagle3DraftModel) -> None:
    """Raise ``InputError`` if this drafter was made for another target."""
    c, t = drafter.config, target.config
    fits = (c.target_hidden_size, c.layer.vocab_size) == (t.hidden_size, t.vocab_size)
    if not fits or max(c.target_layer_ids) >= t.num_hidden_layers:
        raise InputError(
            f"drafter {c.name_or_path} was made for a target with hidden size {c.target_hidden_size}, {c.layer.vocab_size} tokens "
            f"and layers up to {max(c.target_layer_ids)}; this target has hidden size {t.hidden_size}, {t.vocab_size} tokens and "
            f"layers up to {t.num_hidden_layers - 1}: they do not fit"
        )


def check_confidence(confidence: Iterable[float], drafter: str, target: Target) -> None:
    """Raise ``InputError`` if a drafter's probabilities, already on the host, are NaN. The message names the model at fault.

    The drafter reads the target's features. The target is at fault if these features or its weights are not finite.
    """
    if any(c != c for c in confidence):
        sound = all(map(_is_finite, itertools.chain(target.taps.outputs(), target.model.parameters())))
        raise not_finite(f"the drafter {drafter}" if sound else f"the target {target.name}")


def not_finite(net: str) -> InputError:
    return InputError(
        f"{net} computed NaN or infinity; its weights are damaged or its values overflow their dtype: "
        "choose other models, or another dtype such as float32 or bfloat16"
    )


def _is_finite(tensor: Tensor) -> bool:
    return tensor.is_meta or not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
