"""α of a running server over time, from periodic readings of its ``/metrics``, with a drift warning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

from d2sd.errors import InputError
from d2sd.trace.logs.serving import Server
from d2sd.trace.logs.text import Counters, Gauges, read_metrics
from d2sd.trace.logs.totals import Totals

PATH = "/metrics"
FEWEST = 6  # readings before a drift can be told
CLEAR = 4.0  # standard deviations of the readings before
SHARE = 0.1  # of α


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures since the previous reading.

    totals: None if nothing was drafted.
    drift: mean α of the earlier readings, if this one differs clearly from it; otherwise None.
    """

    totals: Totals | None
    drift: float | None = None


class Watch:
    """The readings of one server, one after another."""

    def __init__(self, server: Server):
        self.server = server
        self._counters: Counters | None = None
        self._alphas: list[float] = []

    def read(self) -> Reading:
        """Query the server once. The first reading of vLLM covers everything since its start. Raises ``InputError``."""
        found = read_metrics(self.server.text(PATH))
        if found is None:
            raise InputError(
                f"{self.server.address}{PATH} has no figures of speculative decoding; start vLLM with --speculative-config, or "
                "SGLang with --speculative-algorithm and --enable-metrics"
            )
        if isinstance(found, Gauges):
            return self._judged(found.totals())
        before, self._counters = self._counters, found
        if before is None or found.steps < before.steps:  # the first one, or the server was started anew
            return Reading(found.totals() if found.steps else None)
        since = found.since(before)
        return Reading(None) if since is None else self._judged(since.totals())

    def _judged(self, totals: Totals) -> Reading:
        alpha = totals.mean_acceptance_length
        if alpha is None:
            return Reading(totals)
        drift = drifted(self._alphas, alpha)
        self._alphas = [alpha] if drift is not None else [*self._alphas, alpha]
        return Reading(totals, drift)


def drifted(before: list[float], alpha: float) -> float | None:
    """Returns the mean of the earlier readings if ``alpha`` differs clearly from it; None otherwise, or if they are too few."""
    if len(before) < FEWEST:
        return None
    mean = fmean(before)
    off = abs(alpha - mean)
    return mean if off > CLEAR * stdev(before) and off > SHARE * mean else None


def line(reading: Reading) -> Iterator[str]:
    """A reading for a terminal."""
    if reading.totals is None:
        yield "nothing was drafted"
        return
    yield reading.totals.row()
    if reading.drift is not None:
        yield f"  drift: α was {reading.drift:.2f} before"
