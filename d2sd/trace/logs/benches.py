"""Result files of benchmarks and of TensorRT-LLM: means or sums over many steps, and ModelOpt's drafter profile.

TensorRT-LLM: ``avg_decoded_tokens_per_iter`` of a choice, ``speculative_decoding`` of ``/perf_metrics`` (``return_perf_metrics``).
SpecForge: ``accept_length`` of ``bench_eagle3.py``. EAGLE: ``idxs`` and ``new_tokens`` of its answer files. ModelOpt:
``speculation_profile.json``, schema 1.0, with rates by position both of the steps that got there and of all steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.records import convert
from d2sd.trace.logs.totals import Totals

Length = Annotated[float, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Rates = Annotated[list[Rate], Meta(max_length=1024)]
MEANS = "not in this file: single steps, acceptance by position and confidences"


class Speculation(Struct):
    """TensorRT-LLM's totals of a request."""

    total_accepted_draft_tokens: Count
    total_draft_tokens: Count
    acceptance_rate: Rate | None = None


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


def trtllm_fits(record: dict[str, Any]) -> bool:
    """Whether a record is a reply of TensorRT-LLM, or of its ``/perf_metrics``."""
    return _iterations(record) is not None or "speculative_decoding" in _perf(record)


def read_trtllm(record: dict[str, Any], where: str) -> Iterator[Totals]:
    """One row."""
    perf, mean = _perf(record), _iterations(record)
    usage = record.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    tokens = tokens if isinstance(tokens, int) and tokens >= 0 else None
    found = perf.get("speculative_decoding")
    stats = None if found is None else convert(found, Speculation, f"{where}: speculative_decoding")
    accepted = drafted = rate = None
    if stats is not None:
        accepted, drafted = stats.total_accepted_draft_tokens, stats.total_draft_tokens
        if accepted > drafted:
            raise InputError(f"{where}: {accepted} tokens accepted of {drafted} drafted")
        rate = accepted / drafted if drafted else None
    alpha = convert(mean, Length, f"{where}: avg_decoded_tokens_per_iter") if mean is not None else None
    steps = round(tokens / alpha) if tokens and alpha else None
    if alpha is None:
        raise InputError(
            f"{where}: it has no avg_decoded_tokens_per_iter, so α is not known; keep the replies of /v1/completions too"
        )
    yield Totals("tensorrt-llm", tokens, steps, drafted, accepted, rate, alpha, (), None, MEANS)


def _iterations(record: dict[str, Any]) -> Any:
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    return next((p["avg_decoded_tokens_per_iter"] for p in (first, record) if p.get("avg_decoded_tokens_per_iter") is not None), None)  # fmt: skip


def _perf(record: dict[str, Any]) -> dict[str, Any]:
    for name in ("perf_metrics", "request_perf_metrics"):
        if isinstance(record.get(name), dict):
            inner: dict[str, Any] = record[name]
            return inner
    return {}


def specforge_fits(record: dict[str, Any]) -> bool:
    """Whether a record is of SpecForge's benchmark: one entry, or its file of several data sets."""
    return bool(list(_lengths(record, "")))


def read_specforge(record: dict[str, Any], where: str) -> Iterator[Totals]:
    """One row an entry, of which only the mean acceptance length is known."""
    for place, entry, alpha in _lengths(record, ""):
        length = convert(alpha, Length, f"{where}: {place}")
        tokens, speed = entry.get("completion_tokens"), entry.get("output_throughput", entry.get("speed"))
        count = tokens if isinstance(tokens, int) and tokens >= 0 else None
        steps = round(count / length) if count else None
        spoken = float(speed) if isinstance(speed, int | float) and speed > 0 else None
        yield Totals("specforge", count, steps, None, None, None, length, (), spoken, MEANS)


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


def eagle_fits(record: dict[str, Any]) -> bool:
    """Whether a record is a line of EAGLE's answer file."""
    choices = record.get("choices")
    return isinstance(choices, list) and bool(choices) and isinstance(choices[0], dict) and {"idxs", "new_tokens"} <= choices[0].keys()  # fmt: skip


def read_eagle(record: dict[str, Any], where: str) -> Iterator[Totals]:
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
            yield Totals("eagle", tokens, steps, None, tokens - steps, None, tokens / steps, (), None, MEANS)


def modelopt_fits(record: dict[str, Any]) -> bool:
    """Whether a record is ModelOpt's profile."""
    return {"conditional_accept_rates", "marginal_accept_rates"} <= record.keys()


def read_modelopt(record: dict[str, Any], where: str) -> Iterator[Totals]:
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
    alpha = found.mean_accept_length
    lengths = {int(k): n for k, n in (found.acceptance_length_histogram or {}).items() if k.isdecimal()}
    steps = sum(lengths.values()) or None
    accepted = sum((k - 1) * n for k, n in lengths.items()) if steps else None
    drafted = None if steps is None else steps * found.num_speculative_tokens
    yield Totals(
        "modelopt", None, steps, drafted, accepted, accepted / drafted if accepted is not None and drafted else None, alpha,
        tuple(found.marginal_accept_rates), None, "not in this file: single requests and confidences",
    )  # fmt: skip
