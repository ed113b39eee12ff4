"""Comparison of two sides, or of drafters over the same texts: real differences are found, and no others are reported."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from d2sd import Trace
from d2sd.__about__ import HOME
from d2sd.calibration import RunStatistics, calibrate
from d2sd.calibration.comparison import Difference, compare
from d2sd.calibration.replays import compare_replays
from d2sd.calibration.report import compare_runs
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.sentences import difference_words, how_compared
from d2sd.trace.trace import read_traces
from tests.unit.steps import calibrated, made_step, simulated, statistics_of


def side(runs, prompts=None):
    return statistics_of(runs, prompts or [f"prompt {n}" for n in range(len(runs))]).side()


def figure(result, name):
    return next(d for d in result.figures if d.name == name)


def test_compare_identical_sides_finds_no_difference_in_any_order():
    runs = simulated(12, 20)
    result = compare(side(runs), side(runs))
    assert (result.paired, result.unit) == (True, "prompt")
    assert all(d.difference.value == 0 for d in result.figures if d.difference.value is not None)
    assert not any(d.difference.excludes_zero for d in result.figures)
    assert "bootstrap by prompt, resampling both sides together" in how_compared(result)
    table = side(runs).table
    assert figure(result, "nodes").a.value == pytest.approx(table.nodes.sum(1).mean() + 1)  # with the anchor
    assert figure(result, "repaired").a.value == pytest.approx(table.repaired[table.redrafted].mean())
    names = [f"prompt {n}" for n in range(12)]
    turned = compare(side(runs, names), side(runs[::-1], names[::-1]))
    assert turned.paired
    assert not compare(side(runs[:7]), side(runs[:7])).paired  # fewer than eight prompts
    assert all(d.difference.value is None for d in compare(side([]), side([])).figures)
    assert figure(turned, "tokens").difference.low == figure(turned, "tokens").difference.high == 0


def test_compare_finds_over_confident_drafter_unless_it_is_the_same():
    honest, sure = simulated(20, 25, seed=1), simulated(20, 25, true_temperature=3, seed=2)
    result = compare(side(honest), side(sure))
    ece, gap = figure(result, "ece_above_chance"), figure(result, "gap")
    assert ece.a.low < ece.a.value < ece.a.high
    assert ece.a.value < 0.03
    assert ece.difference.excludes_zero
    assert ece.difference.value > 0.05
    assert gap.difference.high < 0
    assert difference_words(ece).endswith(" higher")
    result = compare(*(replace(side(runs), drafter="tiny: dflash") for runs in (honest, sure)))
    assert result.same_drafter
    assert not any(figure(result, name).difference.excludes_zero for name in ("gap", "brier", "ece_above_chance"))
    assert difference_words(figure(result, "ece_above_chance")) == "no interval"
    assert how_compared(result).endswith("its calibration is not compared.")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(1, 2, "1.00 to 2.00 more"), (-2, -1, "1.00 to 2.00 fewer"), (2, 2.001, "2.00 more"), (-1, 4, "not clear: 1.00 fewer to 4.00 more"), (0, 0, "the same")],
)  # fmt: skip
def test_difference_words_state_interval_of_second_side(low, high, words):
    assert difference_words(Difference("tokens", Estimate(4), Estimate(5), Estimate(1, low, high), 9, 9)) == words


@pytest.mark.parametrize(
    ("runs", "other_prompts", "same_text"),
    [(12, [f"other {n}" for n in range(12)], False), (12, [f"prompt {11 - n}" for n in range(12)], False), (1, None, True)],
    ids=["other prompts", "the same prompts in another order", "one text"],
)  # fmt: skip
def test_compare_side_intervals_match_calibrate(runs, other_prompts, same_text):
    runs_a, runs_b = simulated(runs, 40, seed=1), simulated(runs, 40, seed=4)
    prompts = other_prompts or ["prompt 0"]
    result = compare(side(runs_a), side(runs_b, prompts), same_text)
    assert result.paired is ("prompt 0" in prompts)
    assert result.unit.startswith("block of") is same_text
    assert not compare(side(runs_a[:1]), side(runs_b[:1])).paired  # one text each; they may differ
    tokens = figure(result, "tokens")
    width, width_a, width_b = (each.high - each.low for each in (tokens.difference, tokens.a, tokens.b))
    if not result.paired:  # wider than the interval of one difference: all intervals hold at once
        assert width > 1.2 * np.hypot(width_a, width_b)
    for runs_of_side, name in ((runs_a, "a"), (runs_b, "b")):
        report = calibrated(runs_of_side)
        assert getattr(figure(result, "redraft"), name) == report.gains.per_redraft
        assert getattr(figure(result, "tokens"), name) == report.gains.tokens_per_step
        assert getattr(figure(result, "gap"), name) == report.gap
        assert getattr(figure(result, "brier"), name) == report.brier
        assert report.gap.low is not None


def test_compare_speed_is_tokens_over_time_and_redraft_gain_excludes_lower_ranked_choices():
    step = made_step([0.9, 0.8], 1, (0,))
    other = structs.replace(step.nodes[2], candidates=(), state="accepted")
    step = structs.replace(step, nodes=(*step.nodes[:2], other), accepted=(1, 2), branches=(step.first_draft,))
    runs = [[structs.replace(step, elapsed=0.5 * (n + 1)) for n in range(4)]] * 8
    result = compare(side(runs), side(runs))
    assert (figure(result, "speed").a.value, figure(result, "speed").count_a) == (4.0, 32)
    assert figure(result, "redraft").a.value == 0
    assert figure(result, "first").a.value == 1


def test_compare_pairing_by_prompt_narrows_interval():
    """Prompts differ far more than the sides, so resampling the sides independently hides the difference."""
    rng = np.random.default_rng(0)

    def runs(shift):
        levels = np.linspace(0.2, 0.9, 16)
        out = []
        for level in levels:
            count = rng.binomial(10, min(1, level + shift), 20)
            out.append([made_step([0.9] * 10, int(c) if c < 10 else 10, (0, 1), n) for n, c in enumerate(count)])
        return out

    a, b = runs(0), runs(0.05)
    paired = figure(compare(side(a), side(b)), "tokens").difference
    apart = figure(compare(side(a), side(b, [f"other {n}" for n in range(16)])), "tokens").difference
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)
    assert paired.low > 0


def test_newcombe_keeps_interval_at_zero_and_one():
    runs = [[made_step([0.5] * 3, 1, (0,), n) for n in range(4)] for _ in range(10)]
    hit = figure(compare(side(runs), side(runs)), "hit")
    assert (hit.a.value, hit.b.value) == (0, 0)
    assert hit.difference.low < 0 < hit.difference.high


@pytest.fixture(scope="module")
def recorded_runs():
    """The page's opening run, cut into parts; the first part comes again, as trees without a first draft."""
    (trace,) = read_traces(HOME / "assets" / "traces" / "opening.jsonl.gz")
    parts = [trace.steps[start : start + 9] for start in range(0, len(trace.steps), 9)]
    parts.insert(2, tuple(structs.replace(s, first_draft=None, tempered=()) for s in parts[0]))
    return [Trace({**trace.header, "prompt": f"p{n}"}, None, part, None) for n, part in enumerate(parts)]


def test_run_statistics_are_of_all_runs_added_so_far(recorded_runs):
    """Reports between the runs change nothing; drafts and trees of other shapes may follow."""
    statistics = RunStatistics()
    for trace in recorded_runs:
        statistics.report()
        statistics.add(trace)
    assert statistics.report() == calibrate(recorded_runs)
    assert len(statistics) == len(recorded_runs)
    assert statistics.report().second is not None


def test_run_statistics_release_added_runs():
    class Steps(list):
        """Steps to which there can be weak references."""

    held = Steps(simulated(1, 6)[0])
    seen = weakref.ref(held)
    statistics = RunStatistics([Trace({"method": "d2sd"}, None, held, None)])
    del held
    gc.collect()
    assert seen() is None
    assert len(statistics) == 1


def test_compare_runs_pairs_blocks_only_of_texts_in_same_order(recorded_runs):
    statistics, reordered = RunStatistics(recorded_runs[:2]), RunStatistics(recorded_runs[1::-1])
    assert compare_runs(statistics, statistics).paired
    assert not compare_runs(statistics, reordered).paired


def committed_counts(rate, seed, count=24):
    """Committed tokens per step; each of up to 7 drafted tokens is accepted with probability ``rate``."""
    rng = np.random.default_rng(seed)
    return [(tuple(rng.geometric(1 - rate, 30).clip(max=8).tolist()), False) for _ in range(count)]


def test_compare_replays_separates_better_from_equal_drafter():
    groups = ["a", "b"] * 12
    better, twin, base = compare_replays(
        ["x", "y", "z"], [committed_counts(0.6, 1), committed_counts(0.4, 0), committed_counts(0.4, 0)], groups
    )
    assert base.whole.difference is None
    assert better.whole.difference.low > 0.3
    assert all(group.difference.low > 0 for group in better.groups.values())
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
    better, base = committed_counts(0.6, 1), committed_counts(0.4, 0)
    one, *_ = compare_replays(["x", "y"], [better, base], ["a"] * 24)
    three, *_ = compare_replays(["x", "z", "y"], [better, committed_counts(0.4, 2), base], ["a", "b"] * 12)
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
