"""Replay recorded greedy texts with other settings or other drafters, and compare their tokens per step (α).

Settings are compared with the recorded run. Several drafters, such as the checkpoints of a training run, are compared with the last one.
A server's log is replayed with the local drafter, which shows whether the server runs the drafter correctly.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from d2sd.__about__ import __version__
from d2sd.bench.prompts import Prompt, digest, read_prompts
from d2sd.bench.settings import SYNTAX, parse_settings, runnable
from d2sd.calibration.comparison import first_difference
from d2sd.calibration.replays import DrafterFigures, compare_replays, drafter_verdict, how_replayed
from d2sd.calibration.text import Table, count, decimal, percent
from d2sd.cli.common import (
    add_costs_argument,
    add_flag,
    add_limit_argument,
    add_model_arguments,
    add_sweep_argument,
    checked_models,
    ended_at_once,
    load_engine,
    print_json,
    read_sets,
    record_runs,
    tell_of_template,
    write_page,
)
from d2sd.cli.outputs import add_output
from d2sd.config import DecodeConfig
from d2sd.costs.machines import StageCosts, machine_of
from d2sd.errors import InputError, first_line, require
from d2sd.folders.configs import drafter_kind
from d2sd.methods import METHODS
from d2sd.replay.outcomes import ReplayOutcome, check_replayable, recorded_config, recorded_outcome
from d2sd.trace.files import make_folder, write_whole
from d2sd.trace.metrics import weights_of
from d2sd.trace.text import escaped, printable, progress
from d2sd.trace.trace import Trace
from d2sd.train.files import digest_of, training_step

if TYPE_CHECKING:
    from d2sd.engine import Engine
    from d2sd.nets.models import Models

SHOWN_POSITIONS = 8
RESULTS = "replays.json"  # file in the folder of texts: outcomes by the digest of everything that determines them
VERSIONS = f"d2sd {__version__}, torch {version('torch')}, transformers {version('transformers')}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "texts", nargs="+", metavar="TRACE|FOLDER",
        help="runs recorded at temperature 0 with the target of --model or --target, or a server's log with token ids; with --prompts: a "
        "folder for the texts",
    )  # fmt: skip
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--methods", metavar="A,B,…", help="methods to replay: all, or a list (default: the recorded method; with --drafter: dflash, or eagle3 for an "
        f"EAGLE-3 drafter; with --second-drafter: d2sd). Each entry is {SYNTAX}"
    )  # fmt: skip
    add_sweep_argument(parser, "replay")
    add_costs_argument(
        parser, "machine whose costs guide cost-aware settings and give calculated times (nothing is timed)"
    )
    add_model_arguments(parser, several=True)
    parser.add_argument("--prompts", metavar="NAME|FILE.jsonl|ORG/NAME:SPLIT:COLUMN", help="prompt set (as for calibrate) that the target answers first; answers and results are kept in the folder and reused")  # fmt: skip
    add_limit_argument(parser)
    add_flag(parser, "--chat")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="maximum tokens of a text (default: 128)")  # fmt: skip
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: figures, tables, origin")
    add_flag(parser, "--json")


@dataclass(frozen=True, slots=True)
class Row:
    """Replays of one setting with one drafter over all texts.

    key: digest of everything that determines the outcomes.
    name: name of the row in tables.
    outcomes: outcome of the replay of each text.
    weights: fingerprint of the drafter's weights.
    step: training step of the drafter; None if unknown.
    costs: stage costs on which a cost-aware setting based its decisions; None if they were not measured on this machine.
    """

    key: str
    name: str
    outcomes: Sequence[ReplayOutcome]
    weights: str = ""
    step: int | None = None
    costs: dict[str, Any] | None = None


def run(arguments: argparse.Namespace) -> int:
    """Replays the texts and prints the comparison. After Ctrl-C, the comparison has only the drafters that were replayed."""
    # all arguments are checked before models are loaded, and before torch is imported
    config = DecodeConfig("autoregressive", arguments.max_new_tokens, chat=arguments.chat, inspect=False)
    methods = config.method if arguments.methods in (None, "all") else arguments.methods
    parse_settings(methods, arguments.sweep, config)
    machine = machine_of(arguments.costs) if arguments.costs else None
    if arguments.prompts and (len(arguments.texts) > 1 or Path(arguments.texts[0]).is_file()):
        raise InputError("--prompts writes the texts into one folder; name one folder")
    prompts = read_prompts(arguments.prompts, arguments.limit) if arguments.prompts else []
    traces = [] if prompts else list(read_sets(arguments.texts))
    for trace in traces:
        check_replayable(trace)
    part, sources = _drafters(arguments)
    single = {name: (getattr(arguments, name) or [None])[0] for name in ("drafter", "second_drafter")}
    named = [argparse.Namespace(**{**vars(arguments), **single, part: source}) for source in sources]
    for one in named:
        checked_models(one, config)
    for source in arguments.drafter or ():
        require(
            drafter_kind(source) != "second",
            f"{source} is a VP-Drafter, which drafts second: name it with --second-drafter, and its first drafter with --drafter",
        )
    engine = load_engine(named[0], config)
    rows, left_out, measured, status = list[Row](), dict[str, str](), 0, 0
    try:
        traces = _answers(arguments, engine, prompts, config) if prompts else traces
        _warn_of_other_target(engine, traces)
        for rows_of_drafter, refused in _replays(arguments, engine, part, sources, traces, machine):
            measured += 1
            left_out |= refused
            for row in rows_of_drafter:
                # equal drafters, such as the last checkpoint and the final drafter, share a row
                if rows and row.key == rows[-1].key:
                    rows[-1] = replace(rows[-1], name=f"{rows[-1].name} ({row.name})")
                else:
                    rows.append(row)
    except KeyboardInterrupt:
        status = 130
        kept = " Texts and results are kept; the same command continues from them." if prompts else ""
        print(f"Stopped: {measured} of {count(len(sources), 'drafter')} measured.{kept}", file=sys.stderr)
    if rows:
        source = "recorded runs"
        if prompts:
            sha256 = digest(arguments.prompts, prompts)[:16]
            source = f"greedy answers to {count(len(prompts), 'prompt')} of {_without_folder(arguments.prompts)} (sha256 {sha256})"
        _show(arguments, traces, rows, len(sources) == 1 and not prompts, machine, source)
    for label, reason in left_out.items():
        print(printable(f"left out: {label} ({reason})"), file=sys.stderr)
    return status


def _drafters(arguments: argparse.Namespace) -> tuple[str, list[str | None]]:
    """Returns the name of the option that names the drafters to compare, and the drafters. Checkpoints are in the order of training."""
    firsts, seconds = arguments.drafter or [], arguments.second_drafter or []
    if len(firsts) > 1 and len(seconds) > 1:
        raise InputError("compare several first drafters or several second drafters, not both")
    part, sources = ("second_drafter", seconds) if len(seconds) > 1 else ("drafter", firsts)
    return part, sorted(sources or [None], key=lambda source: inf if (step := training_step(source)) is None else step)


def _answers(
    arguments: argparse.Namespace, engine: Engine, prompts: Sequence[Prompt], config: DecodeConfig
) -> list[Trace]:
    """Returns the target's greedy answers to these prompts, without answers that are too short for a draft.

    Answers are stored in files, and reused by later calls. The name of a file is a digest of target, settings and prompt.
    """
    from d2sd.engine import Engine
    from d2sd.nets.models import Models

    alone, folder = (
        Engine(Models(engine.models.target, name=engine.models.name), arguments.passes),
        Path(arguments.texts[0]),
    )
    tell_of_template(alone, config)
    encoded = [(prompt, alone.encode(prompt.text, config)) for prompt in prompts]
    make_folder(folder)
    origin = [alone.parts, asdict(alone.resolve(config))]
    paths = [folder / f"{digest_of([*origin, list(ids)])}.jsonl.gz" for _, ids in encoded]
    traces = list(record_runs(alone, encoded, config, "texts", paths, reuse=True))
    used = [trace for trace in traces if len(trace.token_ids) > 1]
    if note := ended_at_once(len(traces) - len(used), len(traces), arguments.chat):
        print(note, file=sys.stderr)
    require(used, f"no text is long enough for a draft. {note}")
    return used


def _warn_of_other_target(engine: Engine, traces: Sequence[Trace]) -> None:
    """Prints a note if traces were recorded with other target weights than the loaded ones."""
    ours = weights_of([{"parts": engine.parts}], "target")
    others = sum(weights_of([trace.header], "target") not in ("", ours) for trace in traces)
    if others and ours:
        of = "this trace was" if len(traces) == 1 else f"{others} of {len(traces)} traces were"
        print(
            printable(f"{of} recorded with another target than the loaded one, {engine.models.name}."), file=sys.stderr
        )


# Replays.


def _replays(
    arguments: argparse.Namespace,
    first: Engine,
    part: str,
    sources: Sequence[str | None],
    traces: Sequence[Trace],
    machine: StageCosts | None,
) -> Iterator[tuple[list[Row], dict[str, str]]]:
    """Replays all texts with each drafter. Yields, for each drafter, its rows, and the reasons why settings cannot run, by label.

    first: engine with the first of the drafters.
    part, sources: results of ``_drafters``.
    machine: machine on whose costs cost-aware settings base their decisions; None for this machine.
    """
    from d2sd.engine import Engine
    from d2sd.folders.loading import with_drafter
    from d2sd.replay.recorded import Replay

    path = Path(arguments.texts[0]) / RESULTS if arguments.prompts else None
    outcomes = _read_outcomes(path)
    written = digest_of([[trace.prefill and trace.prefill.prompt_token_ids, trace.token_ids] for trace in traces])
    for source in sources:
        engine = first
        if source and source != sources[0]:
            models = with_drafter(first.models, source, arguments.dtype, part == "second_drafter")
            engine = Engine(models, arguments.passes)
        methods, base = _settings(arguments, source, traces, engine.models)
        settings, refused = runnable(engine, parse_settings(methods, arguments.sweep, base), lenient=methods == "all")
        parts = {name: {**facts, "name": ""} for name, facts in engine.parts.items()}
        origin = [written, parts, machine and machine.name, VERSIONS]
        keyed = [(digest_of([asdict(setting.config), *origin]), setting) for setting in settings]
        missing = {key: setting.config for key, setting in keyed if key not in outcomes}
        if missing:
            replays = (Replay(engine, trace) for trace in progress(traces, desc="replay", unit="text", leave=False))
            by_text = [[replay.run(config, machine) for config in missing.values()] for replay in replays]
            outcomes |= zip(missing, map(list, zip(*by_text, strict=True)), strict=True)
            if path:
                write_whole(path, msgspec.json.encode(outcomes))
        loaded, rows = engine.models.names(), []
        for key, setting in keyed:
            method = METHODS[setting.config.method]
            used = "second_drafter" if arguments.second_drafter else "eagle3" if method.eagle3 else "first_drafter"
            names = [str(loaded[used])] if len(sources) > 1 else []
            names += [setting.label] if len(settings) > 1 or not names else []
            if (arguments.drafter or arguments.second_drafter) and method.second_drafter == "vp" and part == "drafter":
                names.append(f"second drafter {loaded['second_drafter']}")
            costs = engine.costs(setting.config).to_dict() if setting.config.decides and machine is None else None
            weights = str(engine.parts.get(used, {}).get("weights", ""))
            rows.append(Row(key, ", ".join(names), outcomes[key], weights, training_step(source), costs))
        yield rows, refused


def _read_outcomes(path: Path | None) -> dict[str, list[ReplayOutcome]]:
    """Returns the outcomes of earlier replays by ``Row.key``. Raises ``InputError`` if the file exists but cannot be read."""
    if path is None or not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[ReplayOutcome]])
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read {path} ({first_line(error)}); delete it to replay again") from None


def _settings(
    arguments: argparse.Namespace, drafter: str | None, traces: Sequence[Trace], models: Models
) -> tuple[str, DecodeConfig]:
    """Returns the methods to replay, as for ``parse_settings``, and their other settings.

    By default, these are the recorded ones. If the command names first drafters, they are replayed without a second drafter; if it
    names second drafters, with the method d2sd. Named drafters draft as many tokens as they were trained for. For a server's log,
    drafts are chains, at most as long as the server's longest draft.
    """
    recorded, base = METHODS.get(str(traces[0].header["method"])), DecodeConfig("dflash", draft_top_k=1, inspect=False)
    if recorded is None:
        longest = max((len(s.first_draft.ids) for trace in traces for s in trace.steps if s.first_draft), default=1)
        size = min(1 + longest, models.first.block_size if models.first else 0)
        base = replace(base, block_size=size or None, draft_depth=max(1, longest - 1))
    else:
        base = recorded_config(traces[0])
        if recorded.drafts and not arguments.drafter and not arguments.second_drafter:
            return arguments.methods or recorded.id, base
        base = replace(base, block_size=None, second_block_size=None)
    eagle3 = drafter_kind(drafter) == "eagle3" if drafter else models.eagle3 and not models.first
    return arguments.methods or ("d2sd" if arguments.second_drafter else "eagle3" if eagle3 else "dflash"), base


# The comparison as text, JSON and a page.


def _show(
    arguments: argparse.Namespace,
    traces: Sequence[Trace],
    rows: Sequence[Row],
    to_recorded: bool,
    machine: StageCosts | None,
    source: str,
) -> None:
    """Prints the comparison and, if the command asks for it, writes it as a page.

    to_recorded: whether the rows are compared with the recorded runs. Otherwise, they are compared with the last row.
    machine: machine for calculated times; None for no such times.
    source: description of the texts.
    """
    if to_recorded:
        methods = ", ".join(dict.fromkeys(str(trace.header["method"]) for trace in traces))
        rows = [Row("", f"recorded: {escaped(methods)}", [*map(recorded_outcome, traces)]), *rows]
    figures = compare_replays(
        [row.name for row in rows],
        [[outcome.steps for outcome in row.outcomes] for row in rows],
        [str(trace.header.get("domain") or "all") for trace in traces],
        0 if to_recorded else -1,
    )
    more = [_further_figures(row.outcomes, machine) for row in rows]
    costs = [machine.to_dict()] if machine else [row.costs for row in rows if row.costs]
    costs = [table for n, table in enumerate(costs) if table not in costs[:n]]
    reading = [
        *([drafter_verdict(figures)] if len(rows) > 1 and not to_recorded else []),
        *(_compare_with_log(traces, rows[-1].outcomes) if traces[0].header["method"] not in METHODS else []),
        *_conditions(traces, figures, costs, machine),
    ]
    origin = {
        "Texts": source,
        "Command": f"d2sd {shlex.join(map(_without_folder, arguments.argv))}",
        "Versions": VERSIONS,
    }
    origin |= {f"Weights of {row.name}": row.weights for row in rows if row.weights}
    if arguments.html:
        from d2sd.figures.intervals import replay_panels
        from d2sd.figures.report import report_page, settings

        facts = [("Origin of the figures", Table(("", ""), tuple(origin.items())))]
        facts += ((f"The texts’ {name.lower()}", table) for name, table in settings([trace.header for trace in traces]))
        panels, texts = replay_panels(figures, [row.step for row in rows]), count(len(traces), "text")
        write_page(arguments.html, report_page(f"Replays of {texts}", reading, panels, facts=facts), texts)
    if arguments.json:
        entries = [
            {**asdict(figure), **extra, "weights": row.weights, "step": row.step}
            for figure, extra, row in zip(figures, more, rows, strict=True)
        ]
        print_json({"reading": reading, "rows": entries, "costs": costs, "origin": origin})
        return
    titles = (name.removeprefix("calculated_").replace("_", " ") for name in more[0])
    cells = (
        (figure.name, *figure.whole.words, str(figure.whole.steps), *map(decimal, extra.values()))
        for figure, extra in zip(figures, more, strict=True)
    )
    table = Table(("", "α", "− recorded" if to_recorded else "− last", "steps", *titles), tuple(cells))
    print(printable("\n".join([*table.lines(), *_by_position(figures), *reading])))


def _conditions(
    traces: Sequence[Trace],
    figures: Sequence[DrafterFigures],
    costs: Sequence[dict[str, Any]],
    machine: StageCosts | None,
) -> Iterator[str]:
    """Yields sentences about the texts, the intervals, the node budget, and the costs of stages.

    costs: measured costs on which cost-aware settings based their decisions.
    machine: machine for calculated times; None for no such times.
    """
    yield f"{count(len(traces), 'text')}; only the drafters ran again. {how_replayed(figures, len(traces))}"
    if (budget := recorded_config(traces[0]).node_budget) is not None:
        yield f"All settings without their own B verify at most {budget} nodes a step, as recorded."
    for table in costs:
        milliseconds = orjson.dumps(table["milliseconds"]).decode()
        yield f"Costs of {table['machine']} in ms, by number of rows in a pass: {milliseconds}. {table['source']}"
    if machine:
        yield "ms per step, tokens per second and speedup over plain decoding are calculated from these costs; nothing was timed."


def _by_position(figures: Sequence[DrafterFigures]) -> Iterator[str]:
    """Yields lines with the acceptance by position of each drafter, and with its α by prompt group."""
    yield "Acceptance by position, among the steps that reach it:"
    for figure in figures:
        shares = (f"{k}: {percent(share.value)}" for k, share in enumerate(figure.reached[:SHOWN_POSITIONS], 1))
        yield f"  {figure.name}: {', '.join(shares) or '—'}"
        for name, group in figure.groups.items():
            yield f"    {name}: α {'  '.join(group.words)}".rstrip()


def _further_figures(outcomes: Sequence[ReplayOutcome], machine: StageCosts | None) -> dict[str, float | None]:
    """Returns figures besides α, by name. They include calculated times (None if unknown) unless ``machine`` is None."""
    works = [work for outcome in outcomes for work in outcome.works]
    hits = [hit for outcome in outcomes for hit in outcome.hits]
    figures = {
        "nodes_per_step": sum(work.nodes for work in works) / max(1, len(works)),
        "boundary_hit_rate": sum(hits) / len(hits) if hits else None,
    }
    if machine is None:
        return figures
    steps, tokens = machine.plain_steps(outcomes[0].config.method, works), sum(sum(o.committed) for o in outcomes)
    seconds = steps and machine.plain() * steps
    return figures | {
        "calculated_ms_per_step": seconds and 1e3 * seconds / len(works),
        "calculated_tokens_per_second": seconds and tokens / seconds,
        "calculated_speedup": steps and tokens / steps,
    }


def _compare_with_log(traces: Sequence[Trace], outcomes: Sequence[ReplayOutcome]) -> Iterator[str]:
    """Yields sentences that compare a server's log with its replay by the local drafter."""
    for run, (trace, outcome) in enumerate(zip(traces, outcomes, strict=True), 1):
        served = [len(step.committed) for step in trace.steps]
        step = first_difference(served, [*outcome.committed])
        if step is not None and step < min(len(served), len(outcome.committed)):
            yield (
                f"The first step that differs is step {step + 1} of run {run}, after {1 + sum(served[:step])} tokens of output: the server "
                f"wrote {served[step]}, and with the local drafter, {outcome.committed[step]} would be written."
            )
            break
    else:
        yield "Every step of the server wrote as many tokens as with the local drafter."
    if others := sum(outcome.others for outcome in outcomes):
        yield (
            f"{others} of {sum(len(trace.token_ids) for trace in traces)} tokens differ from the choice of the local target, so the server's "
            "target has other weights or rounds differently."
        )


def _without_folder(word: str) -> str:
    """Returns a word of the command line. Of an absolute path, returns only the last part, since reports may be published."""
    return Path(word).name if Path(word).is_absolute() else word
