"""Turn the per-step log of another engine (vLLM, SGLang, …) into a trace that D²SD Explorer shows.

    python -m examples.convert_step_log LOG.jsonl RUN.jsonl [TOKENIZER]
    python -m d2sd trace to-html RUN.jsonl -o run.html

The log's first line is the request, every further line one draft-and-verify step:

    {"engine": "vllm", "prompt": "One day", "prompt_token_ids": [11, 12]}
    {"drafted": [21, 22, 23], "accepted": 2, "bonus": 31, "draft_probs": [0.9, 0.8, 0.4]}
    {"drafted": [24, 25, 26], "accepted": 0, "bonus": 32}
    {"drafted": [27, 28], "accepted": 2, "bonus": null}

``draft_probs`` (the drafter's probability of each drafted token) and ``seconds`` may be missing, the latter in all lines
(speed is then not known); ``bonus`` is null where the text ended with an accepted token. TOKENIZER, a folder or a hub id, gives the tokens their texts; without it each
is shown as its number.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterable

from d2sd.trace.events import (
    Choice,
    Committed,
    Draft,
    Event,
    Finished,
    Node,
    PrefillDone,
    StageSeconds,
    State,
    StepDone,
)
from d2sd.trace.schema import SCHEMA
from d2sd.trace.trace import Trace
from d2sd.tree.boundary import boundary_posterior

UNKNOWN: dict[str, object] = {"config": {}, "models": {}, "versions": {}, "hardware": {}}


def convert(log: Iterable[str], text: Callable[[int], str]) -> Trace:
    """The trace of a log; ``text`` gives a token's text."""
    request, *rows = map(json.loads, log)
    tokens, elapsed = list(request["prompt_token_ids"]), 0.0
    events: list[Event] = [PrefillDone(tuple(tokens), tuple(map(text, tokens)), 0.0)]
    for number, row in enumerate(rows):
        ids, accepted, probs = row["drafted"], row["accepted"], tuple(row.get("draft_probs", ()))
        end = [] if row["bonus"] is None else [row["bonus"]]
        anchor, elapsed = tokens[-1], elapsed + row.get("seconds", 0.0)
        draft = Draft("first", 0, tuple(ids), tuple(map(text, ids)), probs, ()) if ids else None
        nodes = [Node(0, -1, 0, anchor, text(anchor), (), "target", "root", None, None, None)]
        for k, token in enumerate(ids, 1):
            state: State = "accepted" if k <= accepted else "rejected" if end and k == accepted + 1 else "unreached"
            nodes.append(Node(k, k - 1, k, token, text(token), (0,), "first", state, probs[k - 1] if probs else None, None, None))  # fmt: skip
        path = tuple(range(1, accepted + 1))
        committed = [Committed(ids[k - 1], text(ids[k - 1]), "first", k) for k in path]
        committed += [Committed(token, text(token), "target", None) for token in end]
        choices = tuple(Choice(node, c.token, c.text, None) for node, c in enumerate(committed))
        posterior, full = boundary_posterior(probs)
        boundary = accepted if ids and (end or accepted == len(ids)) else None  # not seen where the text ended first
        events.append(StepDone(
            number, anchor, text(anchor), len(tokens) - 1, draft, posterior, full if probs else 0.0, (), (), tuple(nodes),
            choices, path, tuple(committed), boundary, StageSeconds(verify=row.get("seconds", 0.0)), elapsed,
        ))  # fmt: skip
        tokens += [c.token for c in committed]
    output = tokens[len(request["prompt_token_ids"]) :]
    events.append(Finished("stopped", "".join(map(text, output)), tuple(output), len(rows), elapsed, 0.0))
    header = {"event": "Header", "schema": SCHEMA, "run": uuid.uuid4().hex, "method": request["engine"], **UNKNOWN}
    return Trace.of({**header, "prompt": request["prompt"]}, events)


def main(log: str, out: str, tokenizer: str | None = None) -> None:
    """Convert a file."""
    if tokenizer is None:
        text: Callable[[int], str] = " {}".format
    else:
        from transformers import AutoTokenizer

        from d2sd.trace.text import TokenTexts

        text = TokenTexts(AutoTokenizer.from_pretrained(tokenizer)).__getitem__
    with open(log, encoding="utf-8") as lines:
        convert(lines, text).save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
