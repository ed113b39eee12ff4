"""A run of Explore, from the press of Run to what the page is sent: request → engine → stream → recorded run → update.

``app.streaming`` has what other tabs need as well: preparing a run, and its events from the engine's thread or from a ZeroGPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr

from app import settings
from app.explore.controls import ExploreTab
from app.jobs import AT_ONCE, Job, Update, failure_sentence, wire
from app.links import check_length
from app.methods import PLAIN
from app.models import Chosen
from app.session import Session
from app.streaming import Prepared, RunRecorder, announce_loading, first_tokens, paced, prepare_run, stream
from d2sd import DecodeConfig, Engine, Event, Finished, StepDone, Trace
from d2sd.costs.runs import impossible, uneven
from d2sd.trace.events import Baseline
from d2sd.trace.run import RecordedRun

LINES_BEFORE_STEPS = 3  # header, prompt, and the first step
SECONDS_BETWEEN_YIELDS = 1 / 6
# A short run is timed more than once against plain decoding: as often as fits into so many seconds.
MAX_ROUNDS = 3
SECONDS_OF_ROUNDS = 0.25
CHECKED = 4  # of a long run, a quarter is timed a second time, to see whether the times are even
LEAST_CHECKED = 32  # tokens: several steps
TRIES = 2  # of timing a run, where other work disturbs it
_warm: WeakKeyDictionary[Engine, set[DecodeConfig]] = WeakKeyDictionary()


def wire_run(shown: ExploreTab) -> None:
    """Wire what requests a run: the button, the prompt's Enter, and the view's offer to run it as *quickest here*."""
    session, controls = shown.session, shown.controls

    def work(job: Job, current: Session, *values: Any) -> Iterator[Update[Any]]:
        before, request = current.shown, RunRequest.read(dict(zip(controls.inputs, values, strict=True)))
        if job.data.get("quickest") is True:
            request = replace(request, settings={**request.settings, "cost_aware": True})
        updates: Iterator[Update[Any]] = stream_run(current, job, request)
        for update in updates:
            listed: tuple[Any, Any] = (gr.skip(), gr.skip())
            if update.value is not None and current.shown is not before:
                before, listed = current.shown, shown.started(current)
            segment = gr.skip() if update.value is None else update.value
            yield replace(update, value=[segment, *listed, gr.Button(button_text(update, current))])
        # Nothing is sent after the last values: Gradio's client applies the differences of two updates that arrive at
        # once to one object, so a skip behind them would delete them.

    def rest(current: Session) -> Any:
        runs = current.job is not None and current.job.work is work and current.job.active
        return gr.skip() if runs else gr.Button("Run")

    pressed = partial(gr.on, [controls.run.click, controls.inputs["prompt"].submit])
    for event, stop in ((pressed, controls.stop), (shown.view.quickest, None)):
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
    shown.view.quickest(None, None, controls.inputs["cost_aware"], js="() => true", **AT_ONCE)


def button_text(update: Update[str], session: Session) -> str:
    if update.news:
        return "Waiting …" if session.waiting else "Loading …"
    if session.shown.ended:
        return "Timing …"
    return "Reading …" if len(session.shown) < LINES_BEFORE_STEPS else "Writing …"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A requested run.

    compare: whether it is timed against plain decoding.
    settings: by name.
    """

    prompt: str
    models: Chosen
    method: str
    compare: bool
    settings: dict[str, Any]

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> RunRequest:
        """Returns the run that the values of the controls request, by the names of ``Controls.inputs``."""
        return cls(
            prompt=values["prompt"] or "",
            models=Chosen.read(values["model"], values["folder"], values["vp"]),
            method=values["method"] or "",
            compare=bool(values["compare"]),
            settings={s.name: values[s.name] for s in settings.SETTINGS},
        )

    def config(self) -> DecodeConfig:
        """Returns the configuration. Raises ``InputError``, also if the prompt is too long for the page."""
        check_length(self.prompt)
        return settings.config(self.method, self.settings)


def stream_run(session: Session, job: Job, request: RunRequest) -> Iterator[Update[str]]:
    """Run, record in the session and yield new segments. On invalid input the shown run stays. Raises ``InputError``."""
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
        yield Update(shown.segment(wanted=wanted), note=note)  # at once: the run before it must not pass for it
        sent = len(shown)
        for line in lines:
            shown.append([] if line is None else [line])
            # out of sight it goes on for the list; shown again, the page takes what it lacks
            new = line is not None and session.shown is shown
            if (not new or isinstance(line, StepDone)) and time.monotonic() - last < SECONDS_BETWEEN_YIELDS:
                continue
            yield Update(shown.segment(sent) if new else None, note=note)
            sent, last = len(shown) if new else sent, time.monotonic()
    except Exception as error:  # the run keeps the sentence too
        sentence = failure_sentence(error)
        shown.append([{"event": "Failed", "sentence": sentence}])
        yield Update(shown.segment(sent) if session.shown is shown else None, problem=sentence)
    finally:
        shown.live = False
        lines.close()


def _lines(run: Prepared, compare: bool, stop: Callable[[], bool]) -> Generator[Event | Baseline | None, None, None]:
    """Yields the trace lines of a run after its header, and last its speedup, if requested. Yields None during work that
    adds no line."""
    finished, steps = None, 0
    for _ in paced(warm_up(run, stop)):
        yield None
    for event in stream(run, stop):
        finished = event if isinstance(event, Finished) else None
        steps += isinstance(event, StepDone)
        yield event
    if not compare or run.request.config.method == PLAIN:
        return
    if finished is None or finished.stop_reason == "stopped" or not steps:
        return
    for _ in range(TRIES):
        timed: Rounds = [], []
        for _ in paced(_timed(run, len(finished.token_ids), stop, timed)):
            yield None
        if stop():
            return
        found = baseline_of(*timed)
        if not found.disturbed:
            break
    yield found


def warm_up(run: Prepared, stop: Callable[[], bool]) -> Generator[None, None, None]:
    """Run a few tokens if these settings are new to the models, so that the timed run includes no one-time work.

    This touches memory, and captures passes on a GPU.
    """
    # much longer texts get larger buffers, and what is captured for them is captured anew
    config = run.request.config
    kind = replace(config, seed=0, max_new_tokens=1 + config.max_new_tokens // 1024)
    done = _warm.setdefault(run.engine, set())
    if kind in done:
        return
    yield from first_tokens(run, stop)
    if not stop():
        done.add(kind)


Rounds = tuple[list[Trace], list[Trace]]  # equal runs, and of plain decoding as many


def _timed(run: Prepared, tokens: int, stop: Callable[[], bool], timed: Rounds) -> Iterator[None]:
    """Time this run and plain decoding alternately, without drawing or inspection, and append what they did to ``timed``: at least
    two runs of each, the second one short where the first took long.

    A run that is drawn shares the processor with the drawing code, and on a small machine with the browser.
    """
    config = replace(run.request.config, inspect=False)
    plain = replace(config, method=PLAIN, block_size=None, second_block_size=None, node_budget=None)
    began = time.monotonic()
    for number in range(MAX_ROUNDS):
        long = number > 0 and time.monotonic() - began > SECONDS_OF_ROUNDS
        if stop() or (long and number > 1):
            break
        most = min(tokens, max(LEAST_CHECKED, tokens // CHECKED)) if long else tokens
        for own, rounds in zip((config, plain), timed, strict=True):
            request = replace(run.request, config=replace(own, max_new_tokens=most))
            once = replace(run, request=request)
            recorder = RunRecorder(once, stop)
            yield from warm_up(once, stop)
            yield from recorder
            rounds.append(recorder.trace())


def baseline_of(own: Sequence[Trace], plain: Sequence[Trace]) -> Baseline:
    """Returns the speeds of equal runs and of plain decoding, and whether other work disturbed them. A run that ends earlier than
    the first one does not count for its speed, since the beginning of a text is drafted better or worse than the whole."""

    def speed(rounds: Sequence[Trace]) -> float:
        whole = [trace for trace in rounds if len(trace.steps) == len(rounds[0].steps)]
        tokens = sum(len(step.committed) for trace in whole for step in trace.steps)
        return tokens / max(1e-9, sum(trace.totals.seconds for trace in whole))

    disturbed = uneven(own) or uneven(plain) or impossible(own[0].totals, plain[0].totals)
    return Baseline(speed(plain), speed(own), disturbed)
