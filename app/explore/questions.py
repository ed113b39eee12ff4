"""Answers to questions about the shown run: a re-draft from another prefix, the user's own draft, or other K and γ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import d2sd
from app import models
from app.guard import step_number
from app.jobs import Job, Update, failure_sentence
from app.machine import on_gpu
from app.models import model_set
from app.session import OWN, Session
from app.streaming import announce_loading
from app.visitors import without_paths
from d2sd import Engine, InputError, Trace
from d2sd.errors import require
from d2sd.folders.model_sets import ModelSet
from d2sd.folders.store import REMOTE
from d2sd.replay.grid import GridProgress, replay_grid
from d2sd.replay.questions import redraft, verify_typed
from d2sd.trace.events import Baseline
from d2sd.trace.run import Message, RecordedRun

STOPPED = "Cancelled while waiting in the queue: nothing was drafted."
NOT_REPLAYED = "Stopped: the other settings were not replayed."
OTHER_RUN = "this run is no longer shown; ask about the shown run"
MAX_NAME = 60  # characters of a model's name in a sentence
Answer = dict[str, Any]
Ask = Callable[[Engine, Trace], Answer]  # picklable, for the process with the GPU


def answer_question(name: str, job: Job, shown: RecordedRun) -> Iterator[Update[Answer]]:
    """Yield the answer for the page: the ``number`` of the question, and either a ``problem`` or the fields of the result.

    Yields nothing if the job is cancelled while the answer is computed, for example by a newer question.

    name: a key of ``QUESTIONS``.
    job: its ``data`` comes from the page and is untrusted. It holds the ``key`` of a run, the ``number`` of the question and its
        arguments.
    shown: the run on the page. A question about another run is answered with a ``problem``.
    """

    def answered(**fields: Any) -> Update[Answer]:
        return Update({"number": step_number(job.data.get("number")), **fields})

    if job.cancelled():
        yield answered(problem=STOPPED)
        return
    called, parse = QUESTIONS[name]
    try:
        require(job.data.get("key") == shown.key and len(shown), OTHER_RUN)
        ask = parse(job.data)
        chosen = _models_of(shown.header)
        yield from announce_loading(chosen)
        models.engine(chosen)
        answer = answered(**_computed(chosen, ask, shown.trace()))
    except Exception as error:  # reported as the answer
        answer = answered(problem=_problem(error, called))
    if not job.cancelled():
        yield answer


def _problem(error: Exception, question: str) -> str:
    words = f"{error}" if isinstance(error, InputError) else failure_sentence(error, f"{question} failed").rstrip(".")
    return without_paths(f"{words[:1].upper()}{words[1:]}.")


def replay_settings(job: Job, session: Session) -> Iterator[Update[str]]:
    """Replay the shown run with other K and γ. Yields segments: progress, and at the end the outcomes as a line of the run.

    A run that was requested in the meantime is not kept waiting: the replays stop.
    """
    shown, number, kept = session.shown, step_number(job.data.get("number")), session.history.find(session.shown.key)

    def told(**fields: Any) -> Update[str]:
        return Update(session.shown.message(Message("replays", {"number": number, **fields})))

    if job.cancelled():
        yield told(problem=NOT_REPLAYED)
        return
    try:
        require(job.data.get("key") == shown.key and shown.ended, OTHER_RUN)
        chosen = _models_of(shown.header)
        yield from announce_loading(chosen)
        models.engine(chosen)
        # this machine's costs do not apply to a run that was recorded on another one
        speeds = shown.baseline if kept and kept.source in OWN else None
        for progress in _replayed(chosen, shown.trace(), speeds):
            if job.cancelled() or session.waiting:
                yield told(problem=NOT_REPLAYED)
                return
            yield told(done=progress.done, total=progress.total)
    except Exception as error:  # reported as the answer
        yield told(problem=_problem(error, "the replay"))
        return
    assert progress.line is not None, "the last one has the outcomes"
    shown.append([progress.line])
    if session.shown is shown:
        yield Update(shown.segment(len(shown) - 1))


@on_gpu
def _replayed(chosen: ModelSet, trace: Trace, baseline: Baseline | None) -> Iterator[GridProgress]:
    yield from replay_grid(models.engine(chosen), trace, baseline)


@on_gpu
def _computed(chosen: ModelSet, ask: Ask, trace: Trace) -> Answer:
    return ask(models.engine(chosen), trace)


def _read_redraft(data: dict[str, Any]) -> Ask:
    step, prefix = step_number(data.get("step")), step_number(data.get("prefix"))
    if step is None or prefix is None:
        raise InputError("a re-draft needs the number of a step and the length of a prefix")
    return partial(_redraft, step=step, prefix=prefix)


def _redraft(engine: Engine, trace: Trace, step: int, prefix: int) -> Answer:
    outcome = redraft(engine, trace, step, prefix)
    return {**asdict(outcome), "draft": None, "texts": outcome.draft.texts, "confidence": outcome.draft.confidence}


def _read_typed(data: dict[str, Any]) -> Ask:
    step, words = step_number(data.get("step")), data.get("words")
    if step is None or not isinstance(words, str):
        raise InputError("your own draft needs the number of a step and the words of the draft")
    return partial(_verify, step=step, words=words)


def _verify(engine: Engine, trace: Trace, step: int, words: str) -> Answer:
    return asdict(verify_typed(engine, trace, step, words))


# by the name of the page's event: the question's name in error messages, and the parser of the event's data
QUESTIONS = {
    "redraft": ("the re-draft", _read_redraft),
    "typed": ("the check", _read_typed),
}


def _models_of(header: dict[str, Any]) -> ModelSet:
    """Returns the models of a run, if they are loaded, or if they are bundled and thus quick to load. Otherwise raises
    ``InputError``.
    """
    if (found := models.loaded_for(header)) is not None:
        return found
    recorded = header.get("models")
    names = recorded if isinstance(recorded, dict) else {}
    preset = names.get("preset")
    if preset in d2sd.presets() and preset not in REMOTE:
        return model_set(preset)
    name = str(preset or names.get("target") or "unknown")[:MAX_NAME]
    raise InputError(
        f"the models of this run ({name}) are not loaded here; choose them above and press Run. Then ask again in the new "
        "run, or open this run again from the list of runs"
    )
