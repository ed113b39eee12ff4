"""Hand-made steps, and simulated runs with known acceptance probabilities."""

from __future__ import annotations

import numpy as np

from d2sd import Trace
from d2sd.calibration import RunStatistics
from d2sd.trace.events import TEMPERATURES, Committed, Draft, Node, StageSeconds, StepDone
from d2sd.tree.boundary import boundary_posterior, select_prefixes


def softened(confidence, by):
    """Confidence at another softmax temperature; with a vocabulary of two, this divides the log-odds."""
    odds = np.log(confidence / (1 - confidence))
    return 1 / (1 + np.exp(-odds / by))


def of_two(confidence):
    """These confidences at all ``TEMPERATURES``, for a vocabulary of two tokens."""
    return np.stack([softened(np.asarray(confidence), t) for t in TEMPERATURES], -1)


def made_step(confidence, boundary, selected=(), number=0, tempered=()):
    """A step with this first draft, without re-drafts; its tree is a chain."""
    n = len(confidence)
    draft = Draft("first", 0, (1,) * n, ("a",) * n, tuple(confidence), ((),) * n)
    states = ["root", *("accepted" if k < (boundary or 0) else "rejected" for k in range(n))]
    nodes = tuple(Node(k, k - 1, k, 1, "a", (0,), "first", s, None, None, None) for k, s in enumerate(states))
    posterior, full = boundary_posterior(confidence)
    accepted = tuple(range(1, (boundary or 0) + 1))
    committed = (*(Committed(1, "a", "first", k) for k in accepted), Committed(2, "b", "target", None))
    return StepDone(
        number, 1, "a", number, draft, posterior, full, tuple(selected), (), nodes, (), accepted, committed, boundary,
        StageSeconds(), 0.0, tempered=tuple(map(tuple, tempered)),
    )  # fmt: skip


def simulated(runs, length, true_temperature=1.0, seed=0, block=15):
    """Runs whose drafted tokens are accepted with their confidence at ``true_temperature``, or one for each position; K = 4."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(runs):
        run = []
        for number in range(length):
            confidence = rng.beta(2, 1, block)
            lucky = rng.uniform(size=block) < softened(confidence, true_temperature)
            boundary = int(np.argmin(lucky)) if not lucky.all() else block
            posterior, _ = boundary_posterior(confidence.tolist())
            selected = select_prefixes(posterior, 4)
            run.append(made_step(confidence.tolist(), boundary, selected, number, of_two(confidence).tolist()))
        out.append(run)
    return out


def statistics_of(runs, prompts=(), domains=()):
    """The statistics of runs, given as lists of steps. prompts, domains: of every run; unknown if empty."""
    of_runs = zip(runs, prompts or [""] * len(runs), domains or ["all"] * len(runs), strict=True)
    return RunStatistics(
        Trace({"method": "d2sd", "prompt": prompt, "domain": domain}, None, tuple(run), None)
        for run, prompt, domain in of_runs
    )


def calibrated(runs, prompts=(), domains=()):
    return statistics_of(runs, prompts, domains).report()


def tabulated(runs, prompts=()):
    return statistics_of(runs, prompts).counted().table
