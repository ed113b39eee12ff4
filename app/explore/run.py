"""What Explore computes: a run, streamed as trace lines, and answers to questions about a step of the shown run."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import d2sd
from app import models, settings
from app.guard import step_number
from app.jobs import Job, Update, failure_sentence
from app.links import check_length
from app.machine import on_gpu
from app.methods import PLAIN
from app.models import Chosen
from app.session import Session
from app.streaming import Prepared, Recorder, announce_loading, paced, prepare, stream, warm_up
from app.visitors import without_paths
from d2sd import DecodeConfig, Engine, Event, Finished, InputError, StepDone, Trace
from d2sd.costs.runs import impossible, uneven
from d2sd.folders.store import REMOTE
from d2sd.trace.events import Baseline
from d2sd.trace.run import RecordedRun
from d2sd.whatif.questions import redraft, verify_typed

SECONDS_BETWEEN_YIELDS = 1 / 6
# A short run is timed more than once against plain decoding: as often as fits into so many seconds.
MAX_ROUNDS = 3
SECONDS_OF_ROUNDS = 0.25
CHECKED = 4  # of a long run, a quarter is timed a second time, to see whether the times are even
LEAST_CHECKED = 32  # tokens: several steps
TRIES = 2  # of timing a run, where other work disturbs it
STOPPED = "Cancelled while waiting in the queue: nothing was drafted."
MAX_NAME = 60  # characters of a model's name in a sentence


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The values of the controls.

    compare: whether the run is timed against plain decoding.
    settings: by name.
    """

    prompt: str
    models: Chosen
    method: str
    compare: bool
    settings: dict[str, Any]

    def config(self) -> DecodeConfig:
        """Returns the configuration. Raises ``InputError``, also if the prompt is too long for the page."""
        check_length(self.prompt)
        return settings.config(self.method, self.settings)


def run(session: Session, job: Job, request: RunRequest) -> Iterator[Update[str]]:
    """Run, record in the session and yield new segments. On invalid input the shown run stays. Raises ``InputError``."""
    config = request.config()
    yield from announce_loading(request.models)
    prepared = prepare(request.models, request.prompt, config)
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


Rounds = tuple[list[Trace], list[Trace]]  # equal runs, and of plain decoding as many


def baseline_of(own: Sequence[Trace], plain: Sequence[Trace]) -> Baseline:
    """Returns the speeds of equal runs and of plain decoding, and whether other work disturbed them. A run that ends earlier than
    the first one does not count for its speed, since the beginning of a text is drafted better or worse than the whole."""

    def speed(rounds: Sequence[Trace]) -> float:
        whole = [trace for trace in rounds if len(trace.steps) == len(rounds[0].steps)]
        tokens = sum(len(step.committed) for trace in whole for step in trace.steps)
        return tokens / max(1e-9, sum(trace.totals.seconds for trace in whole))

    disturbed = uneven(own) or uneven(plain) or impossible(own[0].totals, plain[0].totals)
    return Baseline(speed(plain), speed(own), disturbed)


def _timed(
    run: Prepared,
    tokens: int,
    stop: Callable[[], bool],
    timed: Rounds,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Time this run and plain decoding alternately, without drawing or inspection, and append what they did to ``timed``: at least
    two runs of each, the second one short where the first took long.

    A run that is drawn shares the processor with the drawing code, and on a small machine with the browser.
    """
    config = replace(run.request.config, inspect=False)
    plain = replace(config, method=PLAIN, block_size=None, second_block_size=None, node_budget=None)
    began = clock()
    for number in range(MAX_ROUNDS):
        long = number > 0 and clock() - began > SECONDS_OF_ROUNDS
        if stop() or (long and number > 1):
            break
        most = min(tokens, max(LEAST_CHECKED, tokens // CHECKED)) if long else tokens
        for own, rounds in zip((config, plain), timed, strict=True):
            request = replace(run.request, config=replace(own, max_new_tokens=most))
            recorder = Recorder(replace(run, request=request), stop, warm_up)
            yield from recorder
            rounds.append(recorder.trace())


Answer = dict[str, Any]
Work = Callable[[Engine, Trace], Answer]


@dataclass(frozen=True, slots=True)
class StepQuestion:
    """A kind of question about a step: a re-draft from another prefix, or a reader's own draft.

    name: in sentences.
    read: the data of the page's event as work for an engine, without its models; raises ``InputError``.
    """

    name: str
    read: Callable[[dict[str, Any]], Work]


def answer(question: StepQuestion, job: Job, shown: RecordedRun) -> Iterator[Update[Answer]]:
    """Yield the answer for the page: the ``number`` of the question, and a ``problem`` or the fields of the result.

    ``job.data`` comes from the page, and may be anything: ``key`` of the run, what the question needs, and its ``number``. An
    answer that a newer question has overtaken is not yielded, nor one about a run that is not shown any more.
    """
    if job.cancelled():
        yield Update(_answer(job, problem=STOPPED))
        return
    try:
        if job.data.get("key") != shown.key or not len(shown):
            raise InputError("this run is no longer shown; choose a step of the run that is")
        work = question.read(job.data)
        chosen = _models_of(shown.header)
        yield from announce_loading(chosen)
        models.engine(chosen)
        found = _answer(job, **_computed(chosen, work, shown.trace()))
    except InputError as error:
        found = _answer(job, problem=_sentence(f"{error}"))
    except Exception as error:  # it is the answer
        found = _answer(job, problem=_sentence(failure_sentence(error, f"{question.name} failed").rstrip(".")))
    if not job.cancelled():
        yield Update(found)


@on_gpu
def _computed(chosen: Chosen, work: Work, trace: Trace) -> Answer:
    return work(models.engine(chosen), trace)


def _read_redraft(data: dict[str, Any]) -> Work:
    step, prefix = step_number(data.get("step")), step_number(data.get("prefix"))
    if step is None or prefix is None:
        raise InputError("a re-draft needs the number of a step and the length of a prefix")
    return partial(_redraft, step=step, prefix=prefix)


def _redraft(engine: Engine, trace: Trace, step: int, prefix: int) -> Answer:
    found = redraft(engine, trace, step, prefix)
    return {**asdict(found), "draft": None, "texts": found.draft.texts, "confidence": found.draft.confidence}


def _read_typed(data: dict[str, Any]) -> Work:
    step, words = step_number(data.get("step")), data.get("words")
    if step is None or not isinstance(words, str):
        raise InputError("a draft of one's own is given by the number of a step and its words")
    return partial(_verify, step=step, words=words)


def _verify(engine: Engine, trace: Trace, step: int, words: str) -> Answer:
    return asdict(verify_typed(engine, trace, step, words))


QUESTIONS = {"redraft": StepQuestion("the re-draft", _read_redraft), "typed": StepQuestion("the check", _read_typed)}


def _models_of(header: dict[str, Any]) -> Chosen:
    """Returns the models of a run: those that are loaded, or bundled ones, which load in a moment. Raises ``InputError``."""
    if (found := models.loaded_for(header)) is not None:
        return found
    recorded = header.get("models")
    names = recorded if isinstance(recorded, dict) else {}
    preset = names.get("preset")
    if preset in d2sd.presets() and preset not in REMOTE:
        return Chosen(preset)
    name = str(preset or names.get("target") or "not named in it")[:MAX_NAME]
    raise InputError(
        f"the models of this run ({name}) are not loaded here; choose them above and press Run, then ask again, in that run "
        "or in this one from the list of runs"
    )


def _answer(job: Job, **fields: Any) -> Answer:
    return {"number": step_number(job.data.get("number")), **fields}


def _sentence(words: str) -> str:
    return without_paths(f"{words[:1].upper()}{words[1:]}.")
