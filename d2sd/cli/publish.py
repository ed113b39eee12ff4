"""``trace publish``: a folder of traces laid out as a data set of the Hugging Face hub, or as a static Space."""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import orjson

from d2sd.bench.charts import ChartPoint, interval_chart
from d2sd.calibration import Gathering, Report, read_report
from d2sd.calibration.reading import count
from d2sd.cli.calibrate import report_of
from d2sd.drawing.viewer import standalone_page
from d2sd.errors import InputError, first_line
from d2sd.trace.files import make_folder, write_whole
from d2sd.trace.run import RecordedRun
from d2sd.trace.text import printable
from d2sd.trace.trace import Trace, read_traces, write_traces

MAX_PAGES = 24  # runs that get an interactive page
MAX_TITLE = 100
KINDS = ("dataset", "space")
PLACES = {"dataset": "https://huggingface.co/datasets/", "space": "https://huggingface.co/spaces/"}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src 'self'">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }} body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
img {{ max-width: 100%; background: #fff }} li {{ overflow-wrap: anywhere }}</style></head>
<body><h1>{title}</h1>
<ul>{said}</ul>
<p><a href="report.html">All figures</a></p>
{figures}
<h2>Runs</h2><ol>{runs}</ol>
</body></html>
"""


@dataclass(slots=True)
class Laid:
    """What was laid out: the runs together, and a row of figures for each of them."""

    runs: Gathering = field(default_factory=Gathering)
    rows: list[dict[str, Any]] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``trace publish``, besides the folder."""
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="a new folder (default: FILE's name and -hub)")
    parser.add_argument(
        "--as", dest="kind", choices=KINDS, default="dataset", help="what it becomes (default: dataset)"
    )
    parser.add_argument("--push", metavar="ORG/NAME", help="also upload it; a new one is private until you change that")


def run(arguments: argparse.Namespace) -> None:
    """Lay out, and upload where asked to."""
    folder = Path(arguments.file)
    out = arguments.output or folder.with_name(f"{folder.name}-hub")
    laid = lay_out(folder, out, arguments.kind)
    pages = min(len(laid.rows), MAX_PAGES)
    print(printable(f"{out}: {count(len(laid.rows), 'run')}, {pages} of them with a page, and a card (README.md)"))
    if arguments.push:
        print(printable(push(out, arguments.push, arguments.kind)))


def lay_out(folder: Path, out: Path, kind: str) -> Laid:
    """Write traces, a row for each run, figures, report, pages and card under ``out``; raises ``InputError``.

    Of models that were named by a folder of this machine only its last part is written.
    """
    files = sorted(p for p in folder.glob("*.jsonl*") if p.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise InputError(f"{folder} holds no traces (.jsonl or .jsonl.gz)")
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"the folder {out} is not empty; name another one with -o")
    laid = Laid()
    for part in ("traces", "figures", "runs"):
        make_folder(out / part)
    for path in files:
        write_traces(out / "traces" / path.name, _runs(path, out, laid))
    report = laid.runs.report()
    figures = dict(_figures(report))
    for name, (_, picture) in figures.items():
        write_whole(out / "figures" / name, picture)
    write_whole(out / "runs.jsonl", b"".join(orjson.dumps(row) + b"\n" for row in laid.rows))
    write_whole(out / "report.html", report_of(laid.runs, "recorded run"))
    title, said = _title(folder.resolve().name), [s.text for s in read_report(report)]
    write_whole(out / "index.html", _index(title, said, figures, laid.rows))
    write_whole(out / "README.md", _card(title, said, figures, laid, kind))
    return laid


def push(out: Path, name: str, kind: str) -> str:
    """Upload a folder; a sentence with its address. Raises ``InputError``."""
    from huggingface_hub import HfApi

    api = HfApi()
    sdk = "static" if kind == "space" else None
    try:
        api.create_repo(name, repo_type=kind, private=True, exist_ok=True, space_sdk=sdk)
        api.upload_folder(
            repo_id=name, repo_type=kind, folder_path=out, commit_message="Traces of speculative decoding"
        )
    except Exception as error:  # of the network, of the hub: what its client raises is not listed anywhere
        said = first_line(error, 200)
        raise InputError(f"cannot upload to {name}: {said}; `hf auth login` says who you are") from None
    return f"{PLACES[kind]}{name}"


def _runs(path: Path, out: Path, laid: Laid) -> Iterator[Trace]:
    """The runs of a file as they are published; each is counted, and the first ones get a page."""
    for number, recorded in enumerate(read_traces(path), 1):
        trace = replace(recorded, header=_header(recorded.header))
        page = f"runs/{len(laid.rows) + 1:03d}.html" if len(laid.rows) < MAX_PAGES and trace.steps else None
        if page:
            title = f"{path.name}, run {number}: {trace.header['method']}, {len(trace.steps)} steps"
            write_whole(out / page, standalone_page(RecordedRun.of(trace.records()), title))
        laid.rows.append(_row(trace, f"traces/{path.name}", number, page))
        laid.runs.add(trace)
        yield trace


def _header(header: dict[str, Any]) -> dict[str, Any]:
    models = header.get("models")
    if not isinstance(models, dict):
        return header
    return header | {"models": {part: _name(name) for part, name in models.items()}}


def _name(model: Any) -> Any:
    local = isinstance(model, str) and (PurePath(model).is_absolute() or model.startswith(("~", ".")) or "\\" in model)
    return PurePath(model.replace("\\", "/")).name if local else model


def _row(trace: Trace, file: str, number: int, page: str | None) -> dict[str, Any]:
    totals, models = trace.totals, trace.header.get("models")
    first = trace.prefill.committed if trace.prefill else ()
    text = "".join(c.text for done in (first, *(s.committed for s in trace.steps)) for c in done)
    return {
        "file": file,
        "run": number,
        "page": page,
        "method": trace.header["method"],
        "models": models if isinstance(models, dict) else {},
        "prompt": trace.header.get("prompt"),
        "text": None if "tokens" in trace.missing else text,
        "steps": totals.steps,
        "tokens": len(trace.token_ids),
        "mean_acceptance_length": totals.mean_acceptance_length if totals.steps else None,
        "tokens_per_second": totals.tokens_per_second if totals.seconds else None,
    }


def _figures(report: Report) -> Iterator[tuple[str, tuple[str, str]]]:
    """Pictures by file name, each with its title."""
    positions = [ChartPoint(f"{p.position}", p.accepted, p.low, p.high) for p in report.by_position]
    bins = [ChartPoint(f"{b.left:.1f}–{b.right:.1f}", b.accepted, b.low, b.high) for b in report.uniform if b.count]
    for name, title, points in (
        ("acceptance.svg", "Share accepted by position of the drafted token", positions),
        ("reliability.svg", "Share accepted by the drafter's confidence", bins),
    ):
        if points:
            yield name, (title, interval_chart(title, "share", points, over="(Wilson)"))


def _title(name: str) -> str:
    return " ".join(name.replace("<", "").split())[:MAX_TITLE] or "traces"


def _index(title: str, said: Sequence[str], figures: dict[str, tuple[str, str]], rows: Sequence[dict[str, Any]]) -> str:
    def item(row: dict[str, Any]) -> str:
        prompt = " ".join(str(row["prompt"] or "no prompt").split())[:160]
        alpha = "" if row["mean_acceptance_length"] is None else f", α {row['mean_acceptance_length']:.2f}"
        words = html.escape(f"{prompt} ({row['method']}{alpha})")
        return f'<li><a href="{row["page"]}">{words}</a></li>'

    return PAGE.format(
        title=html.escape(title),
        said="".join(f"<li>{html.escape(sentence)}</li>" for sentence in said),
        figures="\n".join(f'<p><img src="figures/{n}" alt="{html.escape(t)}"></p>' for n, (t, _) in figures.items()),
        runs="".join(item(row) for row in rows if row["page"]),
    )


def _card(title: str, said: Sequence[str], figures: dict[str, tuple[str, str]], laid: Laid, kind: str) -> str:
    """The card: what the hub reads of it in front, then what people read. No text of a trace is in it."""
    front = {
        "dataset": ["configs:", "- config_name: runs", "  data_files: runs.jsonl"],
        "space": ["sdk: static", "app_file: index.html"],
    }[kind]
    name = "title" if kind == "space" else "pretty_name"
    lines = [
        "---",
        f"{name}: {json.dumps(title)}",
        "tags:",
        "- speculative-decoding",
        *front,
        "---",
        "",
        f"# {title}",
        "",
    ]
    lines += [f"{count(len(laid.rows), 'run')} of speculative decoding, step by step.", ""]
    lines += [f"* {_plain(sentence)}" for sentence in said]
    lines += ["", *(f"![{words}](figures/{file})\n" for file, (words, _) in figures.items())]
    lines += [
        "| file | what it holds |",
        "| --- | --- |",
        "| `runs.jsonl` | a row for each run: prompt, text, method, models, α |",
        "| `traces/` | every step: drafts, token tree, what was accepted; `d2sd calibrate --traces traces/*` reads them |",
        "| `report.html` | all calibration figures |",
        f"| `index.html`, `runs/` | interactive pages of {count(min(len(laid.rows), MAX_PAGES), 'run')} |",
    ]
    return "\n".join(lines) + "\n"


def _plain(sentence: str) -> str:
    return sentence.replace("<", "\\<").replace("*", "\\*")
