"""Runs of Explore, from pressing Run to the page's updates.

An event of a run passes five generators: ``Engine.run`` yields it on the engine's thread; ``streaming.on_worker`` passes it to the thread
of the job; ``stream_run`` records it and yields the new lines; ``wire_run`` adds the list of runs; ``Jobs.on`` adds the notice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import gradio as gr

import d2sd
from app import models
from app.explore.controls import ExploreTab
from app.jobs import AT_ONCE, TURNS, Job, ModelJobs, Update, failure_sentence
from app.machine import ON_ZERO_GPU
from app.methods import PLAIN
from app.models import model_set
from app.plain import PlainStep
from app.session import Session
from app.streaming import Pacer, RunRequest, announce_loading, get_ready, never, prepare_run, stream
from d2sd import Finished, StepDone
from d2sd.costs.runs import ThreadShare
from d2sd.trace.events import StageSeconds
from d2sd.trace.run import Message, RecordedRun

log = logging.getLogger(__name__)
STARTING = "() => { document.dispatchEvent(new CustomEvent('explorer:started')); return 'Starting …'; }"
# Settings of the runs that the view's last line offers, by the name of the view's event
SIZES = {
    "quickest": {"cost_aware": True, "node_budget": None},
    "full": {"cost_aware": False, "node_budget": None},
}
LINES_BEFORE_STEPS = 3  # header, prompt and first step
SECONDS_BETWEEN_YIELDS = 1 / 6
_ahead = ThreadPoolExecutor(1, "ahead")


def wire_run(shown: ExploreTab) -> None:
    """Wire the events that start a run: the Run button, and the runs that the view's last line offers."""
    session, controls = shown.session, shown.controls

    def work(job: Job, current: Session, *values: Any) -> Iterator[Update[Any]]:
        before, request = current.shown, RunRequest.read(dict(zip(controls.inputs, values, strict=True)))
        for size, changes in SIZES.items():
            if job.data.get(size) is True:
                request = replace(request, settings={**request.settings, **changes})
        updates: Iterator[Update[Any]] = stream_run(current, job, request)
        for update in updates:
            listed = (gr.skip(), gr.skip())
            if update.value is not None and current.shown is not before:
                before, listed = current.shown, shown.started(current)
            segment = gr.skip() if update.value is None else update.value
            yield replace(update, value=[segment, *listed, gr.Button(button_text(update, current))])
        # Send nothing after the last values: Gradio's client applies the diffs of two updates that arrive together to
        # the same object, so a skip after the values would delete them.

    def rest(current: Session) -> Any:
        runs = current.job is not None and current.job.work is work and current.job.active
        return gr.skip() if runs else gr.Button("Run")

    jobs, pressed = ModelJobs(session, controls.notice, controls.stop), controls.run.click
    inputs, outputs = [session, *controls.values], [shown.view, controls.back, shown.runs, controls.run]
    for event in (pressed, shown.view.quickest, shown.view.full):
        jobs.on(event, work, inputs, outputs).then(rest, session, controls.run, **AT_ONCE)
    for size, changes in SIZES.items():
        boxes = [controls.inputs[name] for name in changes]
        getattr(shown.view, size)(None, None, boxes, js=f"() => {json.dumps([*changes.values()])}", **AT_ONCE)
    pressed(None, None, controls.run, js=STARTING, **AT_ONCE)  # feedback before the server answers
    at_start = RunRequest.read({name: box.value for name, box in controls.inputs.items()})

    def chosen(model: str) -> None:
        if model in d2sd.presets() and not TURNS.busy:  # loading would disturb a run
            budget = at_start.settings["node_budget"] and models.block_size(model, "")
            of_model = {**at_start.settings, "chat": models.templated(model), "node_budget": budget}
            get_ready_for(replace(at_start, models=model_set(model), settings=of_model))

    gr.on(None, chosen, controls.inputs["model"], **AT_ONCE)  # on every change, and when the page is opened


def button_text(update: Update[str], session: Session) -> str:
    if update.news:
        return "Waiting …" if session.waiting else "Loading …"
    return "Reading …" if len(session.shown) < LINES_BEFORE_STEPS else "Writing …"


def stream_run(session: Session, job: Job, request: RunRequest) -> Iterator[Update[str]]:
    """Execute the requested run, record it in the session and yield its new segments.

    Raises ``InputError`` if the request is invalid. Then, or if the job is cancelled while the models are loaded, the page still
    shows the previous run.
    """
    config, stop = request.config(), job.cancelled
    yield from announce_loading(request.models)
    run = prepare_run(request.models, request.prompt, config)
    if stop():
        return
    header = run.engine.header(run.request)
    if wait := run.engine.first_use(run.request.config.backend):
        yield Update(news=wait)
    recorded = session.shown = RecordedRun(live=True)
    recorded.append([header])
    session.history.keep(recorded, "Explore")
    note, sent, pacer = run.warnings(), 0, Pacer(SECONDS_BETWEEN_YIELDS)

    def new_lines(**said: str) -> Update[str]:
        """Returns the lines since the last update. While another run is shown, none are sent: all are, if this run is shown again."""
        nonlocal sent
        if session.shown is not recorded:
            return Update(**said)
        start, sent = sent, len(recorded)
        return Update(recorded.segment(start), **said)

    # a ZeroGPU decodes in another process, which ends with the run
    plain, share = PlainStep(run, stop), ThreadShare()
    compared = request.compare and config.method != PLAIN and not ON_ZERO_GPU
    tokens, times, finished = 0, list[StageSeconds](), False
    try:
        # send the header now, or the previous run would be taken for this one
        selection = session.link.selection if session.link.fits(header) else None
        yield Update(recorded.segment(0, Message.select(selection)), note=note)
        sent = len(recorded)
        for _ in get_ready(run, stop, plain if compared else ()):
            if pacer.due():
                yield Update(note=note)
        with closing(stream(run, stop, share)) as events:
            for event in events:
                recorded.append([event])
                if isinstance(event, StepDone):
                    tokens += len(event.committed)
                    times.append(event.seconds)
                finished = isinstance(event, Finished) and event.stop_reason != "stopped"
                if not isinstance(event, StepDone) or pacer.due():
                    yield new_lines(note=note)
        if finished and times and compared and plain.costs is not None:
            recorded.append([plain.compared(tokens, times, share)])
            yield new_lines(note=note)
        elif finished and config.method == PLAIN and not share.disturbed:
            plain.correct(times)
    except Exception as error:  # the failure is also recorded in the run
        problem = failure_sentence(error)
        recorded.append([{"event": "Failed", "sentence": problem}])
        yield new_lines(problem=problem)
    finally:
        recorded.live = False


def get_ready_for(request: RunRequest) -> None:
    """Load the models of a run on another thread, and do the run's one-time work there. If the models are loaded already, do
    nothing.

    Failures are only logged, since the run itself will report them.

    request: the run that the page would start now.
    """

    def work() -> None:
        try:
            run = prepare_run(request.models, request.prompt, request.config())
            for _ in get_ready(run, never, () if ON_ZERO_GPU else PlainStep(run, never)):
                pass
        except Exception as error:
            log.warning("models were not loaded before the first run", exc_info=error)

    if not models.loaded(request.models):
        _ahead.submit(work)
