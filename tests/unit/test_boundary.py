from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2sd.calibration.boundaries import ranks
from d2sd.decoding import device_tree
from d2sd.tree.boundary import boundary_posterior, boundary_posteriors, select_prefixes

CONFIDENCES = st.lists(st.floats(0, 1), min_size=1, max_size=31)


def test_boundary_posterior_matches_worked_example():
    posterior, full = boundary_posterior([0.95, 0.84, 0.62, 0.70, 0.42])
    assert [round(r, 3) for r in posterior] == [0.050, 0.152, 0.303, 0.148, 0.201]
    assert select_prefixes(posterior, 4) == (2, 4, 1, 3)
    assert math.isclose(full, 0.95 * 0.84 * 0.62 * 0.70 * 0.42)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_boundary_posterior_matches_enumeration(confidence):
    expected = [0.0] * (len(confidence) + 1)
    for outcome in itertools.product([True, False], repeat=len(confidence)):
        weight = math.prod(c if ok else 1 - c for c, ok in zip(confidence, outcome, strict=True))
        expected[(*outcome, False).index(False)] += weight
    posterior, full = boundary_posterior(confidence)
    assert [*posterior, full] == pytest.approx(expected, abs=1e-9)


@given(CONFIDENCES, st.integers(1, 31))
def test_select_prefixes_takes_likeliest_and_shorter_on_ties(confidence, count):
    posterior, _ = boundary_posterior(confidence)
    selected = select_prefixes(posterior, count)
    assert len(set(selected)) == len(selected) == min(count, len(posterior))
    keys = [(-posterior[i], i) for i in selected]
    assert keys == sorted(keys)
    assert all((-posterior[i], i) > keys[-1] for i in range(len(posterior)) if i not in selected)


def test_boundary_posterior_refuses_confidence_outside_zero_one():
    with pytest.raises(ValueError, match="between 0 and 1"):
        boundary_posterior([0.5, 1.2])


WITH_TIES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1), min_size=1, max_size=15)


@settings(deadline=None)  # the first example starts torch
@given(WITH_TIES, st.integers(0, 3), st.data())
def test_boundary_posterior_agrees_with_batch_and_device(confidence, absent, data):
    count = data.draw(st.integers(1, len(confidence)))
    boundary = boundary_posterior(confidence)
    selected = select_prefixes(boundary.posterior, count)

    on_device = torch.tensor(confidence, dtype=torch.float64)
    assert device_tree.posterior(on_device).tolist() == pytest.approx(boundary.posterior, abs=1e-12)

    rows = np.array([[*confidence, *[np.nan] * absent]])
    posteriors, full = boundary_posteriors(rows)
    assert posteriors.tolist() == [[*boundary.posterior, *[-1.0] * absent]]
    assert full.tolist() == [boundary.full_acceptance]
    place = [int(ranks(rows, np.array([i]))[0]) for i in range(len(confidence))]
    assert tuple(sorted((i for i in range(len(confidence)) if place[i] < count), key=place.__getitem__)) == selected
