"""What the command ``doctor`` does with models: plan a pair from its configs, or examine drafters."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import tell_of_template, write_report
from d2sd.config import DecodeConfig
from d2sd.doctor.changes import FolderEdit, write_changed
from d2sd.doctor.examination import VISIBLE, stream_findings
from d2sd.doctor.findings import Asked, Findings
from d2sd.doctor.report import markdown
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.loading import load_models, presets
from d2sd.folders.plan import SIZES, plan
from d2sd.folders.plan import markdown as markdown_of_plan
from d2sd.folders.store import check_place
from d2sd.nets.models import Models
from d2sd.trace.text import printable, progress


def plan_pair(arguments: argparse.Namespace) -> int:
    """Print whether a pair would run, from its two configs; 1 if not."""
    dtype = arguments.dtype if arguments.dtype in SIZES else "bfloat16"
    pair = plan(arguments.target, arguments.drafter, dtype)
    write_report(markdown_of_plan(pair), arguments.out)
    return int(pair.refused is not None)


def examine_drafters(arguments: argparse.Namespace) -> int:
    """Examine and print; Ctrl-C leaves what was found."""
    a = arguments
    if a.mend and a.mend.exists():
        raise InputError(f"{a.mend} is there already; name a folder that is not")
    if a.expect is not None and not a.expect >= 1:
        raise InputError(f"--expect is {a.expect:g}; α counts the bonus token, so it is at least 1")
    prompts = [p.text for p in read_prompts(a.prompts, a.limit)]
    for source in filter(None, (a.drafter, a.vp, a.reference)):
        try:
            check_place(source)
        except InputError as error:
            raise InputError(f"cannot load the drafter {source}: {error}") from None
    bundled = a.target in presets()
    models = load_models(
        a.target if bundled else "tiny", target=None if bundled else a.target, dtype=a.dtype, device=a.device
    )
    models = Models(models.target, name=models.name)
    tell_of_template(Engine(models), DecodeConfig("autoregressive", chat=a.chat, thinking=a.thinking))
    first = Asked(a.drafter, prompts, a.chat, a.thinking, 0, a.expect, a.reference, a.dtype)
    roles = [first, *([replace(first, drafter=a.vp, visible=VISIBLE, expected=None, reference=None)] if a.vp else [])]
    found = [Findings(asked, models.target.name) for asked in roles]
    whole = all(_examine(models, found, number) for number in range(len(roles)))
    faults = any(e.diagnosis is not None and e.diagnosis.names_fault for e in found)
    said = ""
    if whole and a.mend:
        try:
            said = write_mended(found[0], a.mend)
        except (InputError, OSError) as error:  # the exit code goes on saying whether a fault is named
            print(printable(f"error: {a.mend} was not written: {error}"), file=sys.stderr)
        changes = found[0].diagnosis.changes if found[0].diagnosis else ()
        if a.mend.exists() and any(isinstance(c, FolderEdit) for c in changes):
            mended = replace(first, drafter=str(a.mend), expected=None, reference=None)
            found.append(Findings(mended, models.target.name))
            whole = _examine(models, found, len(found) - 1)
    write_report(markdown(found), a.out)
    if said:
        print(said)
    if not whole:
        return 130
    return 1 if faults else 2 * any(e.failed is not None for e in found)


def _examine(models: Models, found: list[Findings], number: int) -> bool:
    """Replace an examination that was not begun by its findings, with a progress bar; False if Ctrl-C ended it."""
    bar = progress(desc="doctor", bar_format="{desc}: {n_fmt} of {total_fmt}{postfix}", leave=False)
    try:
        for step in stream_findings(found[number].asked, models):
            found[number] = step.found
            bar.set_description_str(step.stage, refresh=False)
            bar.set_postfix_str(printable(step.tried), refresh=False)
            bar.total = step.total
            bar.update(step.done - bar.n)
    except KeyboardInterrupt:
        return False
    finally:
        bar.close()
    return True


def write_mended(examination: Findings, out: Path) -> str:
    """Write the drafter with the changes that undo what was diagnosed, and return a sentence about them, or that there are none."""
    diagnosis, repair = examination.diagnosis, examination.repair
    if diagnosis is None or not diagnosis.changes:
        return f"{out} was not written: what was found is not undone by a change of the folder."
    write_changed(examination.asked.drafter, diagnosis.changes, out)
    changes = printable(", then ".join(change.description for change in diagnosis.changes))
    if repair is None or diagnosis.changes != tuple(t.variant for t in repair.steps):
        return f"{out}: {changes}"
    return f"{out}: {changes}; α {repair.before.alpha:.2f} → {repair.after.alpha:.2f}"
