"""Reports as self-contained HTML files with a verdict, figures, tables, settings and versions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import orjson
from plotly import __version__ as plotly_version
from plotly.offline import get_plotlyjs

from d2sd.__about__ import __version__
from d2sd.calibration.text import Table
from d2sd.figures.modules import html_page, join_modules
from d2sd.figures.style import COLOURS, VIEWER, Panel, Stat
from d2sd.trace.text import escaped

MAX_VALUES = 4  # maximum number of values listed for a setting that differs between runs
MAX_CHARACTERS = 300  # maximum number of characters of a listed value


def report_page(
    title: str,
    sentences: Sequence[str],
    panels: Iterable[Panel],
    stats: Iterable[Stat] = (),
    facts: Iterable[tuple[str, Table]] = (),
) -> str:
    """Returns a report as one HTML file, which contains plotly.js.

    All texts are escaped. The page's security policy allows only the two scripts in the file, and no connections.

    title: title of the report.
    sentences: the verdict, then the findings that support it.
    panels: the figures with their tables.
    stats: the headline numbers.
    facts: pairs of a name and a table, such as those of ``settings``.
    """
    start = f"{join_modules(VIEWER / 'report.js')}.start({json.dumps({'colours': COLOURS, 'plotly': ''})});"
    verdict, *rest = sentences or ["Nothing was measured."]
    items = "".join(f"<li>{escape(s)}</li>" for s in rest)
    more = "".join(
        f'<section class="panel facts"><h3>{escape(name)}</h3>{table.html()}</section>\n' for name, table in facts
    )
    body = f"""<h1>{escape(title)}</h1>
<p class="muted">Made by d2sd {escape(__version__)}; figures by plotly {escape(plotly_version)}.</p>
<h2>Reading</h2>
<section class="panel reading"><p class="verdict">{escape(verdict)}</p><ul>{items}</ul></section>
{_stats(stats)}
<h2>Figures</h2>
<main class="grid">
{"".join(map(_panel, panels))}</main>
<h2>What was run</h2>
<div class="grid">
{more}</div>
"""
    return html_page(title, _styles(), body, [get_plotlyjs(), f"\n(() => {{\n{start}\n}})();\n"], "blob: data:")


def settings(*sides: Sequence[Mapping[str, Any]], names: Sequence[str] = ("",)) -> Iterator[tuple[str, Table]]:
    """Yields (name, table) for the settings, models, versions and hardware of runs. Tables without a known value are left out.

    sides: headers of the runs of each side. Every table has a column for each side.
    names: heading of the column of each side.
    """
    for part in ("config", "models", "versions", "hardware"):
        recorded = [[header[part] for header in headers if isinstance(header.get(part), dict)] for headers in sides]
        fields = dict.fromkeys(name for headers in recorded for values in headers for name in values)
        rows = tuple(
            (escaped(name.replace("_", " ")), *(_distinct([v[name] for v in side if name in v]) for side in recorded))
            for name in fields
        )
        if rows:
            yield "Settings" if part == "config" else part.capitalize(), Table(("", *names), rows)


def _distinct(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys("—" if v is None else escaped(str(v))[:MAX_CHARACTERS] for v in values)) or ["—"]
    more = f" and {len(texts) - MAX_VALUES} more" if len(texts) > MAX_VALUES else ""
    return f"{', '.join(texts[:MAX_VALUES])}{more}"


def _panel(panel: Panel) -> str:
    """Returns the HTML of a panel: its table, which is visible without JavaScript, and the data from which the script draws its figure.

    The data is JSON without ``<``, which an HTML parser could take for markup.
    """
    data = orjson.dumps(panel.to_dict()).decode().replace("<", "\\u003c")
    return (
        f'<section class="panel" data-panel="panel-{panel.id}"><h3>{escape(panel.title)}</h3>'
        f'<p class="question">{escape(panel.question)}</p><div class="numbers">{panel.table.html()}</div></section>\n'
        f'<script type="application/json" id="panel-{panel.id}">{data}</script>\n'
    )


def _stats(stats: Iterable[Stat]) -> str:
    items = "".join(
        f'<div class="stat" title="{escape(s.meaning)}"><dt>{escape(s.name)}</dt>'
        f'<dd><span class="value">{escape(s.value)}</span><span class="note">{escape(s.note)}</span></dd></div>'
        for s in stats
    )
    return f'<dl class="panel stats">{items}</dl>' if items else ""


def _styles() -> str:
    """Returns the style sheet of the report, with the page's colours. The dark colours apply if the user's system uses a dark theme."""
    colours = (VIEWER / "colours.css").read_text(encoding="utf-8")
    light, _, dark = colours.partition(".dark .explorer")
    dark = f"@media (prefers-color-scheme: dark) {{ :root {dark} }}"
    return light.replace(".explorer", ":root") + dark + (VIEWER / "report.css").read_text(encoding="utf-8")
