"""What the page opens with, run here: ``python -m app.record`` writes the run of Explore, the race and the tour that it
reads."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from app import explore, live_settings, models, presets, race, whatif
from app.explore import Asked
from app.lanes import COST_AWARE, Lane, Race, lane_name
from app.models import Chosen
from app.page_session import Session
from app.run_lines import RunLines
from app.settings import SETTINGS
from app.threads import leave_a_core
from app.views.whatif import Drawn, drawn
from app.work import Ticket
from d2sd import METHODS, DecodeConfig
from d2sd.trace.trace import parse_trace

RACE = presets.ASSETS / "traces" / "race.json.gz"
DEFAULT = ("autoregressive", "dflash", "eagle3", "d2sd", "d2sd_tree", f"d2sd{COST_AWARE}")
LESSON_TOKENS = 60  # a shorter text has too few steps to compare
ASKED = "d2sd"  # the lane whose what-if answers are recorded too


@cache
def recorded_race() -> Race:
    """The recorded race; one without lanes if none is there."""
    kept = _read()
    lanes = tuple(Lane(parse_trace(trace.encode())) for trace in kept.get("traces", ()))
    if not lanes:
        return Race("", ())
    methods = tuple(lane_name(lane.trace) for lane in lanes)
    return Race(str(lanes[0].trace.header["prompt"]), methods, lanes, recorded=True)


@cache
def recorded_answers() -> str | None:
    """What the what-if panel draws before anything is asked, as its value; None if none is there."""
    answers = _read().get("whatif")
    return msgspec.convert(answers, Drawn).value() if answers else None


def _read() -> dict[str, Any]:
    return json.loads(gzip.decompress(RACE.read_bytes())) if RACE.exists() else {}


def record_run(path: Path, model: Chosen, prompt: str, values: dict[str, Any]) -> int:
    """Run Explore's default method and write its lines to ``path``; returns the file's bytes."""
    session = Session()
    asked = Asked(prompt, model, DecodeConfig().method, True, values)
    for update in explore.run(session, session.request(), asked):
        if update.problem:
            raise SystemExit(update.problem)
    return _write(path, "\n".join([*session.shown.lines(), ""]))


def record_race(path: Path, model: Chosen, prompt: str, values: dict[str, Any]) -> int:
    """Run the default race and its what-if questions and write them to ``path``; returns the file's bytes."""
    ticket = Ticket()
    done = Race(prompt, ())
    for update in race.run(ticket, ticket.request(), prompt, model, DEFAULT, values):
        done = update.value or done
        if update.problem or (not done.status and any(lane.problem for lane in done.lanes)):
            raise SystemExit(update.problem or "a method broke off")
    lane = next(lane for lane in done.lanes if lane_name(lane.trace) == ASKED)
    answers = None
    source = f"Race: {ASKED}"
    for asked in whatif.run(
        ticket,
        ticket.request(),
        source,
        lane.trace,
        model,
        list(whatif.SWEEPS),
        [m for m in DEFAULT[1:] if m in METHODS],
    ):
        if asked.problem:
            raise SystemExit(asked.problem)
        answers = asked.value or answers
    assert answers is not None
    kept = {
        "traces": ["".join(lane.trace.lines()) for lane in done.lanes],
        "whatif": msgspec.to_builtins(drawn(replace(answers, recorded=True))),
    }
    return _write(path, json.dumps(kept))


def record_lesson(path: Path, model: Chosen, _: str, values: dict[str, Any]) -> int:
    """Run every example, replay it with many K and γ, and write the one on which they matter most to ``path`` for the
    tour; returns the file's bytes.

    Of the text that the page opens with there is one recording, made before: two would name two speeds.
    """
    opening = path.with_name(presets.OPENING_TRACE.name)
    known = RunLines.of(gzip.decompress(opening.read_bytes()).decode().split("\n")) if opening.exists() else RunLines()
    engine = models.engine(model)
    best: dict[str, Any] = {}
    most = -1.0
    for prompt in presets.examples(model.model).values():
        session = Session()
        for update in explore.run(
            session, session.request(), Asked(prompt, model, DecodeConfig().method, False, values)
        ):
            if update.problem:
                raise SystemExit(update.problem)
        trace = session.shown.trace()
        if len(known) and [known.header["prompt"], known.trace().token_ids] == [prompt, trace.token_ids]:
            session.shown, trace = known, known.trace()
        points = live_settings.replayed(engine, trace)
        if len(trace.token_ids) >= LESSON_TOKENS and live_settings.spread(points) > most:
            most = live_settings.spread(points)
            best = {"lines": session.shown.lines(), "live": live_settings.drawing(trace, points)}
    if not best:
        raise SystemExit(f"no example has a text of {LESSON_TOKENS} tokens")
    return _write(path, json.dumps(best))


def _write(path: Path, text: str) -> int:
    data = gzip.compress(text.encode(), 9, mtime=0)
    path.write_bytes(data)
    return len(data)


def main() -> None:
    """Record, and say how large the files are."""
    parser = argparse.ArgumentParser(prog="python -m app.record", description=__doc__)
    parser.add_argument("--model", default=presets.first_model(), metavar="NAME|FOLDER")
    parser.add_argument("--prompt", metavar="TEXT", help="default: the first example of the model")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--out", type=Path, default=RACE.parent, metavar="FOLDER")
    arguments = parser.parse_args()
    leave_a_core()  # as the page does
    prompt = arguments.prompt or next(iter(presets.examples(arguments.model).values()))
    own = {"max_new_tokens": arguments.max_new_tokens, "chat": models.templated(arguments.model)}
    values = {s.name: s.value for s in SETTINGS} | own
    recorders = ((record_run, presets.OPENING_TRACE), (record_race, RACE), (record_lesson, presets.LESSON))
    for record, known in recorders:
        path = arguments.out / known.name
        size = record(path, Chosen(arguments.model), prompt, values)
        print(f"{path}: {size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
