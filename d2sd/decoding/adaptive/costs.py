"""What the stages of a step cost: a table of measured or stated times, and its correction while running.

As in D²SD, arXiv 2606.04446, equations 1–2: speedup = α · T_target / (T_draft + T_verify). Every T is a curve over rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import exp, log
from typing import Any

import numpy as np

STAGES = ("first_draft", "second_draft", "verify")
MACHINE_RATE, STAGE_RATE = 0.05, 0.01  # share of a surprising time that is believed: of the machine, of the stage alone
OUTLIER, KEPT = 1.0, 0.999  # most that a single time counts, as a logarithm; what is left of an overhead after a step


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over rows, as points with ascending rows and times that never fall; lines between and after them."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> Curve:
        """The curve through measured points; more rows take at least as long as fewer."""
        rows, times = zip(*sorted(points), strict=True)
        return cls(tuple(zip(rows, accumulate(times, max), strict=True)))

    @classmethod
    def fitted(cls, points: Sequence[tuple[int, float]], knots: Sequence[int]) -> Curve:
        """The curve with corners at these rows that is nearest to measured points (least squares)."""
        rows, times = np.array(points, dtype=float).T
        hats = np.stack([np.interp(rows, knots, corner) for corner in np.eye(len(knots))], axis=1)
        return cls.through(list(zip(knots, np.linalg.lstsq(hats, times, rcond=None)[0].tolist(), strict=True)))

    def seconds(self, rows: float) -> float:
        """Time of a pass over so many rows; fewer than the first point has cost what that one does."""
        points = self.points
        if rows <= points[0][0] or len(points) == 1:
            return points[0][1]
        at = min(bisect_left(points, (rows, 0.0)), len(points) - 1)
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)

    def next_row(self, rows: int) -> float:
        """Seconds of one more row, as a mean over as many more as make it cheapest."""
        ends = [*(end for end, _ in self.points if end > rows), max(rows, self.points[-1][0]) + 1]
        return min((self.seconds(end) - self.seconds(rows)) / (end - rows) for end in ends)


@dataclass(frozen=True, slots=True)
class CostTable:
    """Seconds of a step's stages.

    first_draft, second_draft: over blocks × positions, the given ones included (a draft model: over γ).
    verify: over tree nodes, the anchor included.
    other: what else every step takes.
    """

    first_draft: Curve
    second_draft: Curve
    verify: Curve
    other: float = 0.0
    machine: str = "this machine"

    def plain(self) -> float:
        """Seconds of a step of plain decoding."""
        return self.verify.seconds(1) + self.other

    def to_dict(self) -> dict[str, Any]:
        """In the form of a file."""
        stages = {s: [[rows, round(1e3 * t, 4)] for rows, t in getattr(self, s).points] for s in STAGES}
        return {"machine": self.machine, "milliseconds": {**stages, "other": round(1e3 * self.other, 4)}}


class RunningCosts:
    """A cost table corrected by the times of a run: seconds = slowdown · (table + overhead of the stage).

    A machine that slows down slows every stage. Overheads do not grow with rows; plain decoding's pass has its own.
    """

    def __init__(self, table: CostTable):
        self.table, self.slowdown = table, 1.0
        self._node = cache(table.verify.next_row)
        self.cheapest = min(self._node(rows) for rows, _ in table.verify.points)  # of any further node
        self._read = cache(lambda stage, rows: getattr(table, stage).seconds(rows))
        self._overhead: dict[tuple[str, bool], float] = {}  # by stage and whether it is plain decoding's
        self.other = {True: table.other, False: table.other}  # of a step besides its stages, by whether it is plain

    def seconds(self, stage: str, rows: int) -> float:
        """Expected time of a stage with so many rows; 0 without any."""
        if rows <= 0:
            return 0.0
        return self.slowdown * (self._read(stage, rows) + self._overhead.get((stage, rows == 1), 0.0))

    def node(self, nodes: int) -> float:
        """What one more tree node than so many takes."""
        return self.slowdown * self._node(nodes)

    def plain(self) -> float:
        """Expected time of a plain step."""
        return self.seconds("verify", 1) + self.other[True]

    def observe(self, stage: str, rows: int, seconds: float) -> None:
        """A stage with so many rows took so long."""
        expected, key = self.seconds(stage, rows), (stage, rows == 1)
        if min(expected, seconds) > 0:
            surprise = max(-OUTLIER, min(OUTLIER, log(seconds / expected)))
            overhead = KEPT * self._overhead.get(key, 0.0)
            self._overhead[key] = overhead + STAGE_RATE * surprise * expected / self.slowdown
            self.slowdown *= exp(MACHINE_RATE * surprise)

    def observe_other(self, plain: bool, seconds: float) -> None:
        """A step took so long besides its stages."""
        most = 2 * self.other[plain] + 0.1 * self.plain()
        self.other[plain] += MACHINE_RATE * (max(0.0, min(seconds, most)) - self.other[plain])
