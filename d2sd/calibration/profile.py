"""Acceptance by position in the form of ModelOpt's ``speculation_profile.json`` (schema 1.0), which deployment tools read.

It has two kinds of rates: among the steps that accepted all earlier tokens (the input of Dynamo's planner), and among all
steps (the input of vLLM's synthetic acceptance).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from d2sd.__about__ import __version__
from d2sd.calibration.gathering import Gathering
from d2sd.calibration.steps import StepTable
from d2sd.errors import InputError

DIGITS = 6
TOLERANCE = 0.02


def profile(groups: Mapping[str, Gathering]) -> dict[str, Any]:
    """Returns the profile of recorded runs.

    groups: runs by prompt group; "all" holds all of them.

    Raises ``InputError`` if the runs have no step or several methods.
    """
    whole = groups["all"]
    table = whole.counted().table
    if not len(table):
        raise InputError("a profile needs runs with steps")
    named = {
        name: sorted({str(_named(header, name)) for header in whole.headers})
        for name in ("method", "target", "first_drafter")
    }
    if len(named["method"]) > 1:
        raise InputError(f"a profile is of one method; these runs are of {', '.join(named['method'])}")
    guesses = int(table.drafted.max())
    lengths = table.committed
    survival = [float((lengths >= k + 2).mean()) for k in range(max(guesses, int(lengths.max()) - 1))]
    before = [1.0, *survival[:-1]]
    mean = float(lengths.mean())
    implied = 1 + sum(survival)
    return {
        "schema_version": "1.0",
        "measured": True,
        "method": named["method"][0],
        "draft_checkpoint": {"name": ", ".join(named["first_drafter"])},
        "target_model": {"name": ", ".join(named["target"])},
        "num_speculative_tokens": len(survival),
        "block_size": guesses + 1,
        "max_supported_k": len(survival),
        "verification_method": "longest_prefix",
        "conditional_accept_rates": [round(a / b if b else 0.0, DIGITS) for a, b in zip(survival, before, strict=True)],
        "marginal_accept_rates": [round(a, DIGITS) for a in survival],
        "mean_accept_length": round(mean, DIGITS),
        "mean_accept_length_per_request": round(_per_run(table), DIGITS),
        "accept_length_model": "measured_per_k",
        "accept_length_by_k": {str(len(survival)): round(mean, DIGITS)},
        "acceptance_length_histogram": {str(k): int(n) for k, n in enumerate(np.bincount(lengths)) if n},
        "per_category": {
            name: {"mean_accept_length": round(float(runs.counted().table.committed.mean()), DIGITS)}
            for name, runs in groups.items()
            if name != "all" and len(runs.counted().table)
        }
        or None,
        "measurement_conditions": {"engine": f"d2sd {__version__}", "num_samples": len(whole)},
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": round(implied, DIGITS),
                "reported_mean_accept_length": round(mean, DIGITS),
                "abs_delta": round(abs(implied - mean), DIGITS),
                "tolerance": TOLERANCE,
                "passed": abs(implied - mean) <= TOLERANCE,
            },
            "marginal_monotonicity": {"passed": True, "violations": []},
        },
    }


def _named(header: Mapping[str, Any], name: str) -> object:
    models = header.get("models")
    return header.get(name) if name == "method" else models.get(name) if isinstance(models, dict) else None


def _per_run(table: StepTable) -> float:
    runs = np.unique(table.run)
    return float(np.mean([table.committed[table.run == run].mean() for run in runs]))
