"""The step time of plain decoding, the baseline of runs in Explore. It is measured once per model and machine, then stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date
from statistics import fmean

from app.methods import PLAIN
from app.streaming import Prepared, stream
from d2sd import DecodeConfig, StepDone
from d2sd.costs.runs import LEAST_WATCHED, ThreadShare, impossible, plain_step
from d2sd.trace.events import Baseline, StageSeconds

PLAIN_CONTEXT = 64  # tokens before the measured steps
PLAIN_STEPS = 24  # number of steps whose times are used
MOST_PLAIN_STEPS = 64  # maximum number of steps, if their times do not become steady
SECONDS_OF_PLAIN = 2.0  # after this time, the steps measured so far are used
LEAST_PLAIN_STEPS = 4  # minimum number of steps, also for slow models


class PlainStep:
    """The step time of plain decoding, with which a run is compared.

    Iterating over this object decodes and measures the time of a step; it yields None after each event. If the time is stored
    already, nothing is measured.

    run: the run that is compared with plain decoding.
    stop: returns True to end the measurement before its next step.
    clock: returns the time in seconds.

    Attributes: ``costs``, the step time, or None if unknown; ``clean``, whether that time is reliable. Only reliable times are
    stored.
    """

    def __init__(self, run: Prepared, stop: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._stop, self._clock = run, stop, clock
        self._backend = run.request.config.backend
        self.costs, self.clean = run.engine.plain(self._backend), True

    def __iter__(self) -> Iterator[None]:
        """Decode after ``PLAIN_CONTEXT`` tokens of the repeated prompt, until the last ``PLAIN_STEPS`` times are steady or time is
        up.
        """
        ids = self._run.request.ids
        self.costs = self._run.engine.plain(self._backend)  # another run may have measured it in the meantime
        if self.costs is not None:
            return
        config = DecodeConfig(PLAIN, max_new_tokens=1 + MOST_PLAIN_STEPS, backend=self._backend, inspect=False)
        request = self._run.engine.request((ids * PLAIN_CONTEXT)[:PLAIN_CONTEXT], config)
        endless = replace(self._run, request=replace(request, endless=True))
        times, share, end = list[StageSeconds](), ThreadShare(), self._clock() + SECONDS_OF_PLAIN
        with closing(stream(endless, self._stop, share)) as events:
            for event in events:
                yield
                if not isinstance(event, StepDone):
                    continue
                times.append(event.seconds)
                late = self._clock() > end and len(times) >= LEAST_PLAIN_STEPS
                if late or len(times) >= PLAIN_STEPS:
                    self._take(times[-PLAIN_STEPS:], event.anchor_position + 1, share.disturbed)
                if late or (self.costs is not None and self.clean):
                    return

    def correct(self, times: Sequence[StageSeconds]) -> None:
        """Replace the stored time by the step time of a whole run of plain decoding, if the run has enough steps and steady times.

        times: step times of the run. No other work may have disturbed them.
        """
        if len(times) >= PLAIN_STEPS:
            self._take(times, len(self._run.request.ids) + len(times), False)

    def _take(self, times: Sequence[StageSeconds], end: int, disturbed: bool) -> None:
        """Sets the step time of plain decoding from measured steps, and stores it if the steps were steady and undisturbed.

        end: number of tokens of the text before the last of these steps.
        """
        self.costs, steady = plain_step(times, end - len(times) // 2, date.today().isoformat())
        self.clean = steady and not disturbed
        if self.clean:
            self._run.engine.keep_plain(self._backend, self.costs)

    def compared(self, tokens: int, times: Sequence[StageSeconds], share: ThreadShare) -> Baseline:
        """Returns the speeds of plain decoding and of the run.

        The run's time excludes periods in which other programs, such as the browser, displaced the run's thread. A stored time of
        plain decoding that the run proves impossible is deleted, unless the run was disturbed.

        tokens: number of tokens committed by the steps of the run.
        times: times of these steps.
        share: share of the time in which the run's thread computed.
        """
        costs = self.costs
        assert costs is not None
        disturbed = share.computed < LEAST_WATCHED or not self.clean
        if impossible(share.computed * fmean(seconds.verify for seconds in times), costs.verify.seconds(1)):
            if not disturbed:
                self._run.engine.keep_plain(self._backend, None)
            disturbed = True
        seconds = max(1e-9, share.computed * sum(seconds.total for seconds in times))
        return Baseline(1 / max(1e-9, costs.plain()), tokens / seconds, disturbed, costs.measured, costs.context)
