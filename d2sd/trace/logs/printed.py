"""Logs with totals only: what servers print, their ``/metrics``, and the result files of benchmarks (docs/import.md).

ModelOpt's rates by position are both of the steps that got there and of all steps; the two must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.records import convert, first_choice
from d2sd.trace.logs.requests import LogTotals, share_of

NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
VLLM = re.compile(
    rf"SpecDecoding metrics: .*?Mean acceptance length: {NUMBER}.*?Accepted: ([0-9]+) tokens, Drafted: ([0-9]+) tokens"
    rf"(?:, Per-position acceptance rate: ([0-9., ]+))?"
)
SGLANG = re.compile(rf"Decode batch.*?accept len: {NUMBER}(?:.*?accept rate: {NUMBER})?(?:.*?gen throughput \(token/s\): {NUMBER})?")  # fmt: skip
LLAMACPP = re.compile(rf"draft acceptance(?: rate)? = +{NUMBER} +\( *([0-9]+) accepted / +([0-9]+) generated\)(.*)")
LENGTH = re.compile(rf"mean (?:acceptance length|len) = +{NUMBER}")
RATES = re.compile(r"per position = \(([0-9., ]+)\)")
EVALUATED = re.compile(rf"(?<!prompt )eval time = +{NUMBER} ms / +([0-9]+) tokens")
SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{([^}]*)\})? +([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
MAX_LINE = 10_000  # characters that are looked at
MAX_POSITIONS = 1024
NOT_PRINTED = "not in this log: single requests, where in the text each step ended and confidences"
Length = Annotated[float, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Rates = Annotated[list[Rate], Meta(max_length=1024)]
NOT_IN_RESULTS = "not in this file: single steps, acceptance by position and confidences"


def read_text(lines: Iterable[str]) -> Iterator[LogTotals]:
    """Yields a row of figures for each line that has some."""
    tokens: int | None = None
    for long in lines:
        line = long[:MAX_LINE]
        if (found := EVALUATED.search(line)) is not None:
            tokens = int(found[2])
        if (found := VLLM.search(line)) is not None:
            yield _vllm(found)
        if (found := SGLANG.search(line)) is not None:
            yield _sglang(found)
        if (found := LLAMACPP.search(line)) is not None:
            yield _llamacpp(found, tokens)
            tokens = None


def _vllm(found: re.Match[str]) -> LogTotals:
    length, accepted, drafted = float(found[1]), int(found[2]), int(found[3])
    rates = _rates(found[4])
    steps = round(accepted / (length - 1)) if length > 1 and accepted else None
    if steps is None and rates and drafted % len(rates) == 0:
        steps = drafted // len(rates)
    return LogTotals(
        engine="vllm", steps=steps, drafted=drafted, accepted=accepted, acceptance_rate=share_of(accepted, drafted),
        mean_acceptance_length=length, by_position=rates, unknown=NOT_PRINTED,
    )  # fmt: skip


def _sglang(found: re.Match[str]) -> LogTotals:
    rate, speed = (None if found[n] is None else float(found[n]) for n in (2, 3))
    return LogTotals(
        engine="sglang", acceptance_rate=rate, mean_acceptance_length=float(found[1]), tokens_per_second=speed,
        unknown=NOT_PRINTED,
    )  # fmt: skip


def _llamacpp(found: re.Match[str], tokens: int | None) -> LogTotals:
    """tokens: of the request, from the line before it."""
    accepted, drafted = int(found[2]), int(found[3])
    length, rates = LENGTH.search(found[4]), RATES.search(found[4])
    steps = None if tokens is None or tokens - 1 <= accepted else tokens - 1 - accepted
    if length is not None and float(length[1]) > 1:
        steps = round(accepted / (float(length[1]) - 1))
    alpha = float(length[1]) if length is not None else 1 + accepted / steps if steps else None
    return LogTotals(
        engine="llama.cpp", tokens=tokens, steps=steps, drafted=drafted, accepted=accepted,
        acceptance_rate=share_of(accepted, drafted), mean_acceptance_length=alpha,
        by_position=_rates(rates[1] if rates else None), unknown=NOT_PRINTED.replace("single requests, ", ""),
    )  # fmt: skip


def _rates(text: str | None) -> tuple[float, ...]:
    return tuple(float(n) for n in (text or "").strip(" ,").split(",")[:MAX_POSITIONS] if n.strip())


def read_metrics(lines: Iterable[str]) -> Iterator[LogTotals]:
    """Yields the figures of a page in Prometheus' text format, all models and engines together, if it has some.

    vLLM counts steps and tokens since its start; SGLang says α and the acceptance rate of its last batches.
    """
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in lines:
        found = SAMPLE.match(line[:MAX_LINE])
        if found is None:
            continue
        name, value = found[1].replace("vllm:", "").replace("sglang:", "").removesuffix("_total"), float(found[3])
        if name == "spec_decode_num_accepted_tokens_per_pos":
            at = dict(LABEL.findall(found[2] or "")).get("position", "")
            if at.isdecimal() and int(at) < MAX_POSITIONS:
                positions[int(at)] = positions.get(int(at), 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value if name.startswith("spec_decode") else value
    if {"spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"} <= sums.keys():
        steps, drafted = sums["spec_decode_num_drafts"], sums["spec_decode_num_draft_tokens"]
        accepted = sums["spec_decode_num_accepted_tokens"]
        by_position = tuple(positions.get(n, 0.0) for n in range(max(positions, default=-1) + 1))
        yield LogTotals(
            engine="vllm", steps=round(steps), drafted=round(drafted), accepted=round(accepted),
            acceptance_rate=share_of(accepted, drafted), mean_acceptance_length=1 + accepted / steps if steps else None,
            by_position=tuple(n / steps for n in by_position) if steps else (), unknown=NOT_PRINTED,
        )  # fmt: skip
    elif alpha := sums.get("spec_accept_length"):
        rate = sums.get("spec_accept_rate")
        yield LogTotals(engine="sglang", acceptance_rate=rate, mean_acceptance_length=alpha, unknown=NOT_PRINTED)


# Result files of benchmarks.


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
