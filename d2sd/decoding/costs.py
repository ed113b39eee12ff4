"""What the stages of a step cost on a machine: a table of measured or stated times, and its correction while running.

Speculation is worth its time as in D²SD, arXiv 2606.04446, equations 1–2: speedup = α · T_target / (T_draft +
T_verify). Here every T is a curve over the rows that a pass works on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import exp, inf, isfinite, log
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from d2sd.errors import InputError

STAGES = ("first_draft", "second_draft", "verify")
SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 48, 64)  # tree nodes whose time is measured
PLAIN = "plain"  # a pass of the target over one row
MAX_FILE_BYTES, MAX_POINTS, MAX_ROWS = 1 << 16, 64, 1 << 16
MAX_MILLISECONDS = 1e6
MAX_NODES = 4096
# tree nodes that a step chooses from: those whose time is known, beyond them by 16
CHOICES = (*SIZES, *range(80, MAX_NODES + 1, 16))
FOLLOW = 0.05  # share of a surprise in measured times that is believed at once
LEAST_OWN = 0.01  # the same of what is learnt about one stage, in the long run
MOST = 1.0  # natural logarithm: a single time counts as at most so many times off
FORGET = 0.999  # of what was learnt about one stage, a step

FORM = (
    '{"machine": "what it is", "milliseconds": {"verify": [[nodes, ms], …], "first_draft": [[rows, ms], …], '
    '"second_draft": [[rows, ms], …], "other": ms}}'
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over rows, as points with ascending rows and times that never fall; lines between and after them."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> Curve:
        """The curve through measured points; where times fall as rows grow, the mean of these (isotonic regression)."""
        blocks: list[tuple[list[int], float]] = []  # rows that share a time
        for count, seconds in sorted(points):
            rows, time = [count], seconds
            while blocks and blocks[-1][1] > time:
                earlier, before = blocks.pop()
                time = (len(earlier) * before + len(rows) * time) / (len(earlier) + len(rows))
                rows = [*earlier, *rows]
            blocks.append((rows, time))
        return cls(tuple((count, time) for rows, time in blocks for count in rows))

    @classmethod
    def fitted(cls, points: Sequence[tuple[int, float]], knots: Sequence[int]) -> Curve:
        """The curve with corners at these rows only that is nearest to measured points (least squares): what one more row
        costs is a small difference of times, so it is taken from many of them."""
        rows, times = np.array(sorted(points), dtype=float).T
        hats = np.stack([np.interp(rows, knots, np.eye(len(knots))[k]) for k in range(len(knots))], axis=1)
        return cls.through(list(zip(knots, np.linalg.lstsq(hats, times, rcond=None)[0].tolist(), strict=True)))

    def seconds(self, rows: float) -> float:
        """Time of a pass over so many rows; fewer than the first point has cost what that one does."""
        points = self.points
        if rows <= points[0][0] or len(points) == 1:
            return points[0][1]
        at = min(bisect_left(points, (rows, 0.0)), len(points) - 1)
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class CostTable:
    """Seconds of a step's stages.

    first_draft, second_draft: over the rows of the pass (blocks × positions, the given ones included; tokens of a
    chain for a draft model); verify: over tree nodes, the anchor included; other: what else every step takes.
    """

    first_draft: Curve
    second_draft: Curve
    verify: Curve
    other: float = 0.0
    machine: str = "this machine"

    def curve(self, stage: str) -> Curve:
        """The curve of a stage of ``STAGES``."""
        curve: Curve = getattr(self, stage)
        return curve

    def plain(self) -> float:
        """Seconds of a step of plain decoding."""
        return self.verify.seconds(1) + self.other

    def to_dict(self) -> dict[str, Any]:
        """In the form of a file."""
        stages = {s: [[rows, round(1e3 * t, 4)] for rows, t in self.curve(s).points] for s in STAGES}
        return {"machine": self.machine, "milliseconds": {**stages, "other": round(1e3 * self.other, 4)}}


def read_costs(path: str) -> CostTable:
    """A table from a JSON file of the form ``FORM``; raises ``InputError`` where it is not one."""
    try:
        with Path(path).open("rb") as f:
            raw = f.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the cost file {path}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"the cost file {path} is larger than 64 KiB")
    try:
        given = orjson.loads(raw)
        times = given["milliseconds"]
        machine = given["machine"]
        if not isinstance(machine, str) or not 1 <= len(machine) <= 200:
            raise InputError("machine must be a text of at most 200 characters")
        unknown = set(times) - {*STAGES, "other"}
        if unknown:
            raise InputError(f"milliseconds has {', '.join(sorted(unknown))}, which is none of its stages")
        curves = {stage: _curve(stage, times[stage]) for stage in STAGES}
        return CostTable(**curves, other=_seconds(times.get("other", 0.0)), machine=machine)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, InputError) as error:
        reason = str(error) if isinstance(error, InputError) else "it is not JSON of this form"
        raise InputError(f"cannot read the cost file {path}: {reason}. Its form: {FORM}") from None


def _curve(stage: str, points: Any) -> Curve:
    if not isinstance(points, list) or not 1 <= len(points) <= MAX_POINTS:
        raise InputError(f"{stage} must be a list of 1 to {MAX_POINTS} points")
    read = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2 or type(point[0]) is not int:
            raise InputError(f"{stage} must hold pairs of a whole number and milliseconds")
        read.append((point[0], _seconds(point[1])))
    rows = [p[0] for p in read]
    if not 1 <= rows[0] <= rows[-1] <= MAX_ROWS or any(b <= a for a, b in pairwise(rows)):
        raise InputError(f"the rows of {stage} must ascend, between 1 and {MAX_ROWS}")
    if any(b[1] < a[1] for a, b in pairwise(read)):
        raise InputError(f"the times of {stage} must not fall as rows grow")
    if stage == "verify" and not read[0][1]:
        raise InputError("verifying must take time")
    return Curve(tuple(read))


def _seconds(milliseconds: Any) -> float:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not isfinite(milliseconds):
        raise InputError("a time must be a number of milliseconds")
    if not 0 <= milliseconds <= MAX_MILLISECONDS:
        raise InputError(f"a time must be between 0 and {MAX_MILLISECONDS:.0f} milliseconds")
    return milliseconds / 1e3


@lru_cache(maxsize=16)
def _by_nodes(table: CostTable) -> list[float]:
    """Times of passes over 0, 1, 2, … nodes by a table."""
    return [table.verify.seconds(n) for n in range(MAX_NODES + 2)]


@lru_cache(maxsize=16)
def _joining(table: CostTable) -> list[float]:
    """By the nodes of a tree, the logarithm of the least seconds that one more takes on average, however many more come with
    it: slopes of the lower convex hull of what comes after. Minus infinity where the number is none of ``CHOICES``: a tree
    grows on to the next one."""
    times, hull, chosen = _by_nodes(table), [MAX_NODES + 1], frozenset(CHOICES)

    def slope(a: int, b: int) -> float:
        return (times[b] - times[a]) / (b - a)

    found = [-inf]
    for nodes in range(MAX_NODES, -1, -1):
        while len(hull) > 1 and slope(nodes, hull[-1]) >= slope(hull[-1], hull[-2]):
            hull.pop()
        least = slope(nodes, hull[-1])
        found.append(log(least) if least > 0 and nodes in chosen else -inf)
        hull.append(nodes)
    return found[::-1]


def _kind(stage: str, rows: float) -> str:
    return PLAIN if stage == "verify" and rows == 1 else stage


class RunningCosts:
    """A cost table corrected by the times of a run.

    Two factors are learnt: one that all stages share, since a machine that slows down slows everything down, and one
    of each stage, where the pass of plain decoding counts as a stage of its own. ``other`` is learnt on its own, apart
    for plain and for drafting steps.
    """

    def __init__(self, table: CostTable):
        self.table = table
        self.by_nodes = _by_nodes(table)
        self.joining = _joining(table)
        self._common = 0.0
        self._own = dict.fromkeys((*STAGES, PLAIN), 0.0)
        self._by_rows: dict[tuple[str, float], float] = {}  # what was read off the table
        self._rates = dict.fromkeys(self._own, FOLLOW)  # of surprises, which each stage learns more and more slowly
        self._other = {True: table.other, False: table.other}

    def seconds(self, stage: str, rows: float) -> float:
        """Expected time of a stage with so many rows; 0 without any."""
        if rows <= 0:
            return 0.0
        seconds = self._by_rows.get((stage, rows))
        if seconds is None:
            seconds = self._by_rows[stage, rows] = self.table.curve(stage).seconds(rows)
        return seconds * exp(self._common + self._own[_kind(stage, rows)])

    @property
    def slowdown(self) -> float:
        """What the table's times of all stages are multiplied by at present. What a stage takes besides is its overhead in a
        run, such as cold caches, and does not grow with its rows."""
        return exp(self._common)

    def other(self, plain: bool) -> float:
        """Expected time of a step besides its stages."""
        return self._other[plain]

    def plain(self) -> float:
        """Expected time of a plain step."""
        return self.seconds("verify", 1) + self._other[True]

    def observe(self, stage: str, rows: float, seconds: float) -> None:
        """A stage with so many rows took so long."""
        expected = self.seconds(stage, rows)
        if expected <= 0 or seconds <= 0:
            return
        surprise = max(-MOST, min(MOST, log(seconds / expected)))
        self._common += FOLLOW * surprise
        kind = _kind(stage, rows)
        rate = self._rates[kind] = max(LEAST_OWN, 0.97 * self._rates[kind])
        self._own[kind] = FORGET * self._own[kind] + rate * surprise

    def observe_other(self, plain: bool, seconds: float) -> None:
        """A step took so long besides its stages."""
        most = 2 * self._other[plain] + 0.1 * self.plain()
        self._other[plain] += FOLLOW * (max(0.0, min(seconds, most)) - self._other[plain])
