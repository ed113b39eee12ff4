"""Findings as a report: Markdown for a bug report, or plain text for a terminal. Names and token texts come from others and are escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from d2sd.__about__ import __version__
from d2sd.calibration.sentences import count, decimal, signed_decimal, with_interval
from d2sd.doctor.evidence import MANY_REPEATED
from d2sd.doctor.examination import TOKENS
from d2sd.doctor.findings import DraftingRun, Findings
from d2sd.doctor.log_reading import WHAT_TO_TRY, Reading
from d2sd.doctor.redraft import SHAPES, alpha
from d2sd.doctor.reference import Reference
from d2sd.trace.text import escaped

MOST_TENSORS, MOST_CHARACTERS = 12, 80  # of the differences from a reference
MARKS = {"good": "ok", "note": "note", "fault": "FAULT"}
CONVENTIONS = (
    "α is the number of tokens committed per step. It includes the bonus token, which the target adds after the accepted ones, so it is at least 1. Without it, the accepted length is α − 1.",
    "Rates are per position, among the steps that accepted all earlier tokens. They are not accepted ÷ drafted tokens, which falls as γ grows.",
    "γ counts the anchor: a block of γ has γ − 1 drafted tokens. A drafter that reads fill has γ rows, one that reads next has γ − 1.",
    "Temperature 0. A softmax temperature changes no greedy draft, so none is tried; Calibrate suggests one for the confidence.",
)


@dataclass(frozen=True, slots=True)
class Style:
    """How the parts of a report are written: as Markdown, or ``plain`` for a terminal.

    clean: takes out of a sentence what its readers may not see.
    full: whether every change is listed, also those that do not help.
    """

    plain: bool
    clean: Callable[[str], str]
    full: bool

    def heading(self, level: int, words: str) -> str:
        return f"{words}\n{'-' * len(words)}" if self.plain else f"{'#' * level} {words}"

    def text(self, sentence: str) -> str:
        return escaped(self.clean(sentence)) if self.plain else text(self.clean(sentence))

    def code(self, value: str) -> str:
        return escaped(self.clean(value)) if self.plain else code(self.clean(value))

    def strong(self, sentence: str) -> str:
        return self.text(sentence) if self.plain else f"**{self.text(sentence)}**"

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yields the lines of a table; every cell but those of the head is escaped here."""
        cells = [tuple(map(self.text, row)) for row in rows]
        if not self.plain:
            cells = [tuple(head), ("---",) * len(head), *cells]
            yield from (f"| {' | '.join(row)} |" for row in cells)
            return
        cells = [tuple(head), *cells] if any(head) else cells
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def doctor_report(
    examined: Sequence[Findings], clean: Callable[[str], str] = str, *, plain: bool = False, full: bool = False
) -> str:
    """Returns the report, one section per drafter: the likely cause, what helps, and the checks of the folder.

    clean: takes out of a sentence what its readers may not see.
    plain: for a terminal, without the marks and escapes of Markdown.
    full: also list the changes that do not help.
    """
    style = Style(plain, clean, full)
    lines = [] if plain else [f"# Why is it rejected? (d2sd {__version__})", ""]
    for found in examined:
        lines += _section(found, style)
    if any(found.run for found in examined) and (full or not plain):
        lines += [style.heading(2, "How to read the figures"), "", *(f"* {line}" for line in CONVENTIONS), ""]
    return "\n".join(lines)


def markdown_of_logs(readings: Sequence[Reading]) -> str:
    """Returns the readings of logs as Markdown, with the things to try listed once at the end."""
    lines: list[str] = []
    for reading in readings:
        figures, *said = map(text, reading.sentences)
        lines += [figures, f"**{said[0]}**" if reading.named else said[0], *said[1:]]
    if tries := dict.fromkeys(one for reading in readings for one in reading.tries):
        lines += [WHAT_TO_TRY, "\n".join(f"* {one}" for one in tries)]
    return "\n\n".join(lines)


def _section(found: Findings, style: Style) -> Iterator[str]:
    name = style.code(found.asked.name or found.asked.drafter)
    yield style.heading(2, f"{name} for {style.code(found.target)}")
    yield ""
    if not found.checks:
        yield from (style.strong("Not examined: the command was stopped before."), "")
        return
    if found.diagnosis is not None:
        yield style.strong(found.diagnosis.sentence)
        if found.diagnosis.fix:
            yield f"To mend: {style.code(found.diagnosis.fix)}"
    else:
        yield style.strong("Stopped before the end: no cause is named.")
    for failure in found.failures:
        yield f"\nNot done: {style.text(f'{failure.part} failed ({failure.reason})')}."
    if found.run is not None:
        yield from _run(found, found.run, style)
    if found.trials or found.templates:
        yield from _tried(found, style)
    yield from ("", style.heading(3, "The folder"), "")
    yield from style.table(("check", "", "what was found"), [(c.name, MARKS[c.state], c.finding) for c in found.checks])
    yield ""


def _run(found: Findings, run: DraftingRun, style: Style) -> Iterator[str]:
    positions, (kind, cliff) = run.positions, run.shape
    prompts = "in the chat template" if found.asked.chat else "as they are, without a chat template"
    yield from ("", style.heading(3, "A short run"), "")
    shown = f", each draft after {run.visible} tokens that it was shown" if run.visible else ""
    yield f"{len(run.walks)} prompts {prompts}, up to {TOKENS} tokens each{shown}: α {with_interval(run.estimate, decimal, '[]')}."
    yield f"{SHAPES[kind]}{f' Here it is position {cliff}.' if cliff else ''}"
    if (share := found.repeated) is not None:
        more = " Repetitive text is easy to draft: α is lower on other text." if share > MANY_REPEATED else ""
        yield f"{share:.0%} of the generated 4-token sequences occur earlier in the same text.{more}"
    yield ""
    rows = [("accepted", *(f"{p.share:.2f}" for p in positions))]
    if found.reference is not None:
        theirs = {p.number: f"{p.share:.2f}" for p in replace(run, walks=found.reference.walks).positions}
        rows.append(("of the reference", *(theirs.get(p.number, "–") for p in positions)))
    rows.append(("of steps", *(str(p.steps) for p in positions)))
    yield from style.table(("position", *(str(p.number) for p in positions)), rows)
    if found.reference is not None:
        yield from _reference(found.reference, style)


def _reference(r: Reference, style: Style) -> Iterator[str]:
    yield from ("", style.heading(3, "Compared with the reference"), "")
    change = with_interval(r.change, signed_decimal, "[]")
    yield f"{style.code(r.name)} on the same texts: α {alpha(r.walks):.2f}, a difference of {change}. {r.equal} tensors are the same, {len(r.tensors)} differ."
    if r.keys:
        yield ""
        rows = [(key, own[:MOST_CHARACTERS], theirs[:MOST_CHARACTERS]) for key, own, theirs in r.keys]
        yield from style.table(("what", "here", "reference"), rows)
    if r.tensors:
        yield ""
        shares = [(t.name, "in one of the two only" if t.share is None else f"{t.share:.1%}") for t in r.tensors]
        yield from style.table(("tensor", "differs by"), shares[:MOST_TENSORS])


def _tried(found: Findings, style: Style) -> Iterator[str]:
    yield from ("", style.heading(3, "What was tried"), "")
    helping = found.helping
    rest = len(found.trials) - len(helping)
    shown = sorted(found.trials, key=lambda t: -(t.gain.value or 0.0)) if style.full else helping
    if found.trials:
        other = f"{count(rest, 'other change')} did not help" if helping else f"None of {count(rest, 'change')} helps"
        if failed := sum(t.failure is not None for t in found.trials):
            other += f", {failed} of them could not be tried"
        listed = "" if style.full or not rest else "; doctor --full lists them" if style.plain else ""
        yield f"One thing was changed at a time, and the same texts were drafted again. {other}{listed}."
    if shown:
        yield "Gain: of the tokens that a draft adds, with its 95% interval over prompts, for all changes together."
        if style.full:
            yield f"No α: it was tried on a few texts only. Windows longer than the texts ({found.run.longest if found.run else 0} tokens) make no difference here."
        yield ""
        rows = []
        for t in shown:
            now = f"{alpha(t.walks):.2f}" if t.walks else "–"
            says = f"failed: {t.failure}" if t.failure else "helps" if t.helps else ""
            rows.append((t.variant.description, now, with_interval(t.gain, _signed_percent, "[]"), says))
        columns = 4 if style.full else 3  # otherwise all of them help
        yield from style.table(("change", "α", "gain", "")[:columns], [row[:columns] for row in rows])
    if found.templates:
        yield ""
    for trial in found.templates:
        change = with_interval(trial.change, signed_decimal, "[]")
        yield f"* Other texts, with {style.text(trial.template.description)}: α {trial.alpha:.2f}, change {change}, {trial.texts} prompts."


def _signed_percent(share: float | None) -> str:
    return "–" if share is None else f"{share:+.1%}"


def code(value: str) -> str:
    """Returns untrusted text as code on one line."""
    return f"`{escaped(value).replace('`', 'ˋ').replace('|', '¦')}`"


def text(value: str) -> str:
    """Returns a sentence with quoted untrusted text, escaped for Markdown and HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&$])", r"\\\1", escaped(value))
