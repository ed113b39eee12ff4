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
    """``id`` names what is lit on the page; ``say``: sentences; ``numbers``: (name, value) of this step; ``walk``: what is
    walked through; ``odds``: what can be drawn from; ``verified``: the pass whose cost is
    drawn; ``asked``: (question, answer) of what people go on to ask."""

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
    """One step as a tour; ``by_branches[k]``: (tokens, nodes) that the first k re-drafts alone would have brought."""

    stops: tuple[Stop, ...]
    by_branches: tuple[tuple[int, int], ...]
