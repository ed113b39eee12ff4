"""A drafter under examination, of either kind: how it is re-run, and which variants are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from d2sd.config import DecodeConfig
from d2sd.doctor.changes import Variant, eagle3_variants, variants
from d2sd.doctor.redraft import ChainRedrafter, Redrafter
from d2sd.doctor.texts import Text
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

GUESSES = DecodeConfig("eagle3").draft_depth + 1  # of an EAGLE-3 chain: as deep as its trees are by default


class Redrafting(Protocol):
    """Something that drafts greedily after any token of a text."""

    visible: int

    def accepted(self, text: Text, anchors: Sequence[int]) -> list[int]:
        """Returns how many drafted tokens after each anchor the text continues with."""


Draft = Callable[[Any], Redrafting]


@dataclass(frozen=True, slots=True)
class Subject:
    """The drafter under examination.

    target: the target whose texts are drafted.
    visible: number of tokens after the anchor that a block drafter is given.
    """

    target: Target
    visible: int = 0

    def draft(self, model: Any) -> Redrafting:
        """Draft with the drafter, or a variant of it, over texts."""
        if isinstance(model, DFlashDraftModel):
            return Redrafter(self.target, model, self.visible)
        return ChainRedrafter(self.target, model, GUESSES)

    def variants(self, model: Any, longest: int, whole: bool) -> list[Variant]:
        """Returns all variants but mask tokens; see ``d2sd.doctor.changes``."""
        if isinstance(model, DFlashDraftModel):
            return variants(model, self.target, longest, whole)
        return eagle3_variants(model, self.target)

    def block(self, model: Any) -> int:
        """Returns γ: the anchor and the tokens drafted per step."""
        return model.form.block_size if isinstance(model, DFlashDraftModel) else GUESSES + 1


def taps_of(model: Any) -> tuple[int, ...]:
    """Returns the target layers that it reads."""
    return tuple(model.target_layer_ids)


def taps_wanted(variant: Variant) -> tuple[int, ...]:
    """Returns the target layers that a variant reads."""
    form: Any = variant.form
    return tuple(form.taps if hasattr(form, "taps") else form.target_layer_ids)
