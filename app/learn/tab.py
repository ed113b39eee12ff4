"""The Learn tab: explains a step chapter by chapter, beside a drawing of the step."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from app import presets
from app.explore.controls import ExploreTab, RunToOpen, opens_run
from app.jobs import Call
from app.session import Session
from app.view import APP, drawn_view, panel_sheets
from d2sd.figures.viewer import PageRun, runs_page, viewer_styles
from d2sd.trace.metrics import instructiveness
from d2sd.trace.run import Origin
from d2sd.trace.trace import Trace

SHEETS = ("learn/learn.css",)
HANDOUT = APP / "learn" / "handout.js"


def build_learn(explore_tab: ExploreTab) -> None:
    """Lay out the tab and wire it. ``explore_tab``: the tab that opens the recorded run."""
    # When the view is built, it requests the tour. Event ``select``: opens a ``step`` in Explore.
    learn = drawn_view(
        None,
        "learn/main.js",
        constants={"styles": viewer_styles()},
        sheets=SHEETS,
        elem_id="learn",
        server_functions=[tour],
    )

    @opens_run
    def open_recorded(call: Call, session: Session) -> RunToOpen | None:
        # Explore shows one's own run already
        return None if call.data.get("own") else (presets.opening(), "Recorded", "")

    explore_tab.open_on(learn.select, open_recorded, explore_tab.controls.told)


def tours_page(runs: Sequence[PageRun], title: str) -> str:
    styles = "\n".join(panel_sheets(*SHEETS).values())
    return runs_page(runs, title, HANDOUT, styles, {"styles": viewer_styles()})


def tour(_: Any = None) -> str:
    """Returns the recorded run, and the step at which the tour starts, as packed JSON.

    The argument is unused; calls from the page always have one.
    """
    return packed_tour()


@lru_cache(maxsize=1)
def packed_tour() -> str:
    run = presets.opening()
    trace = run.trace()
    preset = trace.header["models"].get("preset")
    return _packed(
        trace,
        run.instructive,
        lines=run.segment(origin=Origin(recorded=True)),
        about=presets.FIRST_SAID if preset == presets.FIRST else presets.TINY_SAID,
    )


def tour_of(trace: Trace) -> str:
    """Returns the packed tour of any run, without the run's lines, which the standalone page contains already."""
    return _packed(trace, max(range(len(trace.steps)), key=lambda n: instructiveness(trace.steps[n])))


def _packed(trace: Trace, start: int, **more: Any) -> str:
    data = {"run": str(trace.header.get("run", "")), "start": start, **more}
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(orjson.dumps(data)) + deflate.flush()).decode()
