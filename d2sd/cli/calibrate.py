"""Measure whether the first drafter's confidence can be trusted, on prompts or on recorded traces.

With --json, one object: prompt group ("all" first) → the fields of ``d2sd.calibration.Report``. A figure there has value,
low and high (95% interval, null where units are too few); gains.tokens_per_step is α.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from d2sd.calibration import RunStatistics, read_report
from d2sd.calibration.sentences import count, decimal, digits, with_interval
from d2sd.cli.common import (
    add_output,
    add_run_arguments,
    check_folder,
    decode_config,
    ended_at_once,
    prepare_engine,
    print_json,
    read_sets,
    record_runs,
)
from d2sd.errors import InputError
from d2sd.trace.files import write_whole
from d2sd.trace.text import escaped, printable
from d2sd.trace.trace import Trace

SHOWN_K = (1, 2, 4, 8)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traces", nargs="+", metavar="TRACE|FOLDER", help="read recorded runs instead of running, one or more a file"
    )
    parser.add_argument("--method", default="d2sd", metavar="ID")
    add_output(
        parser,
        "--traces-out",
        folder=True,
        type=Path,
        metavar="FOLDER",
        help="also write every run there, as NNN.jsonl.gz",
    )
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: verdict, figures, tables, settings")
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run or read, then print the figures; Ctrl-C leaves those of the prompts that are done."""
    if arguments.traces and arguments.traces_out:
        raise InputError("--traces reads recorded runs and --traces-out writes those of prompts; leave one of them out")
    groups, stopped = {"all": RunStatistics()}, ""

    def add(trace: Trace) -> None:
        for name in dict.fromkeys(("all", trace.domain)):
            groups.setdefault(name, RunStatistics()).add(trace)

    if arguments.traces:
        for trace in read_sets(arguments.traces):
            add(trace)
    else:
        config = decode_config(arguments, arguments.method)
        folder = arguments.traces_out
        if folder:
            check_folder(folder)
        engine, prompts = prepare_engine(arguments, config)
        paths = [folder / f"{number:03d}.jsonl.gz" for number in range(1, len(prompts) + 1)] if folder else []
        try:
            for trace in record_runs(engine, prompts, engine.resolve(config), "calibrate", paths):
                add(trace)
        except KeyboardInterrupt:
            if not len(groups["all"]):
                raise
            stopped = f"Stopped: only {len(groups['all'])} of {len(prompts)} prompts are counted."
    if arguments.html and len(groups["all"]):
        _write_html(arguments.html, groups["all"], "recorded run" if arguments.traces else "prompt")
    if arguments.json:
        print_json({name: runs.report().to_dict() for name, runs in groups.items()})
    else:
        for name, runs in groups.items():
            print(printable(_text(escaped(name), runs)))
        if not arguments.traces and (empty := groups["all"].ended):
            print(ended_at_once(empty, len(groups["all"]), config.chat), file=sys.stderr)
    if stopped:
        print(stopped, file=sys.stderr)
    return 130 if stopped else 0


def _write_html(path: str, runs: RunStatistics, what: str) -> None:
    """Write a report of all runs. ``what``: a word for one of them."""
    from d2sd.figures.calibration import calibration_results
    from d2sd.figures.report import report_page, settings

    results = calibration_results(runs)
    methods = ", ".join(sorted({str(header["method"]) for header in runs.headers}))
    page = report_page(
        f"Calibration: {count(len(runs), what)} with {escaped(methods)}",
        [sentence.text for sentence in results.reading],
        results.panels,
        results.stats,
        settings(runs.headers),
    )
    write_whole(path, page)
    print(f"{path}: a report of {count(len(runs), 'run')}", file=sys.stderr)


def _text(name: str, runs: RunStatistics) -> str:
    report = runs.report()
    title = f"{name}: {report.runs} runs of {report.prompts} prompts, {report.steps} steps, {report.positions} scored {'nodes' if report.of_paths else 'positions'}"
    if short := len(runs) - report.runs:
        title += f"; {count(short, 'more run')} ended with prefill and had no step"
    alpha = report.gains.tokens_per_step
    if alpha.value is not None:
        title += f", α {with_interval(alpha, decimal)}"
    lines = [title, *(f"  {s.text}" for s in read_report(report))]
    if report.positions:
        shares = (f"{b.confidence:.2f}→{b.accepted:.2f} ({b.count})" for b in report.uniform if b.count)
        hits = (
            f"{k}: {f.value:.0%}" for k, f in enumerate(report.ranks.within, 1) if k in SHOWN_K and f.value is not None
        )
        lines += [
            f"  ECE {with_interval(report.ece, digits)}",
            f"  confidence → accepted (count): {', '.join(shares)}",
        ]
        if not report.of_paths:
            lines.append(f"  true boundary within the top {', '.join(hits)}")
    return "\n".join(lines)
