"""What is asked of a step of the shown run, and answered by its models: a re-draft from another prefix, a reader's own draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import d2sd
from app import models
from app.guard import step_number
from app.jobs import Job, Update, failure_sentence
from app.machine import on_gpu
from app.models import Chosen
from app.visitors import without_paths
from d2sd import Engine, InputError, Trace
from d2sd.folders.store import REMOTE
from d2sd.trace.run import RecordedRun
from d2sd.whatif.questions import redraft, verify_typed

Answer = dict[str, Any]
Work = Callable[[Engine, Trace], Answer]
STOPPED = "Cancelled while waiting in the queue: nothing was drafted."
MAX_NAME = 60


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of question.

    name: in sentences.
    read: what is asked as work for an engine, without its models; raises ``InputError``.
    """

    name: str
    read: Callable[[Answer], Work]


def run(question: Question, job: Job, shown: RecordedRun) -> Iterator[Update[Answer]]:
    """Yield the answer for the page: ``number`` as it came, and a ``problem`` or the fields of what was found.

    ``job.data`` is what the page asks: ``key`` of the run, what the question needs, and a ``number`` of its own for it. It may
    be anything. An answer that a newer question has overtaken is not given, nor one about a run that is not shown any more.
    """
    asked = job.data
    if job.cancelled():
        yield Update(_answer(asked, problem=STOPPED))
        return
    try:
        if asked.get("key") != shown.key or not len(shown):
            raise InputError("this run is no longer shown; choose a step of the run that is")
        work = question.read(asked)
        chosen = _models(shown.header)
        if not models.loaded(chosen):
            yield Update(news=f"Loading {chosen.model} …")
            models.engine(chosen)
        answer = _answer(asked, **_done(chosen, work, shown.trace()))
    except InputError as error:
        answer = _answer(asked, problem=_sentence(f"{error}"))
    except Exception as error:  # it is the answer
        answer = _answer(asked, problem=_sentence(failure_sentence(error, f"{question.name} failed").rstrip(".")))
    if not job.cancelled():
        yield Update(answer)


@on_gpu
def _done(chosen: Chosen, work: Work, trace: Trace) -> Answer:
    return work(models.engine(chosen), trace)


def _read_redraft(asked: Answer) -> Work:
    step, prefix = step_number(asked.get("step")), step_number(asked.get("prefix"))
    if step is None or prefix is None:
        raise InputError("a re-draft needs the number of a step and the length of a prefix")
    return partial(_redrafted, step=step, prefix=prefix)


def _redrafted(engine: Engine, trace: Trace, step: int, prefix: int) -> Answer:
    found = redraft(engine, trace, step, prefix)
    return {**asdict(found), "draft": None, "texts": found.draft.texts, "confidence": found.draft.confidence}


def _read_typed(asked: Answer) -> Work:
    step, words = step_number(asked.get("step")), asked.get("words")
    if step is None or not isinstance(words, str):
        raise InputError("a draft of one's own is given by the number of a step and its words")
    return partial(_verified, step=step, words=words)


def _verified(engine: Engine, trace: Trace, step: int, words: str) -> Answer:
    return asdict(verify_typed(engine, trace, step, words))


QUESTIONS = {"redraft": Question("the re-draft", _read_redraft), "typed": Question("the check", _read_typed)}


def _models(header: dict[str, Any]) -> Chosen:
    """The models of a run: those that are loaded, or bundled ones, which load in a moment. Raises ``InputError``."""
    if (found := models.loaded_for(header)) is not None:
        return found
    named = header.get("models")
    names = named if isinstance(named, dict) else {}
    preset = names.get("preset")
    if preset in d2sd.presets() and preset not in REMOTE:
        return Chosen(preset)
    called = str(preset or names.get("target") or "not named in it")[:MAX_NAME]
    raise InputError(
        f"the models of this run ({called}) are not loaded here; choose them above and press Run, then ask again, in that run "
        "or in this one from the list of runs"
    )


def _answer(asked: dict[str, Any], **fields: Any) -> Answer:
    return {"number": step_number(asked.get("number")), **fields}


def _sentence(words: str) -> str:
    return without_paths(f"{words[:1].upper()}{words[1:]}.")
