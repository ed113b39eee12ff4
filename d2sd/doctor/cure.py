"""The cure of a drafter: the change that helps most, further changes on top, and whether they explain its acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from d2sd.doctor.probes import Tried, Walked, alpha
from d2sd.doctor.shapes import LOW, positions, shape

MOST = 2  # changes that are made one after the other
LITTLE = 0.3  # share accepted at position 1 of a drafter that was trained a little
TIMES = 2.0  # accepted tokens of such a one, over those before the cure
EXPLAINS = 0.1  # gain of α that a soft change of a drafter must have which was not low before


@dataclass(frozen=True, slots=True)
class Cure:
    """A sequence of changes, each the one that helps most after those before it.

    steps: the changes and their results.
    before: the drafter as given, over the texts.
    clean: whether no further change helps.
    block: γ with all changes.
    visible: number of tokens after the anchor that the drafter is given.
    """

    steps: tuple[Tried, ...]
    before: tuple[Walked, ...]
    clean: bool
    block: int
    visible: int = 0

    @property
    def after(self) -> tuple[Walked, ...]:
        """The texts with all changes."""
        return self.steps[-1].walks

    @property
    def proved(self) -> bool:
        """Returns whether these changes restore a working drafter's acceptance, so that they are the cause.

        Either position 1 is accepted as with a trained drafter, and acceptance decays smoothly; or it is accepted as with a
        drafter after little training, and several times as many tokens are accepted as before. Changes that often help a
        drafter with another fault must also raise α by a good share, and leave no further change that helps.
        """
        gain = alpha(self.after) / alpha(self.before)
        times = (alpha(self.after) - 1) / max(alpha(self.before) - 1, 1e-3)
        first, kind = level(self.after, self.block, self.visible)
        back = (first >= LOW and kind == "smooth") or (first >= LITTLE and times >= TIMES)
        if not any(step.variant.soft for step in self.steps):
            return back
        return back and gain >= 1 + EXPLAINS and (self.clean or times >= 2 * TIMES)


def level(walks: Sequence[Walked], block: int, visible: int) -> tuple[float, str]:
    """Returns the accepted share at position 1, and the shape of acceptance by position."""
    found = positions(walks, block - 1)[visible:]
    return (found[0].share if found else 0.0), shape(found)[0]
