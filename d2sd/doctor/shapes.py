"""Acceptance by position, and its classification into three known shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from d2sd.calibration.replays import reached
from d2sd.calibration.resampling import wilson
from d2sd.doctor.probes import Walked

Shape = Literal["low", "cliff", "smooth", "unclear"]
LOW = 0.6  # share accepted at position 1 that trained drafters are usually above
FEWEST = 20  # steps that a position needs to count
FALL = 0.6  # of the share before it: what a position after a cliff is below
STRICT = 3.0  # standard deviations, since every position is looked at
SAID = {
    "low": "Position 1 is already low, as with wrong taps, a wrong mask token, another template or too little training.",
    "cliff": "Acceptance drops at one position, as with a wrong γ, window or positions.",
    "smooth": "Acceptance decays smoothly, without a low start or a cliff, as in a drafter that works as it was trained.",
    "unclear": "Too few steps to tell the shape.",
}


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a draft.

    number: from 1.
    steps: number of steps that accepted all earlier tokens.
    accepted: number of these steps that also accept this one.
    """

    number: int
    steps: int
    accepted: int

    @property
    def share(self) -> float:
        """Accepted share of the steps that reached it."""
        return self.accepted / self.steps


def positions(walks: Sequence[Walked], most: int) -> list[Position]:
    """Returns acceptance for up to ``most`` drafted tokens; the last step of a text is left out, since the text ends there."""
    counts = reached([count for w in walks for count in w.accepted[:-1]])
    return [Position(number, *count) for number, count in enumerate(counts[:most], 1)]


def shape(found: Sequence[Position]) -> tuple[Shape, int | None]:
    """Returns the shape, and the position of a cliff: a significant drop after a good position 1."""
    known = [p for p in found if p.steps >= FEWEST]
    if not known:
        return "unclear", None
    if wilson(known[0].share, known[0].steps)[0] < LOW and known[0].share < LOW:
        return "low", None
    for before, after in pairwise(known):
        high = wilson(after.share, after.steps, STRICT)[1]
        if high < FALL * before.share:
            return "cliff", after.number
    return "smooth", None
