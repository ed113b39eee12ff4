"""Drafters over the same texts: real differences are found overall and by group, and equal drafters do not differ."""

from __future__ import annotations

import numpy as np
import pytest

from d2sd.calibration.replays import compare_replays


def texts(rate, seed, count=24):
    """Committed tokens per step; each of up to 7 drafted tokens is accepted with probability ``rate``."""
    rng = np.random.default_rng(seed)
    return [(tuple(rng.geometric(1 - rate, 30).clip(max=8).tolist()), False) for _ in range(count)]


def test_compare_replays_separates_better_from_equal_drafter():
    groups = ["a", "b"] * 12
    better, twin, base = compare_replays(["x", "y", "z"], [texts(0.6, 1), texts(0.4, 0), texts(0.4, 0)], groups)
    assert base.whole.difference is None
    assert better.whole.difference.low > 0.3
    assert all(found.difference.low > 0 for found in better.groups.values())
    assert (twin.whole.difference.low, twin.whole.difference.high) == (0, 0)
    assert set(base.groups) == {"a", "b"}


def test_compare_replays_counts_cut_last_step_by_position():
    (row,) = compare_replays(["x"], [[((3, 1, 2, 1), False), ((2, 3), True)]], ["a", "a"])
    assert [f.value for f in row.reached] == pytest.approx([4 / 6, 2 / 4, 1 / 2])
    (row,) = compare_replays(["x"], [[((3, 1, 2, 1), False), ((2, 3), False)]], ["a", "a"])
    assert [f.value for f in row.reached] == pytest.approx([4 / 6, 2 / 4])
    assert row.groups == {}
    assert row.whole.alpha.low is None
    (row,) = compare_replays(["x"], [[((1, 1), False)]], ["a"])
    assert [f.value for f in row.reached] == [0]


def test_compare_replays_intervals_hold_simultaneously():
    better, base = texts(0.6, 1), texts(0.4, 0)
    one, *_ = compare_replays(["x", "y"], [better, base], ["a"] * 24)
    three, *_ = compare_replays(["x", "z", "y"], [better, texts(0.4, 2), base], ["a", "b"] * 12)
    assert three.whole.difference.low < one.whole.difference.low
    assert three.whole.alpha == one.whole.alpha


def test_compare_replays_of_few_texts_needs_several_blocks():
    def compared(one, other):
        return compare_replays(["a", "b"], [[(one, False)], [(other, False)]], ["x"])[0].whole.difference

    clear = compared([4] * 40, [2] * 80)
    assert clear.value == 2
    assert clear.excludes_zero
    rng = np.random.default_rng(0)
    one, other = rng.integers(1, 9, 15).tolist(), rng.integers(1, 9, 15).tolist()
    other[-1] += sum(one) - sum(other)
    assert not compared(one, other).excludes_zero
