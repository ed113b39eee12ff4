"""What the second drafter would have added from another prefix: it equals what the run itself drafted there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from d2sd import METHODS, DecodeConfig, Engine, InputError, StepDone
from d2sd.methods import d2sd as d2sd_method
from d2sd.whatif.questions import redraft

AGAIN = [method.id for method in METHODS.values() if method.second_drafter != "none"]
PROMPT = "One day, a small dog named Max found a shiny key."


@pytest.fixture(scope="module")
def story(bundled):
    return bundled.generate(PROMPT, DecodeConfig("d2sd", 64))


@pytest.mark.parametrize("method", AGAIN)
@pytest.mark.parametrize("settings", [{}, {"block_size": 6, "second_block_size": 9}], ids=["trained", "longer"])
def test_a_prefix_that_the_run_chose_gives_what_the_run_drafted(bundled, method, settings):
    run, tried = bundled.generate(PROMPT, DecodeConfig(method, 8, **settings)), 0
    for event in run.steps:
        for branch in (b for b in event.branches if b.base == 0):
            found = redraft(bundled, run, event.step, branch.prefix)
            assert found.same is True
            assert found.draft.ids == branch.ids
            assert found.draft.texts == branch.texts
            assert found.draft.confidence == pytest.approx(branch.confidence, abs=1e-4)
            assert (branch.prefix, found.added) in found.chosen
            assert found.extra == 0
            tried += 1
    assert tried > 3


def test_every_prefix_brings_what_a_run_from_it_alone_commits(bundled, story, monkeypatch):
    """Held against real runs, in which the target itself says what it accepts."""
    ids, gained = [*story.prefill.prompt_token_ids, *story.token_ids], 0
    for event in story.steps[2:4]:
        for prefix in range(0, 12, 2):
            found = redraft(bundled, story, event.step, prefix)
            monkeypatch.setattr(d2sd_method, "select_prefixes", lambda posterior, count, prefix=prefix: (prefix,))
            # prefill commits the anchor
            run = bundled.stream(ids[: event.anchor_position], DecodeConfig("d2sd", 18))
            first = next(e for e in run if isinstance(e, StepDone))
            monkeypatch.undo()
            assert first.first_draft.ids == event.first_draft.ids
            assert first.branches[0].ids == found.draft.ids
            assert len(first.accepted) == first.actual_boundary + found.added
            assert found.extra == max(0, len(first.committed) - len(event.committed))
            gained += found.added > 0
    assert gained


def test_what_the_target_wanted_instead_is_named(bundled, story):
    event = next(e for e in story.steps if e.actual_boundary is not None and 0 < e.actual_boundary < 14)
    text = [c.token for c in event.committed]
    late = redraft(bundled, story, event.step, event.actual_boundary + 1)
    assert (late.kept, late.accepted, late.added) == (event.actual_boundary, 0, 0)
    assert late.wanted == bundled.texts[text[event.actual_boundary]]
    early = redraft(bundled, story, event.step, event.actual_boundary)
    assert early.kept == event.actual_boundary
    assert early.draft.ids[: early.accepted] == tuple(text[early.kept : early.kept + early.accepted])


def test_a_text_that_ends_within_a_re_draft_rejects_nothing_there(bundled):
    run = bundled.generate(PROMPT, DecodeConfig("d2sd", 3))
    found = redraft(bundled, run, 0, 0)
    assert found.accepted <= 2
    assert found.extra == 0
    assert found.wanted is None or found.accepted < 2


def test_what_cannot_be_re_drafted_is_a_sentence(bundled, story):
    last = len(story.steps)
    for step, prefix, sentence in (
        (last, 0, f"no step {last + 1}"),
        (-1, 0, "no step 0"),
        (0, -1, "no prefix of -1"),
        (0, 16, "no prefix of 16 tokens; choose 0 to 15"),
        (0, 15, "needs γ₂ > γ"),
    ):
        with pytest.raises(InputError, match=sentence):
            redraft(bundled, story, step, prefix)
    with pytest.raises(InputError, match="DFlash, has no second drafter"):
        redraft(bundled, bundled.generate(PROMPT, DecodeConfig("dflash", 8)), 0, 0)
    with pytest.raises(InputError, match="temperature 0 only"):
        redraft(bundled, bundled.generate(PROMPT, DecodeConfig("d2sd", 8, temperature=0.7)), 0, 0)
    for part, sentence in (("target", "another target than the models"), ("second_drafter", "another second drafter")):
        parts = {**story.header["parts"], part: {"weights": "0"}}
        with pytest.raises(InputError, match=sentence):
            redraft(bundled, replace(story, header={**story.header, "parts": parts}), 0, 0)
    alone = Engine(replace(bundled.models, second=None))
    with pytest.raises(InputError, match="needs a VP-Drafter"):
        redraft(alone, story, 0, 0)


def test_nothing_is_drafted_behind_a_drafted_end(bundled, story):
    first = story.steps[0].first_draft
    (end, *_) = bundled.models.target.end_ids
    ended = structs.replace(
        story.steps[0], first_draft=structs.replace(first, ids=(*first.ids[:3], end, *first.ids[4:]))
    )
    run = replace(story, steps=(ended, *story.steps[1:]))
    assert redraft(bundled, run, 0, 3).draft.prefix == 3
    with pytest.raises(InputError, match="ends the text at its token 4"):
        redraft(bundled, run, 0, 4)


def test_a_trace_whose_steps_are_of_another_text_is_refused(bundled, story):
    moved = structs.replace(story.steps[2], anchor_position=story.steps[2].anchor_position + 10**6)
    run = replace(story, steps=(*story.steps[:2], moved, *story.steps[3:]))
    with pytest.raises(InputError, match="does not fit its text"):
        redraft(bundled, run, 2, 0)
