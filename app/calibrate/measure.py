"""The measurements of Calibrate (the run in Explore, a prompt set, uploaded traces), and the doctor for the chosen drafter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from app import models, settings
from app.jobs import Job, Update, failure_sentence
from app.links import MAX_PROMPT
from app.machine import ON_ZERO_GPU
from app.methods import lane_title, run_title
from app.presets import TRACES
from app.runs.recordings import Recording, Recordings, log_answers, prompt_label, read_uploads, short
from app.streaming import Pacer, RunRequest, announce_loading, on_worker, prepare_run, stream
from app.visitors import without_paths
from d2sd import Event, InputError, presets
from d2sd.bench.prompts import Prompt, names, parse_prompts, read_prompts
from d2sd.calibration.report import MeasuredRuns
from d2sd.costs.machines import CHAINLESS
from d2sd.doctor.asked import Asked
from d2sd.doctor.examination import Examination, Progress, drafter_of
from d2sd.doctor.report import doctor_report, markdown_of_logs
from d2sd.errors import require
from d2sd.figures.calibration import calibration_results
from d2sd.folders.model_sets import ModelSet
from d2sd.logs import is_log
from d2sd.replay.outcomes import ReplayOutcome
from d2sd.replay.selection import replay_selections, selections_report
from d2sd.trace.run import RecordedRun

RECORDED = TRACES / "measured.jsonl.gz"
MAX_FILES = 200
MAX_REPLAYED = 60  # texts
MAX_NAMED = 3  # maximum number of left-out files in a sentence
MAX_PROMPT_BYTES = 5 * 10**6
MAX_DOCTOR_PROMPTS = 60


def calibration_drawing(
    measured: MeasuredRuns,
    runs: Sequence[Recording],
    title: str,
    total: int | None = None,
    running: bool = False,
) -> str:
    """Returns the value of the Calibrate view as JSON: sentences, figures, and the steps that each mark of a figure counts.

    With these steps, the page lists the steps of a clicked mark without asking the server.

    measured, runs: the finished runs, as measurements and as recordings.
    total: number of planned runs; None: the number of ``runs``.
    running: whether the measurement is in progress.
    """
    statistics, done = measured.statistics, len(runs)
    data = {
        "progress": {"title": title, "done": done, "total": done if total is None else total, "running": running},
        **calibration_results(statistics).to_dict(),
        **measured.listing(),
        "report": statistics.report().to_dict(),
        "runs": [{"label": r.label, "run": str(r.header.get("run", "")), "domain": r.domain} for r in runs],
    }
    return orjson.dumps(data).decode()


def measure_shown(recordings: Recordings, run: RecordedRun) -> str:
    """Measure the run shown in Explore, and return the drawing."""
    traces = [run.trace()] if len(run) else []
    recordings.runs = [Recording.of(t) for t in traces]
    recordings.title = "The run in Explore"
    title = f"{recordings.title}: only one text; a prompt set gives more reliable figures"
    return calibration_drawing(MeasuredRuns(traces), recordings.runs, title)


def measure_recorded(recordings: Recordings) -> str | None:
    """Use the recording that comes with the page and is shown first. Returns the drawing; None if the file is missing."""
    if not RECORDED.exists():
        return None
    recordings.runs, drawn = _recorded()
    recordings.title = "A recording"
    return drawn


@cache
def _recorded() -> tuple[list[Recording], str]:
    runs = [replace(recording, label=prompt_label(recording.header)) for recording, _ in read_uploads([RECORDED])[0]]
    title = f"A recording: {len(runs)} prompts with {run_title(runs[0].header)} on {runs[0].header['models']['preset']}. Press Measure to measure on this machine."
    return runs, calibration_drawing(MeasuredRuns(r.run.trace() for r in runs), runs, title)


def measure_files(recordings: Recordings, paths: Sequence[str] | None) -> tuple[str, str]:
    """Measure uploaded traces. Returns the drawing, and a sentence that names left-out files.

    Raises ``InputError`` if no file can be read; ``recordings`` is then unchanged.
    """
    if not paths:
        raise InputError("choose one or more trace files first")
    require(len(paths) <= MAX_FILES, f"{len(paths)} files were chosen; at most {MAX_FILES} are read at once")
    good, bad = read_uploads([Path(p) for p in paths])
    if not good:
        raise InputError(
            bad[0] if len(bad) == 1 else f"none of {len(bad)} files could be read; the first error: {bad[0]}"
        )
    runs = [recording for recording, _ in good]
    recordings.runs = runs
    recordings.title = runs[0].label if len(runs) == 1 else f"{len(runs)} trace files"
    return calibration_drawing(MeasuredRuns(t for _, t in good), runs, recordings.title), left_out(bad, len(paths))


def read_logs(paths: Sequence[str] | None, pasted: str | None) -> str:
    """Returns the findings of uploaded logs and a pasted log as Markdown; empty if there are no logs.

    Raises ``InputError`` if the pasted text is not a log. Files that cannot be read are skipped; ``measure_files`` names them.
    """
    said = []
    for path in (paths or ())[:MAX_FILES]:
        with suppress(InputError):
            said += log_answers(path) if is_log(path) else []
    if pasted and pasted.strip():
        with TemporaryDirectory() as folder:
            file = Path(folder) / "pasted.log"
            file.write_bytes(pasted.encode("utf-8", "replace"))
            said += log_answers(file)
    return markdown_of_logs(said)


def left_out(bad: Sequence[str], count: int) -> str:
    """Returns a sentence about files that were not read; empty if all were."""
    if not bad:
        return ""
    more = f" and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
    return f"{len(bad)} of {count} files were left out: {'; '.join(bad[:MAX_NAMED])}{more}"


def by_paragraph(pasted: str) -> str:
    """Returns pasted prompts in the form that ``parse_prompts`` reads. Prompts of several lines, separated by empty lines, become
    JSON lines.
    """
    blocks = [block.strip() for block in re.split(r"\n[ \t\r]*\n", pasted.strip())]
    if len(blocks) < 2 or blocks[0].startswith("{"):
        return pasted
    return "\n".join(json.dumps({"prompt": block}) for block in blocks if block)


@dataclass(frozen=True, slots=True)
class PromptSource:
    """The source of prompts: a bundled set by name, or text that was pasted or uploaded."""

    name: str
    text: str | None = None

    @classmethod
    def read(cls, kind: str, pasted: str | None, path: str | None) -> PromptSource:
        """Returns the source given by the values of the controls; ``kind``: name of a bundled set, or "own". Raises ``InputError``."""
        if kind != "own":
            return cls(kind)
        if not path:
            return cls("your prompts", by_paragraph(pasted or ""))
        file = Path(path)
        require(
            file.stat().st_size <= MAX_PROMPT_BYTES, f"{short(file.name)} is larger than {MAX_PROMPT_BYTES // 10**6} MB"
        )
        return cls(short(file.name), file.read_bytes().decode("utf-8-sig", "replace"))

    def prompts(self, count: int) -> list[Prompt]:
        """Returns at most ``count`` prompts, taken from all groups in turn. Raises ``InputError``."""
        if self.text is not None:
            found = parse_prompts(self.text, self.name, count)
            require(
                all(len(p.text) <= MAX_PROMPT for p in found),
                f"{self.name}: a prompt is longer than {MAX_PROMPT} characters",
            )
            return found
        require(self.name in names(), f"there is no prompt set {self.name}; choose one of: {', '.join(names())}")
        return read_prompts(self.name, count)


def measure_prompts(
    job: Job, recordings: Recordings, source: PromptSource, limit: float | None, request: RunRequest
) -> Iterator[Update[str]]:
    """Run a prompt set and yield drawings: after every prompt at first, later whenever the number of finished prompts has
    doubled.

    If the job is cancelled, the last drawing contains the finished prompts. If it is cancelled while the models are loaded, nothing
    is drawn, and ``recordings`` stays unchanged. Once another measurement has begun, no more drawings are yielded.

    Raises ``InputError`` before the first drawing if a value is invalid.

    limit: maximum number of prompts.
    """
    count = settings.whole(limit, "the number of prompts")
    require(count >= 1, f"the number of prompts must be at least 1, not {count}")
    config, method = request.config(), request.method
    texts = source.prompts(count)
    yield from announce_loading(request.models)
    prepared = [prepare_run(request.models, prompt.text, config) for prompt in texts]
    if job.cancelled():
        return
    title = f"{len(texts)} prompts of {source.name} with {lane_title(method)}"
    measured = MeasuredRuns()
    runs: list[Recording] = []
    shown_runs = 0  # number of runs in the latest drawing

    recordings.runs, recordings.title = runs, title

    def so_far(title: str, running: bool = False) -> str | None:
        if recordings.runs is not runs:
            return None
        return calibration_drawing(measured, runs, title, len(texts), running)

    yield Update(so_far(title, running=True))
    try:
        for prompt, one in zip(texts, prepared, strict=True):
            news = f"{len(runs)} of {len(texts)} prompts are done; the figures show the first {shown_runs}."
            events, pacer = list[Event](), Pacer()
            with closing(stream(one, job.cancelled)) as running:
                for event in running:
                    events.append(event)
                    if pacer.due():
                        yield Update(news=news if shown_runs < len(runs) else "")
            if job.cancelled():
                yield Update(so_far(f"{title}, stopped"))
                return
            trace = one.trace(events, domain=prompt.domain)
            measured.add(trace)
            runs.append(Recording.of(trace))
            done = len(runs) == len(texts)
            if done and method not in CHAINLESS and not ON_ZERO_GPU:
                measured.statistics.costs = one.engine.costs(one.request.config).draft_costs(method)
            # Drawn whenever the number of runs has doubled: all earlier drawings together cost about as much as the last one.
            if done or len(runs) >= 2 * shown_runs:
                shown_runs = len(runs)
                yield Update(so_far(title, running=not done), note=one.warnings() if done else "")
    except Exception as error:  # the finished prompts are drawn
        yield Update(so_far(f"{title}, ended by an error"), problem=failure_sentence(error))


def replay_perfectly(job: Job, runs: Sequence[Recording], chosen: ModelSet) -> Iterator[Update[str]]:
    """Replay the measured runs, re-drafting from other prefixes than those that the confidence selected.

    Yields progress sentences, then a report as Markdown: what perfect confidence would gain. If the job is cancelled, the report
    covers the texts replayed so far. Raises ``InputError`` if nothing is measured or the models cannot be used.
    """
    require(runs, "nothing is measured yet; press Measure first")
    yield from announce_loading(chosen)
    engine, outcomes = models.engine(chosen), list[list[ReplayOutcome]]()
    for n, recording in enumerate(runs[:MAX_REPLAYED], 1):
        if job.cancelled():
            break
        yield Update(news=f"Replaying text {n} of {min(len(runs), MAX_REPLAYED)} …")
        outcomes.append(replay_selections(engine, recording.run.trace()))
    if outcomes:
        yield Update(selections_report(outcomes))


def examine_drafter(job: Job, source: PromptSource, limit: float | None, request: RunRequest) -> Iterator[Update[str]]:
    """Examine the first drafter of the requested models.

    Yields progress sentences, then the report as Markdown. If the job is cancelled, the report has the findings so far. Raises
    ``InputError`` if a value is invalid or the drafter cannot be examined.

    limit: maximum number of prompts.
    request: its models, and its setting ``chat``.
    """
    require(
        not ON_ZERO_GPU, "this server provides a GPU only for a minute at a time; run d2sd doctor on your own machine"
    )
    count = settings.whole(limit, "the number of prompts")
    require(
        1 <= count <= MAX_DOCTOR_PROMPTS,
        f"the number of prompts must be between 1 and {MAX_DOCTOR_PROMPTS}, not {count}",
    )
    prompts = [p.text for p in source.prompts(count)]
    chosen = request.models
    yield from announce_loading(chosen)
    engine = models.engine(chosen)
    name = drafter_of(engine.models).config.name_or_path
    target = chosen.name if chosen.name in presets() else None
    asked = Asked(chosen.drafter, prompts, chat=bool(request.settings.get("chat")), name=name, target=target)

    def work(tell: Callable[[Progress], None]) -> None:
        Examination(asked, engine.models.target, engine, tell=tell).run()

    with closing(on_worker(work)) as steps:
        for step in steps:
            if job.cancelled():
                break
            tried = f" ({step.tried})" if step.tried else ""
            yield Update(news=f"{step.stage.capitalize()}: {step.done} of {step.total}{tried} …")
    yield Update(doctor_report([step.findings], without_paths))
