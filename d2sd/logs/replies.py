"""Reads JSON replies of serving engines, and the dump of a llama.cpp fork (``LLAMA_SPEC_DUMP``).

docs/import.md describes what each engine logs and how to enable it.

In llama.cpp, the target's pass over the prompt gives the first token. Every later pass is a step, which gives the accepted tokens
and a bonus token. The number of passes is therefore ``predicted_n`` − ``draft_n_accepted``. Every part of a streamed reply has
running totals, from which each step is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from math import isclose
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
from msgspec import Meta, Struct
from msgspec.structs import asdict

from d2sd.errors import InputError, require
from d2sd.logs.figures import Figures, figures_of
from d2sd.logs.forms import KEYS, scaled
from d2sd.logs.steps import NOT_KNOWN, Output, Reply, Request, Texts, Token, Usage
from d2sd.trace.events import MAX_ITEMS, Alternative, Count, Probability
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

T = TypeVar("T")
MAX_SEQUENCES = 4096  # sequences of a dump that are read at the same time
Amount = Annotated[float, Meta(ge=0)]
InStep = Annotated[int, Meta(ge=0, lt=MAX_ITEMS)]  # number of tokens in a step
PerStep = Annotated[tuple[InStep, ...], Meta(max_length=100_000)]
Histogram = Annotated[list[Count], Meta(max_length=MAX_ITEMS)]


Fields = dict[str, Any]  # fields of a JSON object
Record = tuple[str, Fields]  # place in the log (for error messages), and fields
STREAM_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
PARTS = "parts"  # field of a merged reply that holds all its events, in order
MAX_PARTS = 1_000_000


def convert(data: Any, kind: type[T], where: str) -> T:
    """Returns ``data`` as an instance of the class ``kind``. Raises ``InputError``, which names the field, if a field is missing or
    invalid.

    where: place of the data in the log, for the error message.
    """
    try:
        return msgspec.convert(data, kind, str_keys=True)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at ")
        field = where + place.removeprefix("key in ").removeprefix("$")
        raise InputError(escaped(f"{field[:200]}: {sentence[:1].lower()}{sentence[1:160]}")) from None


def record_in(given: Any, where: str) -> Fields:
    """Returns a record as a dict. Raises ``InputError`` if it is not a JSON object.

    given: a line of JSON, or its parsed content.
    where: place of the record in the log, for the error message.
    """
    try:
        data = orjson.loads(given) if isinstance(given, bytes) else given
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    require(isinstance(data, dict), f"{where}: not a JSON object")
    return data


# Streamed replies.


def read_stream(lines: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    """Yields the replies in the lines of an event stream, each merged from its parts (``merged``).

    A reply ends at ``[DONE]``, before a part with a different ``id``, after a part in which llama.cpp sets ``stop``, or at the end
    of the file. Raises ``InputError`` for a line that cannot be part of an event stream.
    """
    parts: list[Fields] = []
    began = 0  # line of the first part
    for number, line in lines:
        line = line.strip()
        if not line.startswith(b"data:"):
            require(
                line.startswith(STREAM_FIELDS), f"line {number}: not a line of an event stream, which begins with data:"
            )
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


def merged(parts: list[Fields]) -> Fields:
    """Returns one reply from the parts of its stream. Texts and ids are joined; of every other field, the last value is used.

    The parts are also kept under the key ``PARTS``, because llama.cpp's steps are computed from their running totals.
    """
    reply = {name: value for part in parts for name, value in part.items() if value is not None}
    text, ids, finish = "", list[Any](), None
    for part in parts:
        choice = first_of(part, "choices")
        delta = choice.get("delta")
        piece = choice.get("text") or (delta.get("content") if isinstance(delta, dict) else None) or part.get("content")
        text += piece if isinstance(piece, str) else ""
        ids += choice["token_ids"] if isinstance(choice.get("token_ids"), list) else []
        finish = choice.get("finish_reason") or part.get("stop_type") or finish
    prompt_ids = first_of(parts[0], "choices").get("prompt_token_ids")
    choice = {"text": text, "finish_reason": finish, "token_ids": ids or None, "prompt_token_ids": prompt_ids}
    return {**reply, "choices": [choice], "content": text, PARTS: parts}


def first_of(reply: Fields, key: str) -> Fields:
    """Returns the first entry of a list in a reply, such as ``choices``; an empty dict if there is none."""
    entries = reply.get(key)
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}


def read_reply(record: Fields, where: str, engine: str, place: str, stats: Fields, **more: Any) -> Request:
    """Returns the request that a reply answers. Raises ``InputError`` if its figures contradict each other.

    where, place: places of the reply and of its figures in the log, for error messages.
    engine: key of ``KEYS``.
    stats: the engine's figures, by the engine's names.
    more: values of further fields of ``Request``.
    """
    reply = convert(record, Reply, where)
    stats = asdict(reply.usage or Usage()) | {key: value for key, value in stats.items() if value is not None}
    reported = dict(scaled(name, stats[key]) for key, name in KEYS[engine].items() if stats.get(key) is not None)
    model = reply.model
    if model and engine == "llama.cpp":  # it names the file
        model = model.rpartition("/")[2]
    figures = figures_of(engine, "request", {"model": model, "seconds": stats.get("e2e_latency"), **reported})
    request = Request(figures=figures, reply=reply, prompt_tokens=stats.get("prompt_tokens"), **more)
    for wrong in _contradictions(request, stats, reported | {"tokens": figures.tokens}):
        raise InputError(place + wrong)
    return request


def _contradictions(request: Request, stats: Fields, reported: Fields) -> Iterator[str]:
    """Yields a text for each contradiction among the figures of a request. An error message puts the place in the log before it.

    stats: the figures, by the names that the engine uses.
    reported: the same figures, by the names that ``d2sd.logs.figures`` uses.
    """
    if reported["accepted"] > reported["drafted"]:
        yield f": {reported['accepted']} tokens accepted of {reported['drafted']} drafted"
    figures, accepted, drafted, ids = request.figures, request.accepted, request.drafted, request.output.token_ids
    for key, name in KEYS[figures.engine].items():
        stated, value = stats.get(key), getattr(figures, name.removeprefix("stated_"), None)
        if not name.startswith("stated_") or not stated or value is None:
            continue
        if not isclose(stated, value, rel_tol=1e-3, abs_tol=1e-3):
            yield f".{key}: {stated:g}, but the counts give {value:.4g}"
    for step, (a, d) in enumerate(zip(accepted, drafted, strict=False)):
        if a > d:
            yield f".per_step_accepted[{step}]: {a} tokens accepted of {d} drafted"
    totals = []
    histogram = Counter(dict(enumerate(reported.get("counts", ()))))
    if "counts" in reported:
        part = ": the histogram"
        totals += [
            (part, "steps", histogram.total()),
            (part, "accepted tokens", sum(j * n for j, n in histogram.items())),
        ]
    if accepted or drafted:
        for kind, counts in (("accepted", accepted), ("drafted", drafted)):
            part = f".per_step_{kind}"
            totals += [(part, "steps", len(counts)), (part, f"{kind} tokens", sum(counts))]
    if ids is not None:
        totals.append((": the output", "tokens", len(ids)))
    for part, what, total in totals:
        if (stated := reported.get(what.split()[0])) not in (None, total):
            yield f"{part} has {total} {what}, but {stated} are reported"
    if accepted and "counts" in reported and histogram != Counter(accepted):
        yield ": the histogram does not match per_step_accepted"
    # a whole output has a token from prefill, and each step's accepted and bonus tokens; the text may end within the last step
    length, least = reported["tokens"] if ids is None else len(ids), 1 + sum(accepted[:-1]) + len(accepted)
    if accepted and length is not None and length < least:
        yield f": {length} output tokens, but the steps wrote at least {least}"


# vLLM.


class VllmStats(Struct):
    """vLLM's figures of one request."""

    num_spec_steps: Count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    acceptance_histogram: Histogram | dict[InStep, Count]
    mean_acceptance_length: Amount | None = None
    draft_acceptance_rate: Amount | None = None
    per_step_accepted: PerStep | None = None
    per_step_drafted: PerStep | None = None


class VllmMetrics(Struct):
    """The per-request metrics of vLLM."""

    speculative_decoding: VllmStats | None = None
    generation_time_ms: Amount | None = None
    time_to_first_token_ms: Amount | None = None


def read_vllm(record: Fields, where: str) -> Request:
    place = f"{where}: metrics.speculative_decoding"
    metrics = convert(record.get("metrics") or {}, VllmMetrics, f"{where}: metrics")
    stats = metrics.speculative_decoding
    if stats is None:
        raise InputError(
            f"{place}: it is missing; start the server with --per-request-spec-decode-metrics detailed and request one output per prompt"
        )
    if isinstance(histogram := stats.acceptance_histogram, dict):
        stats.acceptance_histogram = [histogram.get(j, 0) for j in range(1 + max(histogram, default=-1))]
    return read_reply(
        record, where, "vllm", place, asdict(metrics) | asdict(stats), accepted=stats.per_step_accepted or (),
        drafted=stats.per_step_drafted or (), prefill_seconds=(metrics.time_to_first_token_ms or 0.0) / 1e3,
    )  # fmt: skip


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


def read_sglang(record: Fields, where: str) -> Request:
    place, details = next(_sglang_details(record), ("sglext.spec_tokens_details", None))
    place = f"{where}: {place}"
    if details is None:
        raise InputError(f'{place}: it is missing; send "return_spec_tokens_details": true with the request')
    if isinstance(details, dict):
        details = {OLDER.get(name, name): value for name, value in details.items()}
    return read_reply(record, where, "sglang", place, asdict(convert(details, SglangDetails, place)))


def _sglang_details(record: Fields) -> Iterator[tuple[str, Any]]:
    """Yields each place in the reply that has SGLang's figures of drafts, with its content."""
    extra = record.get("sglext")
    if isinstance(extra, dict) and "spec_tokens_details" in extra:
        yield "sglext.spec_tokens_details", extra["spec_tokens_details"]
    for place, holder in (("meta_info", record), ("choices[0].meta_info", first_of(record, "choices"))):
        meta = holder.get("meta_info")
        if isinstance(meta, dict) and "spec_verify_ct" in meta:
            yield place, meta


# llama.cpp.


class Timings(Struct):
    """llama.cpp's totals of one request; the draft fields are absent if nothing was drafted."""

    predicted_n: Count = 0
    predicted_ms: Amount = 0.0
    prompt_n: Count = 0
    prompt_ms: Amount = 0.0
    cache_n: Count = 0
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class Part(Struct):
    """A part of a streamed reply. ``timings`` are the totals up to this part."""

    timings: Timings | None = None
    tokens: list[Count] | None = None
    content: str | None = None


def read_llamacpp(record: Fields, where: str) -> Request:
    place = f"{where}: timings"
    timings = convert(record.get("timings"), Timings, place)
    parts = convert(record.get(PARTS, []), list[Part], f"{where}: {PARTS}")
    require(timings.draft_n or parts, f"{place}.draft_n: it is missing; nothing was drafted for this request")
    require(
        timings.draft_n_accepted <= timings.predicted_n,
        f"{place}.draft_n_accepted: {timings.draft_n_accepted} tokens, but the output has {timings.predicted_n}",
    )
    steps = _streamed_steps(parts)
    ids = [token for part in parts for token in part.tokens or ()]
    if steps.get("pieces"):
        record = record | {"choices": [first_of(record, "choices") | {"token_ids": ids}]}
    stats = asdict(timings) | {"prompt_tokens": timings.prompt_n + timings.cache_n}
    return read_reply(record, where, "llama.cpp", place, stats, prefill_seconds=timings.prompt_ms / 1e3, **steps)


def _streamed_steps(parts: Sequence[Part]) -> Fields:
    """Returns the steps of a streamed reply, as fields of ``Request``; an empty dict if the steps cannot be separated.

    Parts with the same ``predicted_ms`` belong to one step. The step's drafted and accepted tokens are its totals minus the totals
    of the previous step. If all tokens of a step end inside a character, llama.cpp sends no part for this step, so steps cannot be
    separated.
    """
    written = [(part.timings, part) for part in parts if part.timings and part.tokens]
    ends = [[*group][-1][0] for _, group in groupby(written, lambda pair: pair[0].predicted_ms)]
    prefill, *steps = [
        (b.draft_n - a.draft_n, b.draft_n_accepted - a.draft_n_accepted, b.predicted_n - a.predicted_n)
        for a, b in pairwise([Timings(), *ends])
    ] or [(0, 0, 0)]
    if prefill != (0, 0, 1) or not all(1 <= n <= a + 1 and 0 <= a <= d < MAX_ITEMS for d, a, n in steps):
        return {}
    # a token that ends inside a character has no part of its own
    whole = len(written) == ends[-1].predicted_n and all(len(part.tokens or ()) == 1 for _, part in written)
    return {
        "drafted": tuple(d for d, _, _ in steps), "accepted": tuple(a for _, a, _ in steps),
        "elapsed": tuple(end.predicted_ms / 1e3 for end in ends[1:]),
        "pieces": tuple(part.content or "" for _, part in written) if whole else (),
    }  # fmt: skip


def reader_of(reply: Fields) -> Callable[[Fields, str], Request] | None:
    """Returns the function that reads replies of the engine that sent ``reply``; None if the engine is unknown.

    The function takes the reply and its place in the log, for error messages.
    """
    if "sglext" in reply or any(_sglang_details(reply)):
        return read_sglang
    return read_vllm if "metrics" in reply else read_llamacpp if "timings" in reply else None


# ``LLAMA_SPEC_DUMP``.


class DumpedAlternative(Struct):
    """One of the drafter's likeliest tokens at a position."""

    tok: Count
    p: Probability


class DumpedToken(DumpedAlternative):
    """A drafted token. ``acc`` is whether the target accepted it; ``top`` are the likeliest tokens at its position."""

    i: Count
    acc: bool
    top: Annotated[list[DumpedAlternative], Meta(max_length=256)] = []


class DumpedStep(Struct):
    step: Count
    n_draft: InStep
    n_accepted: Count
    pos: Annotated[list[DumpedToken], Meta(max_length=MAX_ITEMS)]
    seq: Count = 0


def is_dump(record: Fields) -> bool:
    return {"n_draft", "n_accepted", "pos"} <= record.keys()


def read_dump(records: Iterator[Record], texts: Texts) -> Iterator[Trace | Figures]:
    """Yields one trace per sequence. A new sequence begins when the step number of a ``seq`` does not increase."""
    open_sequences: dict[int, list[tuple[str, DumpedStep]]] = {}
    for where, record in records:
        step = convert(record, DumpedStep, f"{where}: step")
        stated = [(index, index < step.n_accepted) for index in range(step.n_draft)]
        require(
            step.n_accepted <= step.n_draft and [(token.i, token.acc) for token in step.pos] == stated,
            f"{where}: pos: it must have n_draft = {step.n_draft} entries, i must count from 0, and acc must be true "
            f"only in the first n_accepted = {step.n_accepted}",
        )
        if step.seq in open_sequences and step.step <= open_sequences[step.seq][-1][1].step:
            yield _dumped_trace(open_sequences.pop(step.seq), texts)
        if len(open_sequences) == MAX_SEQUENCES and step.seq not in open_sequences:
            raise InputError(f"{where}: seq: more than {MAX_SEQUENCES} sequences are open at once")
        open_sequences.setdefault(step.seq, []).append((where, step))
    for steps in open_sequences.values():
        yield _dumped_trace(steps, texts)


def _dumped_trace(steps: list[tuple[str, DumpedStep]], texts: Texts) -> Trace | Figures:
    drafts, output = [], [NOT_KNOWN]
    for where, step in steps:
        chain = [Token(p.tok, texts.label(p.tok, where)) for p in step.pos]
        tops = tuple(tuple(Alternative(t.tok, texts.label(t.tok, where), t.p) for t in p.top) for p in step.pos)
        drafts.append((chain, tuple(p.p for p in step.pos), tops))
        output += [*chain[: step.n_accepted], NOT_KNOWN]
    return Request(
        figures=Figures(engine="llama.cpp"), accepted=tuple(step.n_accepted for _, step in steps),
        drafted=tuple(step.n_draft for _, step in steps), reply=Reply(choices=[Output(token_ids=[token.id for token in output])]),
        pieces=tuple(token.text for token in output), drafts=drafts, missing=("prompt", "target", "times"),
    ).result(texts)  # fmt: skip
