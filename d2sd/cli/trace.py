"""Check, show, sum up and convert recorded traces, and import or record runs of other engines."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from d2sd.bench.prompts import read_prompts
from d2sd.calibration.text import count, decimal
from d2sd.cli.common import add_command, add_flag, add_prompt_arguments, print_json
from d2sd.cli.outputs import add_output, check_output, lock_output
from d2sd.errors import InputError, require
from d2sd.logs import UNKNOWN, Figures, import_log, open_texts, read_runs
from d2sd.logs.serving import ENGINES, Server, complete
from d2sd.trace.description import WIDTH, describe_step
from d2sd.trace.events import StepDone
from d2sd.trace.files import write_whole
from d2sd.trace.metrics import acceptance_by_depth, verdict
from d2sd.trace.run import RecordedRun
from d2sd.trace.text import escaped, printable
from d2sd.trace.trace import Reader, Trace, read_traces, write_traces

MAX_ROWS = 20
# Descriptions of what a log may lack, by the name in ``Trace.missing``.
MISSING = {
    "prompt": "prompts",
    "tokens": "tokens",
    "rejected": "rejected drafted tokens",
    "target": "the target's own tokens",
    "confidence": "confidences",
    "times": "times of steps",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of ``trace`` and their arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="|".join(ACTIONS))

    def pick(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--run", type=int, metavar="N", help="in a file with several runs, use run N, counted from 1")

    def action(name: str, sentence: str, file: str = "a trace, plain or gzip") -> argparse.ArgumentParser:
        sub = add_command(actions, name, sentence)
        sub.add_argument("file", metavar="FILE", help=file)
        return sub

    action("validate", "check every line, and print a one-line summary")
    show = action("show", "show a run step by step, or one step with its tree")
    pick(show)
    show.add_argument("--step", type=int, metavar="N", help="show only step N, counted from 1 as on the page; -1 is the last")  # fmt: skip
    sums = action("stats", "print totals of a run, or of all runs in a file")
    add_flag(sums, "--json")
    graph = action("to-graphml", "write the token trees as GraphML, for Gephi, yEd, networkx and others")
    graph.add_argument("--step", type=int, metavar="N", help="use only step N, counted from 1; -1 is the last (default: all steps, side by side)")  # fmt: skip
    pick(graph)
    add_output(graph, "-o", "--output", required=True, metavar="OUT.graphml", help="file to write")
    log = action(
        "import",
        "convert the log of a serving engine or a benchmark to traces; for a log without steps, print its totals",
        "a log, plain or gzip",
    )
    add_output(log, "-o", "--output", metavar="OUT.jsonl[.gz]", help="file to write (default: FILE's name with .trace.jsonl)")  # fmt: skip
    log.add_argument("--skip-bad", action="store_true", help="skip invalid records, and print their number")
    server = add_command(actions, "record", "send prompts to a running server, and write its replies as traces")
    server.add_argument("--from-server", required=True, metavar="URL", help="address of the server, such as http://127.0.0.1:8000")  # fmt: skip
    server.add_argument("--engine", required=True, choices=ENGINES, help="engine of the server")
    add_prompt_arguments(server)
    server.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="maximum tokens of a reply (default: 128)")  # fmt: skip
    add_flag(server, "--allow-remote")
    add_output(server, "-o", "--output", default="served.trace.jsonl", metavar="OUT.jsonl[.gz]", help="file to write (default: served.trace.jsonl)")  # fmt: skip
    for sub in (log, server):
        add_flag(sub, "--json")
        sub.add_argument("--tokenizer", metavar="FOLDER|HUB-ID", help="tokenizer that turns token ids into text (default: show the ids)")  # fmt: skip
    page = action("to-html", "write one self-contained, interactive HTML file that works offline")
    pick(page)
    add_output(page, "-o", "--output", required=True, metavar="OUT.html", help="file to write")


def run(arguments: argparse.Namespace) -> None:
    ACTIONS[arguments.action](arguments)


def _validate(arguments: argparse.Namespace) -> None:
    first, *others = read_traces(arguments.file)
    traces = [first, *others]
    size = f"{sum(len(t.steps) for t in traces)} steps, {sum(len(t.token_ids) for t in traces)} tokens"
    if others:
        cut = sum(t.finished is None for t in traces)
        print(f"valid: {len(traces)} runs{f' ({cut} of them cut off)' if cut else ''}, {size}")
        return
    end = first.finished.stop_reason if first.finished else "cut off, no Finished line"
    print(f"valid: schema {first.header['schema']}, method {escaped(first.header['method'])}, {size}, {end}")


def _chosen_run(arguments: argparse.Namespace) -> Trace:
    """Returns the run of the file that ``--run`` names. Without ``--run``, returns the only run of the file."""
    if arguments.run is None:
        traces = [*islice(read_traces(arguments.file), 2)]
        require(len(traces) < 2, "this file contains several runs; name one with --run N")
        return traces[0]
    trace = next(islice(read_traces(arguments.file), arguments.run - 1, None), None) if arguments.run > 0 else None
    if trace is None:
        raise InputError(f"there is no run {arguments.run} in {arguments.file}; runs are counted from 1")
    return trace


def _show(arguments: argparse.Namespace) -> None:
    trace = _chosen_run(arguments)
    if arguments.step is None:
        lines = _describe_run(trace)
    else:
        lines = describe_step(trace.steps[_step_index(trace, arguments.step)], len(trace.steps))
    for line in lines:
        print(line)


def _describe_run(trace: Trace) -> Iterator[str]:
    """Yields a few lines about the run, then a line for every step."""
    header, totals = trace.header, trace.totals
    models = ", ".join(escaped(f"{k} {v}") for k, v in header["models"].items() if v)[:WIDTH]
    yield f"{escaped(header['method'])}, {totals.steps} steps, {totals.tokens} tokens, mean acceptance length {totals.mean_acceptance_length:.2f}"
    if models:
        yield f"models   {models}"
    prompt = header["prompt"] or ("".join(trace.prefill.texts) if trace.prefill else "")
    yield f"prompt   {escaped(prompt[:WIDTH])}"
    if lacks := _not_logged(trace.missing):
        yield lacks
    yield ""
    yield " step  tokens  nodes      ms  boundary     re-drafted from   text"
    for step in trace.steps:
        text = "".join(c.text for c in step.committed)
        seconds = step.seconds.total
        spent = f"{1e3 * seconds:.1f}" if seconds else "–"
        boundary = "–" if step.actual_boundary is None else f"{step.actual_boundary} {verdict(step) or ''}"
        predicted = " ".join(map(str, step.selected_prefixes)) or "–"
        yield (
            f"{step.step + 1:5d}  {len(step.committed):6d}  {len(step.nodes):5d}  {spent:>6}  "
            f"{boundary:<11}  {predicted[:16]:<16}  {escaped(text[:60])}"
        )


def _step_index(trace: Trace, step: int) -> int:
    """Returns the index of a step. step: its number from 1, or -1 for the last step."""
    steps = len(trace.steps)
    number = steps if step == -1 else step
    has = f"steps 1 to {steps}" if steps else "no steps"
    require(1 <= number <= steps, f"there is no step {step}; this trace has {has}")
    return number - 1


def _to_graphml(arguments: argparse.Namespace) -> None:
    import networkx

    from d2sd.trace.graph import forest, graph

    trace = _chosen_run(arguments)
    steps, step = trace.steps, arguments.step
    trees = forest(steps) if step is None else graph(steps[_step_index(trace, step)])
    text = BytesIO()
    networkx.write_graphml_xml(trees, text)
    write_whole(arguments.output, text.getvalue())
    print(f"{arguments.output}: {trees.number_of_nodes()} nodes, {trees.number_of_edges()} edges")


def _to_html(arguments: argparse.Namespace) -> None:
    from d2sd.figures.viewer import standalone_page

    trace = _chosen_run(arguments)
    name = Path(arguments.file).name
    if arguments.run is None:
        # read from the file, since a ``Trace`` does not have the measured speed of plain decoding
        run = RecordedRun.of(Reader().file_records(arguments.file))
    else:
        name, run = f"{name}, run {arguments.run}", RecordedRun.of(trace.records())
    title = f"{name}: {run.header['method']}, {run.steps} steps"
    write_whole(arguments.output, standalone_page(run, title))
    print(f"{arguments.output}: {run.steps} steps")


# Totals of a recorded run, or of all runs in a file.


def _stats(arguments: argparse.Namespace) -> None:
    traces = list(read_runs(arguments.file))
    if len(traces) > 1:
        _stats_of_several(traces, arguments.json)
        return
    figures = statistics(traces[0])
    if arguments.json:
        print_json(figures)
        return
    hits, repaired, stages = (figures[name] for name in ("boundary_hit_rate", "repaired_rate", "stage_seconds"))
    proposers = ", ".join(f"{proposer} {number}" for proposer, number in figures["tokens_by_proposer"].items())
    depths = (f"{d['depth']}: {d['accepted']:.0%} of {d['reached']}" for d in figures["acceptance_by_depth"])
    whole = sum(stages.values())
    lines = {
        "method": escaped(figures["method"]),
        "steps": figures["steps"],
        "tokens": f"{figures['tokens']}  {proposers}",
        "mean acceptance length": f"{figures['mean_acceptance_length']:.2f}",
        "tokens per second": f"{figures['tokens_per_second']:.1f}" if figures["seconds"] else "–",
        "nodes per step": f"{figures['nodes_per_step']:.1f}  ({figures['nodes']} in all)",
        "boundary among prefixes": "–" if hits is None else f"{hits:.1%}",
        "repaired": "–" if repaired is None else f"{repaired:.1%}",
        "tokens per re-draft": decimal(figures["tokens_per_redraft"]),
        **{stage.replace("_", " "): f"{time:.3f} s  {time / whole:.0%}" for stage, time in stages.items() if whole},
        "accepted by depth": ", ".join(depths) or "–",
    }
    for name, text in lines.items():
        print(f"{name:<24} {text}")


def _stats_of_several(traces: Sequence[Trace], as_json: bool) -> None:

    def figures(steps: Sequence[StepDone]) -> dict[str, Any]:
        tokens = sum(len(step.committed) for step in steps)
        return {"steps": len(steps), "tokens": tokens, "mean_acceptance_length": tokens / len(steps) if steps else None}

    rows = [{"run": number, "method": t.header["method"], **figures(t.steps)} for number, t in enumerate(traces, 1)]
    whole = {"runs": len(traces), **figures([step for t in traces for step in t.steps])}
    if as_json:
        print_json({"runs": rows, "all": whole})
        return
    lines = [f"{row['steps']} steps, α {decimal(row['mean_acceptance_length'])}" for row in (*rows, whole)]
    for row, line in zip(rows[:MAX_ROWS], lines, strict=False):
        print(f"run {row['run']}: {escaped(str(row['method']))}, {line}")
    if len(rows) > MAX_ROWS:
        print(f"… and {len(rows) - MAX_ROWS} more runs")
    print(f"{count(len(traces), 'run')}: {lines[-1]}. More figures: d2sd calibrate --traces FILE")


def statistics(trace: Trace) -> dict[str, Any]:
    """Returns the figures of ``trace stats --json``."""
    by_prefill = trace.prefill.committed if trace.prefill else ()
    proposers = Counter(c.proposer for tokens in (by_prefill, *(s.committed for s in trace.steps)) for c in tokens)
    totals = asdict(trace.totals)
    return {
        "method": trace.header["method"],
        **totals,
        "nodes": round(totals["nodes_per_step"] * totals["steps"]),
        "tokens_by_proposer": {p: proposers[p] for p in ("first", "second", "target")},
        "acceptance_by_depth": [
            {"depth": d, "reached": n, "accepted": share} for d, n, share in acceptance_by_depth(trace.steps)
        ],
    }


# Logs of other engines.


def _import(arguments: argparse.Namespace) -> None:
    """Writes the requests of a log to a file of traces. Prints totals for requests without steps, which cannot be written."""
    name = Path(arguments.file).name.removesuffix(".gz")
    out = Path(arguments.output or f"{Path(name).stem}.trace.jsonl")
    if not arguments.output:
        lock_output(arguments, out)
    skipped: list[str] = []
    bad = skipped.append if arguments.skip_bad else None
    written = _write_traces(import_log(arguments.file, open_texts(arguments.tokenizer), bad=bad), out, arguments)
    if skipped:
        print(printable(f"{count(len(skipped), 'record')} skipped; the first: {skipped[0]}"), file=sys.stderr)
    if arguments.output and not written:
        print(f"{out} was not written: no request in this log has steps.", file=sys.stderr)


def _record(arguments: argparse.Namespace) -> None:
    require(arguments.max_new_tokens >= 1, f"max-new-tokens must be at least 1, not {arguments.max_new_tokens}")
    server, texts = Server(arguments.from_server, arguments.allow_remote), open_texts(arguments.tokenizer)
    prompts = read_prompts(arguments.prompts, arguments.limit)
    replies = (complete(server, arguments.engine, prompt.text, arguments.max_new_tokens) for prompt in prompts)
    _write_traces((reply.result(texts) for reply in replies), Path(arguments.output), arguments)


def _write_traces(requests: Iterable[Trace | Figures], out: Path, arguments: argparse.Namespace) -> int:
    """Writes all traces among the requests to ``out``, and prints a summary of all requests. Returns the number of traces."""
    rows: list[Figures] = []
    counts, missing = Counter({"steps": 0, "tokens": 0}), Counter[str]()

    def traces() -> Iterator[Trace]:
        checked = False
        for request in requests:
            if isinstance(request, Figures):
                rows.append(request)
                continue
            # the output is not checked earlier, since nothing is written for a log that has only totals
            if not checked:
                check_output(arguments, out)
                checked = True
            counts.update({"steps": len(request.steps), "tokens": len(request.token_ids)})
            missing.update(request.missing)
            yield request

    written = write_traces(out, traces())
    if arguments.json:
        lacks = [what for what in MISSING if missing[what]]
        totals = [row.to_dict() for row in rows]
        file = str(out) if written else None
        print_json({"traces": written, "file": file, **counts, "missing": lacks, "totals": totals})
        return written
    if written:
        lacking = _not_logged(missing)
        print(f"{out}: {written} runs, {counts['steps']} steps, {counts['tokens']} tokens{lacking and f'; {lacking}'}")
    for row in rows[:MAX_ROWS]:
        accepted = "" if row.accepted is None else f"; {row.accepted} of {row.drafted or '?'} drafted tokens accepted"
        print(f"{row}{accepted}")
    if len(rows) > MAX_ROWS:
        print(f"… and {count(len(rows) - MAX_ROWS, 'more row')}")
    if len(rows) > 1:
        print("`d2sd doctor --log FILE` sums up related rows and explains them.")
    for sentence in dict.fromkeys(row.unknown for row in rows):
        print(f"only totals: {sentence}")
    return written


def _not_logged(missing: Collection[str]) -> str:
    """Returns a line that lists what a log lacks; empty if it lacks nothing. missing: as in ``Trace.missing``."""
    if not any(what in missing for what in MISSING):
        return ""
    unknown = f"; {UNKNOWN} marks an unknown token" if {"tokens", "rejected", "target"} & set(missing) else ""
    return f"not in this log: {', '.join(words for what, words in MISSING.items() if what in missing)}{unknown}"


ACTIONS = {
    "validate": _validate,
    "show": _show,
    "stats": _stats,
    "to-graphml": _to_graphml,
    "to-html": _to_html,
    "import": _import,
    "record": _record,
}
