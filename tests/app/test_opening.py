"""The opening run is chosen by the measurements of the recorded runs."""

from __future__ import annotations

import json

from app import presets
from d2sd.trace.events import Baseline
from d2sd.trace.run import RecordedRun
from tools.record import worth


def changed(**baseline: float) -> RecordedRun:
    """The opening run with other speeds."""
    records = presets.opening().trace().records()
    return RecordedRun.of([*records, Baseline(**baseline)] if baseline else records)


def test_worth_refuses_slow_or_untimed_run():
    assert worth(changed(tokens_per_second=50.0, unwatched=49.0))[0] is False
    assert worth(changed())[0] is False
    assert worth(changed(tokens_per_second=50.0, unwatched=100.0))[1:] == (worth(presets.opening())[1], 2.0)


def edited(events: list[dict]) -> RecordedRun:
    return RecordedRun.read("\n".join(map(json.dumps, events)).encode())


def test_worth_needs_words_and_missed_steps():
    events = [json.loads(line) for line in presets.opening().lines()]
    assert worth(edited(events)) == worth(presets.opening())
    steps = [event for event in events if event["event"] == "StepDone"]
    missed = [step for step in steps if step["actual_boundary"] not in step["selected_prefixes"]]
    for step in missed:
        step["selected_prefixes"] = []  # no prefix was selected
    assert worth(edited(events))[:2] == (False, (True, 0, worth(presets.opening())[1][2]))

    events = [json.loads(line) for line in presets.opening().lines()]
    for step in (event for event in events if event["event"] == "StepDone"):
        step["nodes"] = [{**node, "text": " 7,"} for node in step["nodes"]]
    assert worth(edited(events))[:2] == (False, (False, *worth(presets.opening())[1][1:]))
