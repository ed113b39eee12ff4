"""Questions about a step: re-drafts from chosen prefixes equal drafts of real runs, and typed drafts are verified."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from msgspec import structs

from d2sd import METHODS, DecodeConfig, Engine, InputError, StepDone
from d2sd.methods import d2sd as d2sd_method
from d2sd.replay.questions import MAX_TYPED, agreeing, redraft, spaced, verify_typed

AGAIN = [method.id for method in METHODS.values() if method.second_drafter != "none"]
PROMPT = "One day, a small dog named Max found a shiny key."


@pytest.fixture(scope="module")
def story(bundled):
    return bundled.generate(PROMPT, DecodeConfig("d2sd", 64))


LONGER = {"block_size": 6, "second_block_size": 9}


# The settings alternate by method; D²SD has both.
@pytest.mark.parametrize(
    ("method", "settings"),
    [("d2sd", {}), ("d2sd", LONGER), *((m, (LONGER, {})[n % 2]) for n, m in enumerate(AGAIN[1:]))],
)
def test_redraft_from_chosen_prefix_equals_recorded_draft(bundled, method, settings):
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


def test_redraft_gain_equals_run_from_that_prefix(bundled, story, monkeypatch):
    """Compared with real runs, in which the target verifies the re-draft."""
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


def test_redraft_names_token_wanted_by_target(bundled, story):
    event = next(e for e in story.steps if e.actual_boundary is not None and 0 < e.actual_boundary < 14)
    text = [c.token for c in event.committed]
    late = redraft(bundled, story, event.step, event.actual_boundary + 1)
    assert (late.kept, late.accepted, late.added) == (event.actual_boundary, 0, 0)
    assert late.wanted == bundled.texts[text[event.actual_boundary]]
    early = redraft(bundled, story, event.step, event.actual_boundary)
    assert early.kept == event.actual_boundary
    assert early.draft.ids[: early.accepted] == tuple(text[early.kept : early.kept + early.accepted])


def test_redraft_past_end_of_text_rejects_nothing(bundled):
    run = bundled.generate(PROMPT, DecodeConfig("d2sd", 3))
    found = redraft(bundled, run, 0, 0)
    assert found.accepted <= 2
    assert found.extra == 0
    assert found.wanted is None or found.accepted < 2


@pytest.mark.parametrize("question", [lambda *run: redraft(*run, 0), lambda *run: verify_typed(*run, "a")])
def test_step_questions_refuse_unusable_step_or_run(bundled, story, question):
    last = len(story.steps)
    for step, sentence in ((last, f"no step {last + 1}"), (-1, "no step 0")):
        with pytest.raises(InputError, match=sentence):
            question(bundled, story, step)
    with pytest.raises(InputError, match="need a run at temperature 0"):
        question(bundled, bundled.generate(PROMPT, DecodeConfig("d2sd", 8, temperature=0.7)), 0)
    parts = {**story.header["parts"], "target": {"weights": "0"}}
    with pytest.raises(InputError, match="another target than tiny has"):
        question(bundled, replace(story, header={**story.header, "parts": parts}), 0)
    moved = structs.replace(story.steps[2], anchor_position=story.steps[2].anchor_position + 10**6)
    with pytest.raises(InputError, match="does not match the text"):
        question(bundled, replace(story, steps=(*story.steps[:2], moved, *story.steps[3:])), 2)


def test_redraft_refuses_impossible_prefix_or_models(bundled, story):
    for prefix, sentence in (
        (-1, "no prefix of -1"),
        (16, "no prefix of 16 tokens; choose 0 to 15"),
        (15, "needs γ₂ > γ"),
    ):
        with pytest.raises(InputError, match=sentence):
            redraft(bundled, story, 0, prefix)
    with pytest.raises(InputError, match="DFlash, has no second drafter"):
        redraft(bundled, bundled.generate(PROMPT, DecodeConfig("dflash", 8)), 0, 0)
    parts = {**story.header["parts"], "second_drafter": {"weights": "0"}}
    with pytest.raises(InputError, match="another second drafter"):
        redraft(bundled, replace(story, header={**story.header, "parts": parts}), 0, 0)
    with pytest.raises(InputError, match="needs a VP-Drafter"):
        redraft(Engine(replace(bundled.models, second=None)), story, 0, 0)


def test_redraft_after_drafted_end_is_refused(bundled, story):
    first = story.steps[0].first_draft
    (end, *_) = bundled.models.target.end_ids
    ended = structs.replace(
        story.steps[0], first_draft=structs.replace(first, ids=(*first.ids[:3], end, *first.ids[4:]))
    )
    run = replace(story, steps=(ended, *story.steps[1:]))
    assert redraft(bundled, run, 0, 3).draft.prefix == 3
    with pytest.raises(InputError, match="token 4 of the first draft ends the text"):
        redraft(bundled, run, 0, 4)


def pieces_from(run, step):
    return [c.text for s in run.steps[step:] for c in s.committed]


def test_verify_typed_accepts_recorded_text_within_block(bundled, story):
    for step in (0, 2):
        pieces, room = pieces_from(story, step), len(story.steps[step].first_draft.ids)
        found = verify_typed(bundled, story, step, "".join(pieces[:6]).removeprefix(" "))
        assert (len(found.texts), found.accepted, found.cut) == (6, 6, 0)
        assert found.wanted == pieces[6]
        whole = verify_typed(bundled, story, step, "".join(pieces[: room + 2]))
        assert (len(whole.texts), whole.accepted, whole.cut) == (room, room, 2)
        assert all(0 < p <= 1 for p in whole.probabilities)


def test_verify_typed_probabilities_equal_one_target_pass(bundled, story):
    start = story.steps[1].anchor_position
    ids = [*story.prefill.prompt_token_ids, *story.token_ids][: start + 1]
    found = verify_typed(bundled, story, 1, " zebra zebra")
    target = bundled.models.target
    typed = target.tokenizer(" zebra zebra", add_special_tokens=False)["input_ids"]
    assert found.texts == tuple(bundled.texts[i] for i in typed)
    rows = torch.tensor([*ids, *typed])
    with torch.inference_mode():
        hidden = target.forward(rows, torch.arange(len(rows)), target.new_cache(len(rows)), None, None)
        chances = target.logits(hidden[start:]).float().softmax(-1)
    assert found.probabilities == pytest.approx([float(chances[n, i]) for n, i in enumerate(typed)], rel=1e-3)
    assert found.accepted == 0
    assert found.wanted == pieces_from(story, 1)[0]


def test_verify_typed_reads_special_tokens_as_text(bundled, story):
    special = bundled.models.target.tokenizer.all_special_tokens[0]
    found = verify_typed(bundled, story, 1, f"zebra {special}")
    assert special not in found.texts
    assert "".join(found.texts).endswith(special) or found.cut


def test_spaced_adds_or_removes_leading_space():
    assert spaced([" cat"], "cat sat") == " cat sat"
    assert spaced(["s", " sat"], " s sat") == "s sat"
    assert spaced(["", "é"], "é") == "é"
    assert spaced(["\n"], " cat") == " cat"
    assert spaced([], " cat") == " cat"


def test_agreeing_counts_whole_pieces_only():
    assert agreeing([" cat", " sat"], " cat sat on") == (2, 8)
    assert agreeing([" cat", " sat"], " ca") == (0, 0)
    assert agreeing([" cats"], " cat sat") == (0, 0)
    assert agreeing(["a", "", "é", ""], "aé") == (3, 2)
    assert agreeing(["a", "", "é"], "ab") == (1, 1)
    assert agreeing([], "a") == (0, 0)


def test_verify_typed_refuses_unusable_words_or_run(bundled, story):
    for words, sentence in (
        (" \n", "type the words that come next"),
        ("a" * (MAX_TYPED + 1), f"the maximum is {MAX_TYPED}"),
    ):
        with pytest.raises(InputError, match=sentence):
            verify_typed(bundled, story, 1, words)
    with pytest.raises(InputError, match="nothing was drafted in step 1"):
        verify_typed(bundled, bundled.generate(PROMPT, DecodeConfig("autoregressive", 4)), 0, "a")


def test_verify_typed_reads_lone_surrogates(bundled, story):
    assert verify_typed(bundled, story, 1, "\ud800 cat").accepted == 0
