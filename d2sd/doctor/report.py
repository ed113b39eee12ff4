"""An examination as Markdown, for a bug report. Names and token texts come from others and are written as code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from d2sd.__about__ import __version__
from d2sd.calibration.reading import with_interval
from d2sd.calibration.resampling import Estimate
from d2sd.doctor.examination import TOKENS, Examination
from d2sd.doctor.probes import alpha_figure
from d2sd.doctor.shapes import SAID
from d2sd.doctor.signs import REPEATED
from d2sd.trace.text import escaped

MARKS = {"good": "ok", "note": "note", "fault": "FAULT"}
CONVENTIONS = (
    "α is the number of tokens committed per step. It includes the bonus token, which the target adds after the accepted ones, so it is at least 1. Without it, the accepted length is α − 1.",
    "Rates are per position, among the steps that accepted all earlier tokens. They are not accepted ÷ drafted tokens, which falls as γ grows.",
    "γ counts the anchor: a block of γ has γ − 1 drafted tokens. A drafter that reads fill has γ rows, one that reads next has γ − 1.",
    "Temperature 0. A softmax temperature changes no greedy draft, so none is tried; Calibrate suggests one for the confidence.",
)


def markdown(examinations: Sequence[Examination]) -> str:
    """Returns the report, one section per drafter."""
    lines = [f"# Why is it rejected? (d2sd {__version__})", ""]
    for examination in examinations:
        lines += _section(examination)
    return "\n".join([*lines, "## How to read the figures", "", *(f"* {line}" for line in CONVENTIONS), ""])


def _section(e: Examination) -> Iterator[str]:
    yield f"## {code(e.drafter)} for {code(e.target)}"
    yield ""
    if not e.checks:
        yield from ("**Not examined: the command was stopped before.**", "")
        return
    if e.diagnosis is not None:
        yield f"**{text(e.diagnosis.said)}**"
        if e.diagnosis.mend:
            yield f"To mend: {code(e.diagnosis.mend)}"
    else:
        yield "**Stopped before the end: no cause is named.**"
    yield from ("", "### The folder", "", "| check | | what was found |", "| --- | --- | --- |")
    for check in e.checks:
        yield f"| {check.what} | {MARKS[check.state]} | {text(check.said)} |"
    if e.walks:
        yield from _run(e)
    yield ""


def _run(e: Examination) -> Iterator[str]:
    found, (kind, at) = e.positions, e.shape
    asked = "in the chat template" if e.chat else "as they are, without a chat template"
    yield from ("", "### A short run", "")
    shown = f", each draft after {e.visible} tokens that it was shown" if e.visible else ""
    yield f"{len(e.walks)} prompts {asked}, up to {TOKENS} tokens each{shown}: α {with_interval(alpha_figure(e.walks))}. {e.seconds:.0f} s."
    yield ""
    yield f"{SAID[kind]}{f' Here it is position {at}.' if at else ''}"
    if (share := e.signs.repeated) is not None:
        more = " Repetitive text is easy to draft: α is lower on other text." if share > REPEATED else ""
        yield f"\n{share:.0%} of the generated 4-token sequences occur earlier in the same text.{more}"
    yield from (
        "",
        "| position | " + " | ".join(str(p.number) for p in found) + " |",
        "| --- |" + " --- |" * len(found),
    )
    yield "| accepted | " + " | ".join(f"{p.share:.2f}" for p in found) + " |"
    yield "| of steps | " + " | ".join(str(p.steps) for p in found) + " |"
    if e.tried:
        yield from _probes(e)
    for asked_again in e.asked:
        change = with_interval(asked_again.change, "+")
        yield f"* Other texts, with {text(asked_again.template.said)}: α {asked_again.alpha:.2f}, change {change}, {asked_again.texts} prompts."


def _probes(e: Examination) -> Iterator[str]:
    yield from ("", "### One thing changed, drafted again on the same texts", "")
    yield (
        f"{len(e.tried)} changes, {e.masks} mask tokens looked at. Gain: of the tokens that a draft brings, over all places of the "
        "texts (geometric mean). Brackets: 95% intervals over prompts, for all changes together. "
        f"No α: it was looked at in some places of a few texts, and others were better. Windows that are longer than the texts ({e.longest} tokens) cannot be told."
    )
    yield from ("", "| change | α | gain | texts | |", "| --- | --- | --- | --- | --- |")
    for t in sorted(e.tried, key=lambda t: -(t.change.value or 0.0)):
        shown = "–" if t.alpha is None else f"{t.alpha:.2f}"
        yield f"| {text(t.variant.said)} | {shown} | {share(t.change)} | {t.texts} | {'**helps**' if t.helps else ''} |"
    yield ""


def share(f: Estimate) -> str:
    """Returns a change as a percentage, with its interval."""
    if f.value is None or f.low is None or f.high is None:
        return "–" if f.value is None else f"{f.value:+.1%}"
    return f"{f.value:+.1%} [{f.low:+.1%} to {f.high:+.1%}]"


def code(value: str) -> str:
    """Returns untrusted text as code on one line."""
    return f"`{escaped(value).replace('`', 'ˋ').replace('|', '¦')}`"


def text(value: str) -> str:
    """Returns a sentence with quoted untrusted text, escaped for Markdown and HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&$])", r"\\\1", escaped(value))
