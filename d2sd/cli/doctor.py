"""Say why a drafter is rejected: checks of its folder, and a short run in which one thing at a time is changed.

Prints Markdown, for a bug report. docs/acceptance.md explains it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import add_output, add_text_arguments, tell_of_template
from d2sd.config import DecodeConfig
from d2sd.costs.machines import DEFAULT, MACHINES
from d2sd.doctor.changes import FolderEdit, write_changed
from d2sd.doctor.checks import Check, check_folder
from d2sd.doctor.diagnosis import folder_fault
from d2sd.doctor.examination import TOKENS, VISIBLE, examine
from d2sd.doctor.findings import Examination
from d2sd.doctor.log_reading import read_log, report_lines
from d2sd.doctor.redraft import Drafter, alpha
from d2sd.doctor.report import markdown
from d2sd.engine import Engine
from d2sd.errors import InputError, error_line
from d2sd.folders.loading import BUNDLED, is_eagle3_folder, load_models, presets, with_drafter
from d2sd.folders.plan import SIZES, plan
from d2sd.folders.plan import markdown as markdown_of_plan
from d2sd.folders.store import check_place
from d2sd.nets.models import Models
from d2sd.trace.files import write_whole
from d2sd.trace.logs import import_log
from d2sd.trace.text import printable, progress

LIMIT = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``doctor``."""
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="folder, hub id, GGUF file, bundled preset or name of `d2sd get`"
    )
    parser.add_argument("drafter", nargs="?", metavar="DRAFTER", help="folder or hub id of its drafter")
    parser.add_argument("--log", metavar="FILE", help="instead of models: what the log of a server says of its drafter")
    parser.add_argument("--costs", default=DEFAULT, metavar="MACHINE", help=f"with --log: for which the quickest γ is calculated, one of: {', '.join(MACHINES)} (default: {DEFAULT})")  # fmt: skip
    parser.add_argument("--config-only", action="store_true", help="read only the two configs, and print whether the pair would run and in how much memory")  # fmt: skip
    parser.add_argument("--vp", metavar="DRAFTER", help="also examine this VP-Drafter, in the second role")
    parser.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl", help="heldout (default), chat, or a file: lines with prompt or turns")  # fmt: skip
    add_text_arguments(parser, LIMIT)
    parser.add_argument("--thinking", action="store_true", help="with --chat: let the model think first (Qwen3)")
    parser.add_argument("--expect", type=float, metavar="ALPHA", help="α that it is known to have: anything significantly below is named")  # fmt: skip
    parser.add_argument("--reference", metavar="DRAFTER", help="a drafter that is known to be good: report what differs from it")  # fmt: skip
    add_output(parser, "--out", type=Path, metavar="FILE.md", help="also write the report there")
    add_output(
        parser,
        "--mend",
        folder=True,
        type=Path,
        metavar="FOLDER",
        help="write DRAFTER to this new folder with the change that repairs it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine and print; Ctrl-C leaves what was found. Exit code 1 where a fault is named, else 2 where an examination failed."""
    a = arguments
    if a.log:
        if a.target:
            raise InputError("--log reads a log alone: leave out the target and the drafter")
        readings = read_log(import_log(a.log), a.costs)
        _write("\n".join(report_lines(readings)), a.out)
        return int(any(reading.named for reading in readings))
    if not a.drafter:
        raise InputError("name a target and its drafter, or a server's log with --log")
    if a.config_only:
        pair = plan(a.target, a.drafter, a.dtype if a.dtype in SIZES else "bfloat16")
        _write(markdown_of_plan(pair), a.out)
        return int(pair.refused is not None)
    if a.mend and a.mend.exists():
        raise InputError(f"{a.mend} is there already; name a folder that is not")
    if a.expect is not None and not a.expect >= 1:
        raise InputError(f"--expect is {a.expect:g}; α counts the bonus token, so it is at least 1")
    chosen = read_prompts(a.prompts, a.limit)
    for source in filter(None, (a.drafter, a.vp, a.reference)):
        try:
            check_place(source)
        except InputError as error:
            raise InputError(f"cannot load the drafter {source}: {error}") from None
    prompts, domains = [p.text for p in chosen], [p.domain for p in chosen]
    config = DecodeConfig("autoregressive", TOKENS, chat=a.chat, thinking=a.thinking)
    bundled = a.target in presets()
    models = load_models(
        a.target if bundled else "tiny", target=None if bundled else a.target, dtype=a.dtype, device=a.device
    )
    bundled_set, models = models, Models(models.target, name=models.name)
    tell_of_template(Engine(models), config)
    roles = [(a.drafter, 0), *([(a.vp, VISIBLE)] if a.vp else [])]
    found = [Examination(source, models.target.name, [], visible, domains=domains) for source, visible in roles]
    found[0].expected = a.expect
    reference = (a.reference, drafter_of(with_drafter(models, a.reference, a.dtype))) if a.reference else None
    other = other_of(bundled_set, a.drafter) if bundled else None
    whole = all(
        _examine(models, a.dtype, prompts, config, e, *((None, None) if e.visible else (reference, other)))
        for e in found
    )
    faults = [e.diagnosis for e in found if e.diagnosis is not None and e.diagnosis.names_fault]
    said = ""
    if whole and a.mend:
        try:
            said = write_mended(found[0], a.mend)
        except (InputError, OSError) as error:  # the exit code goes on saying whether a fault is named
            print(printable(f"error: {a.mend} was not written: {error}"), file=sys.stderr)
        changes = found[0].diagnosis.changes if found[0].diagnosis else ()
        if a.mend.exists() and any(isinstance(c, FolderEdit) for c in changes):
            found.append(Examination(str(a.mend), models.target.name, []))
            whole = _examine(models, a.dtype, prompts, config, found[-1])
    _write(markdown(found), a.out)
    if said:
        print(said)
    if not whole:
        return 130
    return 1 if faults else 2 * any(e.failed is not None for e in found)


def _write(report: str, out: Path | None) -> None:
    print(printable(report))
    if out:
        write_whole(out, report)


def write_mended(examination: Examination, out: Path) -> str:
    """Write the drafter with the changes that undo what was diagnosed, and return a sentence about them, or that there are none."""
    diagnosis = examination.diagnosis
    if diagnosis is None or not diagnosis.changes:
        return f"{out} was not written: what was found is not undone by a change of the folder."
    write_changed(examination.drafter, diagnosis.changes, out)
    changes = printable(", then ".join(change.description for change in diagnosis.changes))
    if (repair := examination.repair) is None or diagnosis.changes != tuple(t.variant for t in repair.steps):
        return f"{out}: {changes}"
    return f"{out}: {changes}; α {alpha(repair.before):.2f} → {alpha(repair.after):.2f}"


def load_checked(models: Models, dtype: str | None, into: Examination) -> Engine | None:
    """Returns an engine with the examined drafter, whose folder is checked first; if that finds a fault, None, with the diagnosis made."""
    into.checks = check_folder(into.drafter, models.target, second=bool(into.visible))
    if folder_fault(into.checks) is None:
        try:
            return Engine(with_drafter(models, into.drafter, dtype))
        except InputError as error:
            finding = str(error).removeprefix(f"cannot load the drafter {into.drafter}: ")
            into.checks.append(Check("loading", "fault", finding))
        except Exception as error:  # damaged files fail in ways that nobody foresees, and the checks are worth printing
            into.checks.append(Check("loading", "fault", error_line(error)))
    into.diagnosis = folder_fault(into.checks)
    return None


def drafter_of(models: Models) -> Drafter:
    """Returns the first drafter, or the EAGLE-3 drafter."""
    model = models.first or models.eagle3
    if model is None:
        raise InputError("these models have no drafter to examine")
    return model


def other_of(models: Models, source: str) -> tuple[str, Drafter] | None:
    """Returns the name and the network of a set's own drafter of the same kind as that of a folder or hub id; None if that is it,
    or it cannot be read.
    """
    try:
        part = "eagle3" if is_eagle3_folder(source) else "dflash"
    except InputError:
        return None
    own = models.eagle3 if part == "eagle3" else models.first
    if own is None or Path(source).resolve() == (BUNDLED / models.name / part).resolve():
        return None
    return own.config.name_or_path, own


def _examine(
    models: Models, dtype: str | None, prompts: Sequence[str], config: DecodeConfig, into: Examination,
    reference: tuple[str, Drafter] | None = None, other: tuple[str, Drafter] | None = None,
) -> bool:  # fmt: skip
    """Check the drafter, then examine it with a progress bar; False if Ctrl-C ended it."""
    bar = progress(desc="doctor", bar_format="{desc}: {n_fmt} of {total_fmt}{postfix}", leave=False)
    try:
        engine = load_checked(models, dtype, into)
        for step in () if engine is None else examine(engine, prompts, config, into, (), reference, other):
            bar.set_description_str(step.stage, refresh=False)
            bar.set_postfix_str(printable(step.tried), refresh=False)
            bar.total = step.total
            bar.update(step.done - bar.n)
    except KeyboardInterrupt:
        return False
    finally:
        bar.close()
    return True
