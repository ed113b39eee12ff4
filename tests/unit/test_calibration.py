from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from msgspec import structs

from d2sd import load_trace
from d2sd.__about__ import HOME
from d2sd.calibration import RunStatistics, alternatives, boundaries, calibrate, read_report, scores, steps
from d2sd.calibration.resampling import RESAMPLES, Estimate, Resampler
from d2sd.calibration.steps import Scores
from d2sd.decoding.inspection import tempered
from d2sd.errors import InputError
from d2sd.trace.events import Committed
from tests.unit.steps import calibrated, made_step, of_two, simulated, statistics_of, tabulated

TRACES = HOME / "assets" / "traces"


def draw(count, seed=0):
    """Scores whose tokens are accepted with exactly their confidence."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0, 1, count)
    accepted = (rng.uniform(0, 1, count) < confidence).astype(float)
    return Scores(np.arange(count), np.ones(count, int), confidence, accepted)


@pytest.fixture(scope="module")
def recorded():
    return [load_trace(TRACES / "opening.jsonl.gz"), load_trace(TRACES / "second.jsonl.gz")]


def test_expected_calibration_error_of_known_gap():
    confidence, accepted = np.array([0.95] * 10 + [0.25] * 10), np.array([1.0] * 5 + [0.0] * 5 + [1.0] * 5 + [0.0] * 5)
    error = scores.expected_calibration_error(confidence, accepted)
    assert error == pytest.approx((0.45 + 0.25) / 2)


def test_chance_error_matches_mean_error_of_calibrated_drafter():
    errors = [
        scores.expected_calibration_error(d.confidence, d.accepted) for d in (draw(500, seed=s) for s in range(60))
    ]
    assert np.mean(errors) == pytest.approx(scores.chance_error(draw(500).confidence), rel=0.1)


def test_at_temperature_interpolates_softmax_confidence():
    logits = torch.randn(400, 300, generator=torch.Generator().manual_seed(0)) * 3
    best = logits.argmax(-1)
    grid = alternatives.grid_confidence(logits.softmax(-1).max(-1).values.numpy(), tempered(logits, best).numpy())
    for by in (0.5, 0.6, 1.0, 1.2, 1.7, 3.3, 4.0):
        exact = (logits / by).softmax(-1).max(-1).values.numpy()
        error = np.abs(alternatives.at_temperature(grid, by) - exact).max()
        assert error < (1e-3 if by in alternatives.GRID else 0.03)


def test_gap_interval_covers_truth_near_95_percent():
    inside = 0
    for seed in range(200):
        figure = scores.confidence_figures(draw(400, seed=seed), np.arange(400) // 50, Resampler(8, seed))["gap"]
        inside += figure.low <= 0 <= figure.high
    assert 160 <= inside <= 198


def test_resampler_interval_widens_for_many_tests():
    resamples = np.array([NormalDist().inv_cdf((n + 0.5) / RESAMPLES) for n in range(RESAMPLES)])
    for tests, by in ((1, 1.96), (300, 3.76)):  # 3.76 lies beyond the last resample, 3.29
        figure = Resampler(10).figure(0.0, resamples, tests)
        assert (-figure.low, figure.high) == (pytest.approx(by, rel=0.01), pytest.approx(by, rel=0.01))


def test_resampler_share_keeps_interval_at_zero_and_one():
    unit = np.repeat(np.arange(10), 3)
    resampler = Resampler(10)
    every = resampler.share(np.ones(30, bool), unit)
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(0.887, abs=1e-3)  # Wilson's interval for 30 of 30
    none = resampler.share(np.zeros(30, bool), unit)
    assert (none.value, none.low, none.high) == (0.0, 0.0, pytest.approx(0.113, abs=1e-3))
    some = np.arange(30) % 5 < 3
    assert resampler.share(some, unit) == resampler.ratio(some.astype(float), np.ones(30), unit)


def test_scores_are_of_positions_up_to_first_rejection(recorded):
    scored, steps = RunStatistics(recorded).counted().table.scores, [s for t in recorded for s in t.steps]
    for row, step in enumerate(steps):
        own = scored.take(scored.row == row)
        assert own.confidence.tolist() == list(step.first_draft.confidence[: len(own)])
        if step.actual_boundary is None:
            assert own.accepted.tolist() == [1] * len(step.committed)
        else:
            assert len(own) == min(step.actual_boundary + 1, len(step.first_draft.ids))
            assert own.accepted.tolist() == [k < step.actual_boundary for k in range(len(own))]


def cut(steps, budget):
    """The steps with trees of at most ``budget`` nodes; the target's token at the cut is committed."""
    out = []
    for step in steps:
        if step.actual_boundary > budget:
            committed = (*step.committed[:budget], Committed(1, "a", "target", None))
            step = structs.replace(step, committed=committed, accepted=step.accepted[:budget], actual_boundary=None)
        out.append(structs.replace(step, nodes=step.nodes[: budget + 1]))
    return out


def test_calibration_is_unbiased_under_node_budget():
    """At the end of a tree, the target's choice still shows whether the next drafted token was right, so it is counted."""
    whole = [[s for s in run if s.actual_boundary < 15] for run in simulated(40, 40)]
    report = calibrated([cut(run, 3) for run in whole])
    assert report.matrix.unseen > 100
    assert abs(report.gap.value) < 0.02
    first = read_report(report)
    assert "can be trusted" in first[0].text
    assert any("the tree or the text ended before" in s.text for s in first)
    assert not any("whole first draft" in s.text for s in first)
    early = [p for p in report.by_position if p.position < 4]
    full = calibrated(whole).by_position
    assert [(p.count, p.accepted) for p in early] == [(p.count, p.accepted) for p in full[:3]]


def test_observed_boundary_falls_back_to_committed_tokens():
    # the last two end without a bonus token: after the whole draft, and within the draft
    for boundary, committed, expected in ((3, 4, (3, 3)), (1, 2, (1, 1)), (3, 3, (3, 3)), (1, 1, (1, steps.UNSEEN))):
        step = made_step([0.9, 0.8, 0.7], boundary)
        step = structs.replace(step, committed=step.committed[:committed], actual_boundary=None)
        assert steps.observed(step) == expected
    assert steps.observed(made_step([], None)) == (steps.UNSEEN, steps.UNSEEN)


def test_boundary_hits_count_only_redrafted_steps():
    steps = [made_step([0.9, 0.3], 1, (1,) if n < 35 else (), n) for n in range(400)]
    report = calibrated([steps])
    assert (report.ranks.steps, report.ranks.chosen) == (400, 35)
    assert report.ranks.chance_used == pytest.approx(1 / 2)
    assert any("of 35 steps; with random prefixes, in 50%" in s.text for s in read_report(report))


def test_calibration_units_depend_on_known_prompts():
    runs = simulated(10, 30)
    report = calibrated(runs, ["the same"] * 10)
    assert (report.runs, report.prompts, report.unit) == (10, 1, "block of 2 steps")
    assert any("Only 1 prompt:" in s.text for s in read_report(report))
    unknown = tabulated(runs)
    assert steps.units(unknown) == (pytest.approx(unknown.run), "prompt")
    assert unknown.prompts == 10
    assert calibrated(simulated(3, 30)).unit == "step"


def test_run_statistics_refuse_too_many_cells():
    wide = made_step([0.5] * 900, 1)
    for runs in (
        [[wide] + [made_step([0.5], 1)] * 10_000],
        [[wide], [made_step([0.5], 1)] * 10_000],
        [[made_step([0.5] * 4000, 1)]],
    ):
        with pytest.raises(InputError, match="too many to measure together"):
            statistics_of(runs)


def test_calibrate_combines_drafts_of_different_length():
    report = calibrated([[made_step([0.9, 0.8], 2)], [made_step([0.9, 0.8, 0.1], 2)], [made_step([], None)]])
    assert report.positions == 5
    assert report.matrix.counts[-1][-1] == 1  # γ = 3: full acceptance, predicted and observed
    assert report.matrix.counts[2][2] == 1
    assert sum(map(sum, report.matrix.counts)) == 2
    assert report.ranks.steps == 1


def test_calibration_gains_add_up_to_run_totals(recorded):
    gains, steps = calibrate(recorded).gains, [s for t in recorded for s in t.steps]
    tokens = sum(len(s.committed) for s in steps) / len(steps)
    assert gains.tokens_per_step.value == pytest.approx(tokens)
    assert sum(s.tokens.value for s in gains.sources) + gains.bonus == pytest.approx(tokens)
    assert sum(s.nodes for s in gains.sources) == pytest.approx(sum(len(s.nodes) - 1 for s in steps) / len(steps))
    assert [s.branch for s in gains.sources] == [0, 1, 2, 3, 4]


def test_read_report_advises_temperature_for_over_confidence():
    report = calibrated(simulated(40, 40, true_temperature=2.5))
    sentences = read_report(report)
    assert sentences[0].tone == "bad"
    assert "over-confident" in sentences[0].text
    assert any(
        s.chart == "uniform" and 9 in s.places and "Over-confident at confidences of" in s.text for s in sentences
    )
    assert report.advice is not None
    assert report.advice.temperatures[0] == pytest.approx(2.5, rel=0.2)
    assert report.advice.error_after < report.advice.error_before / 2
    (advice,) = (s for s in sentences if "temperature" in s.text)
    assert advice.tone == "mixed"
    assert advice.text.startswith("Softmax temperatures by position (2.")
    assert ") improve the calibration" in advice.text
    assert "of the steps would select other prefixes (boundary hit rate" in advice.text


TRUE_TEMPERATURES = (1.0, 1.6, 2.2, 1.3)


@pytest.fixture(scope="module")
def heated():
    """Steps whose tokens are accepted with their confidence at ``TRUE_TEMPERATURES``, one for each position."""
    rng, of_torch, runs = np.random.default_rng(0), torch.Generator().manual_seed(0), []
    for _ in range(40):
        runs.append([])
        for number in range(60):
            logits = torch.randn(len(TRUE_TEMPERATURES), 60, generator=of_torch) * 2.4
            best = logits.argmax(-1)
            true = (logits / torch.tensor(TRUE_TEMPERATURES)[:, None]).softmax(-1).max(-1).values.numpy()
            lucky = rng.uniform(size=len(true)) < true
            boundary = len(true) if lucky.all() else int(np.argmin(lucky))
            confidence = logits.softmax(-1).max(-1).values.tolist()
            runs[-1].append(made_step(confidence, boundary, (0, 1), number, tempered(logits, best).tolist()))
    return statistics_of(runs)


def test_temperatures_of_positions_equal_search_over_grid(heated):
    """Plain loops over steps and a fine grid find the same temperatures."""
    advice, tables = heated.report().advice, heated.counted()
    assert advice.temperatures == pytest.approx(TRUE_TEMPERATURES, rel=0.2)
    assert advice.error_after < advice.error_before / 2
    assert advice.improvement.low > 0
    table, grid, log_known = tables.table, np.geomspace(0.5, 4, 241), np.log(alternatives.GRID)
    rows = [n for n in range(len(table)) if table.run[n] % 2 == 0]
    before = dict.fromkeys(rows, 1.0)
    for k, fitted in enumerate(advice.temperatures):
        sure = {}
        for n in rows:
            known = np.insert(tables.tempered[n, k].astype(float), alternatives.GRID.index(1.0), table.confidence[n, k])
            odds = np.log(known / (1 - known))
            sure[n] = 1 / (1 + np.exp(-np.interp(np.log(grid), log_known, odds)))
        total = np.zeros(len(grid))
        for n in rows:
            survival = before[n] * sure[n]
            total += np.log(survival if k < table.matched[n] else 1 - survival)
        best = int(np.argmax(total))
        assert fitted == pytest.approx(grid[best], rel=0.02)
        before = {n: before[n] * sure[n][best] for n in rows}


def test_temperature_errors_are_measured_on_other_half(heated):
    advice, tables = heated.report().advice, heated.counted()
    table, grid = tables.table, alternatives.grid_confidence(tables.table.confidence, tables.tempered)
    judged = table.run % 2 == 1
    survived = np.arange(4) < table.matched[judged, None]
    for error, confidence in (
        (advice.error_before, table.confidence),
        (advice.error_after, alternatives.scaled(grid, advice.temperatures)),
    ):
        survival = np.cumprod(confidence[judged], axis=1)
        expected = scores.expected_calibration_error(survival.ravel(), survived.ravel().astype(float))
        assert error == pytest.approx(expected, abs=1e-9)


def test_temperatures_are_unbiased_under_node_budget():
    """Positions beyond the tree are not counted: a rejection would be seen there, an acceptance would not."""
    runs = [[s for s in run if s.actual_boundary < 15] for run in simulated(40, 60)]
    whole, short = (calibrated(made).advice for made in (runs, [cut(run, 3) for run in runs]))
    assert short.temperatures[:4] == whole.temperatures[:4]
    assert set(short.temperatures[4:]) == {short.temperatures[3]}
    assert short.error_before < 0.03


def test_position_with_few_outcomes_takes_temperature_before():
    enough, confidence = alternatives.MIN_OUTCOMES, np.array([0.9, 0.9])
    grid = np.tile(alternatives.grid_confidence(confidence, of_two(confidence)), (200, 1, 1))
    # position 1 is over-confident, position 2 is always right
    survived = np.tile(np.arange(200)[:, None] % 10 < 6, (1, 2))
    for count in (enough - 1, enough):
        observed = np.stack([np.ones(200, bool), np.arange(200) < count], axis=1)
        first, second = alternatives.fit_temperatures(grid, survived, observed)
        assert first > 2
        assert (second == first) == (count < enough)


def chosen_steps(kind, count):
    """Steps that select one of two prefixes; with kind "changing", a higher temperature selects the other one."""
    confidence = np.array([0.9, 0.6] if kind == "changing" else [0.3, 0.3])
    others = of_two(confidence) if kind == "changing" else np.repeat(confidence[:, None], 6, axis=1)
    return [made_step(confidence.tolist(), 0, (1,), n, others.tolist()) for n in range(count)]


def test_changed_share_is_of_judged_steps_with_prefixes():
    fitted = chosen_steps("changing", 20)
    unselected = [structs.replace(s, selected_prefixes=()) for s in chosen_steps("changing", 5)]
    judged = [*chosen_steps("changing", 6), *chosen_steps("same", 14), *unselected]
    advice = calibrated([fitted, judged] * 5).advice
    assert advice.temperatures == (4.0, 4.0)
    assert advice.changed == pytest.approx(6 / 20)


def test_temperatures_that_leave_confidence_change_nothing():
    advice = calibrated([chosen_steps("same", 20)] * 10).advice
    assert advice.changed == 0
    assert advice.error_after == pytest.approx(advice.error_before)
    assert advice.improvement.value == pytest.approx(0, abs=1e-6)  # confidences are recorded in 32 bits
    assert advice.hits_after == advice.hits_before


def test_temperature_advice_needs_enough_positions_in_both_halves():
    few, many = chosen_steps("changing", 2), chosen_steps("changing", 20)
    for odd, even in ((few, many), (many, few)):
        assert calibrated([even, odd] * 5).advice is None
    assert calibrated([many] * 10).advice is not None
    without = [structs.replace(s, selected_prefixes=()) for s in many]
    advice = calibrated([without] * 10).advice
    assert (advice.changed, advice.hits_before, advice.hits_after) == (None, None, None)


def test_prefixes_of_equal_probability_are_ranked_shorter_first():
    confidence = np.array([[0.9, 0.2, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, np.nan]])
    assert boundaries.prefix_ranks(confidence).tolist() == [[1, 0, 2], [0, 1, 2], [0, 1, 2]]
    assert boundaries.ranks(confidence, np.array([1, -1, 2])).tolist() == [0, 3, 3]


def test_temperature_advice_needs_tempered_confidences():
    runs = [[structs.replace(step, tempered=()) for step in run] for run in simulated(40, 40, true_temperature=2.5)]
    report = calibrated(runs)
    assert report.advice is None
    assert not any("temperature" in s.text for s in read_report(report))
    those = simulated(20, 40, true_temperature=2.5, seed=1)
    alone, some = (calibrated([*more, *those]).advice for more in ((), runs[:20]))
    assert some.temperatures == alone.temperatures  # runs without tempered confidences are ignored


def test_read_report_calls_calibrated_confidence_trustworthy():
    report = calibrated(simulated(40, 40))
    first, *rest = read_report(report)
    assert first.tone == "good"
    assert "can be trusted" in first.text
    assert not any("Over-confident" in s.text for s in rest)
    assert any("do not clearly improve the calibration" in s.text for s in rest)


def test_read_report_says_too_few_positions():
    report = calibrated([[made_step([0.9, 0.2], 1)]])
    assert [s.tone for s in read_report(report)] == ["few"] * 4
    assert report.ece.low is None
    assert report.advice is None


@pytest.mark.parametrize("runs", [[], [[]], [[made_step([], None)]]])
def test_read_report_says_nothing_to_score(runs):
    (only,) = read_report(calibrated(runs))
    assert "Nothing to score" in only.text


def test_calibrate_scores_tree_paths_without_block_draft(recorded):
    traces = [
        replace(t, steps=tuple(structs.replace(s, first_draft=None, tempered=()) for s in t.steps)) for t in recorded
    ]
    statistics = RunStatistics(traces)
    report, tables = statistics.report(), statistics.counted()
    assert report.of_paths
    assert report.positions == len(tables.verified) == sum(b.count for b in report.uniform)
    steps = [s for t in traces for s in t.steps]
    counted = [s for s in steps if s.committed[-1].node is None]
    assert report.positions == sum(len(s.nodes) - 1 for s in counted)
    assert tables.verified.accepted.sum() == sum(len(s.accepted) for s in counted)
    step = steps[tables.verified.row[0]]
    node = step.nodes[tables.node[0]]
    expected = 1.0
    while node.id:
        expected, node = expected * node.drafter_probability, step.nodes[node.parent]
    assert tables.verified.confidence[0] == pytest.approx(expected)
    first, *_ = read_report(report)
    assert first.text.startswith("No block was drafted: every verified node")


def test_read_report_advises_fewer_redrafts_without_gain():
    report = calibrated(simulated(4, 20))
    first = report.gains.sources[0]

    def advice(tokens):
        redrafts = tuple(replace(first, branch=j, tokens=Estimate(tokens), nodes=7.0) for j in (1, 2))
        seen = replace(report, gains=replace(report.gains, sources=(first, *redrafts)))
        return next(s.text for s in read_report(seen) if s.text.startswith("Re-drafts add"))

    assert "the first draft alone does as well" in advice(0.0)
    assert "a K below 2 may do as well" in advice(0.01)
