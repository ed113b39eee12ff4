"""Calibration: confidences, temperatures, re-drafts, groups, trained heads, and the sentences about them."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from msgspec import structs

from d2sd import Trace, load_trace
from d2sd.__about__ import HOME
from d2sd.calibration import Estimate, RunStatistics, alternatives, boundaries, calibrate, read_report, scores, steps
from d2sd.calibration.report import MeasuredRuns
from d2sd.calibration.resampling import RESAMPLES, Resampler
from d2sd.calibration.steps import Scores
from d2sd.decoding.inspection import tempered
from d2sd.errors import InputError
from d2sd.trace.events import Committed, Draft
from tests.unit.steps import calibrated, made_step, of_two, simulated, statistics_of

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


def test_brier_score_is_mean_squared_difference_over_positions_of_ece(recorded):
    report, squares, of_perfect = calibrate(recorded), [], []
    for step in (s for t in recorded for s in t.steps):
        right = [token == c.token for token, c in zip(step.first_draft.ids, step.committed, strict=False)]
        scored = [*right[: right.index(False) + 1]] if False in right else right
        squares += [(c - r) ** 2 for c, r in zip(step.first_draft.confidence, scored, strict=False)]
        of_perfect += [c * (1 - c) for c, _ in zip(step.first_draft.confidence, scored, strict=False)]
    assert len(squares) == report.positions
    assert report.brier.value == pytest.approx(np.mean(squares))
    assert report.brier.low < report.brier.value < report.brier.high
    assert report.brier_chance == pytest.approx(np.mean(of_perfect))


def test_brier_score_includes_chance_only_for_calibrated_confidence():
    calibrated = draw(20_000)
    for scored, includes in ((calibrated, True), (replace(calibrated, confidence=np.full(20_000, 0.9)), False)):
        figures = scores.confidence_figures(scored, np.arange(20_000) // 50, Resampler(400))
        assert (figures["brier"].low <= figures["brier_chance"] <= figures["brier"].high) is includes


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
        of_step = scored.take(scored.row == row)
        assert of_step.confidence.tolist() == list(step.first_draft.confidence[: len(of_step)])
        if step.actual_boundary is None:
            assert of_step.accepted.tolist() == [1] * len(step.committed)
        else:
            assert len(of_step) == min(step.actual_boundary + 1, len(step.first_draft.ids))
            assert of_step.accepted.tolist() == [k < step.actual_boundary for k in range(len(of_step))]


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
    early = [p for p in report.by_position if p.position < 4]
    of_whole_trees = calibrated(whole)
    assert [(p.count, p.accepted) for p in early] == [(p.count, p.accepted) for p in of_whole_trees.by_position[:3]]
    temperatures = report.advice.temperatures
    assert temperatures[:4] == of_whole_trees.advice.temperatures[:4]
    assert set(temperatures[4:]) == {temperatures[3]}  # positions without outcomes take the temperature before


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
    assert report.advice.temperatures[0] == pytest.approx(2.5, rel=0.2)
    assert report.advice.error_after < report.advice.error_before / 2
    (advice,) = (s for s in sentences if "temperature" in s.text)
    assert ") improve the calibration" in advice.text


def test_temperatures_of_positions_are_those_of_the_acceptance():
    true_temperatures = [1.0, 1.6, 2.2, 1.3]
    statistics = statistics_of(simulated(80, 60, np.array(true_temperatures), seed=2, block=4))
    advice, tables = statistics.report().advice, statistics.counted()
    assert advice.temperatures == pytest.approx(true_temperatures, rel=0.15)
    assert advice.error_after < advice.error_before / 2
    assert advice.improvement.low > 0
    judged = tables.table.run % 2 == 1  # the other half of the prompts
    survival = np.cumprod(tables.table.confidence[judged], axis=1).ravel()
    survived = (np.arange(4) < tables.table.matched[judged, None]).ravel().astype(float)
    assert advice.error_before == pytest.approx(scores.expected_calibration_error(survival, survived), abs=1e-9)


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
    assert calibrated([chosen_steps("same", 20)] * 10).advice.changed == 0


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
    assert any("do not clearly improve the calibration" in s.text for s in rest)


@pytest.mark.parametrize("runs", [[], [[]], [[made_step([], None)]]])
def test_read_report_says_that_steps_are_missing(runs):
    (only,) = read_report(calibrated(runs))
    assert "Nothing to score" in only.text
    assert {s.tone for s in read_report(calibrated([[made_step([0.9, 0.2], 1)]]))} == {"few"}


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


def redraft(prefix, ids, confidence, base=0, drafter="second"):
    n = len(ids)
    return Draft(drafter, prefix, tuple(ids), ("a",) * n, tuple(confidence), ((),) * n, base)


def step_with(branches, wrote, ids=(11, 12, 13), boundary=1):
    step = made_step([0.9] * len(ids), boundary, (0, 1))
    return structs.replace(
        step,
        first_draft=structs.replace(step.first_draft, ids=ids),
        branches=tuple(branches),
        committed=tuple(Committed(t, "a", "first", None) for t in wrote),
    )


def redrafted(step):
    """Whether the prefix of each re-draft is right, and the scored tokens of the re-drafts."""
    tables = statistics_of([[step]]).counted()
    return tables.right.tolist(), tables.redrafted


def test_redrafts_are_scored_up_to_first_wrong_token():
    wrote = (11, 22, 23, 24)
    step = step_with([redraft(1, (22, 23, 99, 98), (0.9, 0.8, 0.7, 0.6)), redraft(2, (23,), (0.5,))], wrote)
    right, scores = redrafted(step)
    assert right == [True, False]
    assert scores.position.tolist() == [1, 2, 3]
    assert scores.confidence.tolist() == [0.9, 0.8, 0.7]
    assert scores.accepted.tolist() == [1, 1, 0]


def test_redrafted_tokens_after_text_end_are_not_scored():
    _, scores = redrafted(step_with([redraft(1, (22, 23), (0.9, 0.8))], (11, 22)))
    assert scores.position.tolist() == [1]
    assert redrafted(step_with([redraft(1, (22,), (0.9,))], (11,)))[0] == [False]


def test_redraft_continues_prefix_of_its_base():
    branches = [redraft(1, (22, 23), (1, 1)), redraft(2, (33,), (1,), base=1)]
    assert redrafted(step_with(branches, (11, 22, 33, 4)))[0] == [True, True]
    assert redrafted(step_with(branches, (11, 12, 33, 4)))[0] == [True, False]
    chain = [redraft(0, (11,), (0.9,), base=n) for n in range(1000)]  # is followed without recursion
    assert redrafted(step_with(chain, (11, 2)))[0] == [True] * 1000


def test_calibrate_groups_partition_positions():
    runs = simulated(10, 8)
    report = calibrated(runs, domains=["story"] * 5 + ["sum"] * 5)
    assert [g.name for g in report.domains] == ["story", "sum"]
    assert sum(g.positions for g in report.domains) == report.positions
    story, _ = report.domains
    alone = calibrated(runs[:5])
    assert story.tokens.value == pytest.approx(alone.gains.tokens_per_step.value)
    assert story.accepted == pytest.approx(alone.accepted)
    few, many = calibrated(runs, domains=["rare"] * 2 + ["usual"] * 8).domains
    assert (few.gap.low, few.gap.high) == (None, None)
    assert many.gap.low < many.gap.value < many.gap.high


def test_calibrate_reports_second_drafter_given_enough_tokens():
    step = step_with([redraft(1, (22, 23, 99), (0.9, 0.8, 0.7))], (11, 22, 23, 24))

    def said(report):
        return "\n".join(s.text for s in read_report(report))

    many = calibrated([[step] * 12] * 9)
    assert (many.second.redrafts, many.second.right, many.second.positions) == (108, 108, 324)
    assert many.second.accepted == pytest.approx(2 / 3)
    assert sum(b.count for b in many.second.uniform) == 324
    assert "The second drafter is far over-confident: mean confidence 80%, accepted 67%" in said(many)
    assert "Too few tokens to judge the second drafter" in said(calibrated([[step] * 12] * 2))
    for gap, words in ((-0.022, "slightly over"), (0.029, "slightly under"), (0.031, "under"), (-0.12, "far over")):
        second = replace(many.second, gap=Estimate(gap, gap - 0.001, gap + 0.001))
        assert f"The second drafter is {words}-confident" in said(replace(many, second=second))
    assert calibrated([[structs.replace(step, branches=())] * 12] * 9).second is None


def runs_of(said):
    """Runs whose tokens are right with probability 0.7; the head's confidence is ``said(accepted)``."""
    rng = np.random.default_rng(3)
    runs = []
    for _ in range(12):
        steps = []
        for _ in range(20):
            right = rng.random(4) < 0.7
            boundary = int(right.cumprod().sum())
            step = made_step([0.5] * 4, boundary)
            steps.append(structs.replace(step, trained=(tuple(said(k < boundary) for k in range(4)),)))
        runs.append(steps)
    return runs


def test_calibrate_recognises_better_confidence_head():
    sure = calibrated(runs_of(lambda right: 0.999 if right else 0.001))
    same = calibrated(runs_of(lambda _: 0.5))
    assert sure.head.ece.value < 0.01 < sure.ece.value
    assert sure.head.brier.value < 0.01 < sure.brier.value
    assert sure.head.ranks.within[0].value == 1
    for report, verdict in ((sure, "the head is better"), (same, "no clear difference")):
        texts = [s.text for s in read_report(report)]
        for name, start in (("brier", "Brier score: "), ("likeliest", "True boundary among the 4 likeliest: ")):
            (d,) = (d for d in report.head.differences if d.name == name)
            assert d.difference.excludes_zero is (report is sure and name == "brier")  # all boundaries are among four
            assert d.difference.value == pytest.approx(d.b.value - d.a.value)
            (line,) = (text for text in texts if text.startswith(start))
            assert line.endswith(f"(n = {d.count_a}); {verdict if name == 'brier' else 'no clear difference'}.")
        assert any(text.startswith("Confidence head: ") for text in texts)


def test_calibrate_examines_head_like_softmax():
    runs, rng = simulated(12, 20, seed=5), np.random.default_rng(6)
    heads = [[tuple(rng.uniform(size=15).tolist()) for _ in run] for run in runs]
    mixed, swapped = [], []
    for run, of_run in zip(runs, heads, strict=True):
        pairs = list(zip(run, of_run, strict=True))
        mixed.append([structs.replace(s, trained=(head,)) for s, head in pairs])
        drafts = [structs.replace(s.first_draft, confidence=head) for s, head in pairs]
        softmax = [(s.first_draft.confidence,) for s in run]
        parts = zip(run, drafts, softmax, strict=True)
        swapped.append([structs.replace(s, first_draft=d, trained=t, selected_prefixes=()) for s, d, t in parts])
    by_head, by_softmax = calibrated(mixed).head, calibrated(swapped)
    for name in boundaries.DraftConfidence.__dataclass_fields__:
        assert getattr(by_head, name) == getattr(by_softmax, name), name
    assert by_head.ece.value > calibrated(mixed).ece.value


def test_prefixes_count_for_confidence_that_selected_them():
    steps = [structs.replace(s, trained=(s.first_draft.confidence,)) for s in simulated(1, 40)[0]]
    for kind in ("softmax", "head"):
        header = {"method": "d2sd", "config": {"num_branches": 4, "confidence": kind}}
        report = calibrate([Trace(header, None, tuple(steps), None)])
        assert report.ranks.used.value is not None
        assert (report.ranks.num_branches, report.head.ranks.num_branches) == (
            (4, None) if kind == "softmax" else (None, 4)
        )
        assert (report.head.ranks.chosen > 0) is (kind == "head")


def test_listed_steps_of_head_charts_agree_with_its_figures():
    runs = runs_of(lambda right: 0.8 if right else 0.3)
    plain = [[structs.replace(step, trained=()) for step in run] for run in runs[:2]]
    traces = [Trace({"method": "d2sd"}, None, tuple(run), None) for run in (*plain, *runs)]
    measured = MeasuredRuns(traces)
    listing, head = measured.listing(), measured.statistics.report().head
    positions, of_steps = listing["places"]["positions"], listing["places"]["steps"]
    marks = [mark for step in positions["head-uniform"] for mark in step]
    assert [marks.count(n) for n in range(10)] == [b.count for b in head.uniform]
    assert sum(map(len, positions["head-positions"])) == sum(p.count for p in head.by_position)
    assert sum(map(len, of_steps["head-matrix"])) == sum(map(sum, head.matrix.counts))
    assert [sum(n in step for step in of_steps["head-ranks"]) for n in range(4)] == list(head.ranks.counts)
    assert listing["head"]["confidence"][0] == []  # a step without a head
    assert {c for step in listing["head"]["confidence"] for c in step} == {0.8, 0.3}


def test_calibrate_scores_head_on_steps_that_have_one():
    runs = runs_of(lambda _: 0.25)
    plain = [[structs.replace(step, trained=()) for step in run] for run in runs]
    report = calibrated([*runs, *plain])
    assert report.head.positions == report.positions / 2
    assert calibrated(plain).head is None
