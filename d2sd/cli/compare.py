"""Compare two sets of recorded runs: every figure of both, and the difference with its interval."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

import orjson

from d2sd.calibration import StepTable, calibrate, tabulate
from d2sd.calibration.compared_reading import how_compared, read_comparison
from d2sd.calibration.comparison import Comparison, compare
from d2sd.calibration.reading import count
from d2sd.calibration.sides import Side
from d2sd.trace.differences import weights_of, what_differs
from d2sd.trace.files import write_whole
from d2sd.trace.sets import read_traces
from d2sd.trace.text import printable
from d2sd.trace.trace import Trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``compare``."""
    parser.add_argument("--a", nargs="+", required=True, metavar="TRACE", help="recorded runs of one side")
    parser.add_argument("--b", nargs="+", required=True, metavar="TRACE", help="recorded runs of the other side")
    parser.add_argument(
        "--html", metavar="OUT.html", help="also write a report: differences, figures, tables, settings"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Read both sides, then print what differs."""
    sides = [[trace for path in paths for trace in read_traces(path)] for paths in (arguments.a, arguments.b)]
    tables = [tabulate([t.steps for t in traces], [t.prompt for t in traces]) for traces in sides]
    texts = [sorted((t.prompt, tuple(t.token_ids)) for t in traces) for traces in sides]
    a, b = (
        Side(
            table,
            tuple(t.prompt for t in traces),
            weights_of([t.header for t in traces], "first_drafter"),
            tuple(str(t.header.get("domain") or "all") for t in traces),
        )
        for table, traces in zip(tables, sides, strict=True)
    )
    found = compare(a, b, same_text=texts[0] == texts[1])
    differs = what_differs(*([t.header for t in traces] for traces in sides))
    if arguments.html:
        write_whole(arguments.html, _page(found, differs, sides, tables))
        print(f"{arguments.html}: a report of {count(sum(map(len, sides)), 'run')}", file=sys.stderr)
    if arguments.json:
        sys.stdout.write(orjson.dumps({"what_differs": differs, **asdict(found)}).decode() + "\n")
    else:
        for sentence in (differs, *read_comparison(found), how_compared(found)):
            print(printable(sentence))


def _page(found: Comparison, differs: str, sides: Sequence[Sequence[Trace]], tables: Sequence[StepTable]) -> str:
    from d2sd.drawing.compared_panels import comparison_panels
    from d2sd.drawing.report import report_page, settings

    panels = comparison_panels(found, *(calibrate(table) for table in tables))
    title = f"Comparison: {count(len(sides[0]), 'recorded run')} (A) with {len(sides[1])} (B)"
    return report_page(
        title, [differs, *read_comparison(found), how_compared(found)], panels, facts=settings(*sides, names="AB")
    )
