"""Thresholds that stop drafting: figures against plain loops, choice of a threshold, and engines that support it."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean

import pytest
from msgspec import structs

from d2sd.__about__ import HOME
from d2sd.__main__ import main
from d2sd.calibration import RunStatistics
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.thresholds import (
    Stop,
    StopAdvice,
    engine_settings,
    stop_report,
    stop_table,
    verdict,
)
from d2sd.costs.machines import PAPER
from d2sd.figures.calibration import calibration_panels
from d2sd.trace.metrics import DraftCosts
from d2sd.trace.trace import read_traces
from tests.unit.steps import calibrated, made_step, simulated, tabulated

MEASURED = HOME / "assets" / "traces" / "measured.jsonl.gz"
VERIFY = DraftCosts("a machine", lambda rows, nodes: 1.0 + 0.1 * rows + 0.5 * nodes)


@pytest.fixture(scope="module")
def recorded():
    return list(read_traces(MEASURED))


def left(confidence, rule, value):
    """Number of tokens of a draft that a cut leaves."""
    if rule == "length":
        return min(len(confidence), int(value))
    product = 1.0
    for k, c in enumerate(confidence):
        product *= c
        if (product if rule == "product" else c) < value:
            return k
    return len(confidence)


def committed(step, kept):
    """Number of tokens that a step commits with ``kept`` tokens of its draft; the text may end inside the draft."""
    count = 0
    for token, wrote in zip(step.first_draft.ids[:kept], step.committed, strict=False):
        if token != wrote.token:
            break
        count += 1
    return min(count + 1, len(step.committed))


def table_of(runs):
    return tabulated(runs, [f"p{n}" for n in range(len(runs))])


def test_stops_equal_plain_loops_over_recorded_steps(recorded):
    stops = RunStatistics(recorded).report().stops
    steps = [s for t in recorded for s in t.steps]
    assert stops.steps == len(steps) > sum(s.actual_boundary is not None for s in steps)
    assert {s.rule for s in stops.stops} == {"product", "single", "length"}
    for stop in stops.stops:
        kept = [left(s.first_draft.confidence, stop.rule, stop.value) for s in steps]
        tokens = [committed(s, k) for s, k in zip(steps, kept, strict=True)]
        assert stop.nodes.value == pytest.approx(1 + fmean(kept))
        assert stop.alpha.value == pytest.approx(fmean(tokens))
        assert stop.kept.value == pytest.approx(fmean(tokens) / fmean(committed(s, 15) for s in steps))
        assert stop.alpha.low <= stop.alpha.value <= stop.alpha.high
    whole = stops.stops[-1]
    assert (whole.rule, whole.value, whole.nodes.value, whole.kept.value) == ("length", 15, 16, 1)


def test_cuts_shorten_draft_time_of_sequential_drafters_only():
    """The product falls below 0.5 at the second of three tokens, which a draft model has computed by then."""
    table = tabulated([[made_step([0.9, 0.4, 0.9], 3)] * 3])
    for sequential, cut_rows, short_rows in ((False, 4, 4), (True, 3, 2)):
        stops = {(s.rule, s.value): s for s in stop_report(table, sequential, VERIFY).stops}
        expected = {("product", 0.5): (cut_rows, 2), ("single", 0.5): (cut_rows, 2), ("single", 0.1): (4, 4)}
        expected |= {("length", 1): (short_rows, 2), ("length", 3): (4, 4)}
        for key, (rows, nodes) in expected.items():
            tokens = nodes  # all remaining drafted tokens are accepted
            assert stops[key].seconds.value == pytest.approx(VERIFY.seconds(rows, nodes) / tokens)
            assert stops[key].slowdown.value == pytest.approx(stops[key].seconds.value / (VERIFY.seconds(4, 4) / 4))
    assert stop_report(table).stops[0].seconds == stop_report(table).stops[0].slowdown == Estimate(None)


def halves(even, odd, prompts=16):
    """Steps of prompts that alternate between ``even`` and ``odd``."""
    return table_of([[even, odd][n % 2] for n in range(prompts)])


def test_threshold_is_chosen_on_one_half_and_judged_on_other():
    """In the first half, unsure tokens are rejected, so cutting them is free; in the other they are accepted."""
    unsure = [0.9, 0.15, 0.9, 0.9]
    fit, judged = [made_step(unsure, 1)] * 5, [made_step(unsure, 4)] * 5
    few = stop_report(halves(fit, judged, 7))
    assert few.advice is None
    assert verdict(few).tone == "few"
    unclear = stop_report(halves(fit, judged))
    assert {a.stop.rule for a in unclear.advice} == {"product", "single", "length"}
    for a in unclear.advice:
        assert (a.stop.nodes.value, a.stop.alpha.value, a.whole.nodes.value, a.whole.alpha.value) == (2, 2, 5, 5)
        assert not a.clear
    assert verdict(unclear).text.startswith(
        "Nothing is clearly better than whole drafts. The best cut found: if drafting stops "
    )
    swapped = stop_report(halves(judged, fit))
    assert swapped.advice == ()
    assert "Nothing is better than whole drafts" in verdict(swapped).text
    same = stop_report(halves(fit, fit))
    assert all(a.clear and a.stop.kept.value == 1 for a in same.advice)
    assert verdict(same).tone == "good"
    assert "a step verifies 2.0 nodes instead of 5.0; α stays at 2.00." in verdict(same).text


def test_threshold_with_costs_is_the_fastest():
    steps = [made_step([0.9, 0.6, 0.3, 0.3], 2), made_step([0.9, 0.6, 0.3, 0.3], 4)]
    slow, free = (
        stop_report(halves(steps, steps), costs=DraftCosts("m", lambda rows, nodes, each=each: 1.0 + each * nodes))
        for each in (1.0, 0.0)
    )
    assert free.advice == ()
    for a in slow.advice:
        fastest = min(s.seconds.value for s in slow.stops if s.rule == a.stop.rule)
        assert a.stop.seconds.value == pytest.approx(fastest)
        assert a.clear == (a.stop.slowdown.high < 1)
    assert slow.advice


def test_stops_of_group_match_steps_of_group():
    runs, domains = simulated(16, 20), ["sums", "code"] * 8
    stops = stop_report(table_of(runs), domains=domains)
    best = stops.advice[0].stop
    assert [name for name, *_ in stops.groups] == ["code", "sums"]
    for name, whole, cut in stops.groups:
        alone = stop_report(table_of([run for run, domain in zip(runs, domains, strict=True) if domain == name]))
        (same_cut,) = (s for s in alone.stops if (s.rule, s.value) == (best.rule, best.value))
        assert (cut.nodes.value, cut.alpha.value) == pytest.approx((same_cut.nodes.value, same_cut.alpha.value))
        assert whole.alpha.value == pytest.approx(alone.stops[-1].alpha.value)
    assert stop_table(stops).rows[-1][0].startswith("sums: ")


def test_steps_without_confidences_give_no_stops():
    step = made_step([0.9, 0.2], 1)
    blank = structs.replace(step, first_draft=structs.replace(step.first_draft, confidence=()))
    report = calibrated([[blank] * 5] * 9)
    assert report.stops is None
    assert "stops" not in {p.id for p in calibration_panels(report)}
    assert stop_report(tabulated([[blank, step]] * 9)).steps == 9
    assert stop_report(table_of([[step], *[[blank]] * 15])).advice is None  # only one prompt has confidences


def settings_for(clear, sequential=False, has_head=False):
    """Settings for engines if the cuts of the rules ``clear`` are clearly better."""
    estimate = Estimate(1.0, 1.0, 1.0)
    cuts = {
        rule: Stop(rule, value, *[estimate] * 5)
        for rule, value in {"product": 0.05, "single": 0.3, "length": 7}.items()
    }
    made = stop_report(tabulated([[made_step([0.5] * 15, 3)]]), sequential)
    advice = tuple(StopAdvice(stop, stop, rule in clear) for rule, stop in cuts.items())
    return list(engine_settings(replace(made, advice=advice), has_head))


def test_engine_settings_are_named_only_where_they_exist():
    assert settings_for("") == []
    none, neither = settings_for(["product"])
    assert "have no setting for this" in none
    assert "no such setting either" in neither
    llama, others = settings_for(["product", "single"])
    assert "llama.cpp: --spec-draft-n-max 15 --spec-draft-p-min 0.3." in llama
    assert "have no setting for these" in others
    llama, vllm, sglang = settings_for(["length"])
    assert llama == "llama.cpp: --spec-draft-n-max 7."
    assert '"num_speculative_tokens": 7' in vllm
    assert sglang == "SGLang: --speculative-num-draft-tokens 8; this number includes the anchor."
    *_, sglang = settings_for(["length"], sequential=True)
    assert "--speculative-num-steps 7 --speculative-eagle-topk 1 --speculative-num-draft-tokens 8;" in sglang
    # The thresholds apply to the softmax, but llama.cpp reads the confidence head of a DSpark drafter.
    with_head = " ".join(settings_for(["single", "length"], has_head=True))
    assert "enable_adaptive_verification" in with_head
    assert "p-min" not in with_head
    assert "num_speculative" not in with_head


def test_calibrate_command_says_where_drafting_should_stop(recorded, tmp_path, capsys):
    assert main(["calibrate", "--traces", str(MEASURED), "--costs", "paper", "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert reports["all"]["stops"]["machine"] == PAPER.name
    assert len(reports["all"]["stops"]["groups"]) == len(reports) - 1
    assert reports["sums"]["stops"]["advice"] is None
    assert main(["calibrate", "--traces", str(MEASURED)]) == 0
    said = capsys.readouterr().out
    assert "product < 0.05" in said
    assert "ms per token" not in said
    assert main(["calibrate", "--traces", str(MEASURED), "--costs", "gone"]) == 2
    assert "there is no machine" in capsys.readouterr().err
    for method in ("draft_model", "dflash"):
        replace(recorded[0], header={**recorded[0].header, "method": method}).save(tmp_path / f"{method}.jsonl")
    assert main(["calibrate", "--traces", str(tmp_path), "--costs", "paper"]) == 2
    assert "one kind of drafter" in capsys.readouterr().err
