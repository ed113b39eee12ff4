"""Turn the per-step log of another engine into a trace that D²SD Explorer shows.

    python -m examples.convert_step_log LOG.jsonl RUN.jsonl [TOKENIZER]
    python -m d2sd trace to-html RUN.jsonl -o run.html

``d2sd trace import`` reads the usual logs of vLLM, SGLang and llama.cpp. This example is for an engine that you changed to
print token ids. The first line of its log is the request; every further line is one step:

    {"engine": "vllm", "prompt": "One day", "prompt_token_ids": [11, 12], "first_token": 20}
    {"drafted": [21, 22, 23], "accepted": 2, "bonus": 31, "draft_probs": [0.9, 0.8, 0.4]}
    {"drafted": [24, 25, 26], "accepted": 0, "bonus": 32}
    {"drafted": [27, 28], "accepted": 2, "bonus": null}

``first_token`` is the token from prefill; without it, the anchor of the first step is the last token of the prompt.
``draft_probs`` (the drafter's probability of each drafted token) and ``seconds`` are optional. Without ``seconds``, the speed is
unknown. ``bonus`` is null if the text ended with an accepted token. TOKENIZER, a folder or a hub id, gives the
texts of tokens; without it, tokens are shown as numbers.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from d2sd import InputError
from d2sd.logs.steps import Texts, Token, chain_step, open_texts
from d2sd.trace.checks import SCHEMA
from d2sd.trace.events import Committed, Count, Event, Finished, PrefillDone, Probability, Seconds
from d2sd.trace.trace import Trace

UNKNOWN: dict[str, object] = {"config": {}, "models": {}, "versions": {}, "hardware": {}}


class Request(Struct, forbid_unknown_fields=True):
    """The first line of a log."""

    engine: str
    prompt: str | None
    prompt_token_ids: Annotated[list[Count], Meta(min_length=1)]
    first_token: Count | None = None


class Step(Struct, forbid_unknown_fields=True):
    """A further line of a log: one draft-and-verify step."""

    drafted: list[Count]
    accepted: Count
    bonus: Count | None
    draft_probs: list[Probability] = []
    seconds: Seconds = 0.0


def convert(log: Iterable[str], texts: Texts) -> Trace:
    """Returns the trace of a log. Raises ``InputError``, naming the line, if a line is invalid."""
    lines = iter(log)
    request = read(next(lines, ""), Request, 1)
    header = {"event": "Header", "schema": SCHEMA, "run": uuid.uuid4().hex, "method": request.engine, **UNKNOWN}
    return Trace.of({**header, "prompt": request.prompt}, events(request, lines, texts))


def events(request: Request, lines: Iterator[str], texts: Texts) -> Iterator[Event]:
    """Yields the events of prefill, steps and totals."""

    def token(number: int, line: int) -> Token:
        return Token(number, texts.label(number, f"line {line}"))

    written = [token(n, 1) for n in request.prompt_token_ids]
    from_prefill = () if request.first_token is None else (token(request.first_token, 1),)
    committed = tuple(Committed(t.id, t.text, "target", None) for t in from_prefill)
    yield PrefillDone(tuple(request.prompt_token_ids), tuple(t.text for t in written), 0.0, committed)
    written += from_prefill
    start, elapsed, count = len(request.prompt_token_ids), 0.0, 0
    for number, line in enumerate(filter(str.strip, lines)):
        row = read(line, Step, number + 2)
        check(row, number + 2)
        drafted = [token(n, number + 2) for n in row.drafted]
        bonus = None if row.bonus is None else token(row.bonus, number + 2)
        decided = bonus is not None or row.accepted == len(drafted)  # False if the text ended before a rejected token
        elapsed += row.seconds
        step = chain_step(
            number, written[-1], len(written) - 1, drafted, row.accepted, bonus,
            decided=decided, confidence=tuple(row.draft_probs), seconds=row.seconds, elapsed=elapsed,
        )  # fmt: skip
        written += [Token(c.token, c.text) for c in step.committed]
        count += 1
        yield step
    output = written[start:]
    yield Finished("stopped", "".join(t.text for t in output), tuple(t.id for t in output), count, elapsed, 0.0)


def check(row: Step, line: int) -> None:
    if row.accepted > len(row.drafted):
        raise InputError(f"line {line}: accepted is {row.accepted}, but the step drafted {len(row.drafted)}")
    if row.draft_probs and len(row.draft_probs) != len(row.drafted):
        raise InputError(f"line {line}: draft_probs needs one number for each of the {len(row.drafted)} drafted tokens")
    if row.bonus is None and not row.accepted:
        raise InputError(f"line {line}: the step committed no token; leave this line out")


def read(line: str, kind: type, number: int):
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise InputError(f"line {number}: {error}") from None


def main(log: str, out: str, tokenizer: str | None = None) -> None:
    with open(log, encoding="utf-8") as lines:
        convert(lines, open_texts(tokenizer)).save(out)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except InputError as error:
        sys.exit(f"error: {error}")
