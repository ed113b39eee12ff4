"""Equations between the values that programs print. They give the values that a row of a log lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from inspect import signature
from typing import Any

from d2sd.logs.figures import LOAD, Figures, Unit

MAX_POSITIONS = 1024
LONGEST = 15.0  # seconds; longer intervals of vLLM are assumed to include idle time
MOST_PROMPT = 100.0  # prompt tokens per second; above this speed, an interval includes prefill
DRAFTS = ("steps", "drafted", "accepted", "alpha", "rate", "rates", "reached", "counts")
# Fields of ``Figures``, and the names of their values here.
FIELDS = {field.name: field.name for field in fields(Figures)} | {
    "stated_alpha": "alpha",
    "stated_rate": "rate",
    "by_position": "rates",
}
WHOLE = ("tokens", "steps", "drafted", "accepted", "at_once", "failures")


def _of_counts(counts: Sequence[int], steps: float, drafted: float) -> tuple[float, ...] | None:
    """Returns acceptance by position from the numbers of steps by accepted tokens, if all drafts have the same length."""
    if sum(counts) != steps or drafted % steps or drafted / steps > MAX_POSITIONS:
        return None
    return tuple(sum(counts[k:]) / steps for k in range(1, 1 + round(drafted / steps)))


# (wanted value, its formula). The parameters of a formula are the values that it needs; of several formulas, the first one that
# can be computed is used. predicted: output tokens of a request, the first of which belongs to no step; written: tokens of steps;
# generated: tokens, of which some may come from steps without a draft; emitted: tokens that all steps committed; reached: [k]: steps
# that accepted drafted token k + 1; counts: [j]: steps that accepted j tokens; rates: acceptance by position; decode: seconds of the output;
# chunk: seconds per streamed part, of which vLLM sends one per step; draft: seconds of the drafter;
# calls: calls of the drafter, one per step, even if nothing is drafted; window: seconds of an interval; prompts: prompt tokens per second.
EQUATIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("steps", lambda drafted, gamma: drafted / gamma),
    ("steps", lambda drafted, rates: None if drafted % len(rates) else drafted / len(rates)),
    ("steps", lambda accepted, alpha: accepted / (alpha - 1)),
    ("steps", lambda predicted, accepted: predicted - accepted - 1),
    ("steps", lambda written, accepted: written - accepted),
    ("alpha", lambda rate, chunk, token_seconds: chunk / token_seconds),
    ("alpha", lambda emitted, steps: emitted / steps),
    ("accepted", lambda alpha, steps: (alpha - 1) * steps),
    ("rates", _of_counts),
    ("rates", lambda reached, steps: tuple(n / steps for n in reached) if max(reached) <= steps else None),
    ("calls", lambda steps: steps),
    ("draft_seconds", lambda draft, calls: draft / calls),
    ("tokens", lambda predicted: predicted),
    ("tokens", lambda written: written),
    ("tokens", lambda generated: generated),
    ("tokens", lambda emitted: emitted),
    ("window", lambda accepted, accepted_speed: accepted / accepted_speed),
    ("tokens", lambda tokens_per_second, window: tokens_per_second * window if window < LONGEST else None),
    ("seconds", lambda decode: decode),
    ("seconds", lambda written, tokens_per_second: written / tokens_per_second),
    ("token_seconds", lambda seconds, tokens: seconds / tokens),
    ("token_seconds", lambda token_sum, token_count: token_sum / token_count),
    ("at_once", lambda running: running),
    (
        "token_seconds",
        lambda running, tokens_per_second, prompts: None if prompts > MOST_PROMPT else running / tokens_per_second,
    ),
    ("by_length", lambda held, alpha, running: ((round(held), alpha),) if running == 1 else None),
    ("gamma", lambda option: option),
    ("remote_prefill", lambda transfers: True),
    ("remote_prefill", lambda external: external > 0),
    ("failures", lambda failure: 1),
)
NEEDS = [(wanted, tuple(signature(formula).parameters), formula) for wanted, formula in EQUATIONS]


def solve(known: dict[str, Any]) -> None:
    """Adds all values that the equations give."""
    size = -1
    while size < len(known):
        size = len(known)
        for wanted, needs, formula in NEEDS:
            if wanted in known or not known.keys() >= set(needs):
                continue
            try:
                value = formula(*(known[name] for name in needs))
            except ZeroDivisionError:
                continue
            if (value and (isinstance(value, tuple) or value > 0)) or (value == 0 and wanted == "accepted"):
                known[wanted] = value


def figures_of(engine: str, unit: Unit, known: dict[str, Any]) -> Figures:
    """Returns the figures of a request or a row from its values, among them the names of its models."""
    known = {"prompts": 0.0} | {name: value for name, value in known.items() if value is not None}
    if known.get("drafted") == 0:
        known = {name: value for name, value in known.items() if name not in DRAFTS}
    solve(known)
    figures: dict[str, Any] = {
        field: (known[name],) if field in LOAD else round(known[name]) if field in WHOLE else known[name]
        for field, name in FIELDS.items()
        if name in known
    }
    return Figures(engine=engine, unit=unit, requests=int(unit == "request"), **figures)


def row_of(engine: str, unit: Unit, known: dict[str, Any]) -> Iterator[Figures]:
    """Yields the figures of a row like ``figures_of``, unless there are none, or they contradict each other."""
    row = figures_of(engine, unit, known)
    wrong = row.accepted is not None and row.drafted is not None and row.accepted > row.drafted
    if not wrong and (row.drafts or row.token_seconds or row.tokens_per_second or row.failures or row.running):
        yield row
