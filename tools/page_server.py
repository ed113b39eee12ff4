"""Runs the page in a separate process and times its engine: ``python -m tools.page_server TOKENS``.

Prints the address of the page. Then it answers each line on standard input with tokens per second: ``alone METHOD PROMPT`` makes a
run without the page, ``next`` waits for the next run of the page.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from app import models, streaming
from app.layout import build, launch_options
from app.machine import leave_a_core
from app.models import model_set
from d2sd import DecodeConfig, Engine, Event, PrefillDone, StepDone
from d2sd.engine import Request


class Clock:
    """Measures the tokens per second of an engine's runs of ``tokens`` tokens, in wall-clock time of the generating thread.

    Prefill is excluded. Runs that are not read to their end, such as warm-up runs, are not measured.
    """

    def __init__(self, engine: Engine, tokens: int) -> None:
        self.speeds: SimpleQueue[float] = SimpleQueue()
        real = engine.run

        def run(request: Request, stop: Any = streaming.never) -> Iterator[Event]:
            began, count = 0.0, 0
            for event in real(request, stop):
                yield event
                if isinstance(event, PrefillDone):
                    began = time.perf_counter()
                elif isinstance(event, StepDone):
                    count += len(event.committed)
                elif request.config.max_new_tokens == tokens:
                    self.speeds.put(count / (time.perf_counter() - began))

        engine.run = run  # type: ignore[assignment,method-assign]


def main() -> None:
    tokens = int(sys.argv[1])
    leave_a_core()
    demo = build()
    _, address, _ = demo.launch(**launch_options(), prevent_thread_lock=True, quiet=True)
    print(address, flush=True)
    clock = None
    for line in sys.stdin:
        clock = clock or Clock(models.engine(model_set("tiny")), tokens)
        kind, *asked = line.rstrip("\n").split(" ", 2)
        if kind == "alone":
            alone = streaming.prepare_run(model_set("tiny"), asked[1], DecodeConfig(asked[0], tokens))
            list(streaming.stream(alone, streaming.never))
        print(clock.speeds.get(), flush=True)
    demo.close(verbose=False)


if __name__ == "__main__":
    main()
