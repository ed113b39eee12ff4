"""Measure how reliable the first drafter's confidence is, on prompts or on recorded traces.

Also show where drafting should stop: how confidence thresholds and shorter drafts would change α and the number of verified nodes.
With the costs of this machine or of --costs, also show how they would change the time per token.

With --json, print one object with a key for each prompt group ("all" first). Each value has the fields of d2sd.calibration.Report.
Every figure has a value, and the limits low and high of its 95% interval (null for too few prompts). gains.tokens_per_step is α;
gains.nodes_per_step counts the anchor too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from d2sd.calibration import RunStatistics, read_report
from d2sd.calibration.boundaries import DraftConfidence
from d2sd.calibration.text import count, decimal, digits, with_interval
from d2sd.calibration.thresholds import caption, stop_sentences, stop_table
from d2sd.cli.common import (
    add_costs_argument,
    add_run_arguments,
    decode_config,
    ended_at_once,
    prepare_engine,
    print_json,
    read_sets,
    record_runs,
    write_page,
)
from d2sd.cli.outputs import add_output, check_folder
from d2sd.costs.machines import CHAINLESS, StageCosts, machine_of
from d2sd.errors import InputError
from d2sd.trace.metrics import DraftCosts
from d2sd.trace.text import escaped, printable
from d2sd.trace.trace import Trace

SHOWN_K = (1, 2, 4, 8)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traces", nargs="+", metavar="TRACE|FOLDER", help="read recorded runs instead of running prompts; a file may contain several runs")  # fmt: skip
    parser.add_argument("--method", default="d2sd", metavar="ID", help="method to run (default: d2sd)")
    add_output(parser, "--traces-out", folder=True, type=Path, metavar="FOLDER", help="also write every run to this folder, as NNN.jsonl.gz")  # fmt: skip
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: verdict, figures, tables, settings")
    add_costs_argument(
        parser, "machine whose costs give the times per token (default: this machine, if prompts are run)"
    )
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs prompts or reads traces, then prints the figures. After Ctrl-C, the figures cover the finished prompts."""
    if arguments.traces and arguments.traces_out:
        raise InputError("--traces reads recorded runs and --traces-out writes new ones; leave one of them out")
    groups, stopped = {"all": RunStatistics()}, ""
    machine = machine_of(arguments.costs) if arguments.costs else None

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
        if machine is None and config.method not in CHAINLESS:
            machine = engine.costs(engine.resolve(config))
        paths = [folder / f"{number:03d}.jsonl.gz" for number in range(1, len(prompts) + 1)] if folder else []
        try:
            for trace in record_runs(engine, prompts, engine.resolve(config), "calibrate", paths):
                add(trace)
        except KeyboardInterrupt:
            if not len(groups["all"]):
                raise
            stopped = f"Stopped: only {len(groups['all'])} of {len(prompts)} prompts are counted."
    if machine:
        costs = _draft_costs(machine, [str(header["method"]) for header in groups["all"].headers])
        for runs in groups.values():
            runs.costs = costs
    if arguments.html and len(groups["all"]):
        _write_html(arguments.html, groups["all"], "recorded run" if arguments.traces else "prompt")
    if arguments.json:
        print_json({name: runs.report().to_dict() for name, runs in groups.items()})
    else:
        for name, runs in groups.items():
            print(printable("\n".join(_text(name, runs))))
        if machine:
            print(f"Costs of {machine.name}: {machine.source}")
        if not arguments.traces and (empty := groups["all"].ended):
            print(ended_at_once(empty, len(groups["all"]), config.chat), file=sys.stderr)
    if stopped:
        print(stopped, file=sys.stderr)
    return 130 if stopped else 0


def _draft_costs(machine: StageCosts, methods: Sequence[str]) -> DraftCosts | None:
    """Returns the costs of steps that verify only the first draft; None if no method drafts a chain.

    Raises ``InputError`` if the methods have different kinds of drafters, or if the machine's times for the drafter are unknown.
    """
    drafting = [method for method in methods if method not in CHAINLESS]
    if len({method == "draft_model" for method in drafting}) > 1:
        raise InputError("--costs needs runs of one kind of drafter; calibrate runs with the draft model separately")
    return machine.draft_costs(drafting[0]) if drafting else None


def _write_html(path: str, runs: RunStatistics, what: str) -> None:
    """Writes a report of all runs to the file ``path``. what: a noun for one run, for the title."""
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
    write_page(path, page, count(len(runs), "run"))


def _text(name: str, runs: RunStatistics) -> Iterator[str]:
    """Yields the lines about a prompt group. For the group ``all``, they include the table of thresholds and draft lengths."""
    report = runs.report()
    title = f"{escaped(name)}: {report.runs} runs of {report.prompts} prompts, {report.steps} steps, {report.positions} scored {'nodes' if report.of_paths else 'positions'}"
    alpha = report.gains.tokens_per_step
    if alpha.value is not None:
        title += f", α {with_interval(alpha, decimal)}"
    if short := len(runs) - report.runs:
        title += f"; {count(short, 'more run')} without a step"
    yield title
    yield from (f"  {s.text}" for s in read_report(report))
    if report.positions:
        yield from (f"  {line}" for line in _of_confidence(report))
        if report.head and name == "all":
            yield from (f"  confidence head: {line}" for line in _of_confidence(report.head))
    yield from (f"  {s.text}" for s in stop_sentences(report.stops, bool(report.head)))
    if report.stops and name == "all":
        yield from (f"  {line}" for line in (caption(report.stops), *stop_table(report.stops).lines()))


def _of_confidence(figures: DraftConfidence) -> Iterator[str]:
    """Yields the lines of figures about one kind of confidence."""
    yield f"ECE {with_interval(figures.ece, digits)}, expected by chance {digits(figures.chance)}"
    yield f"Brier score {with_interval(figures.brier, digits)}, expected by chance {digits(figures.brier_chance)}"
    bins = (f"{b.confidence:.2f}→{b.accepted:.2f} ({b.count})" for b in figures.uniform if b.count)
    yield f"confidence → accepted (count): {', '.join(bins)}"
    positions = (f"{p.position}: {decimal(p.confidence)}→{p.accepted:.2f} ({p.count})" for p in figures.by_position)
    yield f"by position: {', '.join(positions)}"
    rates = [(k, f.value) for k, f in enumerate(figures.ranks.within, 1) if k in SHOWN_K]
    if hits := ", ".join(f"{k}: {rate:.0%}" for k, rate in rates if rate is not None):
        yield f"true boundary within the top {hits}"
