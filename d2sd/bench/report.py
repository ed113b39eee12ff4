"""The result of a benchmark: one row per entry with 95% bootstrap intervals over prompts, as Markdown, JSON and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import orjson

from d2sd.bench.presets import COST_AWARE_NOTE, PRESETS, cost_aware_table
from d2sd.bench.provenance import as_markdown, described
from d2sd.bench.runner import BenchRun, Entry, Row
from d2sd.calibration.resampling import Resampler
from d2sd.calibration.text import Table, decimal, markdown_text
from d2sd.errors import require
from d2sd.trace.files import make_folder, write_whole

PLAIN = "autoregressive"
NOTES = (
    "α: tokens written per cycle. Draft passes: sequential passes of the drafters per cycle. Brackets: 95% bootstrap interval "
    "over prompts. In every row, only cycles count: α, tokens/s and speedup include neither prefill nor the tokens that prefill "
    "writes. “Speedup” and “identical” (the share of equal texts) compare a row with plain decoding in the same run."
)


def pooled(about: Row, runs: Sequence[BenchRun], entries: Sequence[Entry], seed: int) -> Row:
    """Returns the result of a benchmark: ``about``, extended by the numbers of prompts and by the rows of ``summarise``.

    A prompt counts only if every entry made at least one step for it. Raises ``InputError`` if no prompt counts.

    about: facts about the benchmark, such as the model.
    seed: seed of the bootstrap intervals.
    """
    short = {r.prompt for r in runs if not r.steps}
    counted = [r for r in runs if r.prompt not in short]
    require(
        counted,
        "for every prompt, a text ended with prefill, so there is no cycle to count; use --chat for a chat model, or prompts that lead "
        "to longer texts",
    )
    return {
        **about,
        "prompts_done": len({r.prompt for r in runs}),
        "prompts_counted": len({r.prompt for r in counted}),
        "rows": summarise(counted, entries, seed),
        "by_domain": {
            domain: summarise([r for r in counted if r.domain == domain], entries, seed)
            for domain in sorted({r.domain for r in counted})
        },
    }


def summarise(runs: Sequence[BenchRun], entries: Sequence[Entry], seed: int = 0) -> list[Row]:
    """Returns one row per entry, with bootstrap intervals over prompts.

    Figures are ratios of sums over all prompts (tokens ÷ steps, tokens ÷ seconds), without prefill. ``speedup`` is Σ seconds per token
    of plain decoding ÷ Σ seconds per token of the entry, both over prompts. ``speedup`` and ``identical`` are None if plain decoding
    is not among the entries.
    """
    by_label: dict[str, list[BenchRun]] = {entry.label: [] for entry in entries}
    for run in sorted(runs, key=lambda r: r.prompt):
        by_label[run.label].append(run)
    return [_row(entry, by_label[entry.label], by_label.get(PLAIN), seed) for entry in entries]


def _row(entry: Entry, runs: list[BenchRun], plain: list[BenchRun] | None, seed: int) -> Row:
    def figure(name: str, above: Sequence[float], below: Sequence[float]) -> Row:
        """Returns two fields of a row: the ratio Σ above ÷ Σ below, whose key is ``name``, and its interval."""
        numerator, denominator = np.array(above, float), np.array(below, float)
        ratio = float(numerator.sum() / denominator.sum())
        return {name: ratio, f"{name}_interval": interval(numerator, denominator, seed)}

    tokens, steps, seconds = zip(*((r.cycle_tokens, r.steps, r.seconds) for r in runs), strict=True)
    hits, predicted = (sum(r.boundary_hits[n] for r in runs) for n in (0, 1))
    nodes = [r.nodes for r in runs if r.nodes is not None]
    passes = [r.draft_passes for r in runs if r.draft_passes is not None]
    row = {
        "label": entry.label,
        "method": entry.config.method if entry.config else entry.label,
        "config": None if entry.config is None else asdict(entry.config),
        "prompts": len(runs),
        "tokens": sum(len(r.token_ids) for r in runs),
        **figure("mean_acceptance_length", tokens, steps),
        **figure("tokens_per_second", tokens, seconds),
        "speedup": None,
        "speedup_interval": None,
        "nodes_per_step": sum(nodes) / sum(steps) if nodes else None,
        "draft_passes_per_step": sum(passes) / sum(steps) if passes else None,
        "boundary_hit_rate": hits / predicted if predicted else None,
        "seconds_per_step": {
            stage: sum(dict(r.stage_seconds)[stage] for r in runs) / sum(steps) for stage, _ in runs[0].stage_seconds
        },
        "identical": None,
    }
    if plain:
        paces, plain_paces = ([r.seconds / r.cycle_tokens for r in side] for side in (runs, plain))
        row |= figure("speedup", plain_paces, paces)
        row["identical"] = sum(a.token_ids == b.token_ids for a, b in zip(runs, plain, strict=True)) / len(runs)
    return row


def interval(numerator: np.ndarray, denominator: np.ndarray, seed: int) -> list[float] | None:
    """Returns the 95% interval of Σ numerator ÷ Σ denominator: percentiles over resamples of the prompts; None for a single prompt."""
    if len(numerator) < 2:
        return None
    _, resamples = Resampler(len(numerator), seed).resampled(numerator, denominator)
    return [float(x) for x in np.percentile(resamples, [2.5, 97.5])]


# Text.


# for each column: its heading, the name of its figure in a row of ``summarise``, and the format of a number
COLUMNS = (
    ("method", "label", "{}"),
    ("α", "mean_acceptance_length", "{:.2f}"),
    ("tokens/s", "tokens_per_second", "{:.0f}"),
    ("speedup", "speedup", "{:.2f}"),
    ("nodes/step", "nodes_per_step", "{:.1f}"),
    ("draft passes/step", "draft_passes_per_step", "{:.0f}"),
    ("hit rate", "boundary_hit_rate", "{:.0%}"),
    ("ms/step {}", "seconds_per_step", "{:.2f}"),
    ("identical", "identical", "{:.0%}"),
)


def table(rows: Sequence[Row]) -> Table:
    """Returns the table of all figures. It has a row for each entry."""
    stages: dict[str, float] = next((r["seconds_per_step"] for r in rows if r["seconds_per_step"]), {})
    names = " · ".join(stage.replace("_", " ") for stage in stages)
    return Table(
        tuple(heading.format(names) for heading, *_ in COLUMNS),
        tuple(tuple(_cell(row, name, form) for _, name, form in COLUMNS) for row in rows),
    )


def _cell(row: Row, name: str, form: str) -> str:
    """Returns a figure of a row as text, with its interval; "–" if it is missing. Stage times are in milliseconds."""
    value, ends = row[name], row.get(f"{name}_interval")
    if isinstance(value, dict):
        return " · ".join(form.format(1e3 * seconds) for seconds in value.values()) or "–"
    if value is None:
        return "–"
    return form.format(value) + (f" [{form.format(ends[0])}–{form.format(ends[1])}]" if ends else "")


def table_by_domain(result: Row) -> Table:
    """Returns a table of speedup / α by domain, with the layout of the papers' tables. result: result of ``pooled``."""
    groups = {**result["by_domain"], "all": result["rows"]}
    figures = [
        [f"{decimal(r['speedup'])} / {r['mean_acceptance_length']:.2f}" for r in rows] for rows in groups.values()
    ]
    labels = [row["label"] for row in result["rows"]]
    return Table(("method", *groups), tuple(zip(labels, *figures, strict=True)))


def body(result: Row, by_domain: bool) -> str:
    """Returns the printed report: the tables, and notes about missing results.

    result: result of ``pooled``.
    by_domain: whether to add the table of each domain.
    """
    parts = [table(result["rows"]).markdown()]
    if by_domain:
        parts += [f"{markdown_text(name)}\n\n{table(rows).markdown()}" for name, rows in result["by_domain"].items()]
    cost_aware = cost_aware_table(result["by_domain"])
    if cost_aware.rows:
        parts += [cost_aware.markdown(), COST_AWARE_NOTE]
    if name := result["preset"]:
        preset = PRESETS[name]
        parts += [f"Measured here, speedup / α ({name}: {preset.sentence})", table_by_domain(result).markdown()]
        if preset.published is None:
            parts.append("There are no published figures for this table.")
        else:
            parts += [f"Published, speedup / α. Source: {preset.source}", preset.published.markdown()]
    return "\n\n".join([*parts, *remarks(result), NOTES])


def remarks(result: Row) -> list[str]:
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


def page(result: Row) -> str:
    """Returns the report as one HTML file with charts, all numbers, and their provenance. result: result of ``pooled``."""
    from d2sd.figures.intervals import bench_panels
    from d2sd.figures.report import report_page

    groups = {"All prompts": result["rows"], **result["by_domain"]}
    fastest = max(result["rows"], key=lambda row: row["tokens_per_second"])
    verdict = f"{fastest['label']} is the fastest, with {fastest['tokens_per_second']:.0f} tokens/s."
    facts = [*((name, table(rows)) for name, rows in groups.items()), ("Provenance", described(result["provenance"]))]
    return report_page(_title(result), [verdict, *remarks(result), NOTES], bench_panels(result["rows"]), facts=facts)


def _title(result: Row) -> str:
    return f"{result['model']}: {result['prompts_done']} prompts of {result['prompts']}"


def write_report(folder: Path, result: Row, runs: Sequence[BenchRun]) -> None:
    """Writes ``report.md``, ``report.html`` and ``results.json`` to a folder. Older reports in the folder are replaced."""
    lines = [f"# {_title(result)}", body(result, True), as_markdown(result["provenance"])]
    data = {**result, "runs": [_plain(run) for run in sorted(runs, key=lambda run: run.prompt)]}
    files = {"report.md": "\n\n".join(lines) + "\n", "report.html": page(result), "results.json": to_json(data)}
    write_files(folder, files)


def _plain(run: BenchRun) -> Row:
    return {
        **{name: getattr(run, name) for name in ("label", "prompt", "domain", "steps", "seconds", "nodes")},
        "tokens": len(run.token_ids),
        "stages": dict(run.stage_seconds),
    }


def to_json(data: Row) -> str:
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode() + "\n"


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Writes files to a folder, which is created if it does not exist. Each file is replaced atomically. files: texts by file name."""
    make_folder(folder)
    for name, text in files.items():
        write_whole(folder / name, text)
