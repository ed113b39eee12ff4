"""The set of models that a generation uses, with checks that they fit together and that their outputs are finite."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from d2sd.errors import InputError, require
from d2sd.nets.config_checks import is_finite
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import Form
from d2sd.nets.target import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """A target with drafters that fit it. Methods whose drafter is missing cannot run.

    name: name of the set.
    first: DFlash drafter.
    second: second drafter: a VP-Drafter, or the same drafter as ``first``.
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
        for drafter in self.drafters.values():
            if wrong := misfit(drafter.form, self.target.config):
                raise InputError(f"drafter {drafter.config.name_or_path}: {wrong}")
            self.target.taps.add(drafter.target_layer_ids)
        if self.draft_model is not None:
            ours, targets = (
                (net.config.vocab_size, net.tokenizer.get_vocab()) for net in (self.draft_model, self.target)
            )
            require(
                ours == targets,
                f"draft model {self.draft_model.name} has a different vocabulary from the target {self.target.name}: "
                "they do not fit",
            )
        for note in self.notes():
            log.warning("%s", note)

    def notes(self) -> list[str]:
        """Returns warnings about the drafters, one sentence each, without a full stop."""
        notes = []
        for drafter in self.drafters.values():
            name = drafter.config.name_or_path
            if drafter is self.first and self.first.form.second_role and self.second is not drafter:
                notes.append(f"drafter {name} was trained as a second drafter; give it as --second-drafter")
            if warning := late_taps(drafter.target_layer_ids, self.target.config.num_hidden_layers):
                notes.append(f"drafter {name} {warning}")
        return list(dict.fromkeys(notes))

    @property
    def drafters(self) -> dict[str, DFlashDraftModel | Eagle3DraftModel]:
        """The block drafters and the EAGLE-3 drafter, by their names in ``names``."""
        drafters = {"first_drafter": self.first, "second_drafter": self.second, "eagle3": self.eagle3}
        return {name: drafter for name, drafter in drafters.items() if drafter is not None}

    def names(self) -> dict[str, str | None]:
        names = {part: drafter.config.name_or_path for part, drafter in self.drafters.items()}
        missing = dict.fromkeys(("first_drafter", "second_drafter", "draft_model", "eagle3"))
        draft_model = self.draft_model and self.draft_model.name
        return {"preset": self.name, "target": self.target.name, **missing, **names, "draft_model": draft_model}


def misfit(form: Form, target: Any) -> str | None:
    """Returns why a drafter does not fit a target, as a clause; None if it fits.

    target: the target's text config.
    """
    last, layers = max(form.taps), target.num_hidden_layers
    reasons = {
        f"it reads features of width {form.width}, but the target's hidden size is {target.hidden_size}": form.width != target.hidden_size,
        f"it was made for a vocabulary of {form.vocabulary} tokens, but the target has {target.vocab_size}": form.vocabulary != target.vocab_size,
        f"its draft_vocab_size is {form.drafted}, but the target has only {target.vocab_size} tokens": form.drafted > target.vocab_size,
        f"it reads the output of target layer {last}, but the target has {layers} layers (0 to {layers - 1})": last >= layers,
    }  # fmt: skip
    return next((f"{why}: they do not fit" for why, true in reasons.items() if true), None)


def late_taps(taps: Sequence[int], layers: int) -> str | None:
    """Returns a warning if a drafter reads later target layers than published drafters do; None otherwise.

    taps: the target layers that the drafter reads.
    layers: number of layers of the target.
    """
    last, latest = max(taps), max(layers - 3, 1)  # for very small targets, layer 1
    if last <= latest:
        return None
    return (
        f"reads the output of target layer {last}; published drafters read no layer after {latest}, and other engines apply the "
        "final norm to the last layer's output, so this drafter may perform worse in those engines (docs/drafter-format.md)"
    )


def check_confidence(confidence: Iterable[float], drafter: str, target: Target) -> None:
    """Raises ``InputError`` if a drafter's probabilities are NaN. The message names the model at fault.

    The drafter reads the target's features. If these features or the target's weights are not finite, the target is at fault.

    confidence: the probabilities, on the host.
    """
    if any(c != c for c in confidence):
        sound = all(map(is_finite, [*target.taps.outputs(), *target.model.parameters()]))
        raise not_finite(f"the drafter {drafter}" if sound else f"the target {target.name}")


def not_finite(net: str) -> InputError:
    return InputError(
        f"{net} computed NaN or infinity; its weights are damaged or its values overflow their dtype: "
        "choose other models, or another dtype such as float32 or bfloat16"
    )
