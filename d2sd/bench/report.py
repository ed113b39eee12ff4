"""The result of a benchmark: one row per entry with 95% bootstrap intervals over prompts, as Markdown, JSON and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from d2sd.bench.presets import COST_AWARE_NOTE, PublishedTable, cost_aware_cells, cost_aware_ratios
from d2sd.bench.provenance import as_markdown, described
from d2sd.bench.runner import BenchRun, Entry
from d2sd.calibration.resampling import Resampler
from d2sd.calibration.sentences import decimal
from d2sd.errors import InputError
from d2sd.trace.files import make_folder, write_whole

PLAIN = "autoregressive"
REPORT = ("report.md", "report.html", "results.json")  # files of ``write_report``
NOTES = (
    "α: committed tokens per cycle. Draft passes: sequential passes of the drafters per cycle. Brackets: 95% bootstrap interval "
    "over prompts. In every row, only cycles count: α, tokens/s and speedup include neither prefill nor the tokens that prefill "
    "commits. “Speedup” and “identical” (the share of equal texts) compare a row with plain decoding in the same run."
)


def with_cycles(runs: Sequence[BenchRun]) -> list[BenchRun]:
    """Returns the runs on prompts for which every entry had a cycle. Raises ``InputError`` if there is no such prompt."""
    short = {r.prompt for r in runs if not r.steps}
    counted = [r for r in runs if r.prompt not in short]
    if not counted:
        raise InputError(
            "for every prompt, a text ended with prefill, so there is no cycle to count; use --chat for a chat model, or prompts that lead "
            "to longer texts"
        )
    return counted


def pooled(about: dict[str, Any], runs: Sequence[BenchRun], entries: Sequence[Entry], seed: int) -> dict[str, Any]:
    """Returns the result of a benchmark: ``about``, extended by counts and rows of the runs. Raises like ``with_cycles``."""
    counted = with_cycles(runs)
    domains = sorted({r.domain for r in counted})
    return {
        **about,
        "prompts_done": len({r.prompt for r in runs}),
        "prompts_counted": len({r.prompt for r in counted}),
        "rows": summarise(counted, entries, seed),
        "by_domain": {d: summarise([r for r in counted if r.domain == d], entries, seed) for d in domains},
    }


def summarise(runs: Sequence[BenchRun], entries: Sequence[Entry], seed: int = 0) -> list[dict[str, Any]]:
    """Returns one row per entry. Intervals resample prompts.

    Figures are ratios of sums over the cycles (tokens / steps, tokens / seconds); prefill does not count. ``speedup`` is
    the sum of plain decoding's seconds per token over prompts ÷ the entry's sum; None, like ``identical``, without plain decoding.
    """
    by_label: dict[str, list[BenchRun]] = {c.label: [] for c in entries}
    for run in sorted(runs, key=lambda r: r.prompt):
        by_label[run.label].append(run)
    plain = by_label.get(PLAIN)
    return [_row(c, by_label[c.label], plain, seed) for c in entries]


def _row(entry: Entry, runs: list[BenchRun], plain: list[BenchRun] | None, seed: int) -> dict[str, Any]:
    tokens = np.array([r.cycle_tokens for r in runs], dtype=float)
    steps, seconds = (np.array([getattr(r, f) for r in runs]) for f in ("steps", "seconds"))
    hits, predicted = (sum(r.boundary_hits[n] for r in runs) for n in (0, 1))
    nodes = [r.nodes for r in runs if r.nodes is not None]
    passes = [r.draft_passes for r in runs if r.draft_passes is not None]
    all_steps = float(steps.sum())
    row: dict[str, Any] = {
        "label": entry.label,
        "method": entry.method,
        "config": None if entry.config is None else asdict(entry.config),
        "prompts": len(runs),
        "tokens": sum(len(r.token_ids) for r in runs),
        **_ratio("mean_acceptance_length", tokens, steps, seed),
        **_ratio("tokens_per_second", tokens, seconds, seed),
        "speedup": None,
        "speedup_interval": None,
        "nodes_per_step": sum(nodes) / all_steps if nodes else None,
        "draft_passes_per_step": sum(passes) / all_steps if passes else None,
        "boundary_hit_rate": hits / predicted if predicted else None,
        "seconds_per_step": {
            stage: sum(dict(r.stage_seconds)[stage] for r in runs) / all_steps for stage, _ in runs[0].stage_seconds
        },
        "identical": None,
    }
    if plain:
        own, base = (np.array([r.seconds / r.cycle_tokens for r in rs]) for rs in (runs, plain))
        row |= _ratio("speedup", base, own, seed)
        row["identical"] = sum(a.token_ids == b.token_ids for a, b in zip(runs, plain, strict=True)) / len(runs)
    return row


def _ratio(name: str, above: np.ndarray, below: np.ndarray, seed: int) -> dict[str, Any]:
    return {name: float(above.sum() / below.sum()), f"{name}_interval": interval(above, below, seed)}


def interval(numerator: np.ndarray, denominator: np.ndarray, seed: int) -> list[float] | None:
    """Returns the 95% percentile interval of Σnumerator/Σdenominator over resampled prompts; None for a single prompt."""
    if len(numerator) < 2:
        return None
    _, resamples = Resampler(len(numerator), seed).resampled(numerator, denominator)
    return [float(x) for x in np.percentile(resamples, [2.5, 97.5])]


# Text.


class ReportColumn(NamedTuple):
    """One column of the table.

    cell: key of the figure in a row of ``summarise``.
    form: format of a number.
    spread: whether the interval of the figure is shown.
    """

    head: str
    cell: str
    form: str = "{}"
    spread: bool = False

    def text(self, row: dict[str, Any]) -> str:
        """Returns the figure of a row as text, "–" if it is missing. Stage times are in milliseconds."""
        value = row[self.cell]
        if isinstance(value, dict):
            return " · ".join(self.form.format(1e3 * seconds) for seconds in value.values()) or "–"
        if value is None:
            return "–"
        ends = row[f"{self.cell}_interval"] if self.spread else None
        return self.form.format(value) + (f" [{self.form.format(ends[0])}–{self.form.format(ends[1])}]" if ends else "")


COLUMNS = (
    ReportColumn("method", "label"),
    ReportColumn("α", "mean_acceptance_length", "{:.2f}", spread=True),
    ReportColumn("tokens/s", "tokens_per_second", "{:.0f}", spread=True),
    ReportColumn("speedup", "speedup", "{:.2f}", spread=True),
    ReportColumn("nodes/step", "nodes_per_step", "{:.1f}"),
    ReportColumn("draft passes/step", "draft_passes_per_step", "{:.0f}"),
    ReportColumn("hit rate", "boundary_hit_rate", "{:.0%}"),
    ReportColumn("ms/step {}", "seconds_per_step", "{:.2f}"),
    ReportColumn("identical", "identical", "{:.0%}"),
)


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [map(plain_text, line) for line in (head, ["---"] * len(head), *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain_text(text: str) -> str:
    """Returns the text on one line, with ``|`` and ``<`` escaped for Markdown tables."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def cells(rows: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Returns the column heads and the rows of the table of all figures, one row per entry."""
    stages: dict[str, float] = next((r["seconds_per_step"] for r in rows if r["seconds_per_step"]), {})
    names = " · ".join(stage.replace("_", " ") for stage in stages)
    return tuple(c.head.format(names) for c in COLUMNS), tuple(tuple(c.text(r) for c in COLUMNS) for r in rows)


def layout(result: dict[str, Any]) -> str:
    """Returns a table of speedup / α by domain, laid out like the papers' tables."""
    groups = {**result["by_domain"], "all": result["rows"]}
    columns = ([f"{decimal(r['speedup'])} / {r['mean_acceptance_length']:.2f}" for r in own] for own in groups.values())
    labels = [r["label"] for r in result["rows"]]
    return markdown_table(("method", *groups), zip(labels, *columns, strict=True))


def body(result: dict[str, Any], by_domain: bool, published: PublishedTable | None) -> str:
    """Returns the printed report: the tables, and notes about missing results."""
    parts = [markdown_table(*cells(result["rows"]))]
    if by_domain:
        groups = result["by_domain"].items()
        parts += [f"{plain_text(name)}\n\n{markdown_table(*cells(rows))}" for name, rows in groups]
    if compared := cost_aware_ratios(result["by_domain"]):
        parts.append(f"{markdown_table(*cost_aware_cells(compared))}\n\n{COST_AWARE_NOTE}")
    if result["preset"]:
        parts.append(
            f"Measured here, speedup / α ({result['preset']}: {result['preset_sentence']})\n\n{layout(result)}"
        )
        if published is None:
            parts.append("There are no published figures for this table.")
        else:
            parts.append(
                f"Published, speedup / α. Source: {published.source}\n\n{markdown_table(published.head, published.rows)}"
            )
    return "\n\n".join([*parts, *remarks(result), NOTES])


def remarks(result: dict[str, Any]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for label, reason in result["left_out"].items():
        reasons.setdefault(reason, []).append(label)
    parts = [f"Left out: {', '.join(labels)}: {reason}." for reason, labels in reasons.items()]
    if short := result["prompts_done"] - result["prompts_counted"]:
        parts.append(
            f"Not counted: {short} of {result['prompts_done']} prompts, for which at least one text ended with prefill."
        )
    if result["stopped"]:
        parts.append(f"Stopped: only {result['prompts_done']} of {result['prompts_asked']} prompts are counted.")
    return parts


# Files.


def page(result: dict[str, Any]) -> str:
    """Returns the report as one HTML file: charts, all numbers, and their provenance."""
    from d2sd.figures.measured import bench_panels
    from d2sd.figures.report import report_page
    from d2sd.figures.style import FigureTable

    groups = {"All prompts": result["rows"], **result["by_domain"]}
    facts = [(name, FigureTable(*cells(rows))) for name, rows in groups.items()]
    origin = tuple(tuple(part.split(": ", 1)) for part in described(result["provenance"]))
    fastest = max(result["rows"], key=lambda row: row["tokens_per_second"])
    return report_page(
        f"{result['model']}: {result['prompts_done']} prompts of {result['prompts']}",
        [
            f"{fastest['label']} is the fastest, with {fastest['tokens_per_second']:.0f} tokens/s.",
            *remarks(result),
            NOTES,
        ],
        bench_panels(result["rows"]),
        facts=[*facts, ("Provenance", FigureTable(("", ""), origin))],
    )


def write_report(
    folder: Path, result: dict[str, Any], runs: Sequence[BenchRun], published: PublishedTable | None
) -> None:
    """Writes ``results.json``, ``report.md`` and ``report.html`` (``page``), replacing older reports in this folder."""
    lines = [
        f"# {result['model']}: {result['prompts_done']} prompts of {result['prompts']}",
        body(result, True, published),
        as_markdown(result["provenance"]),
    ]
    ordered = sorted(runs, key=lambda r: r.prompt)
    data = {**result, "runs": [_plain(r) for r in ordered]}
    texts = ("\n\n".join(lines) + "\n", page(result), to_json(data))
    write_files(folder, dict(zip(REPORT, texts, strict=True)))


def _plain(run: BenchRun) -> dict[str, Any]:
    figures = ("label", "prompt", "domain", "steps", "seconds", "nodes")
    return {
        **{name: getattr(run, name) for name in figures},
        "tokens": len(run.token_ids),
        "stages": dict(run.stage_seconds),
    }


def to_json(data: dict[str, Any]) -> str:
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode() + "\n"


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Writes texts into a folder, which is created if needed. Each file is replaced atomically."""
    make_folder(folder)
    for name, text in files.items():
        write_whole(folder / name, text)
