"""A confidence head against the softmax: the figures, their differences and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from d2sd.calibration import compare_trained, read_trained, tabulate
from d2sd.calibration.alternatives import auroc
from d2sd.calibration.resampling import Resampler
from d2sd.calibration.scores import Scores
from d2sd.trace.events import to_line
from tests.unit.steps import made_step


def runs_of(said, count=12, length=20):
    """Runs whose softmax is 0.7 everywhere, and whose head says ``said(accepted)``."""
    rng = np.random.default_rng(3)
    runs = []
    for _ in range(count):
        steps = []
        for _ in range(length):
            right = rng.random(4) < 0.7
            boundary = int(right.cumprod().sum())
            step = made_step([0.5] * 4, boundary)
            steps.append(replace(step, trained=(tuple(said(k < boundary) for k in range(4)),)))
        runs.append(steps)
    return runs


def compared(runs, prompts=()):
    return compare_trained(tabulate(runs, prompts))


def test_compare_trained_recognises_informative_head():
    report = compared(runs_of(lambda right: 0.999 if right else 0.001), [f"p{n}" for n in range(12)])
    assert report.unit == "prompt"
    contests = {c.name: c for c in report.contests}
    for c in (c for name, c in contests.items() if name != "within"):
        assert c.difference.low is not None
        assert c.difference.value * c.better > 0
        assert c.difference.low > 0 or c.difference.high < 0
    assert contests["auroc"].head.value == 1
    assert contests["auroc"].softmax.value == 0.5
    assert contests["rank"].head.value == 1
    assert [name for name, line in read_trained(report).items() if "the head is better" not in line] == ["within"]
    same = compared(runs_of(lambda _: 0.5), [f"p{n}" for n in range(12)])
    assert all("no clear difference" in line for line in read_trained(same).values())
    assert all(c.difference.value == 0 for c in same.contests)


def test_compare_trained_needs_confidence_head():
    assert compared([[made_step([0.7] * 4, 2)]]) is None


def test_auroc_counts_all_pairs_with_half_ties():
    rng = np.random.default_rng(1)
    confidence, accepted = rng.integers(0, 6, 80) / 5, (rng.random(80) < 0.6).astype(float)
    scores = Scores(confidence, accepted, np.ones(80, int), np.arange(80), np.arange(80) // 8)
    value, resamples = auroc(scores, Resampler(10))
    right, wrong = confidence[accepted > 0], confidence[accepted == 0]
    assert value == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a in right for b in wrong]))
    assert np.nanmean(resamples) == pytest.approx(value, abs=0.03)
    assert np.isnan(auroc(scores.take(accepted > 0), Resampler(10)).value)


def test_to_line_omits_absent_trained_field():
    step = made_step([0.7] * 4, 4)
    assert '"trained"' not in to_line(step)
    said = replace(step, trained=((0.5,) * 4,))
    assert to_line(said).endswith('"trained":[[0.5,0.5,0.5,0.5]]}\n')
