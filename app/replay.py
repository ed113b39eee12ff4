"""Replays the recorded texts of a set with another drafter, without decoding them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app import models
from app.gpu import on_gpu
from app.jobs import Job, Update
from app.models import Chosen
from app.recordings import RunSet
from d2sd import InputError, Trace
from d2sd.calibration.replays import compare_replays
from d2sd.calibration.replays_reading import how_replayed, lines
from d2sd.whatif import Outcome, replayed


def run(job: Job, texts: RunSet, chosen: Chosen) -> Iterator[Update[str]]:
    """Replay the texts one by one, then yield the table as plain text: as recorded, and with the drafters of ``chosen``.

    A text that ended with prefill has no step, so it is left out. Raises ``InputError``.
    """
    traces = [trace for trace in texts.traces if trace.steps]
    if not traces:
        raise InputError("A holds no text with a step; choose another set as A")
    if not models.loaded(chosen):
        yield Update(news=f"Loading {chosen.model} …")
    models.engine(chosen)
    found: list[Outcome] = []
    for steps in _replayed(chosen, traces):
        if job.cancelled():
            return
        found.append(steps)
        yield Update(news=f"{len(found)} of {len(traces)} texts …")
    yield Update(table(texts.title, traces, chosen.model, found))


@on_gpu
def _replayed(chosen: Chosen, traces: Sequence[Trace]) -> Iterator[Outcome]:
    for trace in traces:
        yield replayed(models.engine(chosen), trace)


def table(title: str, traces: Sequence[Trace], name: str, found: Sequence[Outcome]) -> str:
    """Returns both drafters' figures as text. found: for every text, the replayed steps of the drafter ``name``."""
    recorded = [tuple(len(step.committed) for step in trace.steps) for trace in traces]
    groups = [trace.domain for trace in traces]
    cut = [bool(trace.steps) and trace.steps[-1].committed[-1].proposer != "target" for trace in traces]
    names = [f"As recorded, {title}", f"With the drafters of {name}"]
    rows = compare_replays(names, [recorded, [o.committed for o in found]], groups, [cut, [o.cut for o in found]])
    return "\n".join([*(line for row in rows for line in lines(row)), how_replayed(rows, len(traces))])
