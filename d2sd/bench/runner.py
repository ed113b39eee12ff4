"""Run methods over prompts, interleaved prompt by prompt, and summarise them with intervals over prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2sd.bench.prompts import Prompt
from d2sd.calibration import expected_calibration_error, scored_positions, uniform_edges
from d2sd.config import DecodeConfig
from d2sd.decode import Engine
from d2sd.metrics import Totals, boundary_hit

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Run:
    """One method on one prompt."""

    method: str
    domain: str
    totals: Totals
    token_ids: tuple[int, ...]
    boundary_hits: tuple[bool, ...]
    scored: tuple[tuple[float, bool], ...]


def run_bench(
    engine: Engine,
    configs: Sequence[DecodeConfig],
    prompts: Sequence[Prompt],
    progress: Callable[[int], None] = lambda _: None,
) -> list[Run]:
    """All methods on every prompt in turn (so that drifts of the machine meet all of them), after one warm-up each."""
    for config in configs:
        engine.generate(prompts[0].text, config)
    runs = []
    for number, prompt in enumerate(prompts):
        for config in configs:
            trace = engine.generate(prompt.text, config)
            hits = tuple(h for s in trace.steps if (h := boundary_hit(s)) is not None)
            scored = tuple(pair for s in trace.steps for pair in scored_positions(s))
            runs.append(Run(config.method, prompt.domain, trace.totals, tuple(trace.token_ids), hits, scored))
        progress(number + 1)
    return runs


def summarise(runs: Sequence[Run], methods: Sequence[str], seed: int = 0) -> list[dict[str, Any]]:
    """One row per method: pooled figures, and 95% bootstrap intervals over prompts where a prompt is the unit."""
    rows = []
    by_method = {m: [r for r in runs if r.method == m] for m in methods}
    plain = by_method.get("autoregressive")
    for method in methods:
        mine = by_method[method]
        tokens, steps, seconds = (
            np.array([getattr(r.totals, f) for r in mine], dtype=float) for f in ("tokens", "steps", "seconds")
        )
        all_tokens, all_steps, all_seconds = float(tokens.sum()), float(steps.sum()), float(seconds.sum())
        hits = [h for r in mine for h in r.boundary_hits]
        row: dict[str, Any] = {
            "method": method,
            "prompts": len(mine),
            "mean_acceptance_length": all_tokens / all_steps,
            "mean_acceptance_length_interval": _interval(tokens, steps, seed),
            "tokens_per_second": all_tokens / all_seconds,
            "speedup": None,
            "speedup_interval": None,
            "nodes_per_step": sum(r.totals.nodes_per_step * r.totals.steps for r in mine) / all_steps,
            "boundary_hit_rate": sum(hits) / len(hits) if hits else None,
            "expected_calibration_error": _calibration_error([p for r in mine for p in r.scored]),
            "seconds_per_step": {
                stage: sum(r.totals.stage_seconds[stage] for r in mine) / all_steps
                for stage in mine[0].totals.stage_seconds
            },
            "identical": None,
        }
        if plain:
            base, own = (np.array([r.totals.seconds / r.totals.tokens for r in rs]) for rs in (plain, mine))
            row["speedup"] = float(base.sum() / own.sum())
            row["speedup_interval"] = _interval(base, own, seed)
            row["identical"] = sum(a.token_ids == b.token_ids for a, b in zip(mine, plain, strict=True)) / len(mine)
        rows.append(row)
    return rows


def _calibration_error(scored: list[tuple[float, bool]]) -> float | None:
    confidence, accepted = np.array(scored, dtype=float).reshape(-1, 2).T
    return expected_calibration_error(confidence, accepted, uniform_edges()) if scored else None


def _interval(numerator: np.ndarray, denominator: np.ndarray, seed: int) -> list[float]:
    """95% percentile interval of Σnumerator/Σdenominator when prompts are drawn again with replacement."""
    index = np.random.default_rng(seed).integers(0, len(numerator), (RESAMPLES, len(numerator)))
    ratios = numerator[index].sum(1) / denominator[index].sum(1)
    return [float(x) for x in np.percentile(ratios, [2.5, 97.5])]
