"""Predicted against actual end of the first draft: D²SD's boundary posterior and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import (
    Bin,
    Position,
    Scores,
    acceptance_by_position,
    calibration_error,
    chance_error,
    expected_calibration_error,
    places,
    reliability,
    resampled_error,
    uniform_edges,
)
from d2sd.calibration.steps import StepTable
from d2sd.trace.events import TEMPERATURES, Draft, StepDone
from d2sd.tree.boundary import boundary_posteriors


@dataclass(frozen=True, slots=True)
class Matrix:
    """Steps by likeliest and actual outcome. Outcome i < G: exactly i tokens accepted; outcome G: all of them.

    Steps without confidences are left out.

    counts: [actual][predicted]: number of steps whose boundary is known, (G+1, G+1).
    unseen: number of other steps that drafted.
    all_expected, all_happened: mean predicted probability that the whole first draft is accepted, and the share of steps
        where it was.
    """

    counts: tuple[tuple[int, ...], ...]
    unseen: int
    all_expected: Estimate
    all_happened: Estimate


@dataclass(frozen=True, slots=True)
class Ranks:
    """Rank of the true boundary among all r(i), over the steps whose first draft was not accepted completely.

    counts: [n]: number of steps where it had rank n+1.
    within: [n]: share of steps where it was among the n+1 likeliest (the hit rate at K = n+1).
    chance: [n]: the same for prefixes drawn at random.
    chosen: number of steps that re-drafted; the following are over these steps, and None if there are none.
    used: hit rate of the prefixes that were re-drafted from.
    chance_used: the same for equally many prefixes drawn at random.
    repaired: share of the steps where re-drafts also added tokens there.
    mean_used: mean number of prefixes.
    """

    steps: int
    counts: tuple[int, ...]
    within: tuple[Estimate, ...]
    chance: tuple[float, ...]
    chosen: int
    used: Estimate
    chance_used: float | None
    repaired: Estimate
    mean_used: float | None


def predicted(table: StepTable) -> np.ndarray:
    """Returns the likeliest outcome of each step, (N,): a number of accepted tokens, or G for all of them."""
    r, full = boundary_posteriors(table.confidence)
    if not r.shape[1]:
        return np.zeros(len(table), int)
    best = r.argmax(1)
    return np.where(full > r[np.arange(len(r)), best], r.shape[1], best)


def happened(table: StepTable) -> np.ndarray:
    """Returns the outcome of each step in the numbering of ``predicted``, (N,); only meaningful if it was observed."""
    return np.where(table.boundary >= table.drafted, table.confidence.shape[1], table.boundary)


def outcome_matrix(table: StepTable, unit: np.ndarray, resampler: Resampler) -> Matrix:
    """Returns predicted against actual boundaries of the steps whose boundary was observed."""
    table, unit = table.take(table.sure), unit[table.sure]
    seen, size = table.seen, table.confidence.shape[1] + 1
    both = happened(table)[seen] * size + predicted(table)[seen]
    counts = np.bincount(both, minlength=size * size).reshape(size, size)
    full, ones = boundary_posteriors(table.confidence)[1][seen], np.ones(int(seen.sum()))
    return Matrix(
        tuple(map(tuple, counts.tolist())),
        int((~seen & (table.drafted > 0)).sum()),
        resampler.ratio(full, ones, unit[seen]),
        resampler.share(~table.partly[seen], unit[seen]),
    )


def ranks(confidence: np.ndarray, boundary: np.ndarray) -> np.ndarray:
    """Returns the rank of the true boundary among r(i), (N,): 0 = likeliest, ties to the shorter prefix; G if it is none."""
    r, _ = boundary_posteriors(confidence)
    rows, size = np.arange(len(r)), r.shape[1]
    if not size:
        return np.zeros(len(r), int)
    at = np.clip(boundary, 0, size - 1)
    own = r[rows, at][:, None]
    before = (r > own) | ((r == own) & (np.arange(size) < at[:, None]))
    there = (boundary >= 0) & (boundary < (r >= 0).sum(1))
    return np.where(there, before.sum(1), size)


def rank_table(table: StepTable, unit: np.ndarray, resampler: Resampler) -> Ranks:
    """Returns ranks and hit rates over steps with confidences whose first draft was rejected."""
    there = table.partly & table.sure
    partly, unit = table.take(there), unit[there]
    place = ranks(partly.confidence, partly.boundary)
    size = int(partly.drafted.max(initial=0))
    chosen = partly.selected > 0
    some = bool(chosen.any())
    return Ranks(
        steps=len(partly),
        counts=tuple(np.bincount(place, minlength=size)[:size].tolist()),
        within=tuple(resampler.share(place <= n, unit) for n in range(size)),
        chance=tuple(float(np.minimum(1, (n + 1) / partly.drafted).mean()) for n in range(size)),
        chosen=int(chosen.sum()),
        used=resampler.share(partly.hit[chosen], unit[chosen]),
        chance_used=float(np.minimum(1, partly.selected / partly.drafted)[chosen].mean()) if some else None,
        repaired=resampler.share(partly.repaired[chosen], unit[chosen]),
        mean_used=float(partly.selected[chosen].mean()) if some else None,
    )


# Gain and cost of each draft: tokens gained, and nodes verified without being accepted.


@dataclass(frozen=True, slots=True)
class Gain:
    """One source of tokens. A token in several drafts counts for the first of them, so a re-draft counts only what it adds.

    branch: 0 = first draft, j = re-draft j, None = lower-ranked alternatives of a drafter.
    present, won: number of steps with this source, and of those in which it added a token.
    tokens, nodes: accepted and verified per step, means over all steps.
    wasted: share of its verified nodes that were not accepted.
    """

    branch: int | None
    present: int
    won: int
    tokens: Estimate
    nodes: float
    wasted: float | None


@dataclass(frozen=True, slots=True)
class Gains:
    """Tokens committed per step (α, bonus included), nodes verified per step (anchor included), and their sources.

    per_redraft: tokens added per draft after the first, without lower-ranked alternatives.
    """

    tokens_per_step: Estimate
    nodes_per_step: float
    wasted: float | None
    bonus: float
    per_redraft: Estimate
    sources: tuple[Gain, ...]


def gains(table: StepTable, unit: np.ndarray, resampler: Resampler) -> Gains:
    """Returns tokens and nodes per step by source."""
    ones, count = np.ones(len(table)), max(1, len(table))
    last = table.nodes.shape[1] - 1
    sources = []
    for column in range(last + 1):
        nodes, gained = table.nodes[:, column], table.gained[:, column]
        if column == last:
            there = nodes > 0
        elif column:
            there = table.branches >= column
        else:
            there = table.drafted > 0
        if there.any():
            sources.append(
                Gain(
                    None if column == last else column,
                    int(there.sum()),
                    int((gained > 0).sum()),
                    resampler.ratio(gained.astype(float), ones, unit),
                    float(nodes.sum() / count),
                    _wasted(nodes, gained),
                )
            )
    bonus = table.committed - table.gained.sum(1)
    return Gains(
        resampler.ratio(table.committed.astype(float), ones, unit),
        1 + float(table.nodes.sum() / count),
        _wasted(table.nodes, table.gained),
        float(bonus.sum() / count),
        resampler.ratio(table.gained[:, 1:-1].sum(1).astype(float), table.branches.astype(float), unit),
        tuple(sources),
    )


def _wasted(nodes: np.ndarray, gained: np.ndarray) -> float | None:
    return float(1 - gained.sum() / nodes.sum()) if nodes.sum() else None


# The second drafter: its calibration after correct prefixes, and expected against actual gain of re-drafts.


GAIN_EDGES = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 1e9)


@dataclass(frozen=True, slots=True)
class RedraftTable:
    """M re-drafts of the second drafter, and S scored tokens of those whose prefix was right.

    row: (M,) row of the step in the ``StepTable``.
    branch: (M,) number of the re-draft, from 1.
    right: (M,) whether the prefix was accepted and the text continued after it.
    predicted: (M,) expected gain in tokens, r(i) · (c₁ + c₁c₂ + …); NaN for a re-draft of a re-draft, which has no r.
    gained: (M,) actual gain in tokens.
    scored_row: (S,) row of the token's step.
    position: (S,) position of the token after the prefix, from 1.
    confidence, accepted: (S,) of the token.
    """

    row: np.ndarray
    branch: np.ndarray
    right: np.ndarray
    predicted: np.ndarray
    gained: np.ndarray
    scored_row: np.ndarray
    position: np.ndarray
    confidence: np.ndarray
    accepted: np.ndarray


@dataclass(frozen=True, slots=True)
class GainBin:
    """Re-drafts with about the same expected gain: mean expected (``predicted``) and actual (``gained``) gain in tokens."""

    left: float
    right: float
    count: int
    predicted: float
    gained: Estimate


@dataclass(frozen=True, slots=True)
class Second:
    """Figures of the second drafter's confidence, as those of the first one in ``Report``.

    redrafts, right: number of re-drafts, and of those with a correct prefix.
    predicted, gained: mean expected and actual gain per re-draft, in tokens.
    """

    redrafts: int
    right: int
    positions: int
    confidence: float | None
    accepted: float | None
    gap: Estimate
    error: Estimate
    chance: float | None
    uniform: tuple[Bin, ...]
    by_position: tuple[Position, ...]
    predicted: float | None
    gained: Estimate
    gains: tuple[GainBin, ...]


def tabulate_redrafts(runs: Sequence[Sequence[StepDone]], table: StepTable) -> RedraftTable:
    """Returns the re-drafts of the runs in ``table``."""
    drafts, scored = [], []
    for row, step in enumerate(s for run in runs for s in run):
        written, known = tuple(c.token for c in step.committed), candidates(step)
        for branch, draft in enumerate(step.branches, 1):
            if draft.drafter != "second":
                continue
            right = len(written) > draft.prefix and written[: draft.prefix] == known[branch][: draft.prefix]
            drafts.append((row, branch, right, promised(step, draft)))
            if right:
                scored += [(row, *s) for s in scored_tokens(draft, written)]
    columns = list(zip(*drafts, strict=True)) or [(), (), (), ()]
    tokens = list(zip(*scored, strict=True)) or [(), (), (), ()]
    rows, branches = np.array(columns[0], int), np.array(columns[1], int)
    return RedraftTable(
        rows,
        branches,
        np.array(columns[2], bool),
        np.array(columns[3], float),
        table.gained[rows, branches].astype(float),
        *(np.array(tokens[n], kind) for n, kind in enumerate((int, int, float, float))),
    )


def candidates(step: StepDone) -> list[tuple[int, ...]]:
    """Returns all tokens of every candidate: the prefix that it continues from an earlier candidate, and its drafted tokens.
    Number 0 is the first draft."""
    known = [step.first_draft.ids if step.first_draft else ()]
    for draft in step.branches:
        known.append((*known[draft.base if draft.base < len(known) else 0][: draft.prefix], *draft.ids))
    return known


def promised(step: StepDone, draft: Draft) -> float:
    """Returns the expected gain of a re-draft in tokens, by both drafters' confidence."""
    chances = (*step.boundary_posterior, step.full_acceptance)
    if draft.base or draft.prefix >= len(chances):
        return float("nan")
    return chances[draft.prefix] * float(np.cumprod(draft.confidence).sum())


def scored_tokens(draft: Draft, written: Sequence[int]) -> Iterator[tuple[int, float, float]]:
    """Yields position, confidence and acceptance of a re-draft's tokens, up to the first rejected one."""
    seen = zip(draft.ids, draft.confidence, written[draft.prefix :], strict=False)
    for position, (token, confidence, wrote) in enumerate(seen, 1):
        yield position, confidence, float(token == wrote)
        if token != wrote:
            return


def second_scores(redrafts: RedraftTable, unit: np.ndarray) -> Scores:
    """The scored tokens; ``unit`` (N,) numbers what each step is resampled with."""
    row = redrafts.scored_row
    return Scores(redrafts.confidence, redrafts.accepted, redrafts.position, row, unit[row])


def second_report(redrafts: RedraftTable, unit: np.ndarray, resampler: Resampler) -> Second | None:
    """Returns all figures; None if nothing was re-drafted."""
    if not len(redrafts.row):
        return None
    scores, edges, some = second_scores(redrafts, unit), uniform_edges(), len(redrafts.confidence) > 0
    known = ~np.isnan(redrafts.predicted)
    return Second(
        redrafts=len(redrafts.row),
        right=int(redrafts.right.sum()),
        positions=len(scores),
        confidence=float(scores.confidence.mean()) if some else None,
        accepted=float(scores.accepted.mean()) if some else None,
        gap=resampler.ratio(scores.accepted - scores.confidence, np.ones(len(scores)), scores.unit),
        error=calibration_error(scores, edges, resampler),
        chance=chance_error(scores.confidence, edges) if some else None,
        uniform=tuple(reliability(scores, edges)),
        by_position=tuple(acceptance_by_position(scores)),
        predicted=float(redrafts.predicted[known].mean()) if known.any() else None,
        gained=resampler.ratio(redrafts.gained[known], np.ones(int(known.sum())), unit[redrafts.row[known]]),
        gains=tuple(_gain_bins(redrafts, unit, resampler)),
    )


def gain_places(redrafts: RedraftTable) -> np.ndarray:
    """Returns the bin of each re-draft's expected gain, (M,); −1 for none."""
    known = ~np.isnan(redrafts.predicted)
    return np.where(known, places(np.nan_to_num(redrafts.predicted), np.array(GAIN_EDGES)), -1)


def _gain_bins(redrafts: RedraftTable, unit: np.ndarray, resampler: Resampler) -> Iterator[GainBin]:
    at = gain_places(redrafts)
    for n in range(len(GAIN_EDGES) - 1):
        here = at == n
        count = int(here.sum())
        predicted = float(redrafts.predicted[here].mean()) if count else 0.0
        gained = resampler.ratio(redrafts.gained[here], np.ones(count), unit[redrafts.row[here]])
        yield GainBin(GAIN_EDGES[n], GAIN_EDGES[n + 1], count, predicted, gained)


# Calibration of the cost-aware controller: expected against committed tokens of cost-aware steps.


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expected and actual results of cost-aware steps; means over the steps that drafted.

    steps: number of drafting steps.
    expected, obtained: expected and actual committed tokens per step.
    expected_seconds: expected time per step.
    plain: number of steps that drafted nothing.
    looks: number of steps that tried an option that was not expected to pay.
    """

    steps: int
    expected: float
    obtained: float
    expected_seconds: float
    plain: int
    looks: int


def expectations(steps: Iterable[StepDone]) -> Expectations | None:
    """Returns expected and actual results of the steps; None if no step was cost-aware.

    Plain steps always get the one token that they expect, so they are only counted. The last step of a run may be cut off,
    so it is left out where it drafted.
    """
    decided = [s for s in steps if s.decision is not None]
    if not decided:
        return None
    drafted = [s for s in decided if _drafted(s) and s.choices and s.committed[-1].node is None]
    count = max(1, len(drafted))
    decisions = [s.decision for s in drafted if s.decision is not None]
    return Expectations(
        len(drafted),
        sum(d.tokens for d in decisions) / count,
        sum(len(s.committed) for s in drafted) / count,
        sum(d.seconds for d in decisions) / count,
        sum(not _drafted(s) for s in decided),
        sum(s.decision.looking for s in decided if s.decision is not None),
    )


def pooled(parts: Iterable[Expectations | None]) -> Expectations | None:
    """Returns expected and actual results of the steps of several sets of runs."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    steps = sum(p.steps for p in known)

    def mean(name: str) -> float:
        return sum(p.steps * float(getattr(p, name)) for p in known) / max(1, steps)

    return Expectations(
        steps,
        mean("expected"),
        mean("obtained"),
        mean("expected_seconds"),
        sum(p.plain for p in known),
        sum(p.looks for p in known),
    )


def _drafted(step: StepDone) -> bool:
    return step.first_draft is not None or len(step.nodes) > 1


# Trees without a block draft (EAGLE-3): is a node accepted as often as the probability of its path predicts?
#
# Every verified node counts. Nodes that the target did not reach are not accepted, since the target chose another path. Steps
# that the token limit cut short are left out, because the end of their walk is unknown.


@dataclass(frozen=True, slots=True)
class Paths:
    """M verified nodes: row of the step in its table, node, depth, the drafter's probability of the path, accepted 0/1.

    They are ordered by step; within a step accepted nodes come first, then the others by descending probability.
    """

    row: np.ndarray
    node: np.ndarray
    depth: np.ndarray
    probability: np.ndarray
    accepted: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def tabulate_paths(runs: Sequence[Sequence[StepDone]]) -> Paths:
    """Returns the nodes of all steps without a block draft, in the order of ``tabulate``'s rows."""
    found: list[tuple[int, int, int, float, float]] = []
    for row, step in enumerate(s for run in runs for s in run):
        if step.first_draft is not None or len(step.nodes) < 2 or step.committed[-1].node is not None:
            continue
        reach = [1.0]
        for node in step.nodes[1:]:
            reach.append(reach[node.parent] * (node.drafter_probability or 0.0))
        nodes = sorted(step.nodes[1:], key=lambda n: (n.state != "accepted", -reach[n.id], n.id))
        found += [(row, n.id, n.depth, reach[n.id], float(n.state == "accepted")) for n in nodes]
    rows, ids, depths, probabilities, accepted = zip(*found, strict=True) if found else ((),) * 5
    return Paths(
        np.array(rows, int), np.array(ids, int), np.array(depths, int), np.array(probabilities, float), np.array(accepted, float)
    )  # fmt: skip


# Would another softmax temperature calibrate the drafter's confidence better, and would it change the selected prefixes?
#
# Steps may hold the probability of every drafted token at several temperatures. Between these, its log-odds are interpolated in
# the logarithm of the temperature; on logits of the bundled drafters the error is at most 0.025.


EDGE = 1e-6
KNOWN = (*(t for t in TEMPERATURES if t < 1), 1.0, *(t for t in TEMPERATURES if t > 1))
AS_IT_IS = KNOWN.index(1.0)
TRIED, ROUNDS = 13, 3  # temperatures side by side, each time closer about the best: to 1% in the end
MIN_FITTED_POSITIONS = 50


@dataclass(frozen=True, slots=True)
class TemperatureAdvice:
    """A temperature fitted on every other unit and evaluated on the rest.

    error_before, error_after: ECE of the evaluation half.
    improvement: their difference, with its interval.
    steps: number of evaluated steps that selected prefixes.
    rows: rows of the table among them whose set of K prefixes would change.
    moved_steps: share of these steps.
    moved: share of all selected prefixes that would change.
    hits_before, hits_after: share of steps whose true boundary is among the K likeliest; None without such a step.
    """

    temperature: float
    fitted_positions: int
    judged_positions: int
    error_before: float
    error_after: float
    improvement: Estimate
    steps: int
    rows: tuple[int, ...]
    moved_steps: float | None
    moved: float | None
    hits_before: float | None
    hits_after: float | None


def curves(confidence: np.ndarray, tempered: np.ndarray) -> np.ndarray:
    """Returns confidence by temperature, (…, len(KNOWN)), from that at 1 (…) and those at ``TEMPERATURES``."""
    return np.insert(tempered, AS_IT_IS, confidence, axis=-1)


def at_temperature(curve: np.ndarray, temperature: float) -> np.ndarray:
    """Returns confidence (…) at a temperature within ``KNOWN``, from ``curves``."""
    place = float(np.interp(np.log(temperature), np.log(KNOWN), np.arange(len(KNOWN))))
    low = min(int(place), len(KNOWN) - 2)
    before, after = (_log_odds(curve[..., n]) for n in (low, low + 1))
    return 1 / (1 + np.exp(-(before + (place - low) * (after - before))))


def _log_odds(confidence: np.ndarray) -> np.ndarray:
    clipped = np.clip(confidence.astype(float), EDGE, 1 - EDGE)
    return np.log(clipped / (1 - clipped))


def fit_temperature(curve: np.ndarray, accepted: np.ndarray) -> float:
    """Returns the temperature within ``KNOWN`` with the largest likelihood of the outcomes ``accepted`` (M,).

    curve: result of ``curves``, (M, len(KNOWN)).
    """
    low, high, best = KNOWN[0], KNOWN[-1], 1.0
    for _ in range(ROUNDS):
        tried = np.geomspace(low, high, TRIED)
        sure = (at_temperature(curve, t) for t in tried)
        fits = [float(np.log(np.where(accepted > 0, c, 1 - c)).sum()) for c in sure]
        at = int(np.argmax(fits))
        low, high, best = tried[max(0, at - 1)], tried[min(TRIED - 1, at + 1)], tried[at]
    return float(best)


def temperature_advice(table: StepTable, scores: Scores, resampler: Resampler) -> TemperatureAdvice | None:
    """Returns the effect of a fitted temperature; None if either half has too few scored positions with tempered
    probabilities."""
    if not table.tempered.shape[2]:
        return None
    curve = curves(scores.confidence, table.tempered[scores.row, scores.position - 1])
    said = ~np.isnan(curve).any(1)
    fit, judge = said & (scores.unit % 2 == 0), said & (scores.unit % 2 == 1)
    if min(fit.sum(), judge.sum()) < MIN_FITTED_POSITIONS:
        return None
    temperature = fit_temperature(curve[fit], scores.accepted[fit])
    half = Scores(*(getattr(scores, name)[judge] for name in scores.__dataclass_fields__))
    after, edges = at_temperature(curve[judge], temperature), uniform_edges()
    errors = [expected_calibration_error(c, half.accepted, edges) for c in (half.confidence, after)]
    drawn = [resampled_error(half, c, edges, resampler) for c in (half.confidence, after)]
    judged = np.zeros(len(table), bool)
    judged[half.row] = True
    rows = np.flatnonzero(judged & (table.selected > 0))
    steps = table.take(rows)
    other = at_temperature(curves(steps.confidence, steps.tempered), temperature)
    moved = _replaced(steps, other)
    partly = steps.partly
    return TemperatureAdvice(
        temperature=temperature,
        fitted_positions=int(fit.sum()),
        judged_positions=int(judge.sum()),
        error_before=errors[0],
        error_after=errors[1],
        improvement=resampler.figure(errors[0] - errors[1], drawn[0] - drawn[1]),
        steps=len(rows),
        rows=tuple(rows[moved > 0].tolist()),
        moved_steps=float((moved > 0).mean()) if len(rows) else None,
        moved=float(moved.sum() / steps.selected.sum()) if len(rows) else None,
        hits_before=_hits(steps.confidence, steps)[partly].mean().item() if partly.any() else None,
        hits_after=_hits(other, steps)[partly].mean().item() if partly.any() else None,
    )


def _hits(confidence: np.ndarray, steps: StepTable) -> np.ndarray:
    """Returns whether the true boundary is among the K likeliest, with K as selected, (N,) bool."""
    return ranks(confidence, steps.boundary) < steps.selected


def _replaced(steps: StepTable, other: np.ndarray) -> np.ndarray:
    """Returns how many of its K likeliest prefixes each step would replace with other confidences, (N,)."""

    def likeliest(confidence: np.ndarray) -> np.ndarray:
        order = np.argsort(-boundary_posteriors(confidence)[0], axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        return place < steps.selected[:, None]

    return (likeliest(steps.confidence) & ~likeliest(other)).sum(1)
