"""Reports as self-contained HTML files: verdict, figures, tables, settings and versions."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from plotly import __version__ as plotly_version
from plotly.offline import get_plotlyjs

from d2sd.__about__ import __version__
from d2sd.figures.modules import html_page, join_modules
from d2sd.figures.style import COLOURS, VIEWER, FigureTable, Panel, Stat
from d2sd.trace.text import escaped

MAX_VALUES = 4  # maximum number of values listed for a setting that differs between runs
MAX_CHARACTERS = 300  # maximum number of characters of a listed value


def report_page(
    title: str,
    sentences: Sequence[str],
    panels: Iterable[Panel],
    stats: Iterable[Stat] = (),
    facts: Iterable[tuple[str, FigureTable]] = (),
) -> str:
    """Returns one HTML file with plotly.js, figures and numbers.

    title: title of the report.
    sentences: the verdict, then the findings that support it.
    panels: the figures.
    stats: the headline numbers.
    facts: names and tables, such as the result of ``settings``.

    All texts are escaped. The page's security policy allows only its own two scripts, and no connections.
    """
    start = f"{join_modules(VIEWER / 'report.js')}.start({json.dumps({'colours': COLOURS, 'plotly': ''})});"
    verdict, *rest = sentences or ["Nothing was measured."]
    items = "".join(f"<li>{_text(s)}</li>" for s in rest)
    more = "".join(
        f'<section class="panel facts"><h3>{_text(name)}</h3>{_table(table)}</section>\n' for name, table in facts
    )
    body = f"""<h1>{_text(title)}</h1>
<p class="muted">Made by d2sd {_text(__version__)}; figures by plotly {_text(plotly_version)}.</p>
<h2>Reading</h2>
<section class="panel reading"><p class="verdict">{_text(verdict)}</p><ul>{items}</ul></section>
{_stats(stats)}
<h2>Figures</h2>
<main class="grid">
{"".join(map(_panel, panels))}</main>
<h2>What was run</h2>
<div class="grid">
{more}</div>
"""
    return html_page(title, _styles(), body, [get_plotlyjs(), f"\n(() => {{\n{start}\n}})();\n"], "blob: data:")


def settings(*sides: Sequence[Mapping[str, Any]], names: Sequence[str] = ("",)) -> Iterator[tuple[str, FigureTable]]:
    """Yields names and tables: settings, models, versions and hardware of the runs, if known.

    sides: run headers of each side. Every table has one column per side.
    names: column headings, one for each side.
    """
    for part in ("config", "models", "versions", "hardware"):
        found: dict[str, list[str]] = {}
        for n, headers in enumerate(sides):
            for name, values in _by_name([header.get(part) for header in headers]).items():
                found.setdefault(name, ["—"] * len(sides))[n] = _distinct(values)
        if found:
            rows = tuple((escaped(name.replace("_", " ")), *values) for name, values in found.items())
            yield "Settings" if part == "config" else part.capitalize(), FigureTable(("", *names), rows)


def _by_name(parts: Sequence[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items() if isinstance(part, dict) else ():
            out.setdefault(str(name), []).append(value)
    return out


def _distinct(values: Sequence[Any]) -> str:
    known = list(dict.fromkeys("—" if v is None else escaped(str(v))[:MAX_CHARACTERS] for v in values))
    more = f" and {len(known) - MAX_VALUES} more" if len(known) > MAX_VALUES else ""
    return f"{', '.join(known[:MAX_VALUES])}{more}"


def _panel(panel: Panel) -> str:
    """Returns a figure as data for the script, and as a table, which is also visible without JavaScript."""
    return (
        f'<section class="panel" data-panel="panel-{panel.id}"><h3>{_text(panel.title)}</h3>'
        f'<p class="question">{_text(panel.question)}</p><div class="numbers">{_table(panel.table)}</div></section>\n'
        f"{_data(f'panel-{panel.id}', panel.to_dict())}"
    )


def _data(id: str, data: Any) -> str:
    """Returns data for the script as JSON without ``<``, which an HTML parser could take for markup."""
    written = orjson.dumps(data).decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="{id}">{written}</script>\n'


def _table(table: FigureTable) -> str:
    def row(cells: Sequence[Any]) -> str:
        words = [_text(c if isinstance(c, str) else c[0]) for c in cells]
        return f"<tr>{''.join(f'<td>{w}</td>' if n else f'<th scope=row>{w}</th>' for n, w in enumerate(words))}</tr>"

    heads = "".join(f"<th scope=col>{_text(h)}</th>" for h in table.head)
    head = f"<thead><tr>{heads}</tr></thead>" if any(table.head) else ""
    return f"<table>{head}<tbody>{''.join(map(row, table.rows))}</tbody></table>"


def _stats(stats: Iterable[Stat]) -> str:
    items = "".join(
        f'<div class="stat" title="{_text(s.meaning)}"><dt>{_text(s.name)}</dt>'
        f'<dd><span class="value">{_text(s.value)}</span><span class="note">{_text(s.note)}</span></dd></div>'
        for s in stats
    )
    return f'<dl class="panel stats">{items}</dl>' if items else ""


def _styles() -> str:
    """Returns the rules of the report and the page's colours. The dark colours apply if the user's system uses a dark theme."""
    colours = (VIEWER / "colours.css").read_text(encoding="utf-8")
    light, _, dark = colours.partition(".dark .explorer")
    dark = f"@media (prefers-color-scheme: dark) {{ :root {dark} }}"
    return light.replace(".explorer", ":root") + dark + (VIEWER / "report.css").read_text(encoding="utf-8")


def _text(words: str) -> str:
    return html.escape(words)
