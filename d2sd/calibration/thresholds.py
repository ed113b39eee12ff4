"""Effect of shorter drafts on α, verified nodes and time per token, if drafts are cut by their confidence or at a fixed length.

Only first drafts count, each as a chain. The recorded steps are used, even though shorter drafts would change where steps start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampler
from d2sd.calibration.steps import StepTable, units

THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
KEPT, SURELY_KEPT = 0.99, 0.95  # shares of α that a cut must keep, in fitting and in evaluation, if times are unknown


class DraftCosts(NamedTuple):
    """A machine's name, and a function from the numbers of draft rows and verified nodes (anchor included) to seconds."""

    machine: str
    seconds: Callable[[int, int], float]


@dataclass(frozen=True, slots=True)
class Stop:
    """The recorded steps with every first draft cut by a rule of ``kept_tokens``.

    alpha, nodes: committed tokens (bonus included) and verified nodes (anchor included) per step.
    kept: α divided by the α of whole drafts.
    seconds: calculated time per token; unknown without costs.
    slowdown: ``seconds`` divided by the time per token with whole drafts; unknown without costs.
    """

    rule: str
    value: float
    alpha: Estimate
    nodes: Estimate
    kept: Estimate
    seconds: Estimate
    slowdown: Estimate


@dataclass(frozen=True, slots=True)
class StopAdvice:
    """The best value of a rule, fitted on every second prompt and evaluated on the other prompts.

    stop, whole: figures with this cut, and without a cut.
    clear: whether a token takes significantly less time; without costs, whether significantly more than ``SURELY_KEPT`` of α is
        kept.
    """

    stop: Stop
    whole: Stop
    clear: bool


@dataclass(frozen=True, slots=True)
class Stops:
    """Effect of cutting the first drafts.

    steps: number of steps with confidences; other steps do not count.
    sequential: whether every drafted token takes a separate drafter pass.
    machine: machine of the calculated times; empty without costs.
    stops: figures of all rules and values; the last entry cuts nothing.
    advice: one entry per rule that pays on the fitted prompts, clear entries first; None with too few prompts.
    groups: for each prompt group, its name, its figures without a cut, and its figures with the cut of the first advice.
    """

    steps: int
    sequential: bool
    machine: str
    stops: tuple[Stop, ...]
    advice: tuple[StopAdvice, ...] | None
    groups: tuple[tuple[str, Stop, Stop], ...]


def kept_tokens(table: StepTable, rule: str, value: float) -> np.ndarray:
    """Returns the number of tokens of each first draft that remain after a cut, (N,).

    rule: "product": cut before the product of the confidences falls below ``value``; "single": cut before the first confidence
        below ``value``; "length": cut after ``value`` tokens.
    """
    if rule == "length":
        return np.minimum(table.drafted, int(value))
    sure = np.cumprod(table.confidence, axis=1) if rule == "product" else table.confidence
    return np.asarray(np.logical_and.accumulate(sure >= value, axis=1).sum(1))


class _Chains:
    def __init__(self, table: StepTable, unit: np.ndarray, sequential: bool, costs: DraftCosts | None):
        self.table, self.sequential, self.costs = table, sequential, costs
        own, self.unit = np.unique(unit, return_inverse=True)
        self.resampler = Resampler(len(own))
        self.whole = self._sums("length", table.confidence.shape[1])

    def take(self, rows: np.ndarray) -> _Chains:
        return _Chains(self.table.take(rows), self.unit[rows], self.sequential, self.costs)

    def stop(self, rule: str, value: float, tests: int = 1) -> Stop:
        (steps, tokens, nodes, seconds), (_, whole, _, longer) = self._sums(rule, value), self.whole
        ratios = tokens / steps, nodes / steps, tokens / whole, seconds / tokens, seconds / longer * whole / tokens
        return Stop(rule, value, *(self.resampler.figure(float(r[0]), r[1:], tests) for r in ratios))

    def _sums(self, rule: str, value: float) -> np.ndarray:
        """Returns the sums of steps, tokens, nodes and seconds over all rows and over each resample, (4, 1 + RESAMPLES)."""
        table, kept = self.table, kept_tokens(self.table, rule, value)
        whole = np.minimum(
            table.matched + table.boundary_known, table.committed
        )  # committed tokens of whole drafts within the text
        # a sequential drafter also drafts the token whose confidence is too low; a block drafter always drafts the whole block
        rows = 1 + (np.minimum(kept + (rule != "length"), table.drafted) if self.sequential else table.drafted)
        works, which = np.unique(np.stack([rows, 1 + kept]), axis=1, return_inverse=True)
        times = np.array([self.costs.seconds(*w) if self.costs else np.nan for w in works.T.tolist()])[which.ravel()]
        values = np.stack([np.ones(len(kept)), np.minimum(whole, 1 + kept), 1 + kept, times], axis=1)
        return np.concatenate([values.sum(0)[None], self.resampler.sums(values, self.unit)]).T


def stop_report(
    table: StepTable, sequential: bool = False, costs: DraftCosts | None = None, domains: Sequence[str] = ()
) -> Stops | None:
    """Returns the effect of cuts; None if no step has confidences. domains: prompt group of every run."""
    there, (unit, name) = table.has_confidence, units(table)
    if not there.any():
        return None
    chains = _Chains(table.take(there), unit[there], sequential, costs)
    lengths = range(1, int(chains.table.drafted.max()) + 1)
    cuts: dict[str, Sequence[float]] = {"product": THRESHOLDS, "single": THRESHOLDS, "length": lengths}
    stops = tuple(chains.stop(rule, value) for rule, values in cuts.items() for value in values)
    advice = _advice(chains, cuts) if name == "prompt" and chains.resampler.count >= 2 * MIN_UNITS else None
    whole, best = stops[-1], advice[0].stop if advice else stops[-1]
    group = np.array(domains, object)[chains.table.run] if len(set(domains)) > 1 else np.empty(0, object)
    own = [(name, chains.take(group == name)) for name in sorted(set(group))]
    groups = tuple((name, c.stop(whole.rule, whole.value), c.stop(best.rule, best.value)) for name, c in own)
    return Stops(len(chains.table), sequential, costs.machine if costs else "", stops, advice, groups)


def _advice(chains: _Chains, cuts: dict[str, Sequence[float]]) -> tuple[StopAdvice, ...]:
    fit, judge = (chains.take(chains.unit % 2 == half) for half in (0, 1))

    def price(stop: Stop) -> float:
        return stop.slowdown.value or (stop.nodes.value or 0.0 if (stop.kept.value or 0.0) >= KEPT else np.inf)

    tried = [[fit.stop(rule, value) for value in values] for rule, values in cuts.items()]
    whole = tried[-1][-1]
    best = sorted((s for own in tried if price(s := min(own, key=price)) < price(whole)), key=price)
    found, uncut = [judge.stop(s.rule, s.value, len(cuts)) for s in best], judge.stop(whole.rule, whole.value)
    clear = [(s.slowdown.high or 1) < 1 if chains.costs else (s.kept.low or 0) > SURELY_KEPT for s in found]
    return tuple(sorted(map(StopAdvice, found, [uncut] * len(found), clear), key=lambda a: not a.clear))
