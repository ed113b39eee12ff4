"""Compare two sets of recorded runs: show each figure for both sets, and the difference with a confidence interval."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from d2sd.calibration import RunStatistics
from d2sd.calibration.comparison import Comparison
from d2sd.calibration.sentences import COMPARED, compare_sides, difference_words
from d2sd.calibration.text import count
from d2sd.cli.common import add_flag, print_json, read_sets, write_page
from d2sd.cli.outputs import add_output
from d2sd.methods import unused
from d2sd.trace.metrics import what_differs
from d2sd.trace.text import printable

SIDES = "The intervals of A and B are those of d2sd calibrate."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for side in "AB":
        parser.add_argument(f"--{side.lower()}", nargs="+", required=True, metavar="TRACE|FOLDER", help=f"recorded runs of set {side}")  # fmt: skip
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: differences, figures, tables, settings")
    add_flag(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    a, b = (RunStatistics(read_sets(paths)) for paths in (arguments.a, arguments.b))
    compared = compare_sides(a, b, "AB")
    comparison = compared.comparison
    differs = what_differs(a.headers, b.headers, unused)
    sentences = [part for part in (compared.title, compared.more, differs) if part]
    if arguments.html:
        page = _page(a, b, [*sentences, f"{compared.how} {SIDES}"], comparison)
        write_page(arguments.html, page, count(len(a) + len(b), "run"))
    if arguments.json:
        print_json({"what_differs": differs, **asdict(comparison)})
        return
    for d in comparison.figures:
        if d.difference.value is not None:
            label, write, *_ = COMPARED[d.name]
            sentences.append(f"{label}: {write(d.a.value)} → {write(d.b.value)}. B: {difference_words(d)}.")
    for sentence in (*sentences, compared.how):
        print(printable(sentence))


def _page(a: RunStatistics, b: RunStatistics, sentences: Sequence[str], comparison: Comparison) -> str:
    from d2sd.figures.intervals import differences_panel
    from d2sd.figures.report import report_page, settings

    title = f"Comparison: {count(len(a), 'recorded run')} (A) with {len(b)} (B)"
    return report_page(
        title, sentences, [differences_panel(comparison)], facts=settings(a.headers, b.headers, names="AB")
    )
