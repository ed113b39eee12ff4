"""Inspected runs record confidence at other softmax temperatures for every kind of drafter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from d2sd import DecodeConfig, Engine
from d2sd.decoding.inspection import tempered
from d2sd.folders.loading import load_drafter
from d2sd.folders.model_sets import BUNDLED
from d2sd.nets.models import Models
from d2sd.trace.events import TEMPERATURES
from tests.nets import make_drafter, make_target


def test_tempered_equals_softmax_at_each_temperature():
    scores = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)) * 4
    places = torch.tensor([3, 5, 7, 9, 11])
    found = tempered(scores, places)
    assert torch.equal(tempered(scores.double(), places), found)  # computed in float32
    for row, temperature in zip(found.T, TEMPERATURES, strict=True):
        exact = (scores / temperature).softmax(-1).gather(1, places[:, None])[:, 0]
        assert row.numpy() == pytest.approx(exact.numpy(), abs=2e-3)  # 0.707 approximates √½


@pytest.mark.parametrize("method", ["dflash", "d2sd", "dflash_twice", "ddtree", "draft_model"])
def test_tempered_confidence_falls_with_temperature(bundled, method):
    steps = bundled.generate("One day, a dog", DecodeConfig(method, 24)).steps
    drafted = [s for s in steps if s.first_draft]
    assert drafted
    for step in drafted:
        assert len(step.tempered) == len(step.first_draft.ids)
        rows = np.array(step.tempered)
        whole = np.insert(rows, 2, step.first_draft.confidence, axis=1)
        assert (np.diff(whole, axis=1) <= 2e-6).all()  # drafted tokens are the most probable ones


def test_tempered_is_recorded_by_walked_and_padded_drafters(bundled, tokenizer):
    dspark = load_drafter(str(BUNDLED / "tiny" / "dspark"), torch.float32, "cpu", bundled.models.target)
    walked = Engine(Models(bundled.models.target, dspark))
    (first, *_) = walked.generate("One day, a dog", DecodeConfig("dflash", 8)).steps
    assert len(first.tempered) == len(first.first_draft.ids)
    target = make_target(tokenizer)
    models = Models(target, *(make_drafter(target, seed=seed) for seed in (1, 2)))
    config = DecodeConfig("d2sd", 12, num_branches=2)
    both = [Engine(models, passes).generate("the cat", config).steps for passes in ("eager", "padded")]
    for a, b in zip(*both, strict=True):
        assert np.array(a.tempered) == pytest.approx(np.array(b.tempered), abs=1e-4)
