"""The parts of ``d2sd doctor`` that need torch: planning a pair from its configs, and examining drafters."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from d2sd.cli.common import FAULT_NAMED, print_json, tell_of_template
from d2sd.config import DecodeConfig
from d2sd.doctor.asked import VISIBLE, Asked
from d2sd.doctor.examination import Examination, Progress
from d2sd.doctor.report import check_table, doctor_report, plain_text
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.loading import load_alone
from d2sd.folders.plan import SIZES, plan
from d2sd.trace.files import write_whole
from d2sd.trace.text import printable, progress


def plan_pair(arguments: argparse.Namespace) -> int:
    """Checks the configs of a target and a drafter, without their weights, and prints the results.

    Returns the exit status: ``FAULT_NAMED`` if a check names a fault, otherwise 0.
    """
    checks = plan(arguments.target, arguments.drafter, arguments.dtype if arguments.dtype in SIZES else "bfloat16")
    _write("\n".join(check_table(checks)), arguments)
    return FAULT_NAMED * any(check.state == "fault" for check in checks)


def examine_drafters(a: argparse.Namespace, first: Asked, config: DecodeConfig) -> int:
    """Examines drafters and prints the findings. After Ctrl-C, prints the findings so far. Returns the exit status."""
    second = replace(first, drafter=a.vp or "", visible=VISIBLE, expected=None, reference=a.vp_reference, first=a.drafter)  # fmt: skip
    models = load_alone(a.target, a.dtype, a.device)
    tell_of_template(Engine(models), config)
    examinations = [Examination(asked, models.target) for asked in (first, *([second] if a.vp else []))]
    whole = all(map(_run, examinations))
    findings, said = [one.findings for one in examinations], ""
    if whole and a.mend:
        try:
            said = printable(examinations[0].mend(a.mend))
        except (InputError, OSError) as error:  # not raised, since the exit status must tell whether a fault is named
            print(printable(f"error: {a.mend} was not written: {error}"), file=sys.stderr)
    if a.json:
        print_json({**findings[0].to_dict(), **({"vp": findings[1].to_dict()} if a.vp else {})})
    _write(doctor_report(findings, full=a.full), a)
    if said:
        print(said, file=sys.stderr if a.json else sys.stdout)
    if not whole:
        return 130
    if any(one.names_fault for one in findings):
        return FAULT_NAMED
    return 2 * any(one.failed for one in findings)


def _write(report: str, arguments: argparse.Namespace) -> None:
    if not arguments.json:
        print(printable(plain_text(report)))
    if arguments.out:
        write_whole(arguments.out, report)


def _run(examination: Examination) -> bool:
    """Runs an examination with a progress bar. Returns False after Ctrl-C."""
    bar = progress(desc="doctor", bar_format="{desc}: {n_fmt} of {total_fmt}{postfix}", leave=False)

    def tell(now: Progress) -> None:
        bar.set_description_str(now.stage, refresh=False)
        bar.set_postfix_str(printable(now.tried), refresh=False)
        bar.total = now.total
        bar.update(now.done - bar.n)

    examination.tell = tell
    try:
        examination.run()
    except KeyboardInterrupt:
        return False
    finally:
        bar.close()
    return True
