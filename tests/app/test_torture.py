"""A short version of every campaign that needs no server: the same seed, a fixed number of cases."""

from __future__ import annotations

import itertools
import random

import pytest

from tools.torture.campaigns import IN_PROCESS

SEED = 18
CASES = {"traces": 100, "links": 1000, "controls": 2000, "archives": 4, "model folders": 2, "losslessness": 3}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_torture_campaign_finds_no_fault(name):
    outcomes = list(itertools.islice(IN_PROCESS[name](random.Random(SEED)), CASES[name]))
    assert [fault for fault in outcomes if fault] == []
    assert len(outcomes) == CASES[name]
