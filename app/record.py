"""The race that the page opens with: ``python -m app.record`` runs it here and writes the file that the page reads."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from app import presets, race, whatif
from app.models import Chosen
from app.race import Lane, Race
from app.session import Session
from app.settings import SETTINGS
from app.views.whatif import drawing
from d2sd.trace import parse_trace

RACE = presets.ASSETS / "traces" / "race.json.gz"
DEFAULT = ("autoregressive", "dflash", "d2sd", "d2sd_tree")
ASKED = "d2sd"  # the lane whose what-if answers are recorded too


@cache
def recorded_race() -> Race:
    """The recorded race; one without lanes if none is there."""
    kept = _read()
    lanes = tuple(Lane(parse_trace(trace.encode())) for trace in kept.get("traces", ()))
    if not lanes:
        return Race("", ())
    methods = tuple(lane.trace.header["method"] for lane in lanes)
    return Race(str(lanes[0].trace.header["prompt"]), methods, lanes, recorded=True)


@cache
def recorded_answers() -> str | None:
    """What the what-if panel draws before anything is asked, as its value; None if none is there."""
    answers = _read().get("whatif")
    return json.dumps(answers) if answers else None


def _read() -> dict[str, Any]:
    return json.loads(gzip.decompress(RACE.read_bytes())) if RACE.exists() else {}


def record(path: Path, model: Chosen, prompt: str, max_new_tokens: int) -> int:
    """Run the default race and its what-if questions and write them to ``path``; returns the file's bytes."""
    session = Session()
    values = {s.name: s.value for s in SETTINGS} | {"max_new_tokens": max_new_tokens}
    done = Race(prompt, ())
    for update in race.run(session, session.request(), prompt, model, DEFAULT, values):
        done = update.value or done
        if update.problem or (not done.status and any(lane.problem for lane in done.lanes)):
            raise SystemExit(update.problem or "a method broke off")
    lane = next(lane for lane in done.lanes if lane.trace.header["method"] == ASKED)
    answers = None
    source = f"Race: {ASKED}"
    for asked in whatif.run(
        session, session.request(), source, lane.trace, model, list(whatif.SWEEPS), list(DEFAULT[1:])
    ):
        if asked.problem:
            raise SystemExit(asked.problem)
        answers = asked.value or answers
    assert answers is not None
    kept = {
        "traces": ["".join(lane.trace.lines()) for lane in done.lanes],
        "whatif": json.loads(drawing(replace(answers, recorded=True))),
    }
    data = gzip.compress(json.dumps(kept).encode(), 9, mtime=0)
    path.write_bytes(data)
    return len(data)


def main() -> None:
    """Record, and say how large the file is."""
    parser = argparse.ArgumentParser(prog="python -m app.record", description=__doc__)
    parser.add_argument("--model", default="tiny", metavar="NAME|FOLDER")
    parser.add_argument("--prompt", default=next(iter(presets.EXAMPLES.values())), metavar="TEXT")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--out", type=Path, default=RACE, metavar="FILE")
    arguments = parser.parse_args()
    size = record(arguments.out, Chosen(arguments.model), arguments.prompt, arguments.max_new_tokens)
    print(f"{arguments.out}: {size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
