"""Measure whether the first drafter's confidence can be trusted, on prompts or on recorded traces."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from tqdm.auto import tqdm

from d2sd import calibration
from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import add_decode_arguments, add_model_arguments, decode_config, load_engine, printable
from d2sd.errors import InputError
from d2sd.events import StepDone
from d2sd.trace import load_trace

HELP = "reliability of the first drafter's confidence"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``calibrate``."""
    parser.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl", help="lines with prompt or turns")
    parser.add_argument("--traces", nargs="+", metavar="TRACE", help="read recorded runs instead of running")
    parser.add_argument("--method", default="d2sd", metavar="ID")
    parser.add_argument("--limit", type=int, metavar="N", help="use only N prompts")
    add_model_arguments(parser)
    add_decode_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Run or read, then print the figures."""
    if arguments.limit is not None and arguments.limit < 1:
        raise InputError(f"limit must be at least 1, not {arguments.limit}")
    if arguments.traces:
        groups = {"all": [load_trace(path).steps for path in arguments.traces]}
    else:
        config = decode_config(arguments, arguments.method, inspect=False)
        prompts = read_prompts(arguments.prompts, arguments.limit)
        engine = load_engine(arguments)
        for prompt in prompts:
            engine.encode(prompt.text, engine.resolve(config))
        groups = {"all": []}
        for prompt in tqdm(prompts, desc="calibrate", unit="prompt", file=sys.stderr):
            steps = engine.generate(prompt.text, config).steps
            groups["all"].append(steps)
            if prompt.domain != "all":
                groups.setdefault(prompt.domain, []).append(steps)
    result = {name: figures(runs) for name, runs in groups.items()}
    if arguments.json:
        sys.stdout.write(orjson.dumps(result).decode() + "\n")
        return
    for name, row in result.items():
        print(printable(_text(name, row)))


def figures(runs: Sequence[Sequence[StepDone]]) -> dict[str, Any]:
    """Calibration figures of runs, one run a prompt."""
    scores = calibration.collect(runs)
    steps = [s for r in runs for s in r]
    edges = calibration.uniform_edges()
    adaptive = calibration.equal_mass_edges(scores.confidence)
    ranks = calibration.boundary_ranks(steps)

    def error(confidence: Any, accepted: Any) -> float:
        return calibration.expected_calibration_error(confidence, accepted, edges)

    advice = calibration.temperature_advice(runs)
    return {
        "prompts": len(runs),
        "steps": len(steps),
        "scored_positions": len(scores.confidence),
        "expected_calibration_error": error(scores.confidence, scores.accepted),
        "expected_calibration_error_interval": calibration.interval(scores, error),
        "adaptive_calibration_error": calibration.expected_calibration_error(
            scores.confidence, scores.accepted, adaptive
        ),
        "brier_score": calibration.brier_score(scores.confidence, scores.accepted),
        "brier_score_interval": calibration.interval(scores, calibration.brier_score),
        "boundary_hit_rate_by_k": {str(k): sum(r < k for r in ranks) / len(ranks) for k in (1, 2, 4, 8)}
        if ranks
        else {},
        "reliability": [asdict(b) for b in calibration.reliability(scores, edges)],
        "acceptance_by_position": calibration.acceptance_by_position(steps),
        "temperature_advice": asdict(advice) if advice else None,
    }


def _text(name: str, row: dict[str, Any]) -> str:
    low, high = row["expected_calibration_error_interval"]
    lines = [
        f"{name}: {row['prompts']} prompts, {row['steps']} steps, {row['scored_positions']} scored positions",
        f"  ECE {row['expected_calibration_error']:.3f} ({low:.3f}–{high:.3f}), adaptive "
        f"{row['adaptive_calibration_error']:.3f}, Brier {row['brier_score']:.3f}",
        "  true boundary within the top "
        + ", ".join(f"{k}: {v:.0%}" for k, v in row["boundary_hit_rate_by_k"].items()),
        "  confidence → accepted (count): "
        + ", ".join(f"{b['confidence']:.2f}→{b['accepted']:.2f} ({b['count']})" for b in row["reliability"]),
    ]
    advice = row["temperature_advice"]
    if advice:
        lines.append(
            f"  a temperature of {advice['temperature']:.2f} (fitted on one half) takes ECE on the other half from "
            f"{advice['error_before']:.3f} to {advice['error_after']:.3f} and moves {advice['moved']:.0%} of the prefix choices"
        )
    return "\n".join(lines)
