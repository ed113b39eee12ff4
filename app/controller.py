"""From the controls to a stream of trace lines."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from app import presets
from app.session import Session
from d2sd import DecodeConfig, Finished, InputError, StepDone
from d2sd.metrics import totals
from d2sd.trace import to_line

SECONDS_BETWEEN_YIELDS = 1 / 15
MAX_PROMPT = 20_000


def whole(value: float | None, name: str) -> int:
    """A whole number from a number field, or an ``InputError``."""
    if value is None or not math.isfinite(value) or value != int(value):
        raise InputError(f"{name} must be a whole number")
    return int(value)


def run(
    session: Session,
    number: int,
    prompt: str,
    model: str,
    method: str,
    block_size: float,
    num_branches: float,
    temperature: float,
    top_p: float,
    seed: float,
    max_new_tokens: float,
    compare: bool,
) -> Iterator[tuple[str | None, str]]:
    """Run and yield (growing trace lines, notice). On bad input only the notice changes: lines are None.

    ``number`` is what ``session.request()`` gave for this run; it stops once that is not the newest any more.
    """

    def stale() -> bool:
        return session.newest != number

    if not session.claim(number):
        return
    try:
        prompt = prompt or ""
        if len(prompt) > MAX_PROMPT:
            raise InputError(f"the prompt has {len(prompt)} characters; the page reads at most {MAX_PROMPT}")
        config = DecodeConfig(
            method=method,
            max_new_tokens=whole(max_new_tokens, "max new tokens"),
            block_size=whole(block_size, "block size γ"),
            num_branches=whole(num_branches, "branches K"),
            temperature=float(temperature if temperature is not None else -1),
            top_p=float(top_p if top_p is not None else -1),
            seed=whole(seed, "seed"),
        )
        engine = presets.engine(model or "")
        header = engine.header(prompt, config)
        stream = engine.stream(prompt, config, stop=stale)
    except InputError as error:
        yield None, f"{error}"
        return
    shown, waiting, last = to_line(header), [], 0.0
    finished = None
    try:
        for event in stream:
            waiting.append(to_line(event))
            finished = event if isinstance(event, Finished) else None
            if isinstance(event, StepDone) and time.monotonic() - last < SECONDS_BETWEEN_YIELDS:
                continue
            shown += "".join(waiting)
            waiting.clear()
            yield shown, ""
            last = time.monotonic()
        if compare and finished and finished.stop_reason != "stopped" and method != "autoregressive":
            plain = replace(config, method="autoregressive", max_new_tokens=len(finished.token_ids))
            events = list(engine.stream(prompt, plain, stop=stale))
            if not stale():
                measured = totals([e for e in events if isinstance(e, StepDone)])
                shown += to_line({"event": "Baseline", "tokens_per_second": measured.tokens_per_second})
                yield shown, ""
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        sentence = failure_sentence(error)
        yield shown + "".join(waiting) + to_line({"event": "Failed", "sentence": sentence}), sentence


def failure_sentence(error: Exception) -> str:
    """One sentence for a run that broke off."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "The run stopped: there was not enough memory. Ask for fewer tokens or a shorter prompt."
    return f"The run stopped: {(str(error).splitlines() or ['unknown error'])[0][:200]}"
