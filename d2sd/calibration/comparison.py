"""Two sets of runs against each other: every figure of both, and the difference with its interval.

Where both have the same prompts, or wrote the same text, they are drawn again together (a paired bootstrap): what is hard
for one is hard for the other, and only their difference is asked for. Otherwise each is drawn on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot
from statistics import NormalDist

import numpy as np

from d2sd.calibration.outcomes import ranks
from d2sd.calibration.resampling import LEVEL, Z95, Figure, Resampler, wilson
from d2sd.calibration.scores import (
    Scores,
    chance_error,
    expected_calibration_error,
    places,
    resampled_error,
    score,
    uniform_edges,
)
from d2sd.calibration.steps import MAX_BLOCKS, MIN_PROMPTS, StepTable, units

MIN_BLOCK = 16  # tokens: longer than most steps, so that a block holds the steps of both sides over the same text


@dataclass(frozen=True, slots=True)
class Side:
    """One set of runs: its steps, the prompt of every run, by its number in the table, and the first drafter of all of
    them, empty where it is not known or they have several."""

    table: StepTable
    prompts: tuple[str, ...]
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure on both sides; ``difference`` is B − A. ``count_a``, ``count_b``: over how many rows (steps, positions)."""

    name: str
    a: Figure
    b: Figure
    difference: Figure
    count_a: int
    count_b: int

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference leaves out 0."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``unit``: what is drawn again; ``paired``: on both sides together; ``same_drafter``: both have the same first drafter.

    The intervals of differences hold for all figures together with 95% (Bonferroni: each for itself with more). figures, by
    name: tokens (per step, α), speed (tokens per second), first (tokens of the first draft that were accepted), hit and repaired (shares
    of the steps with a rejected first draft and re-drafts), redraft (tokens that a re-draft brings), nodes (per step), gap
    (accepted − confidence), error (ECE above what chance alone would give), brier. bins: share accepted by bin of confidence; within[n]: share of rejected
    drafts whose true boundary is among the n + 1 likeliest; positions[k]: share of the drafts that got as far as drafted token
    k + 1 which had it accepted, as far as both sides drafted.
    """

    unit: str
    paired: bool
    same_drafter: bool
    figures: tuple[Difference, ...]
    bins: tuple[Difference, ...]
    within: tuple[Difference, ...]
    positions: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Draws:
    """One side with what it is resampled with. ``observed``: all positions whose fate is known, ``scores`` those with a confidence."""

    table: StepTable
    unit: np.ndarray
    resampler: Resampler
    observed: Scores
    scores: Scores


# Of one side: numerators, denominators and units of the rows that a figure is over.
Rows = Callable[[Draws], tuple[np.ndarray, np.ndarray, np.ndarray]]


def compare(a: Side, b: Side, same_text: bool = False) -> Comparison:
    """All figures of two sets of runs. ``same_text``: run by run, both wrote the same tokens."""
    of_a, of_b, name, paired = common_units(a, b, same_text)
    count = [int(unit.max(initial=-1)) + 1 for unit in (of_a, of_b)]
    first = Resampler(max(count) if paired else count[0])
    second = first if paired else Resampler(count[1], seed=1)
    found = score(a.table, of_a), score(b.table, of_b)
    sides = (
        Draws(a.table, of_a, first, found[0], found[0].known()),
        Draws(b.table, of_b, second, found[1], found[1].known()),
    )
    shared = min(int(scores.position.max(initial=0)) for scores in found)
    deepest = max(int(side.table.drafted.max(initial=0)) for side in sides)
    same = bool(a.drafter) and a.drafter == b.drafter
    tests = len(FIGURES) + 1
    figures = (*(_ratio(name, rows, *sides, tests) for name, rows in FIGURES.items()), _error(*sides, tests))
    bins = len(uniform_edges()) - 1
    return Comparison(
        name,
        paired,
        same,
        tuple(_untested(d) if same and d.name in OF_DRAFTER else d for d in figures),
        tuple(_ratio(f"bin {n}", _in_bin(n), *sides, bins) for n in range(bins)),
        tuple(_ratio(f"within {n + 1}", _within(n), *sides, deepest) for n in range(deepest)),
        tuple(_ratio(f"position {k}", _at_position(k), *sides, shared) for k in range(1, shared + 1)),
    )


def _untested(found: Difference) -> Difference:
    """A figure of one and the same network at other places of the text: no difference between sides to be tested."""
    return replace(found, difference=Figure(found.difference.value))


def common_units(a: Side, b: Side, same_text: bool) -> tuple[np.ndarray, np.ndarray, str, bool]:
    """What each step of both sides is drawn again with, what that is called, and whether both sides share it."""
    ready = min(len(set(side.prompts)) for side in (a, b)) >= MIN_PROMPTS
    numbers = {prompt: n for n, prompt in enumerate(dict.fromkeys(a.prompts))}
    if ready and set(a.prompts) == set(b.prompts):
        of_a, of_b = (np.array([numbers[p] for p in side.prompts], int)[side.table.run] for side in (a, b))
        return of_a, of_b, "prompt", True
    if not ready and same_text:
        starts = [text_starts(side.table) for side in (a, b)]
        length = max(MIN_BLOCK, -(-int(a.table.committed.sum()) // MAX_BLOCKS))
        return starts[0] // length, starts[1] // length, f"block of {length} tokens", True
    (of_a, name), (of_b, other) = units(a.table), units(b.table)
    return of_a, of_b, name if name == other else f"{name} and {other}", False


def text_starts(table: StepTable) -> np.ndarray:
    """Tokens committed before each step, those of the runs before its own included, (N,)."""
    return np.cumsum(table.committed) - table.committed


def length_difference(own: Sequence[int], other: Sequence[int]) -> Difference:
    """α of two ways through the same text, given the committed tokens of their steps, (N,) and (M,), of equal sums."""
    steps = [np.asarray(lengths, dtype=float) for lengths in (own, other)]
    length = max(MIN_BLOCK, -(-int(steps[0].sum()) // MAX_BLOCKS))
    unit = [((np.cumsum(s) - s) // length).astype(int) for s in steps]
    resampler = Resampler(1 + max(int(u.max(initial=-1)) for u in unit))
    (a, drawn_a), (b, drawn_b) = (
        (resampler.ratio(s, np.ones(len(s)), u), resampler.ratios(s, np.ones(len(s)), u))
        for s, u in zip(steps, unit, strict=True)
    )
    value = float(steps[1].mean() - steps[0].mean())
    return Difference("tokens", a, b, resampler.figure(value, drawn_b - drawn_a), len(own), len(other))


def _ratio(name: str, rows: Rows, a: Draws, b: Draws, tests: int) -> Difference:
    """A figure of both sides; the interval of the difference is one of ``tests`` that hold together."""
    sides = [(side, *rows(side)) for side in (a, b)]
    shares = all(((n == 0) | (n == d)).all() and (d <= 1).all() for _, n, d, _ in sides)
    figures = [side.resampler.ratio(n, d, unit) for side, n, d, unit in sides]
    if shares:
        figures = [_bounded(f, int(d.sum())) for f, (_, _, d, _) in zip(figures, sides, strict=True)]
    drawn = [side.resampler.ratios(n, d, unit) for side, n, d, unit in sides]
    counts = [len(d) if name == "speed" else int(d.sum()) for _, _, d, _ in sides]
    found = _difference(name, figures, drawn, counts, a, b, tests)
    still = found.difference.low is not None and found.difference.low == found.difference.high
    return replace(found, difference=_wider(newcombe(*figures), tests)) if shares and still else found


def _wider(figure: Figure, tests: int) -> Figure:
    """A 95% interval as one of ``tests`` that hold together, as wide as it would be of a normal distribution."""
    if figure.value is None or figure.low is None or figure.high is None:
        return figure
    by = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / max(1, tests)) / Z95
    return Figure(
        figure.value, figure.value - by * (figure.value - figure.low), figure.value + by * (figure.high - figure.value)
    )


def _bounded(figure: Figure, count: int) -> Figure:
    """A share of none or all of its rows: resamples are so too, so the interval is Wilson's."""
    if figure.low is None or figure.value is None or 0 < figure.value < 1:
        return figure
    return Figure(figure.value, *wilson(figure.value, count))


def _difference(
    name: str, figures: list[Figure], drawn: list[np.ndarray], counts: list[int], a: Draws, b: Draws, tests: int
) -> Difference:
    of_a, of_b = figures
    if of_a.value is None or of_b.value is None:
        return Difference(name, of_a, of_b, Figure(None), *counts)
    value = of_b.value - of_a.value
    fewer = a.resampler if a.resampler.count <= b.resampler.count else b.resampler
    return Difference(name, of_a, of_b, fewer.figure(value, drawn[1] - drawn[0], tests), *counts)


def newcombe(a: Figure, b: Figure) -> Figure:
    """B − A of two shares from their own intervals (Newcombe 1998, method 10): for shares of none or all of their rows."""
    ends = (a.value, a.low, a.high, b.value, b.low, b.high)
    if any(end is None for end in ends):
        return Figure(None if a.value is None or b.value is None else b.value - a.value)
    share_a, low_a, high_a, share_b, low_b, high_b = (float(end or 0) for end in ends)
    down, up = hypot(share_b - low_b, high_a - share_a), hypot(high_b - share_b, share_a - low_a)
    return Figure(share_b - share_a, share_b - share_a - down, share_b - share_a + up)


def _error(a: Draws, b: Draws, tests: int) -> Difference:
    """ECE less ``chance_error`` on both sides: an honest drafter's ECE falls with the number of positions, which would read
    as a difference. Resamples, which are off by chance once more, are moved to lie around the figure."""
    edges, figures, drawn = uniform_edges(), [], []
    for side in (a, b):
        s = side.scores
        found = resampled_error(s, s.confidence, edges, side.resampler)
        if len(s):
            own = expected_calibration_error(s.confidence, s.accepted, edges) - chance_error(s.confidence, edges)
            found = found - np.nanmean(found) + own
        figures.append(side.resampler.figure(own, found) if len(s) else Figure(None))
        drawn.append(found)
    return _difference("error", figures, drawn, [len(a.scores), len(b.scores)], a, b, tests)


def _over(values: np.ndarray, where: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values over the steps that ``where`` picks, one each."""
    return values[where].astype(float), np.ones(int(where.sum())), unit[where]


def _judged(table: StepTable) -> np.ndarray:
    """Steps where there was a boundary to predict, and prefixes were chosen."""
    return table.partly & (table.selected > 0)


def _every(table: StepTable) -> np.ndarray:
    return np.ones(len(table), bool)


def _scored(side: Draws, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return values, np.ones(len(values)), side.scores.unit


FIGURES: dict[str, Rows] = {
    "tokens": lambda d: _over(d.table.committed, _every(d.table), d.unit),
    "speed": lambda d: (d.table.committed.astype(float), d.table.seconds, d.unit),
    "first": lambda d: _over(d.table.gained[:, 0], d.table.drafted > 0, d.unit),
    "hit": lambda d: _over(d.table.hit, _judged(d.table), d.unit),
    "repaired": lambda d: _over(d.table.repaired, _judged(d.table), d.unit),
    "redraft": lambda d: (d.table.gained[:, 1:-1].sum(1).astype(float), d.table.branches.astype(float), d.unit),
    "nodes": lambda d: _over(d.table.nodes.sum(1) + 1, _every(d.table), d.unit),
    "gap": lambda d: _scored(d, d.scores.accepted - d.scores.confidence),
    "brier": lambda d: _scored(d, (d.scores.accepted - d.scores.confidence) ** 2),
}


OF_DRAFTER = frozenset({"gap", "error", "brier"})  # figures of the first drafter alone


def _in_bin(number: int) -> Rows:
    def rows(side: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        here = places(side.scores.confidence, uniform_edges()) == number
        return _over(side.scores.accepted, here, side.scores.unit)

    return rows


def _within(number: int) -> Rows:
    def rows(side: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place = ranks(side.table.confidence, side.table.boundary)
        return _over(place <= number, side.table.partly & side.table.sure, side.unit)

    return rows


def _at_position(position: int) -> Rows:
    def rows(side: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _over(side.observed.accepted, side.observed.position == position, side.observed.unit)

    return rows


def read_comparison(comparison: Comparison) -> Iterator[str]:
    """What the differences say, in plain sentences; those that are not clear are not claimed."""
    clear = [d for d in comparison.figures if d.clear and d.name in SPOKEN]
    for d in clear:
        words, write = SPOKEN[d.name]
        assert d.difference.low is not None
        assert d.difference.high is not None
        less, more = sorted((abs(d.difference.low), abs(d.difference.high)))
        way = "higher" if d.difference.low > 0 else "lower"
        yield f"{words}: {write(d.a.value)} → {write(d.b.value)}, B is {way} by {write(less)} to {write(more)}."
    if not clear:
        some = any(d.difference.low is not None for d in comparison.figures)
        yield (
            "No clear difference: every interval holds 0, all of them taken together. More prompts would narrow them."
            if some
            else "Too few steps to tell them apart: an interval takes at least four prompts or blocks of text."
        )
    alpha = next((d for d in comparison.figures if d.name == "tokens" and not d.clear), None)
    if alpha and alpha.difference.value is not None:
        yield f"Tokens per step (α): {_plain(alpha.a.value)} → {_plain(alpha.b.value)}, which is not clear."
    if comparison.same_drafter:
        yield "Both sides have the same first drafter, so its calibration is one and is not compared."


def how_compared(comparison: Comparison) -> str:
    """How the intervals were made, in a sentence."""
    together = (
        "both sides drawn together"
        if comparison.paired
        else "each side drawn on its own: they have other prompts, or wrote other texts"
    )
    return (
        f"Intervals from drawing every {comparison.unit} again, {together}. Those of the differences are so wide that all of "
        "a table hold together with 95%."
    )


def _plain(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.1f}%"


SPOKEN = {
    "tokens": ("Tokens per step (α)", _plain),
    "speed": ("Tokens per second", lambda v: "—" if v is None else f"{v:.0f}"),
    "first": ("Accepted tokens of the first draft", _plain),
    "repaired": ("Repaired steps", _percent),
    "error": ("Calibration error (ECE) above chance", lambda v: "—" if v is None else f"{v:.3f}"),
}
