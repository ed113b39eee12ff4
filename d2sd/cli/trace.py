"""Look into recorded traces, and write them in other forms."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from io import BytesIO
from itertools import islice
from pathlib import Path

import orjson

from d2sd.bench.prompts import read_prompts
from d2sd.calibration.reading import count
from d2sd.cli import publish, stats
from d2sd.cli.description import MISSING, describe_run, describe_step, not_logged
from d2sd.errors import InputError
from d2sd.trace.files import write_whole
from d2sd.trace.logs import SOURCES, Totals, import_log
from d2sd.trace.logs.chain import open_texts
from d2sd.trace.logs.serving import ENGINES, Server
from d2sd.trace.logs.totals import together
from d2sd.trace.run import RecordedRun
from d2sd.trace.text import escaped, printable
from d2sd.trace.trace import Reader, Trace, read_traces, write_traces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``trace`` and of what it can do."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="|".join(ACTIONS))

    def pick(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--run", type=int, metavar="N", help="of a file of many runs the Nth, counted from 1")

    def action(name: str, sentence: str, file: str = "a trace, plain or gzip") -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=sentence, description=sentence)
        sub.add_argument("file", metavar="FILE", help=file)
        return sub

    action("validate", "check every line and say in one line what the trace holds")
    show = action("show", "the run step by step, or one step with its tree")
    pick(show)
    show.add_argument("--step", type=int, metavar="N", help="one step, counted from 1 as on the page; -1 is the last")
    sums = action("stats", "totals of the run, or of the runs of a file")
    sums.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    graph = action("to-graphml", "the token trees as GraphML, for Gephi, yEd, networkx and others")
    graph.add_argument("--step", type=int, metavar="N", help="one step, counted from 1 (default: all, side by side)")
    pick(graph)
    graph.add_argument("-o", "--output", required=True, metavar="OUT.graphml")
    log = action(
        "import",
        "the log of a served engine or of a benchmark as traces, or as rows of figures",
        "a log, plain or gzip",
    )
    log.add_argument("--from", dest="source", default="auto", choices=SOURCES, help="its engine (default: by content)")
    log.add_argument("-o", "--output", metavar="OUT.jsonl[.gz]", help="default: FILE's name with .trace.jsonl")
    log.add_argument("--skip-bad", action="store_true", help="skip invalid records, and print how many")
    sentence = "send prompts to a running server and write its replies as traces"
    server = actions.add_parser("record", help=sentence, description=sentence)
    server.add_argument("--from-server", required=True, metavar="URL", help="such as http://127.0.0.1:8000")
    server.add_argument("--engine", required=True, choices=ENGINES)
    server.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl", help="lines with prompt or turns")
    server.add_argument("--limit", type=int, metavar="N", help="use only N prompts, taken from every domain in turn")
    server.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    server.add_argument("--allow-remote", action="store_true", help="the server may be on another machine")
    server.add_argument("-o", "--output", default="served.trace.jsonl", metavar="OUT.jsonl[.gz]")
    for sub in (log, server):
        sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        sub.add_argument("--tokenizer", metavar="FOLDER|HUB-ID", help="gives token ids their texts (default: numbers)")
    hub = action("publish", "a folder of traces as a hub data set or a static Space", "a folder of traces")
    publish.add_arguments(hub)
    page = action("to-html", "one interactive HTML file that needs nothing else, not even a network")
    pick(page)
    page.add_argument("-o", "--output", required=True, metavar="OUT.html")


def run(arguments: argparse.Namespace) -> None:
    """Do what ``arguments.action`` says."""
    ACTIONS[arguments.action](arguments)


def _validate(arguments: argparse.Namespace) -> None:
    traces = list(read_traces(arguments.file))
    steps, tokens = sum(len(t.steps) for t in traces), sum(len(t.token_ids) for t in traces)
    if len(traces) > 1:
        cut = sum(t.finished is None for t in traces)
        print(f"valid: {len(traces)} runs, {steps} steps, {tokens} tokens{f', {cut} of them cut off' if cut else ''}")
        return
    (trace,) = traces
    schema, method = trace.header["schema"], escaped(trace.header["method"])
    end = trace.finished.stop_reason if trace.finished else "cut off, no Finished line"
    print(f"valid: schema {schema}, method {method}, {steps} steps, {tokens} tokens, {end}")


def _one(arguments: argparse.Namespace) -> Trace:
    """The run that is asked for."""
    if arguments.run is None:
        traces = [*islice(read_traces(arguments.file), 2)]
        if len(traces) > 1:
            raise InputError(
                "this file holds several runs; name one with --run N, or a folder of files with d2sd trace publish"
            )
        return traces[0]
    trace = next(islice(read_traces(arguments.file), arguments.run - 1, None), None) if arguments.run > 0 else None
    if trace is None:
        raise InputError(f"there is no run {arguments.run} in {arguments.file}; runs are counted from 1")
    return trace


def _show(arguments: argparse.Namespace) -> None:
    trace = _one(arguments)
    if arguments.step is None:
        lines = describe_run(trace)
    else:
        lines = describe_step(trace.steps[_number(trace, arguments.step)], len(trace.steps))
    for line in lines:
        print(line)


def _number(trace: Trace, step: int) -> int:
    steps = len(trace.steps)
    if not step or not -steps <= step <= steps:
        raise InputError(f"there is no step {step}; this trace has " + (f"steps 1 to {steps}" if steps else "none"))
    return step - 1 if step > 0 else step + steps


def _to_graphml(arguments: argparse.Namespace) -> None:
    import networkx

    from d2sd.trace.graph import forest, step_graph

    trace = _one(arguments)
    steps, step = trace.steps, arguments.step
    graph = forest(steps) if step is None else step_graph(steps[_number(trace, step)])
    text = BytesIO()
    networkx.write_graphml_xml(graph, text)
    write_whole(arguments.output, text.getvalue())
    print(f"{arguments.output}: {graph.number_of_nodes()} nodes, {graph.number_of_edges()} edges")


def _to_html(arguments: argparse.Namespace) -> None:
    from d2sd.drawing.viewer import standalone_page

    trace = _one(arguments)
    name = Path(arguments.file).name
    if arguments.run is None:
        # with a measured baseline, which is no part of a Trace
        run = RecordedRun.of(Reader().file_records(arguments.file))
    else:
        name, run = f"{name}, run {arguments.run}", RecordedRun.of(trace.records())
    title = f"{name}: {run.header['method']}, {run.steps} steps"
    write_whole(arguments.output, standalone_page(run, title))
    print(f"{arguments.output}: {run.steps} steps")


def _import(arguments: argparse.Namespace) -> None:
    """Write the requests of a log that have steps as traces; of the others print their totals."""
    skipped: list[str] = []
    bad = skipped.append if arguments.skip_bad else None
    found = import_log(arguments.file, arguments.source, open_texts(arguments.tokenizer), bad=bad)
    name = Path(arguments.file).name.removesuffix(".gz")
    _write_found(found, Path(arguments.output or f"{Path(name).stem}.trace.jsonl"), arguments.json)
    if skipped:
        print(printable(f"{count(len(skipped), 'record')} skipped; the first: {skipped[0]}"), file=sys.stderr)


def _record(arguments: argparse.Namespace) -> None:
    """The same with the replies of a server."""
    if arguments.max_new_tokens < 1:
        raise InputError(f"max-new-tokens must be at least 1, not {arguments.max_new_tokens}")
    server, texts = Server(arguments.from_server, arguments.allow_remote), open_texts(arguments.tokenizer)
    prompts = read_prompts(arguments.prompts, arguments.limit)
    ask = ENGINES[arguments.engine]
    found = (ask(server, prompt.text, arguments.max_new_tokens).result(texts) for prompt in prompts)
    _write_found(found, Path(arguments.output), arguments.json)


def _write_found(found: Iterable[Trace | Totals], out: Path, as_json: bool) -> None:
    rows: list[Totals] = []
    counted, missing = Counter[str](), Counter[str]()

    def traces() -> Iterator[Trace]:
        for one in found:
            if isinstance(one, Totals):
                rows.append(one)
                continue
            counted.update({"steps": len(one.steps), "tokens": len(one.token_ids)})
            missing.update(one.missing)
            yield one

    written = write_traces(out, traces())
    if not written:
        out.unlink(missing_ok=True)
    result = {
        "traces": written,
        "file": str(out) if written else None,
        **{what: counted[what] for what in ("steps", "tokens")},
        "missing": [what for what in MISSING if missing[what]],
        "totals": [asdict(row) for row in rows],
        "together": together(rows) if rows else None,
    }
    if as_json:
        sys.stdout.write(orjson.dumps(result).decode() + "\n")
        return
    if written:
        lacks = not_logged(missing)
        print(f"{out}: {written} runs, {counted['steps']} steps, {counted['tokens']} tokens{lacks and f'; {lacks}'}")
    for row in rows[:MAX_ROWS]:
        print(escaped(row.row()))
    if len(rows) > MAX_ROWS:
        print(f"… and {len(rows) - MAX_ROWS} more requests")
    if len(rows) > 1:
        print(", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in together(rows).items() if v is not None))
    for sentence in dict.fromkeys(row.unknown for row in rows):
        print(f"totals alone: {sentence}")


MAX_ROWS = 20
ACTIONS = {
    "validate": _validate,
    "show": _show,
    "stats": stats.run,
    "to-graphml": _to_graphml,
    "to-html": _to_html,
    "import": _import,
    "record": _record,
    "publish": publish.run,
}
