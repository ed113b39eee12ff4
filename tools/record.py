"""Records the runs that the page opens with: ``python -m tools.record`` writes those of Explore, Race, Calibrate and Learn."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import d2sd
from app import models, presets, settings
from app.calibrate.measure import RECORDED as MEASURED_RUNS
from app.explore import run as explore
from app.jobs import Job
from app.machine import leave_a_core
from app.methods import DEFAULT_LANES
from app.models import model_set
from app.race import run as race
from app.race.run import RECORDED, Race, disturbed_lanes
from app.session import Session
from app.settings import SETTINGS
from app.streaming import RunRequest
from d2sd import DecodeConfig, InputError, Trace
from d2sd.bench.prompts import read_prompts
from d2sd.folders.model_sets import ModelSet
from d2sd.replay.grid import replay_grid
from d2sd.replay.outcomes import recorded_config
from d2sd.trace.metrics import verdict
from d2sd.trace.run import RecordedRun

WORD = re.compile(r"[^\W\d_]{2}")  # two letters in a row
WORDS = 1 / 2  # minimum share of tokens that match WORD in the tree that the page opens with
MEASURED, MEASURED_TOKENS = 24, 64  # prompts of Calibrate, and tokens per prompt


def record_run(model: ModelSet, prompt: str, values: dict[str, Any]) -> RecordedRun:
    """Returns a run of Explore's default method, timed in comparison with plain decoding.

    values: values of the settings.
    """
    session = Session()
    for update in explore.stream_run(session, Job(), RunRequest(prompt, model, DecodeConfig().method, values)):
        if update.problem:
            raise SystemExit(update.problem)
    return session.shown


def worth(run: RecordedRun) -> tuple[bool, tuple[bool, int, int], float]:
    """Returns a key that ranks runs by how well they suit the opening of the page. The run with the largest key suits best.

    Elements of the key, in this order:

    * whether the run may open the page: the step that is shown first has words in its tree, some steps are repaired and some
      missed, and the measurement was undisturbed and faster than plain decoding;
    * whether that step has words, the smaller one of the counts of repaired and missed steps, and the count of repaired steps;
    * the speed relative to plain decoding.
    """
    trace = run.trace()
    plain, speculative = (run.baseline.tokens_per_second, run.baseline.unwatched) if run.baseline else (None, None)
    gain = speculative / plain if plain and speculative else 0.0
    outcomes = Counter(map(verdict, trace.steps))
    rarer = min(outcomes["repaired"], outcomes["missed"])
    drawn = [node.text for node in trace.steps[run.instructive].nodes]
    words = sum(bool(WORD.search(text)) for text in drawn) >= WORDS * len(drawn)
    even = run.baseline is None or not run.baseline.disturbed
    return words and rarer > 0 and gain > 1 and even, (words, rarer, outcomes["repaired"]), gain


def record_opening(model: str, prompts: Sequence[str], tokens: int) -> RecordedRun:
    """Records a run of each prompt. Returns the one that suits the opening of the page best."""
    runs = [record_run(model_set(model), prompt, _values(model, tokens)) for prompt in prompts]
    return max(runs, key=worth)


def record_race(path: Path, model: ModelSet, prompt: str, values: dict[str, Any]) -> int:
    """Runs the default race and writes it to ``path``. Returns the size of the file in bytes.

    If a lane has the same text and settings as the Explore run in the same folder, this run gets the lane's speeds, so that both
    tabs show the same speeds.
    """
    done = Race(())
    for update in race.run_race(Job(), RunRequest(prompt, model, "", values), DEFAULT_LANES):
        done = update.value or done
        if not done.status and any(lane.problem for lane in done.lanes):
            raise SystemExit("a method failed in the race")
    if disturbed_lanes(done):
        raise SystemExit("other programs disturbed the times; record again on an idle machine")
    opening = path.with_name(presets.OPENING_TRACE.name)
    if opening.exists():
        _write_run(opening, as_raced(RecordedRun.read(gzip.decompress(opening.read_bytes())), done))
    return _write(path, json.dumps({"traces": ["".join(lane.trace.lines()) for lane in done.lanes]}))


def as_raced(run: RecordedRun, raced: Race) -> RecordedRun:
    """Returns the run with the speeds of the lane that has the same text and settings. Without such a lane, the run is unchanged."""
    trace = run.trace()

    def same(other: Trace) -> bool:
        configs = (recorded_config(each) for each in (trace, other))
        return other.token_ids == trace.token_ids and len(set(configs)) == 1

    index = next((index for index, lane in enumerate(raced.lanes) if same(lane.trace)), None)
    speeds = None if index is None else race.baseline(race.lane_figures(raced)[index])
    return RecordedRun.of([*trace.records(), speeds]) if speeds else run


def record_lesson(path: Path, model: ModelSet, *_: Any) -> int:
    """Replays the Explore run in the folder of ``path`` with many values of K and γ, and writes the outcomes to ``path``. Returns
    the size of the file in bytes.
    """
    run = RecordedRun.read(gzip.decompress(path.with_name(presets.OPENING_TRACE.name).read_bytes()))
    *_, last = replay_grid(models.engine(model), run.trace(), run.baseline)
    return _write(path, json.dumps(last.line))


def record_measured(path: Path, model: ModelSet, *_: Any) -> int:
    """Measures ``MEASURED`` prompts of the model's prompt set, as Calibrate does, and writes the runs to ``path``. Returns the size
    of the file in bytes.
    """
    engine = models.engine(model)
    config = settings.config("d2sd", _values(model.name, MEASURED_TOKENS) | {"node_budget": None})
    lines: list[str] = []
    for prompt in read_prompts(presets.prompt_set(model.name), MEASURED):
        trace = engine.generate(prompt.text, config)
        trace = replace(trace, header={**trace.header, "domain": prompt.domain})
        lines += map(_without_lists, RecordedRun.of(trace.records()).lines())
    return _write(path, "\n".join([*lines, ""]))


def _without_lists(line: str) -> str:
    """Returns a line of a trace without the likeliest tokens at each position. They take over half of the line, and no figure uses
    them.
    """
    event = json.loads(line)
    if event["event"] == "StepDone":
        event["target_tops"] = []
        for draft in (event["first_draft"], *event["branches"]):
            draft["alternatives"] = []
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _write(path: Path, text: str) -> int:
    data = gzip.compress(text.encode(), 9, mtime=0)
    path.write_bytes(data)
    return len(data)


def _values(model: str, tokens: int) -> dict[str, Any]:
    changed = {"max_new_tokens": tokens, "chat": models.templated(model), "node_budget": models.block_size(model, "")}
    return {s.name: s.default for s in SETTINGS} | changed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.record", description=__doc__)
    parser.add_argument(
        "--model",
        metavar="NAME|FOLDER",
        help="default: the published model; the bundled model if only a run of the bundled model can open the page",
    )
    parser.add_argument("--prompt", metavar="TEXT", help="default: the example whose run opens the page best")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--out", type=Path, default=RECORDED.parent, metavar="FOLDER")
    arguments = parser.parse_args()
    leave_a_core()  # as the page does
    tokens = arguments.max_new_tokens
    here = [m for m in (presets.FIRST, presets.BUNDLED) if m in d2sd.presets()]
    runs = {}
    for model in [arguments.model] if arguments.model else here:
        prompts = [arguments.prompt] if arguments.prompt else list(presets.examples(model).values())
        runs[model] = record_opening(model, prompts, tokens)
        good, _, gain = worth(runs[model])
        print(f"{model}: {gain:.2f} × plain decoding, {'can' if good else 'cannot'} open the page", file=sys.stderr)
    # the sort is stable: the published model goes first if both runs may open the page, or neither
    first, *others = sorted(runs, key=lambda model: not worth(runs[model])[0])
    sizes = {
        arguments.out / presets.OPENING_TRACE.name: _write_run(arguments.out / presets.OPENING_TRACE.name, runs[first])
    }
    for model in others:
        path = arguments.out / presets.SECOND_TRACE.name
        sizes[path] = _write_run(path, runs[model])
    prompt = str(runs[first].header["prompt"])
    for record, bundled in ((record_race, RECORDED), (record_lesson, presets.LESSON), (record_measured, MEASURED_RUNS)):
        path = arguments.out / bundled.name
        sizes[path] = record(path, model_set(first), prompt, _values(first, tokens))
    for path, size in sizes.items():
        print(f"{path}: {size} bytes", file=sys.stderr)


def _write_run(path: Path, run: RecordedRun) -> int:
    return _write(path, "\n".join([*run.lines(), ""]))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(f"{error}") from None
