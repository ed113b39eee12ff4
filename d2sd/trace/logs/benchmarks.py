"""Replies of TensorRT-LLM and ModelOpt's profiles, as rows of figures (docs/import.md).

ModelOpt's rates by position are both of the steps that got there and of all steps; the two must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.records import convert, first_choice
from d2sd.trace.logs.requests import LogTotals, share_of

Length = Annotated[float, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Rates = Annotated[list[Rate], Meta(max_length=1024)]
NOT_IN_RESULTS = "not in this file: single steps, acceptance by position and confidences"


class Speculation(Struct):
    total_accepted_draft_tokens: Count
    total_draft_tokens: Count


class Profile(Struct):
    num_speculative_tokens: Count
    conditional_accept_rates: Rates
    marginal_accept_rates: Rates
    mean_accept_length: Length | None = None
    acceptance_length_histogram: dict[str, Count] | None = None
    measured: bool = True


def read_trtllm(record: dict[str, Any], where: str) -> LogTotals:
    """Returns TensorRT-LLM's figures of a request."""
    perf, mean = _perf(record), _iterations(record)
    if mean is None:
        raise InputError(
            f"{where}: it has no avg_decoded_tokens_per_iter, so α is not known; keep the replies of /v1/completions too"
        )
    alpha: float = convert(mean, Length, f"{where}: avg_decoded_tokens_per_iter")
    usage = record.get("usage")
    tokens = _count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    accepted = drafted = None
    if (found := perf.get("speculative_decoding")) is not None:
        stats = convert(found, Speculation, f"{where}: speculative_decoding")
        accepted, drafted = stats.total_accepted_draft_tokens, stats.total_draft_tokens
        if accepted > drafted:
            raise InputError(f"{where}: {accepted} tokens accepted of {drafted} drafted")
    return LogTotals(
        engine="tensorrt-llm", tokens=tokens, steps=round(tokens / alpha) if tokens else None, drafted=drafted,
        accepted=accepted, acceptance_rate=share_of(accepted, drafted), mean_acceptance_length=alpha, unknown=NOT_IN_RESULTS,
    )  # fmt: skip


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _iterations(record: dict[str, Any]) -> Any:
    """The mean number of tokens per step, of the first choice or else of the whole reply."""
    return next(
        (v for of in (first_choice(record), record) if (v := of.get("avg_decoded_tokens_per_iter")) is not None), None
    )


def _perf(record: dict[str, Any]) -> dict[str, Any]:
    found = (record.get(name) for name in ("perf_metrics", "request_perf_metrics"))
    return next((inner for inner in found if isinstance(inner, dict)), {})


def read_modelopt(record: dict[str, Any], where: str) -> LogTotals:
    """Returns ModelOpt's figures of a benchmark; its rates must go with each other."""
    found = convert(record, Profile, where)
    if not found.measured or found.mean_accept_length is None:
        raise InputError(f"{where}: measured is false: the profile holds no figures")
    before = 1.0
    for at, (own, of_all) in enumerate(zip(found.conditional_accept_rates, found.marginal_accept_rates, strict=False)):
        if abs(before * own - of_all) > 1e-3:
            raise InputError(
                f"{where}: marginal_accept_rates[{at}]: {of_all:g}, where the conditional rates give {before * own:.4g}"
            )
        before = of_all
    lengths = {int(k): n for k, n in (found.acceptance_length_histogram or {}).items() if k.isdecimal()}
    steps = sum(lengths.values()) or None
    accepted = sum((k - 1) * n for k, n in lengths.items()) if steps else None
    drafted = None if steps is None else steps * found.num_speculative_tokens
    return LogTotals(
        engine="modelopt", steps=steps, drafted=drafted, accepted=accepted, acceptance_rate=share_of(accepted, drafted),
        mean_acceptance_length=found.mean_accept_length, by_position=tuple(found.marginal_accept_rates),
        unknown="not in this file: single requests and confidences",
    )  # fmt: skip


# By source, whether a record is of this kind, and its row, given its place in the file.
BENCHMARKS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, str], LogTotals]]] = {
    "modelopt": (lambda r: {"conditional_accept_rates", "marginal_accept_rates"} <= r.keys(), read_modelopt),
    "trtllm": (lambda r: _iterations(r) is not None or "speculative_decoding" in _perf(r), read_trtllm),
}
