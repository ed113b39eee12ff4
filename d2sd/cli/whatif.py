"""Show how many tokens other settings or drafters would have committed in recorded greedy runs, without decoding again.

With several drafters, or several traces and only one setting, print a row per drafter: α over all texts and by prompt group, the
difference from the first drafter's α with a confidence interval, and acceptance by position. Otherwise, print a row per setting, over
all traces. With --served, compare a server's log with the same drafter, run on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson

from d2sd.bench.settings import SYNTAX, parse_settings, runnable
from d2sd.calibration import Estimate
from d2sd.calibration.comparison import length_difference
from d2sd.calibration.replays import compare_replays, how_replayed, lines
from d2sd.calibration.resampling import MIN_UNITS
from d2sd.calibration.sentences import decimal, signed_decimal, with_interval
from d2sd.cli.common import add_costs_argument, add_model_arguments, load_engine, print_json, read_sets
from d2sd.config import DecodeConfig
from d2sd.costs.machines import Machine, machine_of
from d2sd.doctor.served import PositionShares, ServedComparison, compare_served, redraft_served
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.loading import is_eagle3_folder
from d2sd.methods import METHODS
from d2sd.trace.metrics import totals as totals_of
from d2sd.trace.metrics import weights_of
from d2sd.trace.text import escaped, printable, progress
from d2sd.trace.trace import Trace
from d2sd.whatif import Replay, ReplayOutcome, recorded_config, replayed

SHOWN_POSITIONS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE|FOLDER",
        help="runs recorded at temperature 0, with the target of --model or --target and any drafter",
    )  # fmt: skip
    parser.add_argument(
        "--methods", metavar="A,B,…", help="methods to replay: all, or a list (default: the recorded method; with --drafter: dflash, or eagle3 for an "
        f"EAGLE-3 drafter). Each entry is {SYNTAX}"
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="FIELD=A,B,…",
        help="for each value, replay every method that uses the field; for example K=1,2,4,8; may be repeated",
    )  # fmt: skip
    add_costs_argument(
        parser, "machine whose costs guide cost-aware settings and give calculated times (nothing is timed)"
    )
    add_model_arguments(parser, several=True)
    parser.add_argument(
        "--served", action="store_true", help="treat the traces as a server's log with token ids, and compare each step with the "
        "draft of the local drafter at the same position"
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Prints a comparison of settings, of drafters, or of a server's log with the local drafter."""
    if arguments.methods not in (None, "all"):
        parse_settings(
            arguments.methods, arguments.sweep, DecodeConfig("autoregressive")
        )  # rejects unknown methods before models are loaded
    drafters, traces = arguments.drafter or [None], list(read_sets(arguments.traces))
    asks_settings = bool(arguments.sweep or arguments.costs or (arguments.methods and "," in arguments.methods))
    if arguments.served:
        _compare_served(arguments, drafters, traces)
    elif len(drafters) > 1 or (len(traces) > 1 and not (asks_settings or arguments.methods == "all")):
        _compare_drafters(arguments, drafters, traces)
    else:
        arguments.drafter = drafters[0]
        _compare_settings(arguments, traces)


def _method(asked: str | None, drafter: str | None) -> str | None:
    """Returns the requested method, or else the method that runs ``drafter`` alone. None means the recorded method."""
    if asked or drafter is None:
        return asked
    return "eagle3" if is_eagle3_folder(drafter) else "dflash"


def _with_second(label: str, engine: Engine, method: str, arguments: argparse.Namespace) -> str:
    """Returns the label of a row. Adds the second drafter if the method uses it and a drafter option was given."""
    second = engine.models.second
    if second is None or METHODS[method].second_drafter != "vp" or not (arguments.drafter or arguments.second_drafter):
        return label
    return f"{label}, second drafter {second.config.name_or_path}"


def _tell_of_target(engine: Engine, traces: Sequence[Trace]) -> None:
    """Prints a note if traces were recorded with other target weights than the loaded ones."""
    ours = weights_of([{"parts": engine.parts}], "target")
    others = sum(weights_of([t.header], "target") not in ("", ours) for t in traces)
    if others and ours:
        of = "this trace was" if len(traces) == 1 else f"{others} of {len(traces)} traces were"
        print(
            printable(f"{of} recorded with another target than the loaded one, {engine.models.name}."),
            file=sys.stderr,
        )


# Comparison of settings over recorded texts.


def _compare_settings(arguments: argparse.Namespace, traces: Sequence[Trace]) -> None:
    base = replace(recorded_config(traces[0]), inspect=False, backend="auto")
    name = str(traces[0].header["method"])
    asked = _method(arguments.methods, arguments.drafter)
    if asked is None and name not in METHODS:
        raise InputError(f"this trace is from {escaped(name)}, which is not a method here; name methods with --methods")
    methods = asked or name
    settings = parse_settings(methods, arguments.sweep, base)
    engine = load_engine(arguments)
    settings, left_out = runnable(engine, settings, lenient=methods == "all")
    configs = [setting.config for setting in settings]
    machine = machine_of(arguments.costs) if arguments.costs else None
    costs = _cost_tables(engine, configs, machine)
    _tell_of_target(engine, traces)
    bar = progress(total=len(settings) * len(traces), desc="replay", unit="setting", leave=False)
    found: list[list[ReplayOutcome]] = [[] for _ in settings]
    for trace in traces:
        for own, outcome in zip(found, Replay(engine, trace).run(configs, machine), strict=True):
            own.append(outcome)
            bar.update()
    bar.close()
    labels = [_with_second(setting.label, engine, setting.config.method, arguments) for setting in settings]
    lengths = [len(step.committed) for trace in traces for step in trace.steps]
    rows = [_row(label, _joined(own), lengths, machine) for label, own in zip(labels, found, strict=True)]
    recorded = _recorded(traces)
    if arguments.json:
        print_json({"recorded": recorded, "rows": rows, "left_out": left_out, "costs": costs})
        return
    calculated = f" {'ms/step':>8s} {'tokens/s':>9s} {'speedup':>8s}" if machine else ""
    print(
        f"{'setting':44s} {'α':24s} {'− recorded':26s} {'nodes/step':>11s} {'steps':>6s} {'hit rate':>9s}{calculated}"
    )
    for row in (recorded, *rows):
        print(_line(row))
    print("Brackets: 95% interval, resampled over blocks of the text. − recorded: α minus the recorded α.")
    if base.node_budget:
        print(f"All settings without their own B verify at most {base.node_budget} nodes a step, as recorded.")
    for table in costs:
        milliseconds = orjson.dumps(table["milliseconds"]).decode()
        print(f"Costs of {table['machine']} in ms, by number of rows in a pass: {milliseconds}. {table['source']}")
    if machine:
        print("ms/step, tokens/s and speedup over plain decoding are calculated from these costs; nothing was timed.")
    for label, reason in left_out.items():
        print(f"left out: {label} ({reason})", file=sys.stderr)


def _joined(outcomes: Sequence[ReplayOutcome]) -> ReplayOutcome:
    """Joins the steps of several texts into one outcome."""
    seconds = [o.seconds for o in outcomes]
    return replace(
        outcomes[0],
        committed=tuple(n for o in outcomes for n in o.committed),
        works=tuple(w for o in outcomes for w in o.works),
        hits=tuple(h for o in outcomes for h in o.hits),
        seconds=None if None in seconds else sum(s or 0.0 for s in seconds),
    )


def _recorded(traces: Sequence[Trace]) -> dict[str, Any]:
    """Returns the row of the recorded runs."""
    totals = totals_of([step for trace in traces for step in trace.steps], traces[0].prefill)
    methods = ", ".join(dict.fromkeys(str(trace.header["method"]) for trace in traces))
    return {
        "setting": f"recorded: {methods}",
        "mean_acceptance_length": totals.mean_acceptance_length,
        "nodes_per_step": totals.nodes_per_step,
        "steps": totals.steps,
        "boundary_hit_rate": totals.boundary_hit_rate,
    }


def _row(label: str, outcome: ReplayOutcome, lengths: Sequence[int], machine: Machine | None) -> dict[str, Any]:
    """Returns the row of a setting. lengths: tokens of every recorded step."""
    found = length_difference(lengths, outcome.committed)
    row = {
        "setting": label,
        "mean_acceptance_length": outcome.mean_acceptance_length,
        "interval": [found.b.low, found.b.high],
        "difference": asdict(found.difference),
        "nodes_per_step": outcome.nodes_per_step,
        "steps": len(outcome.committed),
        "boundary_hit_rate": sum(outcome.hits) / len(outcome.hits) if outcome.hits else None,
    }
    if machine is not None and outcome.seconds is not None:
        row |= {
            "calculated_ms_per_step": 1e3 * outcome.seconds / len(outcome.committed),
            "calculated_tokens_per_second": outcome.tokens_per_second,
            "calculated_speedup": outcome.speedup(machine),
        }
    return row


def _line(row: dict[str, Any]) -> str:
    hit = "–" if row["boundary_hit_rate"] is None else f"{row['boundary_hit_rate']:.0%}"
    alpha = with_interval(Estimate(row["mean_acceptance_length"], *row.get("interval", ())), decimal, "[]")
    gain = with_interval(Estimate(**row["difference"]), signed_decimal, "[]") if "difference" in row else ""
    line = (
        f"{printable(str(row['setting'])):44s} {alpha:24s} {gain:26s} {row['nodes_per_step']:11.1f} "
        f"{row['steps']:6d} {hit:>9s}"
    )
    if "calculated_speedup" not in row:
        return line
    rate, speedup = row["calculated_tokens_per_second"], row["calculated_speedup"]
    return f"{line} {row['calculated_ms_per_step']:8.2f} {rate:9.1f} {speedup:8.2f}"


def _cost_tables(engine: Engine, configs: Sequence[DecodeConfig], machine: Machine | None) -> list[dict[str, Any]]:
    if machine is not None:
        return [machine.to_dict()]
    measured = [engine.costs(c).to_dict() for c in configs if c.decides]
    return [table for number, table in enumerate(measured) if table not in measured[:number]]


# Comparison of drafters over the same recorded texts.


def _compare_drafters(arguments: argparse.Namespace, drafters: Sequence[str | None], traces: Sequence[Trace]) -> None:
    if arguments.sweep or arguments.costs or (arguments.methods and "," in arguments.methods):
        raise InputError(
            "drafters are compared with a single method: leave out --sweep and --costs, and name one method"
        )
    outcomes, names = [], []
    for drafter in drafters:
        arguments.drafter = drafter
        method = _method(arguments.methods, drafter)
        engine = load_engine(arguments)
        _tell_of_target(engine, traces)
        bar = progress(traces, desc="replay", unit="text", leave=False)
        outcomes.append([replayed(engine, trace, method) for trace in bar])
        ran = outcomes[-1][0].config.method
        names.append(_with_second(drafter or arguments.model, engine, ran, arguments))
    groups = [str(t.header.get("domain") or "all") for t in traces]
    counts, cut = ([[getattr(o, field) for o in own] for own in outcomes] for field in ("committed", "cut"))
    rows = compare_replays(names, counts, groups, cut)
    if arguments.json:
        print_json({"texts": len(traces), "rows": [asdict(r) for r in rows]})
        return
    for row in rows:
        for line in lines(row):
            print(printable(line))
    print(f"{len(traces)} texts; only the drafters ran again. {how_replayed(rows, len(traces))}")


# Comparison of a server's log with the same drafter run on this machine, step by step.


def _compare_served(arguments: argparse.Namespace, drafters: Sequence[str | None], traces: Sequence[Trace]) -> None:
    """Prints a comparison of the server's steps with the local drafter's drafts at the same places."""
    if arguments.sweep or arguments.costs or arguments.methods or len(drafters) > 1:
        raise InputError("--served compares a log with one --drafter, without --methods, --sweep and --costs")
    arguments.drafter = drafters[0]
    engine, source = load_engine(arguments), drafters[0]
    first, eagle3 = engine.models.first, engine.models.eagle3
    model = eagle3 if first is None or (source and is_eagle3_folder(source)) else first
    if model is None:
        raise InputError("these models have no drafter; name the served drafter with --drafter")
    name = model.config.name_or_path
    steps = progress(redraft_served(engine, model, traces), total=len(traces), desc="replay", unit="run", leave=False)
    found = compare_served(list(steps), traces)
    if arguments.json:
        print_json({"drafter": name, "runs": len(traces), **asdict(found)})
        return
    print(printable(f"Reference: {name}"))
    for line in served_lines(found, len(traces)):
        print(printable(line))


def served_lines(found: ServedComparison, runs: int) -> Iterator[str]:
    """Yields sentences that compare a server's log with the local drafter, the reference."""
    same = len(found.places) - found.less - found.more
    yield (
        f"The reference drafted at the same places as the server's drafter, in {len(found.places)} steps in all. The number of accepted tokens "
        f"was the same for both in {same} of these steps; the server's number was lower in {found.less}, and higher in {found.more}."
    )
    if (first := found.first) is not None:
        yield (
            f"The first step with fewer accepted tokens is step {first.step + 1} of run {first.run + 1}, after {first.at} tokens of output: the "
            f"server accepted {first.server} of {first.drafted} drafted tokens, and from the reference, {first.reference} would be accepted."
        )
    yield f"Accepted tokens per step, server minus reference: {with_interval(found.difference, signed_decimal, '[]')}."
    for name in ("server", "reference"):
        yield f"  by position, {name}: {_shares(found.positions, name)}"
    if found.others:
        yield (
            f"{found.others} of {found.tokens} tokens differ from the choice of the local target, so the server's target has other "
            "weights or rounds differently."
        )
    yield "By position: share of accepted tokens, among steps with all earlier drafted tokens accepted." + (
        f" Intervals need at least {MIN_UNITS} runs."
        if runs < MIN_UNITS
        else " Brackets: 95% bootstrap interval over runs."
    )


def _shares(positions: Sequence[PositionShares], name: str) -> str:
    shares = (getattr(at, name) for at in positions[:SHOWN_POSITIONS])
    return ", ".join(f"{n}: {'–' if share is None else format(share, '.0%')}" for n, share in enumerate(shares, 1))
