"""Shared parts of all figures: panels with their tables, the page's colours, axes and marks.

Figures use the colours of the light theme. In the dark theme, the page's script replaces each colour.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import plotly.graph_objects as go

from d2sd.__about__ import HOME
from d2sd.calibration import Estimate
from d2sd.calibration.text import Table, cut

VIEWER = HOME / "assets" / "viewer"


_LIGHT = (VIEWER / "colours.css").read_text(encoding="utf-8").partition(".dark")[0]
# the colours of the light theme by name, except the colours of text on filled shapes
COLOURS = {
    name: colour for name, colour in re.findall(r"--([\w-]+): (#[0-9a-f]{6});", _LIGHT) if not name.endswith("-on")
}
PANEL, LINE, EDGE, INK, MUTED = (COLOURS[name] for name in ("panel", "line", "edge", "ink", "muted"))
FEW = 30  # bars of fewer positions than this are drawn faint
HEIGHT = 330
PATTERNS = {"first": "", "second": "/", "target": "."}
FINE = {"size": 12, "color": MUTED}
ROW = 26  # pixels per row
BAR = 0.64  # width of a bar; the centres of neighbouring bars are 1 apart

Properties = dict[str, Any]  # plotly properties of a trace, an axis or a layout
# for each kind of mark, its look (a key of ``MARKS`` in ``figures.js``) and its name
Legend = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Panel:
    """A figure with a heading and a table.

    id: id of the figure, to which ``Sentence.chart`` refers.
    title: the heading.
    question: the question that the figure answers.
    figure: the plotly figure.
    table: the numbers of the figure.
    names: for each mark, by its index, the title of the list of steps that the page shows when the mark is clicked.
    legend: the legend above the figure.
    """

    id: str
    title: str
    question: str
    figure: go.Figure
    table: Table
    names: dict[int, str] = field(default_factory=dict)
    legend: Legend = ()

    def __repr__(self) -> str:
        return f"<Panel {self.id}: {self.title}>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the panel as JSON-ready data."""
        return {
            "id": self.id,
            "title": self.title,
            "question": self.question,
            "legend": self.legend,
            "figure": orjson.Fragment(self.figure.to_json(engine="orjson")),
            "table": self.table,
            "names": {str(place): name for place, name in self.names.items()},
        }


@dataclass(frozen=True, slots=True)
class Stat:
    """A headline number.

    name, value: name of the number, and the number as text.
    note: interval or sample size.
    meaning: definition of the number.
    """

    name: str
    value: str
    note: str
    meaning: str


def safe(text: str, most: int = 40) -> str:
    """Returns untrusted text, escaped for a figure and cut to ``most`` characters. Plotly interprets some HTML, and TeX between ``$``."""
    return html.escape(cut(text, most), quote=False).replace("$", "&#36;")


def hover_texts(table: Table, counts: Sequence[int] = ()) -> list[str]:
    """Returns the hover text of each row of a figure's table. It has a line "heading: cell" for each column.

    counts: number of positions of each row. Rows with fewer than ``FEW`` positions get a note.
    """
    texts = [
        "<br>".join(
            safe(f"{heading}: {cell}" if heading else cell, 160) for heading, cell in zip(table.head, row, strict=True)
        )
        for row in table.texts
    ]
    notes = ["<br>too few to judge" if n < FEW else "" for n in counts] or [""] * len(texts)
    return [f"{text}{note}" for text, note in zip(texts, notes, strict=True)]


def draw(traces: list[Properties], height: int = HEIGHT, margin: Properties | None = None, **layout: Any) -> go.Figure:
    """Returns a figure with the layout that all figures share.

    traces: the plotly traces of the figure.
    height: height in pixels; the width follows the page.
    margin: margins in pixels that differ from those of other figures, by the first letter of the side.
    layout: further plotly properties of the layout.
    """
    shared = {
        "template": {},
        "height": height,
        "margin": {"l": 44, "r": 12, "t": 24, "b": 74, **(margin or {})},
        "paper_bgcolor": PANEL,
        "plot_bgcolor": PANEL,
        "font": {"family": "Inter, system-ui, sans-serif", "size": 12, "color": MUTED},
        "hoverlabel": {"bgcolor": PANEL, "bordercolor": EDGE, "font": {"color": INK, "size": 12}, "align": "left"},
        "hovermode": "closest",
        "barmode": "overlay",
        "bargap": 0.36,
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0.01,
            "yanchor": "bottom",
            "xref": "container",
            "x": 0.02,
            "font": FINE,
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": EDGE, "activecolor": INK},
    }
    return go.Figure(traces, {**shared, **layout})


def axis(title: str = "", **options: Any) -> Properties:
    return {
        "gridcolor": LINE,
        "linecolor": LINE,
        "zeroline": False,
        "tickfont": FINE,
        "automargin": True,
        "title": {"text": title, "font": FINE, "standoff": 6},
        **options,
    }


def share_axis(**options: Any) -> Properties:
    return axis(range=[0, 1.04], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%", **options)


def places_axis(names: list[str], title: str = "", **options: Any) -> Properties:
    """Returns an axis without grid lines, with a name at each of 0, 1, 2, …"""
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    return axis(title, **{"showgrid": False, "range": [-0.5, len(names) - 0.5], **ticks, **options})


def rows_axis(names: list[str], title: str = "") -> Properties:
    """Returns a vertical axis with a row for every name. The first row is at the top."""
    return places_axis(names, title, range=[max(1, len(names)) - 0.5, -0.5])


def values_of(figures: Iterable[Estimate]) -> list[float]:
    """Returns the values of estimates; an unknown value is replaced by 0."""
    return [figure.value or 0.0 for figure in figures]


def whiskers(figures: Sequence[Estimate], direction: str = "y", **options: Any) -> Properties:
    """Returns the intervals of estimates as error bars around ``values_of(figures)``. direction: "x" or "y"."""
    spans = list(zip(values_of(figures), figures, strict=True))
    shown = {
        "type": "data",
        "symmetric": False,
        "color": INK,
        "thickness": 1.25,
        "width": 3,
        "array": [0.0 if f.high is None else max(0.0, f.high - v) for v, f in spans],
        "arrayminus": [0.0 if f.low is None else max(0.0, v - f.low) for v, f in spans],
        **options,
    }
    return {f"error_{direction}": shown}


def fill(kind: str, faint: bool = False) -> Properties:
    """Returns the fill of bars. kind: a key of ``PATTERNS``. faint: whether the fill is pale, for bars of fewer than ``FEW`` positions."""
    colour = COLOURS[kind]
    if faint:
        return {"color": COLOURS[f"{kind}-tint"], "line": {"color": colour, "width": 1}}
    return {
        "color": colour,
        "opacity": 0.72,
        "pattern": {"shape": PATTERNS[kind], "fgcolor": PANEL, "fillmode": "overlay", "size": 6},
    }


def bars(
    places: Sequence[int],
    values: Sequence[float],
    marker: Properties,
    hovers: Sequence[str] | None = None,
    across: bool = False,
    **options: Any,
) -> Properties:
    """Returns a plotly trace of bars.

    places: positions of the bars on their axis.
    values: lengths of the bars.
    marker: result of ``fill``.
    hovers: hover text of each bar.
    across: whether the bars are horizontal.
    options: further plotly properties.
    """
    x, y = (values, places) if across else (places, values)
    orientation = {"orientation": "h"} if across else {}
    return {"type": "bar", "x": x, "y": y, "marker": marker, **_hover(hovers), **orientation, **options}


def scatter(
    mode: str, x: Sequence[float], y: Sequence[Any], hovers: Sequence[str] | None = None, **options: Any
) -> Properties:
    """Returns a plotly trace of points or lines.

    mode: "markers", "lines" or "lines+markers".
    x, y: coordinates of the points.
    hovers: hover text of each point.
    options: further plotly properties.
    """
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **_hover(hovers), **options}


def _hover(hovers: Sequence[str] | None) -> Properties:
    return {"hoverinfo": "skip"} if hovers is None else {"hovertext": hovers, "hoverinfo": "text"}


def vertical(x: float, colour: str, dash: str = "solid", **options: Any) -> Properties:
    line = {"color": colour, "width": 1.5, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line, **options}
