"""Controller of Race: one prompt and seed through several methods, one after the other for fair timing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from app import models, settings
from app.explore.run import PLAIN, on_drafters
from app.jobs import Job, Update, failure_sentence
from app.links import MAX_PROMPT
from app.models import Chosen, named
from app.race.lanes import LANES, Lane, Race, lane_name, method_of, name_of
from app.streaming import Recorder, first_tokens, paced, prepare
from d2sd import DecodeConfig, InputError
from d2sd.nets.dtypes import NEAR_TIES, SIXTEEN_BITS


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one lane. Its text is compared with the reference: plain decoding, or else the first complete lane.

    seconds: time of all steps, without prefill; ``stage_seconds``: the same by stage.
    speedup: tokens per second relative to plain decoding; None if plain decoding is not complete.
    place: rank by time, 1 for the fastest; None if the lane is not complete.
    identical: whether the texts are equal; None if one is not complete.
    differs_at: length of the common prefix in tokens; None if the texts are equal or one is not complete.
    """

    method: str
    tokens: int
    seconds: float
    mean_acceptance_length: float
    tokens_per_second: float
    nodes_per_step: float
    stage_seconds: dict[str, float]
    speedup: float | None
    place: int | None
    identical: bool | None
    differs_at: int | None


def run(
    job: Job, prompt: str, chosen: Chosen, methods: Sequence[str], values: dict[str, Any]
) -> Iterator[Update[Race]]:
    """Yield updates while the methods run one after the other, in the order of ``LANES``.

    Methods without a drafter in these models are left out, with a note. Raises ``InputError`` before the first value, so the
    race on the page stays.

    methods: names of lanes.
    values: settings by name.
    """
    if len(prompt) > MAX_PROMPT:
        raise InputError(f"the prompt has {len(prompt)} characters; the page reads at most {MAX_PROMPT}")
    # without details for the drawing of trees: nothing but decoding is timed
    configs = [_config(name, values) for name in LANES if name in methods]
    if not configs:
        raise InputError("no method is ticked; tick at least one, better two")
    if not models.loaded(chosen):
        yield Update(news=f"Loading {chosen.model} …")
    reasons = {c.method: models.engine(chosen).obstacle(c.method) for c in configs}
    left_out = [reason for reason in reasons.values() if reason]
    if len(left_out) == len(configs):
        raise InputError(left_out[0])
    configs = [c for c in configs if not reasons[c.method]]
    runs = [prepare(chosen, prompt, config) for config in configs]
    race = Race(prompt, tuple(name_of(c.method, c.cost_aware) for c in configs), asked=configs[0])
    for place, prepared in enumerate(runs, 1):
        if job.cancelled():
            break
        title = f"{place} of {len(runs)}: {named(race.methods[place - 1])}"
        yield Update(replace(race, status=f"{title}, warming up …"))
        recorder = Recorder(prepared, job.cancelled)
        problem = ""
        try:
            for _ in paced(chain(first_tokens(prepared, job.cancelled), recorder)):
                yield Update(replace(race, status=f"{title}, {recorder.trace().totals.tokens} tokens …"))
        except Exception as error:  # the other methods still run
            problem = failure_sentence(error)
        race = replace(race, lanes=(*race.lanes, Lane(recorder.trace(), problem)))
    notes = [on_drafters(runs[0]), *(f"Left out: {reason}." for reason in left_out)]
    notes += [NEAR_TIES] if rounded_apart(race) else []
    yield Update(race, note=" ".join(n for n in notes if n))


def rounded_apart(race: Race) -> bool:
    """Returns whether texts differ at temperature 0 in a 16-bit dtype, where rounding decides near ties."""
    kind = race.lanes[0].trace.header["hardware"]["dtype"] if race.lanes else ""
    greedy = race.asked is not None and race.asked.temperature == 0
    return greedy and kind in SIXTEEN_BITS and any(row.identical is False for row in rows(race))


def _config(name: str, values: dict[str, Any]) -> DecodeConfig:
    method = method_of(name)
    return replace(settings.config(method, values), inspect=False, cost_aware=name != method)


def reference(race: Race) -> Lane | None:
    """Returns the lane that texts are compared with: plain decoding, or else the first complete one."""
    complete = [lane for lane in race.lanes if lane.complete]
    plain = [lane for lane in complete if lane.trace.header["method"] == PLAIN]
    return next(iter(plain or complete), None)


def rows(race: Race) -> list[Row]:
    """Returns the table of the race, one row per lane."""
    base = reference(race)
    plain = base.trace.totals if base and base.trace.header["method"] == PLAIN else None
    order = sorted(lane.trace.totals.seconds for lane in race.lanes if lane.complete)
    return [_row(lane, base, plain.tokens_per_second if plain else None, order) for lane in race.lanes]


def _row(lane: Lane, base: Lane | None, plain_speed: float | None, order: list[float]) -> Row:
    totals = lane.trace.totals
    comparable = lane.complete and base is not None
    differs = _differs_at(lane.trace.token_ids, base.trace.token_ids) if base and comparable else None
    return Row(
        method=lane_name(lane.trace),
        tokens=totals.tokens,
        seconds=totals.seconds,
        mean_acceptance_length=totals.mean_acceptance_length,
        tokens_per_second=totals.tokens_per_second,
        nodes_per_step=totals.nodes_per_step,
        stage_seconds=totals.stage_seconds,
        speedup=totals.tokens_per_second / plain_speed if plain_speed and totals.steps else None,
        place=order.index(totals.seconds) + 1 if lane.complete else None,
        identical=differs is None if comparable else None,
        differs_at=differs,
    )


def _differs_at(own: list[int], other: list[int]) -> int | None:
    """Returns the length of the common prefix of two texts in tokens, or None if they are equal."""
    if own == other:
        return None
    pairs = enumerate(zip(own, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(own), len(other)))
