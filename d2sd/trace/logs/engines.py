"""vLLM's per-request metrics (``--per-request-spec-decode-metrics``): ``metrics.speculative_decoding`` of a reply.

Levels and fields: docs.vllm.ai, "Per-Request Acceptance Metrics". ``detailed`` has the counts of every step, ``summary``
their histogram. Versions before that put ``speculative_decoding_stats`` into the choice, with a sparse histogram.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.requests import Counts, check_mean, dense
from d2sd.trace.logs.reply import read_reply
from d2sd.trace.logs.records import convert
from d2sd.trace.schema import MAX_ITEMS

ENGINE = "vllm"
OPTION = "--per-request-spec-decode-metrics detailed"
PerStep = Annotated[list[Count], Meta(max_length=100_000)]
Amount = Annotated[float, Meta(ge=0)]


class Stats(Struct):
    """The figures of one request, as documented."""

    num_spec_steps: Count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    acceptance_histogram: Annotated[list[Count], Meta(max_length=MAX_ITEMS)] | dict[str, Count]
    num_spec_tokens: Count | None = None
    mean_acceptance_length: Amount | None = None
    draft_acceptance_rate: Amount | None = None
    per_step_accepted: PerStep | None = None
    per_step_drafted: PerStep | None = None


class Times(Struct):
    """Of the per-request timing metrics, those that a trace holds."""

    generation_time_ms: Amount | None = None
    time_to_first_token_ms: Amount | None = None


def fits(record: dict[str, Any]) -> bool:
    """Whether a record is a reply of vLLM."""
    return "metrics" in record or "speculative_decoding_stats" in _choice(record)


def read(record: dict[str, Any], where: str) -> Counts:
    """The counts of one reply."""
    place, stats = f"{where}: metrics.speculative_decoding", None
    metrics = record.get("metrics")
    if isinstance(metrics, dict):
        stats = metrics.get("speculative_decoding")
    if stats is None:
        place, stats = (
            f"{where}: choices[0].speculative_decoding_stats",
            _choice(record).get("speculative_decoding_stats"),
        )
    if stats is None:
        raise InputError(
            f"{where}: metrics.speculative_decoding: nothing is there; start the server with {OPTION} and ask for one "
            "output a request"
        )
    times = convert(metrics, Times, f"{where}: metrics") if isinstance(metrics, dict) else Times()
    said = read_reply(record, where)
    said["seconds"] = times.generation_time_ms and times.generation_time_ms / 1e3
    said["prefill_seconds"] = times.time_to_first_token_ms and times.time_to_first_token_ms / 1e3
    return _counts(convert(stats, Stats, place), place, said)


def _counts(stats: Stats, place: str, said: dict[str, Any]) -> Counts:
    """Checked figures as ``Counts``; said: what else is known of the request."""
    steps, accepted = stats.num_spec_steps, stats.num_accepted_draft_tokens
    check_mean(stats.mean_acceptance_length, 1 + accepted / steps if steps else None, f"{place}.mean_acceptance_length")
    rate = accepted / stats.num_draft_tokens if stats.num_draft_tokens else None
    check_mean(stats.draft_acceptance_rate, rate, f"{place}.draft_acceptance_rate")
    histogram, longest = dense(stats.acceptance_histogram, f"{place}.acceptance_histogram"), stats.num_spec_tokens
    if histogram and longest is not None and len(histogram) > longest + 1:
        raise InputError(f"{place}.acceptance_histogram: at most {longest} tokens are drafted a step")
    per_step = stats.per_step_accepted, stats.per_step_drafted
    if (per_step[0] is None) != (per_step[1] is None):
        lacking = "per_step_accepted" if per_step[0] is None else "per_step_drafted"
        raise InputError(f"{place}.{lacking}: it is missing, but the other list of steps is there")
    return Counts(
        ENGINE,
        place,
        steps,
        accepted,
        stats.num_draft_tokens,
        histogram,
        None if per_step[0] is None else tuple(per_step[0]),
        None if per_step[1] is None else tuple(per_step[1]),
        longest,
        **said,
    )


def _choice(record: dict[str, Any]) -> dict[str, Any]:
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}
