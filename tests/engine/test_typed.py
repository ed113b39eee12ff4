"""A reader's own draft, verified by the target as a draft is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from msgspec import structs

from d2sd import DecodeConfig, InputError
from d2sd.whatif.questions import MAX_TYPED, agreeing, spaced, verify_typed

PROMPT = "One day, a small dog named Max found a shiny key."


@pytest.fixture(scope="module")
def story(bundled):
    return bundled.generate(PROMPT, DecodeConfig("d2sd", 64))


def pieces_from(run, step):
    return [c.text for s in run.steps[step:] for c in s.committed]


def test_the_recorded_text_is_accepted_as_far_as_the_block_reaches(bundled, story):
    for step in (0, 2):
        pieces, room = pieces_from(story, step), len(story.steps[step].first_draft.ids)
        found = verify_typed(bundled, story, step, "".join(pieces[:6]).removeprefix(" "))
        assert (len(found.texts), found.accepted, found.cut) == (6, 6, 0)
        assert found.wanted == pieces[6]
        whole = verify_typed(bundled, story, step, "".join(pieces[: room + 2]))
        assert (len(whole.texts), whole.accepted, whole.cut) == (room, room, 2)
        assert all(0 < p <= 1 for p in whole.probabilities)


def test_words_of_the_drafters_are_judged_as_the_run_judged_them(bundled, story):
    """The first draft, typed as text: the target accepts what it accepted in the run, and wants what it committed there."""
    judged = 0
    for event in story.steps:
        draft = event.first_draft
        if not event.actual_boundary or event.actual_boundary == len(draft.ids):
            continue
        found = verify_typed(bundled, story, event.step, "".join(draft.texts))
        assert found.accepted == event.actual_boundary
        assert (
            found.wanted
            == bundled.texts[
                story.token_ids[event.anchor_position - len(story.prefill.prompt_token_ids) + 1 + found.accepted]
            ]
        )
        judged += 1
    assert judged > 1


def test_behind_a_rejected_word_the_target_is_asked_what_it_thinks_of_the_readers_own(bundled, story):
    """The probabilities are those of one pass over prompt, text and the typed tokens."""
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


def test_special_tokens_cannot_be_typed(bundled, story):
    special = bundled.models.target.tokenizer.all_special_tokens[0]
    found = verify_typed(bundled, story, 1, f"zebra {special}")
    assert special not in found.texts
    assert "".join(found.texts).endswith(special) or found.cut


def test_a_space_that_nobody_can_see_is_the_texts():
    assert spaced([" cat"], "cat sat") == " cat sat"
    assert spaced(["s", " sat"], " s sat") == "s sat"
    assert spaced(["", "é"], "é") == "é"
    assert spaced(["\n"], " cat") == " cat"
    assert spaced([], " cat") == " cat"


def test_pieces_agree_whole_or_not_at_all():
    assert agreeing([" cat", " sat"], " cat sat on") == (2, 8)
    assert agreeing([" cat", " sat"], " ca") == (0, 0)
    assert agreeing([" cats"], " cat sat") == (0, 0)
    assert agreeing(["a", "", "é", ""], "aé") == (3, 2)
    assert agreeing(["a", "", "é"], "ab") == (1, 1)
    assert agreeing([], "a") == (0, 0)


def test_what_cannot_be_verified_is_a_sentence(bundled, story):
    for step, words, sentence in (
        (len(story.steps), "a", "this run has no step"),
        (-1, "a", "no step 0"),
        (1, " \n", "type the words that come next"),
        (1, "a" * (MAX_TYPED + 1), f"at most {MAX_TYPED} are read"),
    ):
        with pytest.raises(InputError, match=sentence):
            verify_typed(bundled, story, step, words)
    with pytest.raises(InputError, match="temperature 0 only"):
        verify_typed(bundled, bundled.generate(PROMPT, DecodeConfig("d2sd", 8, temperature=0.7)), 0, "a")
    with pytest.raises(InputError, match="no draft to compare with"):
        verify_typed(bundled, bundled.generate(PROMPT, DecodeConfig("autoregressive", 4)), 0, "a")
    parts = {**story.header["parts"], "target": {"weights": "0"}}
    with pytest.raises(InputError, match="another target than the models"):
        verify_typed(bundled, replace(story, header={**story.header, "parts": parts}), 0, "a")
    moved = structs.replace(story.steps[2], anchor_position=10**7)
    with pytest.raises(InputError, match="does not fit its text"):
        verify_typed(bundled, replace(story, steps=(*story.steps[:2], moved, *story.steps[3:])), 2, "a")


def test_lone_surrogates_are_read_as_anything_else(bundled, story):
    assert verify_typed(bundled, story, 1, "\ud800 cat").accepted == 0
