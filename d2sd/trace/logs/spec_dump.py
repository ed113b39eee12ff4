"""``LLAMA_SPEC_DUMP`` of a llama.cpp fork: every drafted token with its probability, step by step and sequence by sequence.

Fields: github.com/turbo-tan/llama.cpp-tq3, pull request 83. It holds neither the prompt nor the target's own tokens.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from math import exp, isclose
from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Alternative, Committed, Count, Event, Finished, PrefillDone, Probability
from d2sd.trace.logs.chain import NOT_KNOWN, Chain, Texts, Token, chain_step
from d2sd.trace.logs.records import Row, convert
from d2sd.trace.schema import MAX_ITEMS, SCHEMA
from d2sd.trace.trace import Trace

ENGINE = "llama.cpp"
MAX_OPEN = 4096  # sequences at once


class Top(Struct):
    """One of the drafter's likeliest tokens at a position."""

    tok: Count
    p: Probability


class Position(Struct):
    """A drafted token; ``acc``: whether the target accepted it."""

    i: Count
    tok: Count
    p: Probability
    acc: bool
    logp: float | None = None
    top: Annotated[list[Top], Meta(max_length=256)] = []


class Step(Struct):
    """One line."""

    step: Count
    n_draft: Annotated[int, Meta(ge=0, lt=MAX_ITEMS)]
    n_accepted: Count
    pos: Annotated[list[Position], Meta(max_length=MAX_ITEMS)]
    seq: Count = 0


def fits(record: dict[str, Any]) -> bool:
    """Whether a record is a line of such a file."""
    return {"n_draft", "n_accepted", "pos"} <= record.keys()


def read(rows: Iterator[Row], texts: Texts) -> Iterator[Trace]:
    """One trace for every sequence; where a sequence's number begins anew, with a step that is no later one, a new one begins."""
    found: dict[int, list[tuple[str, Step]]] = {}
    for where, record in rows:
        step = convert(record, Step, f"{where}: step")
        _check(step, where)
        if step.seq in found and step.step <= found[step.seq][-1][1].step:
            yield _trace(found.pop(step.seq), texts)
        if len(found) == MAX_OPEN and step.seq not in found:
            raise InputError(f"{where}: seq: more than {MAX_OPEN} sequences are open at once")
        found.setdefault(step.seq, []).append((where, step))
    for steps in found.values():
        yield _trace(steps, texts)


def _check(step: Step, where: str) -> None:
    if len(step.pos) != step.n_draft:
        raise InputError(f"{where}: pos: {len(step.pos)} positions, where n_draft is {step.n_draft}")
    if step.n_accepted > step.n_draft:
        raise InputError(f"{where}: n_accepted: {step.n_accepted} tokens accepted of {step.n_draft} drafted")
    for at, position in enumerate(step.pos):
        if position.i != at:
            raise InputError(f"{where}: pos[{at}].i: it is {position.i}; the positions count up from 0")
        if position.acc != (at < step.n_accepted):
            raise InputError(
                f"{where}: pos[{at}].acc: n_accepted is {step.n_accepted}, so it must be {at < step.n_accepted}"
            )
        if position.logp is not None and not isclose(exp(min(position.logp, 0.0)), position.p, abs_tol=0.02):
            raise InputError(f"{where}: pos[{at}].logp: it is not the logarithm of p, {position.p:g}")


def _trace(steps: list[tuple[str, Step]], texts: Texts) -> Trace:
    header: dict[str, object] = {
        "event": "Header", "schema": SCHEMA, "run": uuid.uuid4().hex, "method": ENGINE, "config": {}, "models": {}, "versions": {},
        "hardware": {}, "prompt": None, "missing": ["prompt", "target", "times"],
    }  # fmt: skip
    return Trace.of(header, _events(steps, texts))


def _events(steps: list[tuple[str, Step]], texts: Texts) -> Iterator[Event]:
    own = Committed(0, NOT_KNOWN.text, "target", None)
    yield PrefillDone((), (), 0.0, (own,))
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
        sure = tuple(p.p for p in step.pos)
        boundary = step.n_accepted if drafted else None
        chain = Chain(drafted, step.n_accepted, NOT_KNOWN, boundary, sure, tops)
        done = chain_step(number, written[-1], len(written) - 1, chain, 0.0)
        written += [Token(c.token, c.text) for c in done.committed]
        yield done
    text, ids = "".join(t.text for t in written), tuple(t.id for t in written)
    yield Finished("stopped", text, ids, len(steps), 0.0, 0.0)
