"""Controller of the doctor: runs the examination of the chosen drafter and streams its report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from app import models, settings
from app.calibrate import PromptSource
from app.gpu import ON_ZERO_GPU
from app.jobs import Job, Update
from app.models import Chosen
from app.streaming import ahead
from app.visitors import without_paths
from d2sd import DecodeConfig, InputError
from d2sd.doctor.examination import TOKENS, Examination, examine
from d2sd.doctor.folder_checks import check_folder
from d2sd.doctor.report import markdown

MOST = 60  # prompts


def report(
    job: Job, source: PromptSource, limit: float | None, chosen: Chosen, values: dict[str, Any]
) -> Iterator[Update[str]]:
    """Yields progress sentences, then the report as Markdown; if cancelled, with the findings so far. Raises
    ``InputError``.

    values: settings by name, of which ``chat`` counts.
    """
    if ON_ZERO_GPU:
        raise InputError("this server provides a GPU for a minute at a time; run d2sd doctor on your own machine")
    count = settings.whole(limit, "how many")
    if not 1 <= count <= MOST:
        raise InputError(f"how many must be between 1 and {MOST}, not {count}")
    prompts = [p.text for p in source.prompts(count)]
    if not models.loaded(chosen):
        yield Update(news=f"Loading {chosen.model} …")
    engine = models.engine(chosen)
    drafter = engine.models.first or engine.models.eagle3
    if drafter is None:
        raise InputError("these models have no drafter to examine")
    yield Update(news="Reading the drafter's folder …")
    read = check_folder(models.drafter_folder(chosen), engine.models.target)
    checks = [replace(c, said=without_paths(c.said), mend=c.mend and without_paths(c.mend)) for c in read]
    name = drafter.config.name_or_path
    found = Examination(name, engine.models.target.name, checks)
    config = DecodeConfig("autoregressive", TOKENS, chat=bool(values.get("chat")))
    with closing(ahead(examine(engine, prompts, config, found))) as steps:
        for step in steps:
            if job.cancelled():
                break
            yield Update(news=f"{step.said.capitalize()}: {step.done} of {step.total} …")
    yield Update(markdown([found]))
