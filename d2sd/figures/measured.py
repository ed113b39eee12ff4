"""Figures of the rows of a benchmark, or of drafters that were replayed over the same texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d2sd.calibration import Estimate
from d2sd.calibration.replays import DrafterFigures
from d2sd.calibration.text import Table, Write, decimal, percent, signed_decimal, with_interval
from d2sd.figures.style import INK, ROW, Panel, axis, draw, hover_texts, places_axis, safe, scatter, values_of, whiskers


def bench_panels(rows: Sequence[Mapping[str, Any]]) -> Iterator[Panel]:
    """Yields the panels of α and of speed. rows: rows of ``d2sd.bench.report.summarise``."""

    def panel(id: str, title: str, question: str, unit: str, name: str) -> Panel:
        figures = [Estimate(row[name], *(row[f"{name}_interval"] or ())) for row in rows]
        question = f"{question} Lines: 95% interval over prompts."
        return _measured(id, title, question, unit, [row["label"] for row in rows], figures)

    alpha = "Mean acceptance length α", "How many tokens does a step commit?", "tokens per step"
    speed = "Decoding speed", "How many tokens does decoding produce per second?", "tokens per second"
    yield panel("acceptance", *alpha, "mean_acceptance_length")
    yield panel("speed", *speed, "tokens_per_second")


def replay_panels(rows: Sequence[DrafterFigures], steps: Sequence[int | None]) -> Iterator[Panel]:
    """Yields the panels of α, of the differences from the α of the base, and of acceptance at the first position.

    rows: result of ``compare_replays``.
    steps: training step of each row. If all are known, the panels show training steps instead of names.
    """
    names, alphas = [row.name for row in rows], [row.whole.alpha for row in rows]
    base = next(row.name for row in rows if row.whole.difference is None)
    differences = [row.whole.difference or Estimate(0.0) for row in rows]
    shares = [row.reached[0] if row.reached else Estimate(None) for row in rows]
    known = [step for step in steps if step is not None]
    places = known if len(rows) == len(known) > 1 else []
    over = " over training" if places else ""
    question = "How many tokens does a step commit? Lines: 95% interval."
    yield _measured("alpha", f"α{over}", question, "tokens per step", names, alphas, decimal, places)
    title, unit = f"Difference of α from {base}{over}", "tokens per step"
    question = "Is the difference larger than expected by chance? Lines: simultaneous 95% intervals."
    yield _measured("difference", title, question, unit, names, differences, signed_decimal, places)
    question = "In what share of all steps is the first drafted token accepted? Lines: 95% interval."
    yield _measured("first-position", f"First position{over}", question, "accepted", names, shares, percent, places)


def _measured(
    id: str, title: str, question: str, unit: str, names: Sequence[str], figures: Sequence[Estimate],
    write: Write = decimal, steps: Sequence[int] = (),
) -> Panel:  # fmt: skip
    """Returns a panel with a dot and an interval for each figure, one row per name; with ``steps``, a line over training steps.

    write: writes a figure as text.
    """
    rows = tuple((name, with_interval(figure, write)) for name, figure in zip(names, figures, strict=True))
    table = Table(("", unit), rows)
    options = {"marker": {"size": 9, "color": INK}, "showlegend": False, **whiskers(figures, "y" if steps else "x")}
    values, hovers, tickformat = values_of(figures), hover_texts(table), ".0%" if write is percent else ""
    if steps:
        dots = scatter("lines+markers", steps, values, hovers, line={"color": INK, "width": 2}, **options)
        figure = draw(
            [dots], xaxis=axis("training steps", rangemode="tozero"), yaxis=axis(unit, nticks=6, tickformat=tickformat)
        )
    else:
        dots = scatter("markers", values, list(range(len(names))), hovers, **options)
        figure = draw(
            [dots],
            height=130 + ROW * len(names),
            margin={"l": 44, "r": 12, "t": 12, "b": 44},
            xaxis=axis(unit, rangemode="tozero", tickformat=tickformat),
            yaxis=places_axis([safe(name) for name in names], range=[len(names) - 0.5, -0.5]),
        )
    return Panel(id, title, question, figure, table)
