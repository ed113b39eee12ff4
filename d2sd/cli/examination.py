"""The parts of ``d2sd doctor`` that need torch: planning a pair from its configs, and examining drafters."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import FAULT_NAMED, print_json, tell_of_template, write_report
from d2sd.config import DecodeConfig
from d2sd.doctor.changes import FolderEdit, write_changed
from d2sd.doctor.examination import PROMPTS, VISIBLE, load_target_alone, stream_findings
from d2sd.doctor.findings import Asked, Findings
from d2sd.doctor.report import doctor_report, plain_text
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.plan import SIZES, plan
from d2sd.folders.plan import markdown as markdown_of_plan
from d2sd.nets.models import Models
from d2sd.trace.files import write_whole
from d2sd.trace.text import printable, progress


def plan_pair(arguments: argparse.Namespace) -> int:
    """Prints whether target and drafter would run together, from their configs. Returns ``FAULT_NAMED`` if they would not."""
    dtype = arguments.dtype if arguments.dtype in SIZES else "bfloat16"
    pair = plan(arguments.target, arguments.drafter, dtype)
    write_report(markdown_of_plan(pair), arguments.out)
    return FAULT_NAMED * (pair.refused is not None)


def examine_drafters(arguments: argparse.Namespace) -> int:
    """Examines drafters and prints the findings. After Ctrl-C, prints the findings so far."""
    a = arguments
    if a.mend and a.mend.exists():
        raise InputError(f"{a.mend} already exists; name a new folder")
    prompts = [p.text for p in read_prompts(a.prompts, PROMPTS if a.limit is None else a.limit)]
    first = Asked(a.drafter, prompts, a.chat, a.thinking, 0, a.expect, a.reference, a.dtype)
    roles = [first, *([replace(first, drafter=a.vp, visible=VISIBLE, expected=None, reference=None)] if a.vp else [])]
    models = load_target_alone(a.target, (a.drafter, a.vp, a.reference), a.dtype, a.device)
    tell_of_template(Engine(models), DecodeConfig("autoregressive", chat=a.chat, thinking=a.thinking))
    found = [Findings(asked, models.target.name) for asked in roles]
    whole = all(_examine(models, found, number) for number in range(len(roles)))
    faults = any(one.names_fault for one in found)
    said = ""
    if whole and a.mend:
        try:
            said = write_mended(found[0], a.mend)
        except (InputError, OSError) as error:  # not raised, since the exit status must tell whether a fault is named
            print(printable(f"error: {a.mend} was not written: {error}"), file=sys.stderr)
        changes = found[0].diagnosis.changes if found[0].diagnosis else ()
        if a.mend.exists() and any(isinstance(c, FolderEdit) for c in changes):
            mended = replace(first, drafter=str(a.mend), expected=None, reference=None)
            found.append(Findings(mended, models.target.name))
            whole = _examine(models, found, len(found) - 1)
    report = doctor_report(found, full=a.full)
    if a.json:
        others = zip((*(["vp"] if a.vp else []), "mended"), found[1:], strict=False)
        print_json({**found[0].to_dict(), **{name: one.to_dict() for name, one in others}})
    else:
        print(printable(plain_text(report)))
    if a.out:
        write_whole(a.out, report)
    if said:
        print(said, file=sys.stderr if a.json else sys.stdout)
    if not whole:
        return 130
    return FAULT_NAMED if faults else 2 * any(one.failed is not None for one in found)


def _examine(models: Models, found: list[Findings], number: int) -> bool:
    """Runs examination ``number`` with a progress bar and updates its findings. Returns False after Ctrl-C."""
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
    """Writes a copy of the drafter with the changes that repair the diagnosed fault. Returns a sentence about the result."""
    diagnosis, repair = examination.diagnosis, examination.repair
    if diagnosis is None or not diagnosis.changes:
        return f"{out} was not written: no known change of the folder repairs the drafter."
    write_changed(examination.asked.drafter, diagnosis.changes, out)
    changes = printable(", then ".join(change.description for change in diagnosis.changes))
    if repair is None or diagnosis.changes != tuple(t.variant for t in repair.steps):
        return f"{out}: {changes}"
    return f"{out}: {changes}; α {repair.before.alpha:.2f} → {repair.after.alpha:.2f}"
