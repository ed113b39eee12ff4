"""The Race view: lanes that replay the measured times of the methods side by side, and the table of the race."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

import msgspec
import orjson

from app import links
from app.explore.run import PLAIN
from app.race.lanes import COST_AWARE, Lane, Race, lane_name
from app.race.run import reference, rows
from app.runs.view import MAX_LINK
from app.view import DrawnView
from d2sd import METHODS
from d2sd.trace.metrics import Work

FILLED_IN = ("block_size", "second_block_size", "node_budget")  # by the engine, for each method its own


class RaceView(DrawnView):
    """Draws what ``drawing`` returns. ``select`` with the number of a ``lane`` asks for its run in Explore."""

    def __init__(self, value: str | None = None, *, elem_id: str = "race", **options: Any):
        super().__init__(value, "race/main.js", sheets=("race/race.css",), elem_id=elem_id, **options)


def drawing(race: Race) -> str:
    """Returns the view's value: every planned lane with its state, and with steps and figures once it has run."""
    base = reference(race)
    lanes = [_lane(lane) for lane in race.lanes]
    for lane, row in zip(lanes, rows(race), strict=True):
        lane["row"] = asdict(row)
    running = bool(race.status)
    for number, method in enumerate(race.methods[len(lanes) :]):
        state = "running" if running and number == 0 else "waiting" if running else "not run"
        lanes.append({"method": method, "sentence": sentence(method), "state": state})
    first = race.lanes[0].trace if race.lanes else None
    data = {
        "status": race.status,
        "prompt": first.prompt if first else "",
        "model": str((first.header.get("models") or {}).get("preset") or "") if first else "",
        "recorded": race.recorded,
        "machine": machine(first.header) if first else "",
        "reference": base.trace.header["method"] if base else "",
        "plain": bool(base and base.trace.header["method"] == PLAIN),
        "lanes": lanes,
        "query": query(race),
    }
    return orjson.dumps(data).decode()


def query(race: Race) -> str:
    """The query of a link that fills in the race: prompt, models, settings and methods; empty where it would be too long."""
    if not race.lanes:
        return ""
    header = race.lanes[0].trace.header
    asked = {name: getattr(race.asked, name) for name in FILLED_IN}
    fields = links.fields({**header, "method": None, "config": {**header["config"], **asked, "cost_aware": None}})
    text = urlencode({**fields, "tab": "race", "methods": ",".join(race.methods)})
    return text if len(text) <= MAX_LINK else ""


def sentence(name: str) -> str:
    """Returns a description of a lane."""
    method = name.removesuffix(COST_AWARE)
    words = METHODS[method].sentence
    return words if name == method else f"{words[:-1]}, drafting and verifying only what is expected to save time."


def machine(header: dict[str, Any]) -> str:
    """Returns the hardware of a trace's header in a few words."""
    hardware = header.get("hardware")
    known = hardware if isinstance(hardware, dict) else {}
    threads = known.get("threads")
    counted = None if threads is None else f"{threads} thread{'' if threads == 1 else 's'}"
    inner = [known.get("machine"), counted, known.get("dtype")]
    words = ", ".join(str(w) for w in inner if w)
    return f"{known.get('device', 'unknown machine')}{f' ({words})' if words else ''}"


def _lane(lane: Lane) -> dict[str, Any]:
    """Commits as [seconds since the prompt was read, [[text, proposer], …], work]; the first is that of prefill, which has none.

    work: the rows of the step's passes: first draft, [re-drafts, …], verified nodes.
    """
    method, prefill = lane_name(lane.trace), lane.trace.prefill
    commits: list[tuple[float, Any, Work | None]] = (
        [(0.0, prefill.committed, None)] if prefill and prefill.committed else []
    )
    commits += [(s.elapsed, s.committed, Work.of(s, lane.trace.header)) for s in lane.trace.steps]
    return {
        "method": method,
        "sentence": sentence(method),
        "state": "broke off" if lane.problem else "done" if lane.complete else "stopped",
        "problem": lane.problem,
        "steps": [
            [
                round(elapsed, 6),
                [[c.text.encode("utf-8", "replace").decode(), c.proposer] for c in committed],
                work and msgspec.to_builtins(work),
            ]
            for elapsed, committed, work in commits
        ],
    }
