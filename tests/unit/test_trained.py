"""Comparison of a trained confidence head with the softmax."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from d2sd.calibration import read_report
from d2sd.trace.events import to_line
from tests.unit.steps import calibrated, made_step


def runs_of(said, count=12, length=20):
    """Runs whose tokens are right with probability 0.7; the head's confidence is ``said(accepted)``."""
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


def compared(said):
    return calibrated(runs_of(said))


def test_calibrate_recognises_better_confidence_head():
    sure, same = compared(lambda right: 0.999 if right else 0.001), compared(lambda _: 0.5)
    assert sure.head.head.value < 0.01 < sure.head.softmax.value
    assert sure.head.softmax.value == sure.ece.value
    assert sure.head.difference.high < 0
    assert same.head.difference.value == 0
    for report, verdict in ((sure, "the head is better"), (same, "no clear difference")):
        (line,) = (s.text for s in read_report(report) if s.text.startswith("ECE of the trained confidence head"))
        assert line.endswith(f"over the same {report.positions} positions; {verdict}.")
    assert compared(lambda right: 0.001 if right else 0.999).head.difference.low > 0


def test_calibrate_scores_head_on_steps_that_have_one():
    runs = runs_of(lambda _: 0.25)
    plain = [[replace(step, trained=()) for step in run] for run in runs]
    report = calibrated([*runs, *plain])
    assert report.head.positions == report.positions / 2
    assert calibrated(plain).head is None


def test_to_line_omits_absent_trained_field():
    step = made_step([0.7] * 4, 4)
    assert '"trained"' not in to_line(step)
    said = replace(step, trained=((0.5,) * 4,))
    assert to_line(said).endswith('"trained":[[0.5,0.5,0.5,0.5]]}\n')
