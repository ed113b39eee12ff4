"""Runs of Explore, from pressing Run to the page's updates: request → engine → stream → recorded run → update.

``app.streaming`` has the parts that other tabs use too: it prepares runs and yields events from the engine's thread or a ZeroGPU.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr

import d2sd
from app import models, settings
from app.explore.controls import ExploreTab
from app.jobs import AT_ONCE, TURNS, Job, Update, failure_sentence, wire
from app.links import check_length
from app.machine import ON_ZERO_GPU
from app.methods import PLAIN
from app.models import model_set
from app.plain import PlainStep
from app.session import Session
from app.streaming import Prepared, announce_loading, first_tokens, never, paced, prepare_run, stream
from d2sd import DecodeConfig, Engine, Event, Finished, StepDone
from d2sd.costs.runs import ThreadShare
from d2sd.folders.model_sets import ModelSet
from d2sd.trace.events import Baseline, StageSeconds
from d2sd.trace.run import RecordedRun

log = logging.getLogger(__name__)
STARTING = "() => { document.dispatchEvent(new CustomEvent('explorer:started')); return 'Starting …'; }"
# Settings of the runs that the view's last line offers, by the name of the view's event
SIZES: dict[str, dict[str, Any]] = {
    "quickest": {"cost_aware": True, "node_budget": None},
    "full": {"cost_aware": False, "node_budget": None},
}
LINES_BEFORE_STEPS = 3  # header, prompt and first step
SECONDS_BETWEEN_YIELDS = 1 / 6
_ahead = ThreadPoolExecutor(1, "ahead")
_getting_ready = threading.Lock()
_warm: WeakKeyDictionary[Engine, set[DecodeConfig]] = WeakKeyDictionary()


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
            listed: tuple[Any, Any] = (gr.skip(), gr.skip())
            if update.value is not None and current.shown is not before:
                before, listed = current.shown, shown.started(current)
            segment = gr.skip() if update.value is None else update.value
            yield replace(update, value=[segment, *listed, gr.Button(button_text(update, current))])
        # Send nothing after the last values: Gradio's client applies the diffs of two updates that arrive together to
        # the same object, so a skip after the values would delete them.

    def rest(current: Session) -> Any:
        runs = current.job is not None and current.job.work is work and current.job.active
        return gr.skip() if runs else gr.Button("Run")

    pressed = controls.run.click
    for event, stop in ((pressed, controls.stop), (shown.view.quickest, None), (shown.view.full, None)):
        worked = wire(
            event,
            work,
            session,
            [session, *controls.values],
            [shown.view, controls.back, shown.runs, controls.run],
            controls.notice,
            stop=stop,
        )
        worked.then(rest, session, controls.run, **AT_ONCE)
    for size, changes in SIZES.items():
        boxes = [controls.inputs[name] for name in changes]
        getattr(shown.view, size)(None, None, boxes, js=f"() => {json.dumps([*changes.values()])}", **AT_ONCE)
    pressed(None, None, controls.run, js=STARTING, **AT_ONCE)  # feedback before the server answers
    first = RunRequest.read({name: box.value for name, box in controls.inputs.items()})

    def chosen(model: str) -> None:
        if model in d2sd.presets() and not TURNS.busy:  # loading would disturb a run
            budget = first.settings["node_budget"] and models.block_size(model, "")
            own = {**first.settings, "chat": models.templated(model), "node_budget": budget}
            get_ready_for(replace(first, models=model_set(model), settings=own))

    gr.on(None, chosen, controls.inputs["model"], **AT_ONCE)  # on every change, and when the page is opened


def button_text(update: Update[str], session: Session) -> str:
    if update.news:
        return "Waiting …" if session.waiting else "Loading …"
    return "Reading …" if len(session.shown) < LINES_BEFORE_STEPS else "Writing …"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A requested run.

    settings: value of each setting, by name.
    compare: whether to compare the run's speed with plain decoding.
    """

    prompt: str
    models: ModelSet
    method: str
    settings: dict[str, Any]
    compare: bool = True

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> RunRequest:
        """Returns the request. ``values``: values of the controls, by the names in ``Controls.inputs``."""
        return cls(
            prompt=values["prompt"] or "",
            models=models.from_form(values["model"], values["folder"], values["vp"]),
            method=values["method"] or "",
            settings={s.name: values[s.name] for s in settings.SETTINGS},
        )

    def config(self) -> DecodeConfig:
        """Returns the configuration. Raises ``InputError`` if a setting is invalid or the prompt is too long for the page."""
        check_length(self.prompt)
        return settings.config(self.method, self.settings)


def stream_run(session: Session, job: Job, request: RunRequest) -> Iterator[Update[str]]:
    """Execute the requested run, record it in the session and yield its new segments.

    Raises ``InputError`` if the request is invalid; the page then still shows the previous run.
    """
    config = request.config()
    yield from announce_loading(request.models)
    prepared = prepare_run(request.models, request.prompt, config)
    header = prepared.engine.header(prepared.request)
    if wait := prepared.engine.first_use(prepared.request.config.backend):
        yield Update(news=wait)
    wanted = session.link.selection if session.link.fits(header) else None
    shown = session.shown = RecordedRun(live=True)
    shown.append([header])
    session.history.keep(shown, "Explore")
    lines = _lines(prepared, request.compare, job.cancelled)
    sent, last = 0, 0.0
    note = prepared.warnings()
    try:
        # send now, or the previous run would be taken for this one
        yield Update(shown.segment(wanted=wanted), note=note)
        sent = len(shown)
        for line in lines:
            shown.append([] if line is None else [line])
            # While another run is shown, no lines are sent. If this run is shown again, the page requests them.
            new = line is not None and session.shown is shown
            if (not new or isinstance(line, StepDone)) and time.monotonic() - last < SECONDS_BETWEEN_YIELDS:
                continue
            yield Update(shown.segment(sent) if new else None, note=note)
            sent, last = len(shown) if new else sent, time.monotonic()
    except Exception as error:  # the failure is also recorded in the run
        sentence = failure_sentence(error)
        shown.append([{"event": "Failed", "sentence": sentence}])
        yield Update(shown.segment(sent) if session.shown is shown else None, problem=sentence)
    finally:
        shown.live = False
        lines.close()


def _lines(run: Prepared, compare: bool, stop: Callable[[], bool]) -> Generator[Event | Baseline | None, None, None]:
    """Yields the trace lines of a run after its header, and a ``Baseline`` if measured; None while no line is ready."""
    plain, share = PlainStep(run, stop), ThreadShare()
    drafts = run.request.config.method != PLAIN
    compared = compare and drafts and not ON_ZERO_GPU  # a ZeroGPU decodes in another process, which ends with the run
    for _ in paced(get_ready(run, stop, plain if compared else ())):
        yield None
    finished, tokens, times = None, 0, list[StageSeconds]()
    for event in stream(run, stop, share):
        if isinstance(event, StepDone):
            tokens += len(event.committed)
            times.append(event.seconds)
        finished = event if isinstance(event, Finished) else None
        yield event
    if finished is None or finished.stop_reason == "stopped" or not times:
        return
    if compared and plain.costs is not None:
        yield plain.compared(tokens, times, share)
    elif not drafts and not share.disturbed:
        plain.correct(times)


def get_ready(run: Prepared, stop: Callable[[], bool], plain: Iterable[None] = ()) -> Generator[None, None, None]:
    """Do the one-time work for the run's settings, after such work on other threads has ended.

    plain: a ``PlainStep``, iterated last to measure a step of plain decoding; empty if this time is not needed.
    """
    while not _getting_ready.acquire(timeout=SECONDS_BETWEEN_YIELDS):
        yield
        if stop():
            return
    try:
        yield from chain(warm_up(run, stop), plain)
    finally:
        _getting_ready.release()


def get_ready_for(request: RunRequest) -> None:
    """If the models of a run are not loaded, load them and do the run's one-time work, on another thread.

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


def warm_up(run: Prepared, stop: Callable[[], bool]) -> Generator[None, None, None]:
    """Decode a few tokens if the engine has not run with these settings yet, so that the timed run includes no one-time work.

    One-time work is the first use of memory and, on a GPU, the capture of passes.
    """
    # much longer texts need larger buffers, for which passes are captured again
    config = run.request.config
    kind = replace(config, seed=0, max_new_tokens=1 + config.max_new_tokens // 1024)
    done = _warm.setdefault(run.engine, set())
    if kind in done:
        return
    yield from first_tokens(run, stop)
    if not stop():
        done.add(kind)
