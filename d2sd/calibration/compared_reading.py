"""Sentences about a comparison; differences that are not significant are not claimed."""

from __future__ import annotations

from collections.abc import Iterator

from d2sd.calibration.comparison import Comparison
from d2sd.calibration.sentences import count, joined
from d2sd.calibration.sides import Difference
from d2sd.trace.text import escaped

MAX_NAME = 40
MAX_NAMED = 6  # places in a sentence; the table has all


def read_comparison(comparison: Comparison) -> Iterator[str]:
    """Returns sentences about the differences; those that are not significant are not claimed."""
    clear = [d for d in comparison.figures if d.clear and d.name in SPOKEN]
    for d in clear:
        words, write = SPOKEN[d.name]
        assert d.difference.low is not None
        assert d.difference.high is not None
        less, more = sorted((abs(d.difference.low), abs(d.difference.high)))
        way = "higher" if d.difference.low > 0 else "lower"
        yield f"{words}: {write(d.a.value)} → {write(d.b.value)}, B is {way} by {write(less)} to {write(more)}."
    if not clear:
        some = any(d.difference.low is not None for d in comparison.figures)
        yield (
            "No clear difference: every simultaneous interval contains 0. More prompts would narrow them."
            if some
            else "Too few steps for a comparison: an interval needs at least four prompts or blocks of text."
        )
    alpha = next((d for d in comparison.figures if d.name == "tokens" and not d.clear), None)
    if alpha and alpha.difference.value is not None:
        yield f"Tokens per step (α): {_plain(alpha.a.value)} → {_plain(alpha.b.value)}, which is not clear."
    if comparison.same_drafter:
        yield "Same first drafter: its calibration cannot differ, so it is not compared."
    yield from _where(comparison)


def _where(comparison: Comparison) -> Iterator[str]:
    """In which prompt groups and at which positions of the draft the sides differ."""
    asked = [[d for d in part if d.p is not None] for part in (comparison.groups, comparison.positions)]
    kinds = [count(len(part), noun) for part, noun in zip(asked, ("prompt group", "position"), strict=True) if part]
    if not kinds:
        return
    questions = f"{joined(kinds)} were tested, with Holm’s correction for multiple tests"
    clear = [_place(d) for part in asked for d in part if d.clear]
    more = f" and {len(clear) - MAX_NAMED} more" if len(clear) > MAX_NAMED else ""
    found = f"Clear: {', '.join(clear[:MAX_NAMED])}{more}" if clear else "No place is clear"
    yield f"Where? {found}. {questions[:1].upper()}{questions[1:]}."


def _place(found: Difference) -> str:
    kind, _, name = found.name.partition(" ")
    if kind == "group":
        return f"{escaped(name[:MAX_NAME])} (α {_plain(found.a.value)} → {_plain(found.b.value)})"
    return f"drafted token {name} ({_percent(found.a.value)} → {_percent(found.b.value)} accepted)"


def how_compared(comparison: Comparison) -> str:
    """Returns a sentence about how the intervals were made."""
    together = (
        "both sides together" if comparison.paired else "each side separately, since their prompts or texts differ"
    )
    return (
        f"Bootstrap intervals by {comparison.unit}, {together}. Those of the differences hold simultaneously for a whole "
        "table with 95%."
    )


def _plain(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.1f}%"


SPOKEN = {
    "tokens": ("Tokens per step (α)", _plain),
    "speed": ("Tokens per second", lambda v: "—" if v is None else f"{v:.0f}"),
    "first": ("Accepted tokens of the first draft", _plain),
    "repaired": ("Repaired steps", _percent),
    "error": ("Calibration error (ECE) above chance", lambda v: "—" if v is None else f"{v:.3f}"),
}
