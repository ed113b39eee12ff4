"""The stops of the tour: titles, texts and figures."""

from __future__ import annotations

from dataclasses import dataclass

from app.verification import Odd, Visit
from app.wording import Pieces


@dataclass(frozen=True, slots=True)
class Verified:
    """A step's target pass for the chart of what passes cost: its nodes, its seconds and those of a step of plain decoding where
    it was recorded (None: not timed)."""

    nodes: int
    seconds: float
    plain: float | None


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the tour.

    id: the part of the page that is highlighted.
    say: sentences.
    numbers: (name, value) pairs of this step.
    walk: the nodes of an animated walk.
    odds: the tokens of a sampling demonstration.
    verified: the pass whose cost is drawn.
    asked: frequent questions as (question, answer) pairs."""

    id: str
    title: str
    say: tuple[str, ...]
    equation: Pieces
    numbers: tuple[tuple[str, str], ...]
    walk: tuple[Visit, ...] = ()
    odds: tuple[Odd, ...] = ()
    verified: Verified | None = None
    asked: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """One step as a tour; ``by_branches[k]``: (tokens, nodes) of the step with only its first k re-drafts."""

    stops: tuple[Stop, ...]
    by_branches: tuple[tuple[int, int], ...]
