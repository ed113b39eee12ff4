"""Compare two sets of recorded runs: show each figure for both sets, and the difference with a confidence interval."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from d2sd.calibration import RunStatistics
from d2sd.calibration.report import compare_runs
from d2sd.calibration.sentences import count, how_compared, read_comparison
from d2sd.cli.common import add_output, print_json, read_sets
from d2sd.methods import unused
from d2sd.trace.files import write_whole
from d2sd.trace.metrics import what_differs
from d2sd.trace.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--a", nargs="+", required=True, metavar="TRACE|FOLDER", help="recorded runs of set A")
    parser.add_argument("--b", nargs="+", required=True, metavar="TRACE|FOLDER", help="recorded runs of set B")
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: differences, figures, tables, settings")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    a, b = (RunStatistics(read_sets(paths)) for paths in (arguments.a, arguments.b))
    if arguments.html:
        write_whole(arguments.html, _page(a, b))
        print(f"{arguments.html}: a report of {count(len(a) + len(b), 'run')}", file=sys.stderr)
    found, differs = compare_runs(a, b), what_differs(a.headers, b.headers, unused)
    if arguments.json:
        print_json({"what_differs": differs, **asdict(found)})
    else:
        for sentence in (differs, *read_comparison(found), how_compared(found)):
            print(printable(sentence))


def _page(a: RunStatistics, b: RunStatistics) -> str:
    from d2sd.figures.comparison import comparison_results
    from d2sd.figures.report import report_page, settings

    results = comparison_results(a, b)
    return report_page(
        f"Comparison: {count(len(a), 'recorded run')} (A) with {len(b)} (B)",
        [*results.reading, results.how],
        [results.panel],
        facts=settings(a.headers, b.headers, names="AB"),
    )
