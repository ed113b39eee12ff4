"""Machines: how long the passes of a step take, as functions of the numbers of rows of the passes.

From D²SD, arXiv 2606.04446, equations 1–2: speedup = α · T_target / (T_draft + T_verify). Here, every T depends on the number of
rows. A "plain step" is a step of plain decoding, without a draft.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np

from d2sd.errors import InputError, require
from d2sd.trace.metrics import DraftCosts, Work

STAGES = ("first_draft", "second_draft", "verify")
CHAINLESS = ("autoregressive", "eagle3")  # methods without a first draft, or whose first draft is not a chain


@dataclass(frozen=True, slots=True)
class Curve:
    """The time of a pass as a function of its number of rows. It is linear between points.

    points: pairs (rows, seconds) with ascending rows and non-decreasing seconds.
    """

    points: tuple[tuple[int, float], ...]

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> Curve:
        """Returns the curve through measured points.

        A disturbance can only lengthen a pass. If a point took longer than a point with more rows, it therefore gets the shorter time.
        """
        rows, times = zip(*sorted(points), strict=True)
        return cls(tuple(zip(rows, [*accumulate(reversed(times), min)][::-1], strict=True)))

    @classmethod
    def fitted(cls, points: Sequence[tuple[int, float]], knots: Sequence[int]) -> Curve:
        """Returns the least-squares fit of a curve with corners at ``knots`` (numbers of rows) to measured points."""
        rows, times = np.array(points, dtype=float).T
        hats = np.stack([np.interp(rows, knots, corner) for corner in np.eye(len(knots))], axis=1)
        return cls.through(list(zip(knots, np.linalg.lstsq(hats, times, rcond=None)[0].tolist(), strict=True)))

    def seconds(self, rows: float) -> float:
        """Returns the seconds of a pass with ``rows`` rows. The curve is constant before its first point, and linear after its last one."""
        points = self.points
        if rows <= points[0][0] or len(points) == 1:
            return points[0][1]
        index = min(bisect_left(points, (rows, 0.0)), len(points) - 1)
        (x0, y0), (x1, y1) = points[index - 1], points[index]
        return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)

    def next_row(self, rows: int) -> float:
        """Returns how many seconds a row in addition to ``rows`` rows takes, if enough rows are added.

        This is the smallest mean slope of the curve from ``rows`` to one of its later points.
        """
        ends = [*(end for end, _ in self.points if end > rows), max(rows, self.points[-1][0]) + 1]
        return min((self.seconds(end) - self.seconds(rows)) / (end - rows) for end in ends)


@dataclass(frozen=True, slots=True)
class StageCosts:
    """A machine: the times of the parts of a step, in seconds, with certain hardware and models.

    first_draft: time of a block drafter's pass by its number of rows, the anchor's row included.
    second_draft: time of a re-drafting pass by its number of rows: blocks × positions, anchors and prefixes included.
    verify: time of the target's pass by the number of tree nodes, the anchor included.
    other: time of everything else in a step.
    name: name of the machine in texts.
    source: a sentence that says where the times come from.
    published: published cost of a step as a multiple of a plain step's time, by method, at the settings of ``source``.
    drafts: curves that replace ``first_draft`` for drafters with sequential passes, by method; None for an unknown curve. A curve
        gives the total time of a draft's passes as a function of depth + 2 (EAGLE-3) or of γ (draft model).
    measured: date of the measurement, in ISO format; empty if unknown.
    context: number of tokens before the measured passes; None if unknown.
    """

    first_draft: Curve
    second_draft: Curve
    verify: Curve
    other: float = 0.0
    name: str = "this machine"
    source: str = "Measured on this machine."
    published: Mapping[str, float] = field(default_factory=dict, hash=False)
    drafts: Mapping[str, Curve | None] = field(default_factory=dict, hash=False)
    measured: str = ""
    context: int | None = None

    def plain(self) -> float:
        return self.verify.seconds(1) + self.other

    def seconds(self, method: str, work: Work) -> float | None:
        """Returns the seconds of a step with this method and this work; None if the machine's time for the method's drafter is unknown."""
        drafted = 0.0
        if work.first:
            if (first := self.drafts.get(method, self.first_draft)) is None:
                return None
            drafted = first.seconds(work.first)
        return drafted + sum(map(self.second_draft.seconds, work.again)) + self.verify.seconds(work.nodes) + self.other

    def of(self, method: str) -> StageCosts:
        """Returns the machine with the times of the method's drafter as ``first_draft``. Raises ``InputError`` if they are unknown."""
        first = self.drafts.get(method, self.first_draft)
        if first is None:
            raise InputError(f"the draft time of {method} on “{self.name}” is unknown; choose another machine")
        return replace(self, first_draft=first, drafts={})

    def draft_costs(self, method: str) -> DraftCosts | None:
        """Returns the costs of steps that verify only the first draft; None for the methods in ``CHAINLESS``.

        Raises ``InputError`` if the times of the method's drafter are unknown.
        """
        if method in CHAINLESS:
            return None
        machine = self.of(method)
        return DraftCosts(self.name, lambda rows, nodes: machine.seconds(method, Work(rows, (), nodes)) or 0.0)

    def plain_steps(self, method: str, works: Sequence[Work]) -> float | None:
        """Returns the total time of steps as a multiple of a plain step's time; None if it is unknown.

        Divided by the number of steps, this is the break-even α: with a larger α, the method is faster than plain decoding.
        """
        times = [self.seconds(method, work) for work in works]
        return None if None in times else sum(t for t in times if t is not None) / self.plain()

    def to_dict(self) -> dict[str, Any]:
        """Returns JSON-ready data: name, source, and the milliseconds of each stage as points (rows, milliseconds)."""
        stages = {s: [[rows, round(1e3 * t, 4)] for rows, t in getattr(self, s).points] for s in STAGES}
        return {
            "machine": self.name,
            "source": self.source,
            "milliseconds": {**stages, "other": round(1e3 * self.other, 4)},
        }


# Figures reported in the D²SD paper, and the machine derived from them.

SOURCE = "D²SD, arXiv 2606.04446: Qwen3-8B, temperature 0, γ = 16, K = 4, one H200"
COLUMNS = ("dflash", "eagle3", "d2sd", "dflash_resample", "dflash_twice", "d2sd_three_level")
# data set → (speedup over plain decoding, α) of each column; some data sets have only the first three columns
ROWS = {
    "GSM8K": ((5.51, 6.96), (4.14, 6.36), (6.54, 9.21), (6.18, 7.33), (5.76, 7.95), (6.25, 9.89)),
    "MATH": ((5.11, 6.55), (4.11, 6.44), (6.03, 8.56), (5.67, 6.82), (5.28, 7.35), (5.79, 9.27)),
    "AIME25": ((4.32, 5.49), (4.03, 6.33), (5.10, 7.26)),
    "HumanEval": ((4.39, 5.50), (3.85, 5.92), (5.37, 7.47)),
    "MBPP": ((4.07, 5.09), (3.92, 6.03), (5.03, 6.96), (4.66, 5.47), (4.36, 5.90), (4.85, 7.58)),
    "LiveCodeBench": ((3.88, 4.86), (3.70, 5.93), (4.62, 6.44)),
    "MT-Bench": ((3.23, 4.41), (3.35, 5.22), (3.80, 5.75), (3.74, 4.70), (3.35, 4.91), (3.63, 6.20)),
    "Alpaca": ((2.79, 3.59), (3.30, 5.09), (3.38, 4.74)),
    "average of 8": ((4.16, 5.31), (3.80, 5.91), (4.98, 7.05)),
}
FIGURES = {data: dict(zip(COLUMNS, row, strict=False)) for data, row in ROWS.items()}
GAMMA, BRANCHES = 16, 4


def cycle(method: str, data: str = "average of 8") -> float:
    """Returns the published time of a step as a multiple of a plain step's time: α ÷ speedup (paper, Eq. 1–2)."""
    speedup, alpha = FIGURES[data][method]
    return alpha / speedup


PLAIN_SECONDS = 0.02  # assumed time of a plain step, since the paper gives only ratios


def _paper() -> StageCosts:
    """Returns a machine on which a DFlash step and a D²SD step have their published costs.

    These two numbers do not determine all stage costs, so two assumptions are made. Both drafters take the same time, since they
    have the same shape. Verifying 80 rows takes as long as verifying 16, since passes on an H200 are memory-bound. On the resulting
    machine, the mean cost of a D²SD step with a third level is 4% below the published one.
    """
    published = {method: cycle(method) for method in ("dflash", "d2sd", "eagle3")}
    draft = published["d2sd"] - published["dflash"]
    verify = published["dflash"] - draft

    def curve(*points: tuple[int, float]) -> Curve:
        return Curve(tuple((rows, PLAIN_SECONDS * cost) for rows, cost in points))

    return StageCosts(
        first_draft=curve((1, draft)),
        second_draft=curve((1, draft)),
        verify=curve((1, 1.0), (GAMMA, verify), ((BRANCHES + 1) * GAMMA, verify)),
        name="H200 (D²SD paper)",
        source=f"{SOURCE}; mean over eight sets of prompts. A step costs α ÷ speedup one-token passes: {published['dflash']:.2f} "
        f"with DFlash, {published['d2sd']:.2f} with D²SD, {published['eagle3']:.2f} with EAGLE-3. All other costs are calculated from "
        f"these. A draft pass costs {draft:.2f}: the difference between these steps of D²SD and DFlash. Verifying 16 to 80 nodes costs "
        f"{verify:.2f}: the rest of DFlash’s step. Verifying one node costs 1; costs of 2 to 15 nodes are interpolated. Only ratios are "
        "published: times assume one-token passes of "
        f"{1e3 * PLAIN_SECONDS:g} ms.",
        published=published,
        drafts={"eagle3": curve((1, published["eagle3"] - verify)), "draft_model": None},
    )


PAPER = _paper()

# A machine whose stage times were measured with ``d2sd bench gpu`` (docs/gpu.md).


def _milliseconds(*points: tuple[int, float]) -> Curve:
    return Curve.through([(rows, time / 1e3) for rows, time in points])


# Measured after 1,024 tokens. ``other`` is the time for the tree, the commit and the host. A plain step takes the time of verifying
# one node, plus ``other``.
H200 = StageCosts(
    first_draft=_milliseconds((1, 2.26), (16, 2.27)),
    second_draft=_milliseconds((16, 1.65), (32, 1.72), (64, 1.86), (128, 2.29)),
    verify=_milliseconds((1, 7.07), (10, 8.38), (16, 8.42), (31, 8.81), (45, 9.15), (70, 9.82), (108, 13.59)),
    other=1.19e-3,
    name="H200 (measured)",
    source="d2sd bench gpu, 2026-11-26: Qwen3-8B and five-layer drafters with random weights in bfloat16, one NVIDIA H200, "
    "captured passes, flashinfer 0.7.2, torch 2.11.",
    drafts={"eagle3": None, "draft_model": None},
)

MACHINES = {"paper": PAPER, "h200-measured": H200}


def h200(method: str) -> StageCosts:
    """Returns the H200 measured with ``d2sd bench gpu``; if the method's drafter was not measured on it, the H200 of the paper."""
    return PAPER if H200.drafts.get(method, H200.first_draft) is None else H200


def machine_of(name: str) -> StageCosts:
    """Returns the machine whose id is ``name``. Raises ``InputError`` if there is none."""
    require(name in MACHINES, f"there is no machine {name!r}; choose one of: {', '.join(MACHINES)}")
    return MACHINES[name]


def cost_drawing(machine: StageCosts) -> dict[str, Any]:
    """Returns a machine as data for the page's scripts (``assets/viewer/machine.js``). Times are multiples of a plain step's time."""
    unit = machine.plain()

    def points(curve: Any) -> list[list[float]]:
        return [[rows, seconds / unit] for rows, seconds in curve.points]

    return {
        "name": machine.name,
        "source": machine.source,
        **{stage: points(getattr(machine, stage)) for stage in STAGES},
        "other": machine.other / unit,
        "published": dict(machine.published),
        "drafts": {method: curve and points(curve) for method, curve in machine.drafts.items()},
    }
