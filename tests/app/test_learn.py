"""The tour: what each stop says is what the step holds, for every method and every step."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest
from msgspec import structs

from app import presets
from app.learn import live_settings
from app.learn.stops import decimal, milliseconds, odds, quoted, visits
from app.learn.tour import lessons, tokens_of
from app.learn.view import lesson_run, tour
from d2sd import METHODS, DecodeConfig, Trace
from d2sd.costs.runs import works_of
from d2sd.trace.metrics import boundary_hit, closed_from, totals
from d2sd.trace.run import OUTCOME, RecordedRun

STOPS = ["anchor", "draft", "confidence", "boundary", "branches", "verify", "commit", "cost", "temperature"]


@pytest.fixture(scope="module")
def recorded():
    return lesson_run().trace()


@pytest.fixture(scope="module")
def told(recorded):
    """The step that the tour begins with, and its stops by id."""
    number = instructive(recorded)
    return recorded.steps[number], {s.id: s for s in lessons(recorded)[number].stops}


def instructive(trace):
    """The step that is chosen of all steps of a trace."""
    return RecordedRun.of(trace.records()).instructive


def equation(stop):
    return "".join(words for _, words in stop.equation)


def test_the_tour_has_nine_stops_in_the_order_of_a_step(recorded):
    told = lessons(recorded)
    assert len(told) == len(recorded.steps)
    assert all([s.id for s in lesson.stops] == STOPS for lesson in told)


def test_the_run_is_added_up_once_for_all_steps(recorded, monkeypatch):
    asked = []
    monkeypatch.setattr(Trace, "totals", property(lambda trace: asked.append(1) or totals(trace.steps)))
    assert len(lessons(recorded)) == len(recorded.steps)
    assert len(asked) == 1


def test_the_tour_begins_with_a_predicted_break_and_a_redraft_that_won(recorded):
    step = recorded.steps[instructive(recorded)]
    assert boundary_hit(step)
    assert min(tokens_of(step)) > 0
    assert step.committed[-1].node is None


def test_without_a_good_step_the_tour_begins_somewhere(recorded):
    assert instructive(replace(recorded, steps=())) == 0
    assert instructive(replace(recorded, steps=recorded.steps[:1])) == 0


def test_the_draft_is_that_of_the_step(told):
    step, stops = told
    numbers = dict(stops["draft"].numbers)
    assert numbers["places"] == str(len(step.first_draft.ids))
    assert numbers["guessed"].startswith(" ".join(quoted(t) for t in step.first_draft.texts[:5]))
    assert numbers["time"] == milliseconds(step.seconds.first_draft)
    assert dict(stops["anchor"].numbers) == {
        "anchor": quoted(step.anchor_text),
        "tokens before it": str(step.anchor_position),
    }


def test_the_confidences_are_those_of_the_step(told):
    step, stops = told
    confidence = step.first_draft.confidence
    *shown, least = [value for _, value in stops["confidence"].numbers]
    assert shown == [decimal(c) for c in confidence[:5]]
    assert least == f"{decimal(min(confidence))} at place {confidence.index(min(confidence)) + 1}"


def test_the_boundary_is_worked_out_as_the_engine_did(told):
    step, stops = told
    (example, value), *flags = stops["boundary"].numbers
    at = step.actual_boundary
    kept = step.first_draft.confidence[:at]
    assert example.startswith(f"r({at}) = {' · '.join(decimal(c) for c in kept)}")
    product = 1 - step.first_draft.confidence[at]
    for c in kept:
        product *= c
    assert value == decimal(product) == decimal(step.boundary_posterior[at])
    assert [(name.split("after ")[1], r) for name, r in flags] == [
        (str(i), decimal(step.boundary_posterior[i])) for i in step.selected_prefixes
    ]


def test_a_flag_behind_the_whole_draft_is_told_with_its_own_probability(told, recorded):
    step, _ = told
    drafted = len(step.first_draft.ids)
    ended = structs.replace(step, selected_prefixes=(0, drafted), actual_boundary=drafted)
    stops = {s.id: s for s in lessons(replace(recorded, steps=(ended,)))[0].stops}
    numbers = dict(stops["boundary"].numbers)
    assert numbers[f"flag 2: all {drafted} accepted"] == decimal(step.full_acceptance)


def test_branches_check_and_commit_count_what_happened(told, recorded):
    step, stops = told
    numbers = dict(stops["branches"].numbers)
    assert numbers["K, re-drafts"] == str(len(step.branches))
    assert numbers["kept tokens"] == ", ".join(str(b.prefix) for b in step.branches)
    assert any(value.endswith(f"→ {len(step.nodes)} nodes with the anchor") for value in numbers.values())
    checked = dict(stops["verify"].numbers)
    by_first, added = tokens_of(step)
    assert (checked["right in the first draft"], checked["added by re-drafts"]) == (str(by_first), str(added))
    assert checked["its next guess"] == quoted(step.first_draft.texts[step.actual_boundary])
    assert checked["the target wanted"] == quoted(step.committed[step.actual_boundary].text)
    assert checked["was the break expected"] == f"yes: flag {step.selected_prefixes.index(step.actual_boundary) + 1}"
    assert equation(stops["commit"]).endswith(f"{by_first} + {added} + 1 = {len(step.committed)}")
    kept = dict(stops["commit"].numbers)
    assert kept["bonus token"] == quoted(step.committed[-1].text)
    assert f"{recorded.totals.mean_acceptance_length:.2f}" in kept.values()


def test_fewer_redrafts_bring_no_more_and_all_of_them_what_the_step_brought(recorded):
    for lesson, step in zip(lessons(recorded), recorded.steps, strict=True):
        rows = lesson.by_branches
        assert len(rows) == len(step.branches) + 1
        assert list(rows) == sorted(rows)
        assert rows[-1] == (len(step.committed), len(step.nodes))
        kept = sum(0 in step.nodes[n].candidates for n in step.accepted)
        assert rows[0][0] == min(kept + 1, len(step.committed))


def test_the_walk_is_that_of_the_target(recorded):
    for step in recorded.steps:
        walked = visits(step)
        assert [v.node for v in walked] == [0, *step.accepted][: len(walked)]
        assert [v.text for v in walked] == [c.text for c in step.choices]
        assert [v.child for v in walked if v.child is not None] == list(step.accepted)[: len(walked)]
        assert (walked[-1].child is None) == (step.committed[-1].node is None)


def test_what_can_be_drawn_are_the_targets_own_probabilities_where_the_draft_broke(told):
    step, stops = told
    here = odds(step)
    assert here == stops["temperature"].odds
    at = [0, *step.accepted][step.actual_boundary]
    drafted = {n.text: n.target_probability for n in step.nodes if n.parent == at}
    assert {o.text: o.probability for o in here if o.drafted} == drafted
    choice = step.choices[step.actual_boundary]
    assert choice.probability in [o.probability for o in here]
    numbers = dict(stops["temperature"].numbers)
    assert numbers["one of the drafted tokens comes up"] == decimal(min(1.0, sum(drafted.values())))


def test_live_settings_are_those_of_real_runs(engine):
    trace = engine.generate("the cat sat", DecodeConfig("d2sd", 16))
    points = live_settings.replayed(engine, trace)
    assert {(p.num_branches, p.block_size) for p in points} == {
        (k, b) for k in live_settings.BRANCHES for b in live_settings.BLOCKS if k < b
    }
    for point in points[::5]:
        k = point.num_branches
        config = DecodeConfig("d2sd" if k else "dflash", 16, num_branches=max(1, k), block_size=point.block_size)
        run = engine.generate("the cat sat", config)
        assert point.committed == tuple(len(s.committed) for s in run.steps)
        assert point.works == tuple(works_of(run))
    drawn = live_settings.drawing(trace, points)
    assert all(sum(committed) == len(drawn["tokens"]) for _, _, committed, _ in drawn["points"])


def test_a_text_on_which_settings_matter_more_is_preferred():
    """A text on which γ alone matters shows nothing when K is changed."""

    def points(by_k, by_gamma):
        settings = [(1, 16), (2, 16), (4, 16), (2, 8), (2, 4)]
        steps = [*by_k, *by_gamma]
        return [live_settings.SettingsPoint(*s, (1,) * n, ()) for s, n in zip(settings, steps, strict=True)]

    assert live_settings.spread(points((30, 26, 24), (29, 36))) == pytest.approx(6 / 30)
    assert live_settings.spread(points((10, 9, 9), (17, 32))) == pytest.approx(1 / 10)
    assert live_settings.spread(points((120, 110, 108), (130, 135))) < live_settings.spread(
        points((20, 17, 17), (20, 25))
    )


@pytest.mark.parametrize("method", list(METHODS))
def test_every_step_of_every_method_can_be_told(engine, method):
    temperature = (list(METHODS).index(method) + (engine.models.target.config.model_type == "llama")) % 2  # each once
    trace = engine.generate("the cat sat", DecodeConfig(method, 16, temperature=temperature))
    for told, step in zip(lessons(trace), trace.steps, strict=True):
        assert [s.id for s in told.stops] == STOPS
        assert all(s.title and s.say and all(s.say) for s in told.stops)
        assert told.by_branches[-1] == (len(step.committed), len(step.nodes))


def test_the_packed_tour_is_the_recorded_run_with_all_its_lessons(recorded):
    data = json.loads(zlib.decompress(base64.b64decode(tour(None)), -zlib.MAX_WBITS))
    lines = data["lines"].splitlines()
    assert [line for line in lines if not line.startswith(OUTCOME)] == presets.lesson()["lines"]
    assert len(lines) == len(presets.lesson()["lines"]) + len(recorded.steps)
    chat = recorded.header["models"]["preset"] == presets.FIRST
    assert data["about"] == (presets.FIRST_SAID if chat else presets.TINY_SAID)
    assert data["examples"] == (presets.CHAT_EXAMPLES if chat else presets.EXAMPLES)
    assert len(data["lessons"]) == len(recorded.steps)
    assert data["start"] == instructive(recorded)
    assert data["run"] == recorded.header["run"]


def test_one_text_is_recorded_once_so_that_its_speed_is_one_number():
    tour, opening = presets.lesson()["lines"], presets.opening().lines()
    one, other = json.loads(tour[0]), json.loads(opening[0])
    assert one["prompt"] != other["prompt"] or tour == opening


def test_places_behind_a_drafted_end_of_text_are_said_to_get_no_flag(recorded):
    step = recorded.steps[0]
    assert closed_from(step, "d2sd") is None
    likeliest = max(range(len(step.boundary_posterior)), key=step.boundary_posterior.__getitem__)
    ended = structs.replace(step, selected_prefixes=tuple(range(likeliest)))
    assert closed_from(ended, "d2sd") == likeliest
    assert closed_from(ended, "random_prefix") is None
    stop = next(s for s in lessons(replace(recorded, steps=(ended,)))[0].stops if s.id == "boundary")
    assert any("get no flag" in sentence for sentence in stop.say)
