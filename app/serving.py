"""Controller of a server that is watched: its ``/metrics``, read again and again until somebody stops it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from app import settings
from app.explore import failure_sentence
from app.visitors import public
from app.work import Ticket, Update
from d2sd import InputError
from d2sd.trace.logs.serving import Server
from d2sd.trace.logs.totals import Totals
from d2sd.trace.logs.watching import Watch, line

LEAST, LONGEST = 1.0, 600.0  # seconds between readings
MOST = 2000  # readings, after which it ends by itself
SECONDS = 10.0  # that a server may take to answer
LOOK = 0.2  # seconds between two looks whether it was stopped


@dataclass(slots=True)
class Watched:
    """All readings so far in which something was drafted.

    last: sentences about the latest reading.
    """

    times: list[datetime] = field(default_factory=list)
    readings: list[Totals] = field(default_factory=list)
    last: list[str] = field(default_factory=list)


def run(ticket: Ticket, number: int, address: str, every: float | None) -> Iterator[Update[Watched]]:
    """Yields all readings whenever there is another one.

    number: what ``ticket.request()`` gave.
    address: of a server on this machine.
    every: seconds between readings.
    """
    if not ticket.claim(number):
        return
    try:
        if public():
            raise InputError("this page asks no servers; run d2sd watch on a machine of your own")
        if every is None or not LEAST <= every <= LONGEST:
            raise InputError(f"seconds between readings must be from {LEAST:g} to {LONGEST:g}")
        watch, found = Watch(Server(address.strip(), seconds=SECONDS)), Watched()
        for done in range(1, MOST + 1):
            reading = watch.read()
            if ticket.newest != number:
                return
            if reading.totals is not None:
                found.times.append(datetime.now())
                found.readings.append(reading.totals)
            found.last = [*line(reading)]
            yield Update(found, news=f"{done} {'reading' if done == 1 else 'readings'}; the next one in {every:g} s …")
            until = time.monotonic() + every
            while time.monotonic() < until:
                if ticket.newest != number:
                    return
                time.sleep(LOOK)
    except InputError as error:
        yield Update(problem=settings.readable(error))
    except Exception as error:  # as in Explore
        yield Update(problem=failure_sentence(error))
    else:
        yield Update(note=f"Ended after {MOST} readings.")
