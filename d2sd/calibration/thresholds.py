"""Effect of shorter drafts on α, verified nodes and time per token, and advice on where drafting should stop.

Drafts are cut by their confidence or at a fixed length. Only first drafts count, each as a chain. The recorded steps are used, even
though shorter drafts would change where steps start. The settings of serving engines are as of September 2026. Sources: llama.cpp's
``common/arg.cpp`` and ``common/speculative.cpp``, vLLM's ``SpeculativeConfig``, SGLang's ``arg_groups/fields/spec.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampler
from d2sd.calibration.steps import MIN_PROMPTS, StepTable, units
from d2sd.calibration.text import (
    Columns,
    Sentence,
    Table,
    Write,
    capitalized,
    count,
    cut,
    decimal,
    digits,
    percent,
    with_interval,
)
from d2sd.trace.metrics import DraftCosts

THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
KEPT, SURELY_KEPT = 0.99, 0.95  # shares of α that a cut must keep, in fitting and in evaluation, if times are unknown


@dataclass(frozen=True, slots=True)
class Stop:
    """Figures of the recorded steps if every first draft is cut by a rule of ``kept_tokens``.

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

    @property
    def name(self) -> str:
        return count(int(self.value), "token") if self.rule == "length" else f"{self.rule} < {self.value:g}"


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
    """First drafts as chains that can be cut. unit: resampling unit of each step of the table, (N,)."""

    def __init__(self, table: StepTable, unit: np.ndarray, sequential: bool, costs: DraftCosts | None):
        self.table, self.sequential, self.costs = table, sequential, costs
        units_of_table, self.unit = np.unique(unit, return_inverse=True)
        self.resampler = Resampler(len(units_of_table))
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
        # committed tokens of whole drafts within the text
        whole = np.minimum(table.matched + table.boundary_known, table.committed)
        # a sequential drafter also drafts the token whose confidence is too low; a block drafter always drafts the whole block
        rows = 1 + (np.minimum(kept + (rule != "length"), table.drafted) if self.sequential else table.drafted)
        width = (
            table.confidence.shape[1] + 2
        )  # one integer for each pair of rows and nodes, since sorting pairs is slow
        works, which = np.unique(rows * width + 1 + kept, return_inverse=True)
        costs = self.costs
        times = np.array([costs.seconds(*divmod(w, width)) if costs else np.nan for w in works.tolist()])[which.ravel()]
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
    parts = [(name, chains.take(group == name)) for name in sorted(set(group))]
    groups = tuple((name, c.stop(whole.rule, whole.value), c.stop(best.rule, best.value)) for name, c in parts)
    return Stops(len(chains.table), sequential, costs.machine if costs else "", stops, advice, groups)


def _advice(chains: _Chains, cuts: dict[str, Sequence[float]]) -> tuple[StopAdvice, ...]:
    fitted, evaluated = (chains.take(chains.unit % 2 == half) for half in (0, 1))

    def price(stop: Stop) -> float:
        return stop.slowdown.value or (stop.nodes.value or 0.0 if (stop.kept.value or 0.0) >= KEPT else np.inf)

    by_rule = [[fitted.stop(rule, value) for value in values] for rule, values in cuts.items()]
    whole = by_rule[-1][-1]
    cheapest = sorted((min(stops, key=price) for stops in by_rule), key=price)
    uncut = evaluated.stop(whole.rule, whole.value)
    advice = []
    for chosen in (stop for stop in cheapest if price(stop) < price(whole)):
        stop = evaluated.stop(chosen.rule, chosen.value, len(cuts))
        clear = (stop.slowdown.high or 1) < 1 if chains.costs else (stop.kept.low or 0) > SURELY_KEPT
        advice.append(StopAdvice(stop, uncut, clear))
    return tuple(sorted(advice, key=lambda a: not a.clear))


# Sentences and the table.

EXAMPLE = "product", 0.05  # rule and threshold, shown if there are too few prompts to choose a cut
HALVES = "This cut was chosen on one half of the prompts and measured on the other half."
tenths = partial(digits, places=1)


def caption(stops: Stops) -> str:
    """Returns sentences about the assumptions of the figures."""
    time = (
        ""
        if not stops.machine
        else " Drafting time shrinks with every token that is not drafted."
        if stops.sequential
        else " Drafting time does not shrink when drafting stops earlier."
    )
    return (
        "Only the first draft of each step counts, as if it were verified alone. Cuts are applied to the recorded steps; a real run "
        f"with cuts would have other steps.{time}"
    )


def milliseconds(seconds: float | None) -> str:
    return digits(None if seconds is None else 1e3 * seconds)


def _place(stop: Stop) -> str:
    if stop.rule == "length":
        return f"after {count(int(stop.value), 'drafted token')}"
    if stop.rule == "single":
        return f"at the first confidence below {stop.value:g}"
    return f"when the product of confidences falls below {stop.value:g}"


def _effect(stop: Stop, whole: Stop, machine: str) -> str:
    """Returns a clause that compares a cut with whole drafts; with times, a sentence follows."""
    before, after = decimal(whole.alpha.value), decimal(stop.alpha.value)
    alpha = f"α stays at {after}" if before == after else f"α falls from {before} to {after}"
    if stop.kept.low is not None and stop.kept.low < 1:
        alpha += f" (at worst {percent(stop.kept.low)} of {before})"
    words = f"if drafting stops {_place(stop)}, a step verifies {tenths(stop.nodes.value)} nodes instead of {tenths(whole.nodes.value)}; {alpha}"
    if stop.slowdown.value is not None:
        times = (
            f"{milliseconds(stop.seconds.value)} ms instead of {milliseconds(whole.seconds.value)} ms with whole drafts"
        )
        words += f". Calculated for {cut(machine)}, a token takes {times}: {with_interval(stop.slowdown)} of that time"
    return words


def verdict(stops: Stops) -> Sentence:
    """Returns a sentence about the best cut. It states whether the cut is clearly better than whole drafts."""
    if stops.advice is None:
        stop = next(s for s in stops.stops if (s.rule, s.value) == EXAMPLE)
        more = f"Choosing a threshold needs at least {MIN_PROMPTS} prompts."
        return Sentence("few", f"{capitalized(_effect(stop, stops.stops[-1], stops.machine))}. {more}")
    if not stops.advice:
        why = "shortens the time per token" if stops.machine else f"keeps {percent(KEPT)} of α with fewer nodes"
        text = "Nothing is better than whole drafts: on one half of the prompts, no threshold and no shorter draft"
        return Sentence("note", f"{text} {why}.")
    best = stops.advice[0]
    effect = _effect(best.stop, best.whole, stops.machine)
    if best.clear:
        return Sentence("good", f"{capitalized(effect)}. {HALVES}")
    return Sentence("note", f"Nothing is clearly better than whole drafts. The best cut found: {effect}. {HALVES}")


def stop_sentences(stops: Stops | None, has_head: bool = False) -> Iterator[Sentence]:
    """Yields the verdict, then the sentences of ``engine_settings``.

    has_head: whether the drafter also has a confidence head, like a DSpark drafter.
    """
    if stops is None:
        return
    yield verdict(stops)
    for text in engine_settings(stops, has_head):
        yield Sentence("note", text)


def engine_settings(stops: Stops, has_head: bool = False) -> Iterator[str]:
    """Yields sentences about the cuts that are clearly better than whole drafts: the settings with which serving engines apply
    them, or that an engine has no such setting.

    For a DSpark drafter (``has_head``), a setting is left out if the engine compares the threshold with the output of the
    confidence head instead of the softmax, or if the engine does not accept the length.
    """
    clear = {a.stop.rule: a.stop for a in stops.advice or () if a.clear}
    drafted = int(stops.stops[-1].value)
    if "single" in clear and not has_head:
        yield (
            f"llama.cpp: --spec-draft-n-max {drafted} --spec-draft-p-min {clear['single'].value:g}. llama.cpp compares this "
            "threshold with the token’s share of the probability of the ten likeliest tokens. That share is never below the confidence "
            "used here, so drafts are somewhat longer."
        )
    elif "length" in clear:
        yield f"llama.cpp: --spec-draft-n-max {clear['length'].value:g}."
    if "length" in clear and not has_head:
        n = int(clear["length"].value)
        steps = f"--speculative-num-steps {n} --speculative-eagle-topk 1 " if stops.sequential else ""
        yield f'vLLM: "num_speculative_tokens": {n} in --speculative-config; this number does not include the anchor.'
        yield f"SGLang: {steps}--speculative-num-draft-tokens {n + 1}; this number includes the anchor."
    if has_head and clear:
        yield (
            "vLLM has no threshold for a DSpark drafter. With enable_adaptive_verification, the confidence head and the server’s load decide "
            "how many tokens are verified."
        )
    if clear and "length" not in clear and not has_head:
        yield f"vLLM and SGLang have no setting for {'this cut' if len(clear) == 1 else 'these cuts'}: neither takes a threshold on the draft’s confidence."
    if set(clear) == {"product"}:
        yield "llama.cpp has no such setting either: its threshold applies to single confidences, not to their product."


def _cell(figure: Estimate, write: Write = percent) -> str:
    """Returns a value with its interval. The interval is left out if it is a single point."""
    return write(figure.value) if figure.low == figure.high else with_interval(figure, write)


def stop_table(stops: Stops) -> Table:
    """Returns the table of whole drafts, of every cut, and of the first cut of ``stops.advice`` by prompt group."""
    *cuts, whole = stops.stops
    rows = [("whole drafts", whole), *((stop.name, stop) for stop in cuts)]
    for group, uncut, stop in stops.groups:
        rows.append((f"{cut(group)}: whole drafts", uncut))
        if stop != uncut:
            rows.append((f"{cut(group)}: {stop.name}", stop))
    columns: Columns[tuple[str, Stop]] = {
        "Stop at": lambda row: row[0],
        "Nodes a step": lambda row: _cell(row[1].nodes, tenths),
        "α": lambda row: _cell(row[1].alpha, decimal),
        "Share of α": lambda row: _cell(row[1].kept),
    }
    if stops.machine:
        columns |= {
            "ms per token, calculated": lambda row: _cell(row[1].seconds, milliseconds),
            "Share of the time": lambda row: _cell(row[1].slowdown),
        }
    return Table.of(columns, rows)
