"""Figures of the rows of a benchmark, or of drafters that were replayed over the same texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from d2sd.calibration import Estimate
from d2sd.calibration.replays import DrafterFigures
from d2sd.calibration.sentences import decimal, percent, signed_decimal, with_interval
from d2sd.figures.style import INK, ROW, FigureTable, Panel, axis, draw, places_axis, safe, scatter, values_of, whiskers


def bench_panels(rows: Sequence[Mapping[str, Any]]) -> Iterator[Panel]:
    labels = [row["label"] for row in rows]
    for id, title, question, unit, name in (
        ("acceptance", "Mean acceptance length α", "How many tokens does a step commit?", "tokens per step", "mean_acceptance_length"),
        ("speed", "Decoding speed", "How many tokens does decoding produce per second?", "tokens per second", "tokens_per_second"),
    ):  # fmt: skip
        figures = [Estimate(row[name], *(row[f"{name}_interval"] or ())) for row in rows]
        yield _measured(id, title, f"{question} Lines: 95% interval over prompts.", unit, labels, figures)


def replay_panels(rows: Sequence[DrafterFigures], steps: Sequence[int | None]) -> Iterator[Panel]:
    """Yields the panels of α, of the differences from the α of the base, and of acceptance at the first position.

    rows: result of ``compare_replays``.
    steps: training step of each row. If all are known, the panels show training steps instead of names.
    """
    base = next(row.name for row in rows if not row.whole.difference)
    over = " over training" if len(rows) > 1 and None not in steps else ""
    names = [row.name for row in rows]
    places = [step or 0 for step in steps] if over else ()
    for id, title, question, unit, figures, write in (
        ("alpha", "α", "How many tokens does a step commit? Lines: 95% interval.", "tokens per step", [row.whole.alpha for row in rows], decimal),
        ("difference", f"Difference of α from {base}", "Is the difference larger than expected by chance? Lines: simultaneous 95% intervals.", "tokens per step", [row.whole.difference or Estimate(0.0) for row in rows], signed_decimal),
        ("first-position", "First position", "In what share of all steps is the first drafted token accepted? Lines: 95% interval.", "accepted", [row.reached[0] if row.reached else Estimate(None) for row in rows], percent),
    ):  # fmt: skip
        yield _measured(id, f"{title}{over}", question, unit, names, figures, write, places)


def _measured(
    id: str, title: str, question: str, unit: str, names: Sequence[str], figures: Sequence[Estimate],
    write: Callable[[float | None], str] = decimal, steps: Sequence[int] = (),
) -> Panel:  # fmt: skip
    """Returns a panel with a dot and an interval for each figure, one row per name; with ``steps``, a line over training steps.

    write: writes a figure as text.
    """
    words = [with_interval(figure, write) for figure in figures]
    hovers = [f"{safe(name)}: {said}" for name, said in zip(names, words, strict=True)]
    look = {"marker": {"size": 9, "color": INK}, "showlegend": False, **whiskers(figures, "y" if steps else "x")}
    values, form = values_of(figures), ".0%" if write is percent else ""
    if steps:
        dots = scatter("lines+markers", steps, values, hovers, line={"color": INK, "width": 2}, **look)
        figure = draw(
            [dots], xaxis=axis("training steps", rangemode="tozero"), yaxis=axis(unit, nticks=6, tickformat=form)
        )
    else:
        dots = scatter("markers", values, list(range(len(names))), hovers, **look)
        figure = draw(
            [dots],
            height=130 + ROW * len(names),
            margin={"l": 44, "r": 12, "t": 12, "b": 44},
            xaxis=axis(unit, rangemode="tozero", tickformat=form),
            yaxis=places_axis([safe(name) for name in names], range=[len(names) - 0.5, -0.5]),
        )
    return Panel(id, title, question, figure, FigureTable(("", unit), tuple(zip(names, words, strict=True))))
