"""Re-draft from here: the tokens that the second drafter would have added to a step of the shown run, from a chosen prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import d2sd
from app import models
from app.gpu import on_gpu
from app.inputs import step_number
from app.models import Chosen
from app.visitors import without_paths
from app.work import Ticket, Update
from d2sd import InputError, Trace
from d2sd.errors import first_line
from d2sd.models.store import REMOTE
from d2sd.trace.run import RecordedRun
from d2sd.whatif.redraft import Redraft, redraft

Answer = dict[str, Any]
STOPPED = "Cancelled while waiting in the queue: nothing was drafted."
MAX_NAME = 60


def run(ticket: Ticket, number: int, shown: RecordedRun, asked: dict[str, Any]) -> Iterator[Update[Answer]]:
    """Re-draft and yield the answer for the page: the page's ``number``, and a ``problem`` or the fields of a ``Redraft``.

    asked: untrusted request of the page: ``key`` of the run, ``step``, ``prefix``, and the page's ``number`` of the request.

    There is no answer after a newer request, or if the run is no longer shown.
    """
    if not ticket.claim(number):
        if ticket.stopped == number:
            yield Update(_answer(asked, problem=STOPPED))
        return
    step, prefix = step_number(asked.get("step")), step_number(asked.get("prefix"))
    try:
        if asked.get("key") != shown.key or not len(shown):
            raise InputError("this run is no longer shown; choose a step of the run that is")
        if step is None or prefix is None:
            raise InputError("a re-draft needs the number of a step and the length of a prefix")
        chosen = _models(shown.header)
        if not models.loaded(chosen):
            yield Update(news=f"Loading {chosen.model} …")
            models.engine(chosen)
        answer = _answer(asked, **_fields(_redraft(chosen, shown.trace(), step, prefix)))
    except InputError as error:
        answer = _answer(asked, problem=_sentence(f"{error}"))
    except Exception as error:  # whatever it was, the person is told and the page goes on
        answer = _answer(asked, problem=_sentence(f"the re-draft failed: {first_line(error, 200)}"))
    if ticket.newest == number:
        yield Update(answer)


@on_gpu
def _redraft(chosen: Chosen, trace: Trace, step: int, prefix: int) -> Redraft:
    return redraft(models.engine(chosen), trace, step, prefix)


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
        f"the models of this run ({called}) are not loaded here; choose them above and press Run, then click again, in that run "
        "or in this one from the list of runs"
    )


def _fields(found: Redraft) -> Answer:
    draft = found.draft
    return {**asdict(found), "draft": None, "texts": draft.texts, "confidence": draft.confidence}


def _answer(asked: dict[str, Any], **fields: Any) -> Answer:
    return {"number": step_number(asked.get("number")), **fields}


def _sentence(words: str) -> str:
    return without_paths(f"{words[:1].upper()}{words[1:]}.")
