"""Writes findings as a report: Markdown for a bug report, or plain text for a terminal.

Names and token texts are untrusted, so they are escaped or written as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from d2sd.__about__ import __version__
from d2sd.calibration.replays import DraftingRun
from d2sd.calibration.text import count, decimal, signed_decimal, with_interval
from d2sd.doctor.examination import TOKENS
from d2sd.doctor.exchange import Reference
from d2sd.doctor.findings import Findings
from d2sd.doctor.probes import Trial
from d2sd.folders.checks import Check
from d2sd.logs.sentences import Answer, names_fault, side_by_side, what_to_try
from d2sd.trace.text import aligned, escaped

MOST_TENSORS, MOST_NAMES, MOST_CHARACTERS = 12, 6, 80  # limits of the comparison with a reference
MARKS = {"good": "ok", "note": "note", "fault": "FAULT"}
CONVENTIONS = (
    "α: tokens written per step, with the bonus token that the target adds, so at least 1. Brackets: 95% intervals over prompts.",
    "Acceptance by position counts only the steps that accepted all earlier tokens. It is not accepted ÷ drafted tokens, which falls as γ grows.",
    "Expected: the mean probability that the drafter, or its confidence head, gave to these tokens.",
    "γ counts the anchor: a block has γ − 1 drafted tokens.",
)


def doctor_report(examined: Sequence[Findings], clean: Callable[[str], str] = str, full: bool = False) -> str:
    """Returns the report as Markdown, with one section per drafter: the main finding, the measurements, and the checks of the
    folder.

    clean: function that removes private parts, such as paths, from a sentence.
    full: whether to list every change that was tried, not only the best ones.
    """
    lines = [f"# Why is it rejected? (d2sd {__version__})", ""]
    for findings in examined:
        lines += _section(findings, clean, full)
    return "\n".join([*lines, "## How to read the figures", "", *(f"* {line}" for line in CONVENTIONS), ""])


def plain_text(markdown: str) -> str:
    """Returns a Markdown report for a terminal: without Markdown syntax, and with aligned tables."""
    lines: list[str] = []
    for is_table, block in groupby(markdown.split("\n"), lambda line: line.startswith("|")):
        if is_table:
            rows = [[_unmarked(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block]
            lines += aligned([row for row in rows if row[0] != "---"])
        else:
            for line in block:
                title = _unmarked(line.lstrip("# "))
                lines += [title, "-" * len(title)] if line.startswith("#") else [_unmarked(line)]
    return "\n".join(lines)


def _unmarked(line: str) -> str:
    return re.sub(r"`([^`]*)`|\\(.)|\*\*", lambda match: match[1] or match[2] or "", line)


def markdown_of_logs(answered: Sequence[Answer]) -> str:
    """Returns the answers about logs as Markdown. Things to try are listed once, at the end."""
    lines = ["## What the log says"] if answered else []
    for _, said in answered:
        figures, *others = (text(one.text) for one in said)
        if names_fault(said):
            others[0] = f"**{others[0]}**"
        lines += [figures, *others]
    if table := side_by_side([figures for figures, _ in answered]):
        lines.append("\n".join(_table(*(list(map(text, row)) for row in table))))
    if ideas := what_to_try(answered):
        lines += [ideas[0], "\n".join(ideas[1:])]
    return "\n\n".join(lines)


def _table(head: Sequence[str], *rows: Sequence[str]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _section(findings: Findings, clean: Callable[[str], str], full: bool) -> Iterator[str]:
    yield f"## {code(findings.asked.name or findings.asked.drafter)} for {code(findings.target)}"
    yield ""
    if not findings.checks:
        yield from ("**Not examined.**", "")
        return
    if findings.diagnosis:
        yield f"**{text(clean(findings.diagnosis.sentence))}**"
        if findings.diagnosis.fix:
            yield f"To fix: {code(clean(findings.diagnosis.fix))}"
    else:
        yield "**Stopped before the end.**"
    for failure in findings.failures:
        yield f"\nNot done: {text(failure.part)} failed ({text(clean(failure.reason))})."
    if findings.since is not None:
        yield f"\nChanged since training: {text('; '.join(findings.since)) or 'nothing'}."
    for remark in findings.remarks:
        yield f"\nA remark on the weights: {text(remark)}."
    if findings.run:
        yield from _run(findings, findings.run)
    if findings.reference:
        yield from _reference(findings.reference, findings.asked.reference or "")
    if findings.trials or findings.templates:
        yield from _tried(findings, full)
    yield from ("", "### The folder", "")
    yield from (*check_table(findings.checks, clean), "")


def check_table(checks: Sequence[Check], clean: Callable[[str], str] = str) -> Iterator[str]:
    """Yields the lines of a Markdown table of the checks of a folder.

    clean: as for ``doctor_report``.
    """
    return _table(("check", "", "finding"), *((c.name, MARKS[c.state], text(clean(c.finding))) for c in checks))


def _run(findings: Findings, run: DraftingRun) -> Iterator[str]:
    positions = run.positions
    prompts = "in the chat template" if findings.asked.chat else "without a chat template"
    yield from ("", "### A short run", "")
    shown = f"; each draft is given its first {count(run.visible, 'token')}" if run.visible else ""
    yield f"{count(len(run.walks), 'prompt')} {prompts}, up to {TOKENS} tokens each{shown}: α {with_interval(run.estimate, decimal, '[]')}."
    if (share := findings.repeated) is not None:
        yield f"{share:.0%} of generated 4-token sequences occur earlier in the same text. Repetitive text is easy to draft."
    yield ""
    rows: dict[str, Sequence[float | None]] = {"accepted": [p.share for p in positions]}
    if findings.reference:
        theirs = {p.number: p.share for p in findings.reference.run.positions}
        rows["accepted by the reference"] = [theirs.get(p.number) for p in positions]
    rows["expected by the drafter"] = [p.belief for p in positions]
    rows["expected by its confidence head"] = [p.head for p in positions]
    shares = [[name, *("–" if v is None else f"{v:.2f}" for v in row)] for name, row in rows.items() if any(row)]
    steps = ["steps", *(str(p.steps) for p in positions)]
    yield from _table(["position", *(str(p.number) for p in positions)], *shares, steps)


def _reference(reference: Reference, name: str) -> Iterator[str]:
    yield from ("", "### Compared with the reference", "")
    tried = f" {count(reference.exchange.runs, 'exchange')} of parts were tried." if reference.exchange else ""
    yield f"{code(name)} on the same texts: α {reference.run.alpha:.2f}, a difference of {with_interval(reference.change, signed_decimal, '[]')}.{tried}"
    if reference.keys:
        yield ""
        cut = ([text(cell[:MOST_CHARACTERS]) for cell in row] for row in reference.keys)
        yield from _table(("config key", "here", "reference"), *cut)
    needed = {name for part in reference.exchange.parts for name in part.tensors} if reference.exchange else set()
    groups: dict[tuple[bool, str], list[str]] = {}
    for name, how in reference.tensors.items():
        groups.setdefault((name not in needed, how), []).append(name)
    rows = []
    for (other, how), names in sorted(groups.items())[:MOST_TENSORS]:
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        rows.append((text(", ".join(names[:MOST_NAMES]) + more), text(how), "" if other else "lowers α"))
    if rows:
        yield ""
        yield from _table(("tensors that differ", "how", ""), *rows)


def _tried(findings: Findings, full: bool) -> Iterator[str]:
    yield from ("", "### What was tried", "")
    shown = sorted((t for t in findings.trials if full or t.run.walks), key=lambda t: -(t.gain.value or 0.0))
    if findings.trials:
        helps, failed = len(findings.helping) or "none", sum(bool(t.failure) for t in findings.trials)
        rest = f"; {failed} could not be tried" * bool(failed) + "; `d2sd doctor --full` lists them all" * (not full)
        yield f"Of {count(len(findings.trials), 'change')} tried, one at a time, {helps} raised α clearly{rest}."
        yield "Gain: change of tokens written per draft, over all positions of the texts."
    if shown:
        yield ""
        yield from _table(("change", "α", "gain", ""), *map(_trial, shown))
    yield from [""] if findings.templates else []
    for trial in findings.templates:
        change = with_interval(trial.change, signed_decimal, "[]")
        yield f"* The same prompts with {text(trial.template)}, which lead to other texts: α {trial.alpha:.2f}, change {change}."


def _trial(trial: Trial) -> tuple[str, ...]:
    says = f"failed: {text(trial.failure)}" if trial.failure else "higher" if trial.helps else ""
    now = f"{trial.run.alpha:.2f}" if trial.run.walks else "–"  # no steps if the change was only screened
    return text(trial.variant.description), now, with_interval(trial.gain, _signed_percent, "[]"), says


def _signed_percent(share: float | None) -> str:
    return "–" if share is None else f"{share:+.1%}"


def code(value: str) -> str:
    """Returns untrusted text as Markdown code on one line."""
    return f"`{escaped(value).replace('`', 'ˋ').replace('|', '¦')}`"


def text(value: str) -> str:
    """Returns a sentence that may contain untrusted text, escaped for Markdown and HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&$])", r"\\\1", escaped(value))
