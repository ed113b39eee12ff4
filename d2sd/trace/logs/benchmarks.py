"""The result files of benchmarks, as rows of figures (docs/import.md).

ModelOpt's rates by position are both of the steps that got there and of all steps; the two must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """TensorRT-LLM's totals of a request."""

    total_accepted_draft_tokens: Count
    total_draft_tokens: Count


class Turns(Struct):
    """EAGLE's figures of a choice: by turn the number of the last step, from 0, and the new tokens."""

    idxs: Annotated[list[Count], Meta(max_length=4096)]
    new_tokens: Annotated[list[Count], Meta(max_length=4096)]


class Profile(Struct):
    """ModelOpt's profile."""

    num_speculative_tokens: Count
    conditional_accept_rates: Rates
    marginal_accept_rates: Rates
    mean_accept_length: Length | None = None
    acceptance_length_histogram: dict[str, Count] | None = None
    measured: bool = True


def read_trtllm(record: dict[str, Any], where: str) -> Iterator[LogTotals]:
    """One row."""
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
    yield LogTotals(
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


def read_specforge(record: dict[str, Any], where: str) -> Iterator[LogTotals]:
    """One row an entry, of which only the mean acceptance length is known."""
    for place, entry, alpha in _lengths(record, ""):
        length = convert(alpha, Length, f"{where}: {place}")
        tokens, speed = _count(entry.get("completion_tokens")), entry.get("output_throughput", entry.get("speed"))
        yield LogTotals(
            engine="specforge", tokens=tokens, steps=round(tokens / length) if tokens else None, mean_acceptance_length=length,
            tokens_per_second=float(speed) if isinstance(speed, int | float) and speed > 0 else None, unknown=NOT_IN_RESULTS,
        )  # fmt: skip


def _lengths(data: Any, place: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any], Any]]:
    if isinstance(data, dict):
        for name in ("accept_length", "acc_length"):
            if isinstance(data.get(name), int | float):
                yield f"{place}{name}", data, data[name]
                return
    if depth < 5:
        inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
        for key, value in inner:
            if isinstance(value, dict | list):
                yield from _lengths(value, f"{place}{key}.", depth + 1)


def read_eagle(record: dict[str, Any], where: str) -> Iterator[LogTotals]:
    """One row a turn of every choice."""
    for number, choice in enumerate(record["choices"]):
        turns = convert(choice, Turns, f"{where}: choices[{number}]")
        if len(turns.idxs) != len(turns.new_tokens):
            raise InputError(
                f"{where}: choices[{number}]: {len(turns.idxs)} idxs, and {len(turns.new_tokens)} new_tokens"
            )
        for last, tokens in zip(turns.idxs, turns.new_tokens, strict=True):
            steps = last + 1
            if tokens < steps:
                raise InputError(f"{where}: choices[{number}]: {tokens} new tokens in {steps} steps")
            yield LogTotals(
                engine="eagle", tokens=tokens, steps=steps, accepted=tokens - steps, mean_acceptance_length=tokens / steps,
                unknown=NOT_IN_RESULTS,
            )  # fmt: skip


def read_modelopt(record: dict[str, Any], where: str) -> Iterator[LogTotals]:
    """One row; its rates must go with each other."""
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
    yield LogTotals(
        engine="modelopt", steps=steps, drafted=drafted, accepted=accepted, acceptance_rate=share_of(accepted, drafted),
        mean_acceptance_length=found.mean_accept_length, by_position=tuple(found.marginal_accept_rates),
        unknown="not in this file: single requests and confidences",
    )  # fmt: skip


# By source, whether a record is of this kind, and the rows of a record at a place of the file.
BENCHMARKS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, str], Iterator[LogTotals]]]] = {
    "modelopt": (lambda r: {"conditional_accept_rates", "marginal_accept_rates"} <= r.keys(), read_modelopt),
    "eagle": (lambda r: {"idxs", "new_tokens"} <= first_choice(r).keys(), read_eagle),
    "trtllm": (lambda r: _iterations(r) is not None or "speculative_decoding" in _perf(r), read_trtllm),
    "specforge": (lambda r: any(_lengths(r, "")), read_specforge),
}
