"""Reads replies of serving engines as ``Counts``, and the dump of a llama.cpp fork as traces.

docs/import.md describes what each engine logs and how to enable it. In llama.cpp, the target's pass over the prompt gives the
first token. Every further pass is a step, which gives the accepted tokens and a bonus token. The number of passes is therefore
``predicted_n`` − ``draft_n_accepted``. Every part of a streamed reply has running totals, so each step is known.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.checks import SCHEMA
from d2sd.trace.events import (
    MAX_ITEMS,
    MAX_TEXTS,
    Alternative,
    Committed,
    Count,
    Event,
    Finished,
    PrefillDone,
    Probability,
)
from d2sd.trace.logs.records import PARTS, Record, convert
from d2sd.trace.logs.requests import NOT_KNOWN, Counts, Texts, Token, chain_step, check_mean, dense, share_of
from d2sd.trace.trace import Trace

VLLM_OPTION = "--per-request-spec-decode-metrics detailed"
SGLANG_OPTION = '"return_spec_tokens_details": true'
MAX_SEQUENCES = 4096  # sequences of a dump that are read at the same time
Amount = Annotated[float, Meta(ge=0)]
Ids = Annotated[list[Count], Meta(max_length=MAX_TEXTS)]
PerStep = Annotated[tuple[Count, ...], Meta(max_length=100_000)]
Histogram = Annotated[list[Count], Meta(max_length=MAX_ITEMS)]


# Replies in OpenAI's format: text, token ids, usage.


class Usage(Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Message(Struct):
    content: str | None = None


class Output(Struct):
    """An entry of ``choices`` in a reply. Readers of single engines read additional fields."""

    text: str | None = None
    message: Message | None = None
    token_ids: Ids | None = None
    prompt_token_ids: Ids | None = None
    finish_reason: str | None = None


class Reply(Struct):
    """A whole reply. ``prompt`` is not part of OpenAI's format, but a log may contain it."""

    choices: Annotated[list[Output], Meta(max_length=1024)] = []
    usage: Usage | None = None
    prompt: str | None = None
    prompt_token_ids: Ids | None = None
    model: str | None = None


def read_reply(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns the reply's fields as arguments of ``Counts``. The fields of ``choices`` are used only if it has one entry."""
    reply = convert(record, Reply, where)
    usage, only = reply.usage or Usage(), reply.choices[0] if len(reply.choices) == 1 else Output()
    prompt_ids = reply.prompt_token_ids or only.prompt_token_ids or ()
    return {
        "completion": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "prompt": reply.prompt,
        "prompt_ids": tuple(prompt_ids),
        "text": only.text if only.text is not None else only.message and only.message.content,
        "output_ids": None if only.token_ids is None else tuple(only.token_ids),
        "finish": only.finish_reason,
        "model": reply.model,
    }


# vLLM.


class VllmStats(Struct):
    """vLLM's figures of one request."""

    num_spec_steps: Count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    acceptance_histogram: Histogram | dict[str, Count]
    num_spec_tokens: Count | None = None
    mean_acceptance_length: Amount | None = None
    draft_acceptance_rate: Amount | None = None
    per_step_accepted: PerStep | None = None
    per_step_drafted: PerStep | None = None


class VllmTimes(Struct):
    """The per-request times of vLLM that a trace stores."""

    generation_time_ms: Amount | None = None
    time_to_first_token_ms: Amount | None = None


def read_vllm(record: dict[str, Any], where: str) -> Counts:
    place, stats = f"{where}: metrics.speculative_decoding", None
    metrics = record.get("metrics")
    if isinstance(metrics, dict):
        stats = metrics.get("speculative_decoding")
    if stats is None:
        raise InputError(
            f"{where}: metrics.speculative_decoding: it is missing; start the server with {VLLM_OPTION} and request one output "
            "per prompt"
        )
    times = convert(metrics, VllmTimes, f"{where}: metrics") if isinstance(metrics, dict) else VllmTimes()
    found, known = convert(stats, VllmStats, place), read_reply(record, where)
    known["seconds"] = times.generation_time_ms and times.generation_time_ms / 1e3
    known["prefill_seconds"] = times.time_to_first_token_ms and times.time_to_first_token_ms / 1e3
    steps, accepted, drafted = found.num_spec_steps, found.num_accepted_draft_tokens, found.num_draft_tokens
    check_mean(found.mean_acceptance_length, 1 + accepted / steps if steps else None, f"{place}.mean_acceptance_length")
    check_mean(found.draft_acceptance_rate, share_of(accepted, drafted), f"{place}.draft_acceptance_rate")
    histogram, longest = dense(found.acceptance_histogram, f"{place}.acceptance_histogram"), found.num_spec_tokens
    if longest is not None and len(histogram) > longest + 1:
        raise InputError(f"{place}.acceptance_histogram: at most {longest} tokens are drafted per step")
    if (found.per_step_accepted is None) != (found.per_step_drafted is None):
        lacking = "per_step_accepted" if found.per_step_accepted is None else "per_step_drafted"
        raise InputError(f"{place}.{lacking}: it is missing, but the other list of steps is present")
    known |= {"accepted": found.per_step_accepted, "drafted": found.per_step_drafted, "longest": longest}
    return Counts("vllm", place, steps, accepted, drafted, histogram, **known)


# SGLang.


class SglangDetails(Struct):
    """SGLang's figures of one request. Correct drafts are the accepted drafted tokens, without the bonus token."""

    spec_num_correct_drafts: Count
    spec_num_proposed_drafts: Count
    spec_verify_ct: Count
    spec_correct_drafts_histogram: Histogram | None = None
    spec_accept_rate: Amount | None = None


class SglangLengths(Struct):
    """Length and time of a request, from ``meta_info``."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    e2e_latency: Amount | None = None


def read_sglang(record: dict[str, Any], where: str) -> Counts:
    extra, known = record.get("sglext"), read_reply(record, where)
    details = extra.get("spec_tokens_details") if isinstance(extra, dict) else None
    place = f"{where}: sglext.spec_tokens_details"
    if details is None and (found := _sglang_meta(record)):
        place, details = f"{where}: {found[0]}", found[1]
        meta = convert(details, SglangLengths, place)
        lengths = {"completion": meta.completion_tokens, "prompt_tokens": meta.prompt_tokens}
        known |= {name: number for name, number in lengths.items() if known[name] is None}
        known["seconds"] = meta.e2e_latency
    if details is None:
        raise InputError(f"{place}: it is missing; send {SGLANG_OPTION} with the request")
    older = {"spec_num_correct_drafts": "spec_accept_token_num", "spec_num_proposed_drafts": "spec_draft_token_num"}
    details = (
        {**{new: details[old] for new, old in older.items() if old in details}, **details}
        if isinstance(details, dict)
        else details
    )
    stats = convert(details, SglangDetails, place)
    correct, proposed = stats.spec_num_correct_drafts, stats.spec_num_proposed_drafts
    check_mean(stats.spec_accept_rate, share_of(correct, proposed), f"{place}.spec_accept_rate")
    steps, histogram = stats.spec_verify_ct, stats.spec_correct_drafts_histogram
    longest = proposed // steps if steps and proposed % steps == 0 else None
    counted = None if histogram is None else tuple(histogram)
    return Counts("sglang", place, steps, correct, proposed, counted, longest=longest, **known)


def _sglang_meta(record: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Returns place and content of ``meta_info``, in the reply or its only choice; None without figures of drafts."""
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    for place, holder in (("meta_info", record), ("choices[0].meta_info", first)):
        meta = holder.get("meta_info") if isinstance(holder, dict) else None
        if isinstance(meta, dict) and "spec_verify_ct" in meta:
            return place, meta
    return None


# llama.cpp.


class Timings(Struct):
    """llama.cpp's totals of one request; the draft fields are absent if nothing was drafted."""

    predicted_n: Count
    predicted_ms: Amount
    prompt_n: Count = 0
    prompt_ms: Amount = 0.0
    cache_n: Count = 0
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


def read_llamacpp(record: dict[str, Any], where: str) -> Counts:
    place = f"{where}: timings"
    parts = [p for p in record.get(PARTS, ()) if isinstance(p.get("timings"), dict)]
    if sum(isinstance(p.get("tokens"), list) for p in parts) > 1:
        return read_llamacpp_stream(None, [], parts)
    found = convert(record.get("timings"), Timings, place)
    if found.draft_n is None or found.draft_n_accepted is None:
        raise InputError(f"{place}.draft_n: it is missing; nothing was drafted for this request")
    if found.draft_n_accepted > found.predicted_n:
        raise InputError(
            f"{place}.draft_n_accepted: {found.draft_n_accepted} tokens, but the output has {found.predicted_n}"
        )
    known = read_reply(record, where)
    known["completion"], known["prompt_tokens"] = found.predicted_n, found.prompt_n + found.cache_n
    known["text"] = record.get("content") if isinstance(record.get("content"), str) else known["text"]
    known["seconds"], known["prefill_seconds"] = found.predicted_ms / 1e3, found.prompt_ms / 1e3
    steps = found.predicted_n - found.draft_n_accepted - 1
    return Counts("llama.cpp", place, steps if steps > 0 else None, found.draft_n_accepted, found.draft_n, **known)


def read_llamacpp_stream(prompt: str | None, prompt_tokens: Sequence[Any], parts: Sequence[dict[str, Any]]) -> Counts:
    """Returns the counts of a streamed reply of llama.cpp's server, by step if the steps can be separated.

    Parts with the same ``predicted_ms`` belong to one step. The totals of a step minus those of the previous step give the step's
    drafted and accepted tokens. If all tokens of a step end inside a character, no part is sent for this step, and the request is
    read as totals.

    prompt_tokens: ids and pieces of the prompt from ``/tokenize``; empty if unknown.
    parts: the parts of the reply that have ``timings``.
    """
    timed = [(p, convert(p["timings"], Timings, "reply: timings")) for p in parts]
    drafted, accepted, elapsed, pieces = [], [], [], []
    ids: list[Any] = []
    d = a = n = 0
    clear = True
    with_tokens = (pair for pair in timed if pair[0].get("tokens"))
    for number, (milliseconds, pairs) in enumerate(groupby(with_tokens, lambda pair: pair[1].predicted_ms)):
        group = list(pairs)
        for part, _ in group:  # a part without a list of ids still belongs to the step
            ids += part["tokens"] if isinstance(part["tokens"], list) else [None]
        pieces += [str(part.get("content", "")) for part, _ in group]
        last = group[-1][1]
        step = ((last.draft_n or 0) - d, (last.draft_n_accepted or 0) - a, last.predicted_n - n)
        d, a, n = last.draft_n or 0, last.draft_n_accepted or 0, last.predicted_n
        if number:
            drafted.append(step[0])
            accepted.append(step[1])
            elapsed.append(milliseconds / 1e3)
            clear &= 1 <= step[2] <= step[1] + 1 and 0 <= step[1] <= step[0]
        else:
            clear &= step == (0, 0, 1)
    end, totals = timed[-1]
    whole = clear and len(ids) == len(pieces) == n and all(isinstance(t, int) and t >= 0 for t in ids)
    prompt_pairs = [
        (p["id"], str(p["piece"]))
        for p in prompt_tokens
        if isinstance(p, dict) and isinstance(p.get("id"), int) and "piece" in p
    ]
    identified = len(prompt_pairs) == len(prompt_tokens)
    model = end.get("model")
    return Counts(
        "llama.cpp", "reply", len(accepted) if clear else None, totals.draft_n_accepted or 0, totals.draft_n or 0,
        accepted=tuple(accepted) if clear else None, drafted=tuple(drafted) if clear else None,
        completion=n, prompt_tokens=totals.prompt_n + totals.cache_n, prompt=prompt,
        prompt_ids=tuple(i for i, _ in prompt_pairs) if identified else (),
        prompt_pieces=tuple(t for _, t in prompt_pairs) if identified else (),
        output_ids=tuple(ids) if whole else None, pieces=tuple(pieces) if whole else (), text="".join(pieces),
        finish={"eos": "stop", "limit": "length"}.get(str(end.get("stop_type"))), seconds=totals.predicted_ms / 1e3,
        prefill_seconds=totals.prompt_ms / 1e3, model=model.rpartition("/")[2] if isinstance(model, str) else None,
        elapsed=tuple(elapsed) if clear else (),
    )  # fmt: skip


# For each source: a function that recognises its records, and a function that reads a record, given its place in the log.
READERS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, str], Counts]]] = {
    "sglang": (lambda r: "sglext" in r or _sglang_meta(r) is not None, read_sglang),
    "vllm": (lambda r: "metrics" in r, read_vllm),
    "llamacpp": (lambda r: "timings" in r, read_llamacpp),
}


# ``LLAMA_SPEC_DUMP``.


class DumpedAlternative(Struct):
    """One of the drafter's likeliest tokens at a position."""

    tok: Count
    p: Probability


class DumpedToken(DumpedAlternative):
    """A drafted token; ``acc``: whether the target accepted it."""

    i: Count
    acc: bool
    top: Annotated[list[DumpedAlternative], Meta(max_length=256)] = []


class DumpedStep(Struct):
    step: Count
    n_draft: Annotated[int, Meta(ge=0, lt=MAX_ITEMS)]
    n_accepted: Count
    pos: Annotated[list[DumpedToken], Meta(max_length=MAX_ITEMS)]
    seq: Count = 0


def is_dump(record: dict[str, Any]) -> bool:
    return {"n_draft", "n_accepted", "pos"} <= record.keys()


def read_dump(records: Iterator[Record], texts: Texts) -> Iterator[Trace]:
    """Yields one trace per sequence. If the step number of a ``seq`` does not increase, a new sequence begins."""
    found: dict[int, list[tuple[str, DumpedStep]]] = {}
    for where, record in records:
        step = convert(record, DumpedStep, f"{where}: step")
        _check_dumped(step, where)
        if step.seq in found and step.step <= found[step.seq][-1][1].step:
            yield _dumped_trace(found.pop(step.seq), texts)
        if len(found) == MAX_SEQUENCES and step.seq not in found:
            raise InputError(f"{where}: seq: more than {MAX_SEQUENCES} sequences are open at once")
        found.setdefault(step.seq, []).append((where, step))
    for steps in found.values():
        yield _dumped_trace(steps, texts)


def _check_dumped(step: DumpedStep, where: str) -> None:
    if len(step.pos) != step.n_draft:
        raise InputError(f"{where}: pos: {len(step.pos)} positions, but n_draft is {step.n_draft}")
    if step.n_accepted > step.n_draft:
        raise InputError(f"{where}: n_accepted: {step.n_accepted} tokens accepted of {step.n_draft} drafted")
    for at, position in enumerate(step.pos):
        if position.i != at:
            raise InputError(f"{where}: pos[{at}].i: it is {position.i}; positions are numbered from 0")
        if position.acc != (at < step.n_accepted):
            raise InputError(
                f"{where}: pos[{at}].acc: n_accepted is {step.n_accepted}, so it must be {at < step.n_accepted}"
            )


def _dumped_trace(steps: list[tuple[str, DumpedStep]], texts: Texts) -> Trace:
    header: dict[str, object] = {
        "event": "Header", "schema": SCHEMA, "run": uuid.uuid4().hex, "method": "llama.cpp", "config": {}, "models": {}, "versions": {},
        "hardware": {}, "prompt": None, "missing": ["prompt", "target", "times"],
    }  # fmt: skip
    return Trace.of(header, _dumped_events(steps, texts))


def _dumped_events(steps: list[tuple[str, DumpedStep]], texts: Texts) -> Iterator[Event]:
    yield PrefillDone((), (), 0.0, (Committed(NOT_KNOWN.id, NOT_KNOWN.text, "target", None),))
    written = [NOT_KNOWN]
    for number, (where, step) in enumerate(steps):
        drafted = [Token(p.tok, texts.label(p.tok, f"{where}: pos[{at}].tok")) for at, p in enumerate(step.pos)]
        tops = tuple(
            tuple(
                Alternative(t.tok, texts.label(t.tok, f"{where}: pos[{at}].top[{k}].tok"), t.p)
                for k, t in enumerate(p.top)
            )
            for at, p in enumerate(step.pos)
        )
        sure, at = tuple(p.p for p in step.pos), len(written) - 1
        done = chain_step(
            number, written[-1], at, drafted, step.n_accepted, NOT_KNOWN, confidence=sure, alternatives=tops
        )
        written += [Token(c.token, c.text) for c in done.committed]
        yield done
    text, ids = "".join(t.text for t in written), tuple(t.id for t in written)
    yield Finished("stopped", text, ids, len(steps), 0.0, 0.0)
