"""A machine: seconds of the passes of a step, as curves over their rows.

As in D²SD, arXiv 2606.04446, equations 1–2: speedup = α · T_target / (T_draft + T_verify). Every T is a curve over rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from d2sd.costs.work import Work
from d2sd.errors import InputError

STAGES = ("first_draft", "second_draft", "verify")
Kind = Literal["measured", "published", "calculated"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over rows, as points with ascending rows and times that never fall; lines between and after them."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> Curve:
        """Returns the curve through measured points, made non-decreasing in the number of rows."""
        rows, times = zip(*sorted(points), strict=True)
        return cls(tuple(zip(rows, accumulate(times, max), strict=True)))

    @classmethod
    def fitted(cls, points: Sequence[tuple[int, float]], knots: Sequence[int]) -> Curve:
        """Returns the least-squares curve with corners at these rows."""
        rows, times = np.array(points, dtype=float).T
        hats = np.stack([np.interp(rows, knots, corner) for corner in np.eye(len(knots))], axis=1)
        return cls.through(list(zip(knots, np.linalg.lstsq(hats, times, rcond=None)[0].tolist(), strict=True)))

    def seconds(self, rows: float) -> float:
        """Returns the seconds of a pass over this many rows; constant below the first point."""
        points = self.points
        if rows <= points[0][0] or len(points) == 1:
            return points[0][1]
        at = min(bisect_left(points, (rows, 0.0)), len(points) - 1)
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)

    def next_row(self, rows: int) -> float:
        """Returns the seconds of one more row: the smallest mean over several further rows."""
        ends = [*(end for end, _ in self.points if end > rows), max(rows, self.points[-1][0]) + 1]
        return min((self.seconds(end) - self.seconds(rows)) / (end - rows) for end in ends)


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds of a step's passes on some hardware with some pair of models.

    first_draft: over the rows of a block drafter's pass, the anchor's included.
    second_draft: over the rows of a re-drafting pass: blocks × positions, the given ones included.
    verify: over tree nodes, the anchor included.
    other: all other time of a step.
    name: its name.
    source: a sentence about the source of the times.
    kind: how the times were obtained.
    relative: whether only ratios of its times are meaningful; ``verify`` at one row is the unit.
    drafts: by method, the curve that replaces ``first_draft`` for drafters with sequential passes (all passes together; EAGLE-3
        over depth + 2, a draft model over γ); None if unknown.
    """

    first_draft: Curve
    second_draft: Curve
    verify: Curve
    other: float = 0.0
    name: str = "this machine"
    source: str = ""
    kind: Kind = "measured"
    relative: bool = False
    drafts: Mapping[str, Curve | None] = field(default_factory=dict, hash=False)

    def plain(self) -> float:
        """Seconds of a plain decoding step."""
        return self.verify.seconds(1) + self.other

    def seconds(self, method: str, work: Work) -> float | None:
        """Returns the seconds of a step of this method with this work; None if the drafter's time is unknown."""
        first = self.drafts.get(method, self.first_draft)
        if work.first and first is None:
            return None
        drafted = first.seconds(work.first) if first is not None and work.first else 0.0
        return drafted + sum(map(self.second_draft.seconds, work.again)) + self.verify.seconds(work.nodes) + self.other

    def of(self, method: str) -> Machine:
        """Returns the machine with this method's own drafter as the first one. Raises ``InputError`` if its time is unknown."""
        first = self.drafts.get(method, self.first_draft)
        if first is None:
            raise InputError(f"what a draft of {method} takes is not known of “{self.name}”; choose another machine")
        return replace(self, first_draft=first, drafts={})

    def absolute(self, plain: float) -> Machine:
        """Returns the machine scaled to this many seconds per plain step, which its name then states."""
        scale = plain / self.plain()

        def scaled(curve: Curve) -> Curve:
            return Curve(tuple((rows, scale * seconds) for rows, seconds in curve.points))

        return replace(
            self,
            first_draft=scaled(self.first_draft),
            second_draft=scaled(self.second_draft),
            verify=scaled(self.verify),
            other=scale * self.other,
            name=f"{self.name}, a plain step taken as {1e3 * plain:g} ms",
            relative=False,
            drafts={method: curve and scaled(curve) for method, curve in self.drafts.items()},
        )

    def plain_steps(self, method: str, works: Sequence[Work]) -> float | None:
        """Returns the total cost of these steps, in plain decoding steps. Per step, this is the α that breaks even."""
        times = [self.seconds(method, work) for work in works]
        return None if None in times else sum(t for t in times if t is not None) / self.plain()

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON: its name, and milliseconds of every stage by rows."""
        stages = {s: [[rows, round(1e3 * t, 4)] for rows, t in getattr(self, s).points] for s in STAGES}
        return {"machine": self.name, "milliseconds": {**stages, "other": round(1e3 * self.other, 4)}}
