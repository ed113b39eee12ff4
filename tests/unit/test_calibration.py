from __future__ import annotations

import numpy as np
import pytest

from d2sd import calibration as c
from d2sd.calibration import Scores


def draw(count, true_temperature=1.0, seed=0):
    """Confidences whose outcomes follow them, softened by a known temperature."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0, 1, count)
    accepted = (rng.uniform(0, 1, count) < c.tempered(confidence, true_temperature)).astype(float)
    return Scores(confidence, accepted, np.arange(count) // 50)


def test_honest_confidence_has_almost_no_error():
    scores = draw(40_000)
    assert c.expected_calibration_error(scores.confidence, scores.accepted, c.uniform_edges()) < 0.012
    assert c.brier_score(scores.confidence, scores.accepted) == pytest.approx(1 / 6, abs=0.01)


def test_error_of_a_known_gap():
    confidence, accepted = np.array([0.95] * 10 + [0.25] * 10), np.array([1.0] * 5 + [0.0] * 5 + [1.0] * 5 + [0.0] * 5)
    assert c.expected_calibration_error(confidence, accepted, c.uniform_edges()) == pytest.approx((0.45 + 0.25) / 2)


def test_bins_hold_every_position_once():
    scores = draw(5_000)
    for edges in (c.uniform_edges(), c.equal_mass_edges(scores.confidence)):
        bins = c.reliability(scores, edges)
        assert sum(b.count for b in bins) == 5_000
        assert all(b.low <= b.accepted <= b.high and b.left <= b.confidence <= b.right for b in bins)


def test_the_temperature_is_found_again():
    scores = draw(60_000, true_temperature=1.8)
    assert c.fit_temperature(scores.confidence, scores.accepted) == pytest.approx(1.8, rel=0.06)


def test_interval_holds_the_figure():
    scores = draw(3_000)
    low, high = c.interval(scores, c.brier_score)
    assert low < c.brier_score(scores.confidence, scores.accepted) < high


def test_only_positions_up_to_the_first_rejection_are_scored(engine):
    from d2sd import DecodeConfig

    for step in engine.generate("the cat", DecodeConfig("d2sd", 20)).steps:
        scored = c.scored_positions(step)
        if step.actual_boundary is None:
            assert scored == []
        else:
            assert len(scored) == min(step.actual_boundary + 1, 15)
            assert [a for _, a in scored] == [True] * step.actual_boundary + [False] * (
                len(scored) - step.actual_boundary
            )
