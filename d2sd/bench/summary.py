"""One row per entry from its runs: pooled figures, medians, 95% bootstrap intervals over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from d2sd.bench.runner import Entry, Run
from d2sd.calibration.resampling import Resampler
from d2sd.errors import InputError

PLAIN = "autoregressive"


def with_cycles(runs: Sequence[Run]) -> list[Run]:
    """The runs on prompts where every entry had a cycle; raises ``InputError`` where there are none."""
    short = {r.prompt for r in runs if not r.steps}
    kept = [r for r in runs if r.prompt not in short]
    if not kept:
        raise InputError(
            "every text ended with prefill, so there is no cycle to count; a chat model needs its template "
            "(--chat), other prompts may be longer texts"
        )
    return kept


def pooled(about: dict[str, Any], runs: Sequence[Run], entries: Sequence[Entry], seed: int) -> dict[str, Any]:
    """The result of a benchmark: ``about``, what it is of, with the rows and counts of its runs. Raises ``InputError``."""
    counted = with_cycles(runs)
    domains = sorted({r.domain for r in counted})
    return {
        **about,
        "prompts_done": len({r.prompt for r in runs}),
        "prompts_counted": len({r.prompt for r in counted}),
        "rows": summarise(counted, entries, seed),
        "by_domain": {d: summarise([r for r in counted if r.domain == d], entries, seed) for d in domains},
    }


def summarise(runs: Sequence[Run], entries: Sequence[Entry], seed: int = 0) -> list[dict[str, Any]]:
    """One row per entry. The prompt is the unit that intervals draw again, with replacement.

    Pooled figures are ratios of sums over the cycles (tokens / steps, tokens / seconds). Medians are over the ratios of single
    prompts. Prefill counts in ``wall_…`` only. Speedup and ``identical`` compare an entry with plain decoding on the same
    prompts; they are None where plain decoding was not run. ``break_even`` is the α at which an entry would be as fast as plain decoding
    here: what its step costs in plain steps.
    """
    by_label: dict[str, list[Run]] = {c.label: [] for c in entries}
    for run in sorted(runs, key=lambda r: r.prompt):
        by_label[run.label].append(run)
    plain = by_label.get(PLAIN)
    return [_row(c, by_label[c.label], plain, seed) for c in entries]


def _row(entry: Entry, runs: list[Run], plain: list[Run] | None, seed: int) -> dict[str, Any]:
    written = np.array([len(r.token_ids) for r in runs], dtype=float)
    tokens = np.array([r.cycle_tokens for r in runs], dtype=float)
    steps, seconds, wall = (np.array([getattr(r, f) for r in runs]) for f in ("steps", "seconds", "wall_seconds"))
    hits, predicted = (sum(r.boundary_hits[n] for r in runs) for n in (0, 1))
    nodes = [r.nodes for r in runs if r.nodes is not None]
    passes = [r.draft_passes for r in runs if r.draft_passes is not None]
    all_steps = float(steps.sum())
    row: dict[str, Any] = {
        "label": entry.label,
        "method": entry.method,
        "config": None if entry.config is None else asdict(entry.config),
        "prompts": len(runs),
        "tokens": int(written.sum()),
        **_ratio("mean_acceptance_length", tokens, steps, seed),
        **_ratio("tokens_per_second", tokens, seconds, seed),
        **_ratio("wall_tokens_per_second", written, wall, seed),
        **_ratio("speedup", None, None, seed),
        **_ratio("wall_speedup", None, None, seed),
        "nodes_per_step": sum(nodes) / all_steps if nodes else None,
        "draft_passes_per_step": sum(passes) / all_steps if passes else None,
        "boundary_hit_rate": hits / predicted if predicted else None,
        "expected_calibration_error": _calibration_error(runs),
        "seconds_per_step": {
            stage: sum(dict(r.stage_seconds)[stage] for r in runs) / all_steps for stage, _ in runs[0].stage_seconds
        },
        "identical": None,
        "break_even": None,
        "elsewhere": _elsewhere(runs, float(tokens.sum())),
    }
    if plain:
        own, base = (np.array([r.seconds / r.cycle_tokens for r in rs]) for rs in (runs, plain))
        row |= _ratio("speedup", base, own, seed)
        row["break_even"] = row["mean_acceptance_length"] / row["speedup"]
        own, base = (np.array([r.wall_seconds / len(r.token_ids) for r in rs]) for rs in (runs, plain))
        row |= _ratio("wall_speedup", base, own, seed)
        row["identical"] = sum(a.token_ids == b.token_ids for a, b in zip(runs, plain, strict=True)) / len(runs)
    return row


def _ratio(name: str, above: np.ndarray | None, below: np.ndarray | None, seed: int) -> dict[str, Any]:
    """Σabove/Σbelow, its interval, and the median of above/below, under three names."""
    keys = name, f"{name}_interval", f"{name}_median"
    if above is None or below is None:
        return dict.fromkeys(keys)
    values = float(above.sum() / below.sum()), interval(above, below, seed), float(np.median(above / below))
    return dict(zip(keys, values, strict=True))


def _elsewhere(runs: Sequence[Run], tokens: float) -> dict[str, float]:
    """Speedup over plain decoding by known machine, calculated; empty for entries whose work is not known."""
    costs = [dict(r.elsewhere) for r in runs]
    return {name: tokens / sum(c[name] for c in costs) for name in costs[0] if all(name in c for c in costs)}


def _calibration_error(runs: Sequence[Run]) -> float | None:
    gaps = [r.gaps for r in runs if r.scored]
    return float(np.abs(np.sum(gaps, axis=0)).sum() / sum(r.scored for r in runs)) if gaps else None


def interval(numerator: np.ndarray, denominator: np.ndarray, seed: int) -> list[float] | None:
    """Returns the 95% percentile interval of Σnumerator/Σdenominator under resampling of prompts.

    None for a single prompt, which says nothing about others.
    """
    if len(numerator) < 2:
        return None
    prompts = np.arange(len(numerator))
    drawn = Resampler(len(prompts), seed).ratios(numerator, denominator, prompts)
    return [float(x) for x in np.percentile(drawn, [2.5, 97.5])]
