"""Compare two sets of recorded runs: every figure of both, and the difference with its interval."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from d2sd.calibration import Gathering
from d2sd.calibration.comparison import Comparison
from d2sd.calibration.report import compare_gathered, curves
from d2sd.calibration.sentences import count, how_compared, read_comparison
from d2sd.cli.common import named, print_json, read_sets
from d2sd.costs.runs import Places
from d2sd.trace.files import write_whole
from d2sd.trace.metrics import what_differs
from d2sd.trace.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``compare``."""
    parser.add_argument("--a", nargs="+", required=True, metavar="TRACE|FOLDER", help="recorded runs of one side")
    parser.add_argument("--b", nargs="+", required=True, metavar="TRACE|FOLDER", help="recorded runs of the other side")
    parser.add_argument(
        "--html", metavar="OUT.html", help="also write a report: differences, figures, tables, settings"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Reads both sides, then prints what differs."""
    places = Places(), Places()
    paths = arguments.a, arguments.b
    sides = [Gathering(own.passing(read_sets(files))) for own, files in zip(places, paths, strict=True)]
    found = compare_gathered(*sides)
    differs = what_differs(*(side.headers for side in sides))
    if arguments.html:
        write_whole(arguments.html, _page(found, differs, sides, places))
        print(f"{arguments.html}: a report of {count(sum(map(len, sides)), 'run')}", file=sys.stderr)
    if arguments.json:
        print_json({"what_differs": differs, **asdict(found)})
    else:
        for sentence in (differs, *read_comparison(found), how_compared(found)):
            print(printable(sentence))


def _page(found: Comparison, differs: str, sides: Sequence[Gathering], places: Sequence[Places]) -> str:
    from d2sd.figures.panels import comparison_panels
    from d2sd.figures.report import report_page, settings

    panels = comparison_panels(found, *(curves(side.counted().table) for side in sides))
    title = f"Comparison: {count(len(sides[0]), 'recorded run')} (A) with {len(sides[1])} (B)"
    facts = settings(*(side.headers for side in sides), names="AB")
    points = [place for own, side in zip(places, "AB", strict=True) for place in named(own.all(), f"{side}: ")]
    sentences = [differs, *read_comparison(found), how_compared(found)]
    return report_page(title, sentences, panels, facts=facts, places=points)
