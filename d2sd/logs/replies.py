"""Reads replies of serving engines, and the dump of a llama.cpp fork as traces.

docs/import.md describes what each engine logs and how to enable it. In llama.cpp, the target's pass over the prompt gives the
first token. Every further pass is a step, which gives the accepted tokens and a bonus token. The number of passes is therefore
``predicted_n`` − ``draft_n_accepted``. Every part of a streamed reply has running totals, so each step is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from math import isclose
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
from msgspec import Meta, Struct
from msgspec.structs import asdict

from d2sd.errors import InputError
from d2sd.logs.figures import Figures, figures_of
from d2sd.logs.forms import KEYS, scaled
from d2sd.logs.steps import NOT_KNOWN, Output, Reply, Request, Texts, Token, Usage
from d2sd.trace.events import (
    MAX_ITEMS,
    Alternative,
    Count,
    Probability,
)
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

T = TypeVar("T")
VLLM_OPTION = "--per-request-spec-decode-metrics detailed"
SGLANG_OPTION = '"return_spec_tokens_details": true'
MAX_SEQUENCES = 4096  # sequences of a dump that are read at the same time
Amount = Annotated[float, Meta(ge=0)]
PerStep = Annotated[tuple[Count, ...], Meta(max_length=100_000)]
Histogram = Annotated[list[Count], Meta(max_length=MAX_ITEMS)]


Record = tuple[str, dict[str, Any]]  # place in the log (for error messages), and fields
STREAM_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
PARTS = "parts"  # field of a merged reply that holds all its events, in order
MAX_PARTS = 1_000_000


def convert(data: Any, kind: type[T], where: str) -> T:
    """Returns the data as an instance of ``kind``. Raises ``InputError``, naming the field, if a field is missing or invalid.

    where: place of the data in the log, for the error message.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at $")
        field = f"{where}.{place.lstrip('.')}" if place and not place.startswith("[") else f"{where}{place}"
        raise InputError(escaped(f"{field[:200]}: {sentence[:1].lower()}{sentence[1:160]}")) from None


def record_in(given: Any, where: str) -> dict[str, Any]:
    """Returns a record, given as a line of JSON or as its content. Raises ``InputError`` if it is not a JSON object."""
    try:
        data = orjson.loads(given) if isinstance(given, bytes) else given
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}: not a JSON object")
    return data


# Streamed replies.


def read_stream(lines: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    """Yields the replies in the lines of an event stream, each merged from its parts (``merged``).

    A reply ends at ``[DONE]``, before a part with a different ``id``, after a part with llama.cpp's ``stop``, or at the end of
    the file. Raises ``InputError`` for a line that cannot be part of an event stream.
    """
    parts: list[dict[str, Any]] = []
    began = 0  # line of the first part
    for number, line in lines:
        line = line.strip()
        if not line.startswith(b"data:"):
            if not line.startswith(STREAM_FIELDS):
                raise InputError(f"line {number}: not a line of an event stream, which begins with data:")
            continue
        body = line[5:].strip()
        part = None if body == b"[DONE]" else record_in(body, f"line {number}")
        # llama.cpp's own interface marks the last part with stop
        if parts and (part is None or part.get("id") != parts[-1].get("id") or parts[-1].get("stop") is True):
            yield f"line {began}", merged(parts)
            parts = []
        if part is not None:
            began = began if parts else number
            parts.append(part)
        if len(parts) > MAX_PARTS:
            raise InputError(f"line {number}: the reply has more than {MAX_PARTS} parts")
    if parts:
        yield f"line {began}", merged(parts)


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns one reply from the parts of its stream: joined texts and ids, and the last values of the other fields.

    The parts are kept under ``PARTS``, since llama.cpp's steps are computed from their running totals.
    """
    reply: dict[str, Any] = {name: value for part in parts for name, value in part.items() if value is not None}
    text, ids, finish = "", list[Any](), None
    for part in parts:
        choice = first_choice(part)
        delta = choice.get("delta")
        piece = choice.get("text") or (delta.get("content") if isinstance(delta, dict) else None) or part.get("content")
        text += piece if isinstance(piece, str) else ""
        ids += choice["token_ids"] if isinstance(choice.get("token_ids"), list) else []
        finish = choice.get("finish_reason") or finish
    prompt_ids = first_choice(parts[0]).get("prompt_token_ids")
    choice = {"text": text, "finish_reason": finish, "token_ids": ids or None, "prompt_token_ids": prompt_ids}
    return {**reply, "choices": [choice], "content": text, PARTS: parts}


def first_choice(reply: dict[str, Any]) -> dict[str, Any]:
    """Returns the first entry of a reply's ``choices``; an empty dict if there is none."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def read_reply(
    record: dict[str, Any], where: str, engine: str, place: str, stats: dict[str, Any], **more: Any
) -> Request:
    """Returns the request of a reply. stats: the engine's figures by key, in ``place``; more: further parts of the ``Request``.

    Raises ``InputError`` if the figures contradict each other.
    """
    reply = convert(record, Reply, where)
    usage = asdict(reply.usage or Usage())
    stats = stats | {key: value for key, value in usage.items() if value is not None and stats.get(key) is None}
    known = dict(scaled(name, stats[key]) for key, name in KEYS[engine].items() if stats.get(key) is not None)
    steps, accepted, drafted = known.get("steps"), known["accepted"], known["drafted"]
    if accepted > drafted:
        raise InputError(f"{place}: {accepted} tokens accepted of {drafted} drafted")
    counted = {"alpha": 1 + accepted / steps if steps else None, "rate": accepted / drafted if drafted else None}
    for key, name in KEYS[engine].items():
        stated, value = stats.get(key), counted.get(name)
        if stated and value is not None and not isclose(stated, value, rel_tol=1e-3, abs_tol=1e-3):
            raise InputError(f"{place}.{key}: {stated:g}, but the counts give {value:.4g}")
    figures = figures_of(engine, "request", {"model": reply.model, "seconds": stats.get("e2e_latency"), **known})
    return Request(figures=figures, place=place, reply=reply, prompt_tokens=stats.get("prompt_tokens"), **more)


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


class VllmMetrics(Struct):
    """The per-request metrics of vLLM."""

    speculative_decoding: VllmStats | None = None
    generation_time_ms: Amount | None = None
    time_to_first_token_ms: Amount | None = None


def read_vllm(record: dict[str, Any], where: str) -> Request:
    place, metrics = (
        f"{where}: metrics.speculative_decoding",
        convert(record.get("metrics") or {}, VllmMetrics, f"{where}: metrics"),
    )
    found = metrics.speculative_decoding
    if found is None:
        raise InputError(
            f"{place}: it is missing; start the server with {VLLM_OPTION} and request one output per prompt"
        )
    histogram, longest = dense(found.acceptance_histogram, f"{place}.acceptance_histogram"), found.num_spec_tokens
    if longest is not None and len(histogram) > longest + 1:
        raise InputError(f"{place}.acceptance_histogram: at most {longest} tokens are drafted per step")
    if (found.per_step_accepted is None) != (found.per_step_drafted is None):
        lacking = "per_step_accepted" if found.per_step_accepted is None else "per_step_drafted"
        raise InputError(f"{place}.{lacking}: it is missing, but the other list of steps is present")
    return read_reply(
        record, where, "vllm", place, {**asdict(metrics), **asdict(found), "acceptance_histogram": histogram}, accepted=found.per_step_accepted,
        drafted=found.per_step_drafted, histogram=histogram, longest=longest, prefill_seconds=(metrics.time_to_first_token_ms or 0.0) / 1e3,
    )  # fmt: skip


def dense(histogram: dict[str, int] | Sequence[int], where: str) -> tuple[int, ...]:
    """Returns a histogram as a tuple. The keys of a dict are numbers of accepted tokens."""
    if not isinstance(histogram, dict):
        return tuple(histogram)
    if any(not k.isdecimal() or int(k) >= MAX_ITEMS for k in histogram):
        raise InputError(f"{where}: its keys must be numbers of accepted tokens, 0 to {MAX_ITEMS - 1}")
    return tuple(histogram.get(str(j), 0) for j in range(1 + max(map(int, histogram), default=-1)))


# SGLang.


class SglangDetails(Struct):
    """SGLang's figures of one request. Correct drafts are the accepted drafted tokens, without the bonus token."""

    spec_num_correct_drafts: Count
    spec_num_proposed_drafts: Count
    spec_verify_ct: Count
    spec_correct_drafts_histogram: Histogram | None = None
    spec_accept_rate: Amount | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    e2e_latency: Amount | None = None


OLDER = {"spec_accept_token_num": "spec_num_correct_drafts", "spec_draft_token_num": "spec_num_proposed_drafts"}


def read_sglang(record: dict[str, Any], where: str) -> Request:
    place, details = next(_sglang_details(record), ("sglext.spec_tokens_details", None))
    place = f"{where}: {place}"
    if details is None:
        raise InputError(f"{place}: it is missing; send {SGLANG_OPTION} with the request")
    if isinstance(details, dict):
        details = {OLDER.get(name, name): value for name, value in details.items()}
    found = convert(details, SglangDetails, place)
    histogram = found.spec_correct_drafts_histogram
    return read_reply(
        record, where, "sglang", place, asdict(found), histogram=None if histogram is None else tuple(histogram)
    )


def _sglang_details(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields places of SGLang's figures of drafts, and their contents."""
    extra = record.get("sglext")
    if isinstance(extra, dict) and "spec_tokens_details" in extra:
        yield "sglext.spec_tokens_details", extra["spec_tokens_details"]
    for place, holder in (("meta_info", record), ("choices[0].meta_info", first_choice(record))):
        meta = holder.get("meta_info")
        if isinstance(meta, dict) and "spec_verify_ct" in meta:
            yield place, meta


# llama.cpp.


class Timings(Struct):
    """llama.cpp's totals of one request; the draft fields are absent if nothing was drafted."""

    predicted_n: Count
    predicted_ms: Amount
    prompt_n: Count = 0
    prompt_ms: Amount = 0.0
    cache_n: Count = 0
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class Piece(Struct):
    """A token of the prompt, from ``/tokenize``."""

    id: Count
    piece: Any


def read_llamacpp(record: dict[str, Any], where: str) -> Request:
    place = f"{where}: timings"
    parts = [p for p in record.get(PARTS, ()) if isinstance(p.get("timings"), dict)]
    if sum(isinstance(p.get("tokens"), list) for p in parts) > 1:
        return read_llamacpp_stream(None, [], parts)
    found = convert(record.get("timings"), Timings, place)
    if not found.draft_n:
        raise InputError(f"{place}.draft_n: it is missing; nothing was drafted for this request")
    if found.draft_n_accepted > found.predicted_n:
        raise InputError(
            f"{place}.draft_n_accepted: {found.draft_n_accepted} tokens, but the output has {found.predicted_n}"
        )
    stats = asdict(found) | {"prompt_tokens": found.prompt_n + found.cache_n}
    return read_reply(record, where, "llama.cpp", place, stats, prefill_seconds=found.prompt_ms / 1e3)


def read_llamacpp_stream(
    prompt: str | None, prompt_tokens: Sequence[Piece], parts: Sequence[dict[str, Any]]
) -> Request:
    """Returns a streamed reply of llama.cpp's server, by step if the steps can be separated.

    Parts with the same ``predicted_ms`` belong to one step. The totals of a step minus those of the previous step give the step's
    drafted and accepted tokens. If all tokens of a step end inside a character, no part is sent for this step, and only the figures
    of the request are known.

    parts: the parts of the reply that have ``timings``.
    """
    timed = [(p, convert(p["timings"], Timings, "reply: timings")) for p in parts]
    written = [pair for pair in timed if pair[0].get("tokens")]
    # a part without a list of ids still belongs to a step
    ids: list[Any] = [
        i for part, _ in written for i in (part["tokens"] if isinstance(part["tokens"], list) else [None])
    ]
    pieces = tuple(str(part.get("content", "")) for part, _ in written)
    ends = [[*group][-1][1] for _, group in groupby(written, lambda pair: pair[1].predicted_ms)]
    steps = [
        (b.draft_n - a.draft_n, b.draft_n_accepted - a.draft_n_accepted, b.predicted_n - a.predicted_n)
        for a, b in pairwise(ends)
    ]
    first = ends and (ends[0].draft_n, ends[0].draft_n_accepted, ends[0].predicted_n)
    if first != (0, 0, 1) or any(not (1 <= n <= a + 1 and 0 <= a <= d) for d, a, n in steps):
        steps = []
    whole = (
        steps and len(ids) == len(pieces) == ends[-1].predicted_n and all(isinstance(i, int) and i >= 0 for i in ids)
    )
    (end, totals), model = timed[-1], timed[-1][0].get("model")
    known = {
        "steps": len(steps) or None, "accepted": totals.draft_n_accepted, "drafted": totals.draft_n, "predicted": totals.predicted_n,
        "seconds": totals.predicted_ms / 1e3, "model": model.rpartition("/")[2] if isinstance(model, str) else None,
    }  # fmt: skip
    finish = {"eos": "stop", "limit": "length"}.get(str(end.get("stop_type")))
    output = Output(text="".join(pieces), token_ids=ids if whole else None, finish_reason=finish)
    return Request(
        figures=figures_of("llama.cpp", "request", known), place="reply", drafted=tuple(d for d, _, _ in steps),
        accepted=tuple(a for _, a, _ in steps), elapsed=tuple(end.predicted_ms / 1e3 for end in ends[1:]),
        reply=Reply(choices=[output], prompt=prompt, prompt_token_ids=[p.id for p in prompt_tokens]), pieces=pieces if whole else (),
        prompt_tokens=totals.prompt_n + totals.cache_n, prompt_pieces=tuple(str(p.piece) for p in prompt_tokens),
        prefill_seconds=totals.prompt_ms / 1e3,
    )  # fmt: skip


# For each source: a function that recognises its records, and a function that reads a record, given its place in the log.
READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], Request]], ...] = (
    (lambda r: "sglext" in r or any(_sglang_details(r)), read_sglang),
    (lambda r: "metrics" in r, read_vllm),
    (lambda r: "timings" in r, read_llamacpp),
)


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


def read_dump(records: Iterator[Record], texts: Texts) -> Iterator[Trace | Figures]:
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


def _dumped_trace(steps: list[tuple[str, DumpedStep]], texts: Texts) -> Trace | Figures:
    drafts, output = [], [NOT_KNOWN]
    for where, step in steps:
        chain = [Token(p.tok, texts.label(p.tok, f"{where}: pos[{at}].tok")) for at, p in enumerate(step.pos)]
        tops = tuple(
            tuple(
                Alternative(t.tok, texts.label(t.tok, f"{where}: pos[{at}].top[{k}].tok"), t.p)
                for k, t in enumerate(p.top)
            )
            for at, p in enumerate(step.pos)
        )
        drafts.append((chain, tuple(p.p for p in step.pos), tops))
        output += [*chain[: step.n_accepted], NOT_KNOWN]
    return Request(
        figures=Figures(engine="llama.cpp"), place=steps[0][0], accepted=tuple(step.n_accepted for _, step in steps),
        drafted=tuple(step.n_draft for _, step in steps), reply=Reply(choices=[Output(token_ids=[token.id for token in output])]),
        pieces=tuple(token.text for token in output), drafts=drafts, missing=("prompt", "target", "times"),
    ).result(texts)  # fmt: skip
