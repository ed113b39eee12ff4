"""Reads servers' logs: sentences about each source, comparisons of sources, and the report as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from d2sd.calibration.sentences import percent
from d2sd.logs.figures import Figures, milliseconds
from d2sd.logs.sentences import FALL, NO_ALPHA, NO_DRAFTED, RATE, Said, names_fault, sentences, tries

Answer = tuple[Figures, list[Said]]  # figures of a source, and what they say
ONCE = (NO_ALPHA, NO_DRAFTED, RATE)  # sentences that are not repeated for every source
WHAT_TO_TRY = "Things to try, with public cases. The figures alone do not show the cause:"


def answers(sources: Sequence[Figures]) -> list[Answer]:
    """Returns the sentences about each source, with comparisons of the sources."""
    return [(p, [*sentences(p), *_unequal_engines(p, sources), *_with_and_without(p, sources)]) for p in sources]


def as_dict(answer: Answer) -> dict[str, Any]:
    """Returns an answer for JSON."""
    p, said = answer
    return {
        "figures": p.to_dict(),
        "sentences": [one.text for one in said],
        "named": names_fault(said),
        "tries": tries(said),
    }


def _unequal_engines(p: Figures, sources: Sequence[Figures]) -> Iterator[Said]:
    """Compares an engine with others that serve the same model side by side."""
    same = [q for q in sources if q.replica is not None and (q.unit, q.engine, q.model) == (p.unit, p.engine, p.model)]
    best = max(same, key=lambda q: q.alpha or 0.0, default=p)
    # only if every engine is a single source; otherwise the sources differ in another setting too
    single = len({q.replica for q in same}) == len(same)
    if p.replica is not None and single and p.alpha and best.alpha and p.alpha - 1 < FALL * (best.alpha - 1):
        yield Said(
            f"{p.server.capitalize()} accepts far fewer tokens than {best.server} of the same model: α {p.alpha:.2f} compared with "
            f"{best.alpha:.2f}.",
            ("replica",),
        )


def _with_and_without(p: Figures, sources: Sequence[Figures]) -> Iterator[Said]:
    """Compares a source with drafts with the sources without, under the same load."""
    for q in sources:
        alike = (
            q.unit == p.unit
            and (q.model == p.model or None in (p.model, q.model))
            and (q.at_once or 1) == (p.at_once or 1)
        )
        if q.drafts or not p.drafts or not alike or not (p.token_seconds and p.step_seconds and q.token_seconds):
            continue
        times = q.token_seconds / p.token_seconds
        same = (
            "the requests were alike in text and length"
            if p.unit == "request"
            else "machine, model and prompts were the same"
        )
        result = f"is {times:.2f} times as fast" if times >= 1 else f"takes {1 / times:.2f} times as long"
        begin = f"W{q.with_requests[2:]}, a token" if q.at_once else "A token"
        yield Said(
            f"{begin} takes {milliseconds(p.token_seconds)} with drafts and {milliseconds(q.token_seconds)} without: drafting {result}. "
            f"A step costs as much as {p.step_seconds / q.token_seconds:.2f} plain steps and commits {p.committed:.2f} tokens. "
            f"This comparison is valid only if {same}."
        )


COLUMNS = ("log", "drafted", "α", "position 1", "step", "token", "tokens/s", "at once")


def side_by_side(sources: Sequence[Figures]) -> list[tuple[str, ...]]:
    """Returns a table of the sources, with the column names as first row; empty if there is only one source."""
    rows = []
    for p in sources:
        first = p.by_position[0] if p.by_position else None
        figures: tuple[tuple[float | None, Callable[[float], str]], ...] = (
            (p.draft_length, "{:.3g}".format), (p.alpha, "{:.2f}".format), (first, percent), (p.step_seconds, milliseconds),
            (p.token_seconds, milliseconds), (p.tokens_per_second, "{:.4g}".format), (p.at_once, "{}".format),
        )  # fmt: skip
        rows.append((p.origin, *("–" if value is None else write(value) for value, write in figures)))
    return [COLUMNS, *rows] if len(rows) > 1 else []


def report_lines(found: Sequence[Answer]) -> Iterator[str]:
    """Yields the answers as lines of text. Things to try are listed at the end, each only once."""
    before = set[str]()
    for _, said in found:
        yield from (one.text for one in said if one.text not in ONCE or one.text not in before)
        before |= {one.text for one in said}
        yield ""
    if table := side_by_side([p for p, _ in found]):
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for first, *others in table:
            cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
            yield "  ".join((f"{first:<{widths[0]}}", *cells)).rstrip()
        yield ""
    yield from what_to_try(found)


def what_to_try(found: Sequence[Answer]) -> list[str]:
    """Returns the things to try as lines of a list; empty if there are none."""
    ideas = dict.fromkeys(one for _, said in found for one in tries(said))
    return [WHAT_TO_TRY, *(f"* {one}" for one in ideas)] if ideas else []
