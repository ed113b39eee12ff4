"""Questions about a step: re-drafts from chosen prefixes equal drafts of real runs, and typed drafts are verified."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from msgspec import structs

from d2sd import METHODS, DecodeConfig, Engine, InputError, StepDone
from d2sd.methods import d2sd as d2sd_method
from d2sd.replay.questions import MAX_TYPED, agreeing, redraft, spaced, verify_typed

AGAIN = [method.id for method in METHODS.values() if method.second_drafter != "none"]
PROMPT = "One day, a small dog named Max found a shiny key."
LONGER = {"block_size": 6, "second_block_size": 9}


@pytest.fixture(scope="module")
def story(bundled):
    return bundled.generate(PROMPT, DecodeConfig("d2sd", 64))


# The settings alternate by method; D²SD has both.
@pytest.mark.parametrize(
    ("method", "settings"),
    [("d2sd", {}), ("d2sd", LONGER), *((m, (LONGER, {})[n % 2]) for n, m in enumerate(AGAIN[1:]))],
)
def test_redraft_from_chosen_prefix_equals_recorded_draft(bundled, method, settings):
    run, tried = bundled.generate(PROMPT, DecodeConfig(method, 8, **settings)), 0
    for event in run.steps:
        for branch in (b for b in event.branches if b.base == 0):
            answer = redraft(bundled, run, event.step, branch.prefix)
            assert answer.same is True
            assert (answer.draft.ids, answer.draft.texts) == (branch.ids, branch.texts)
            assert answer.draft.confidence == pytest.approx(branch.confidence, abs=1e-4)
            assert (branch.prefix, answer.added) in answer.chosen
            assert answer.extra == 0
            tried += 1
    assert tried > 3


def test_redraft_gain_equals_run_from_that_prefix(bundled, story, monkeypatch):
    """Compared with real runs, in which the target verifies the re-draft."""
    ids, gained = [*story.prefill.prompt_token_ids, *story.token_ids], 0
    for event in story.steps[2:4]:
        for prefix in range(0, 12, 3):
            answer = redraft(bundled, story, event.step, prefix)
            monkeypatch.setattr(d2sd_method, "select_prefixes", lambda posterior, count, prefix=prefix: (prefix,))
            # prefill commits the anchor
            run = bundled.stream(ids[: event.anchor_position], DecodeConfig("d2sd", 18))
            first = next(e for e in run if isinstance(e, StepDone))
            monkeypatch.undo()
            assert first.first_draft.ids == event.first_draft.ids
            assert first.branches[0].ids == answer.draft.ids
            assert len(first.accepted) == first.actual_boundary + answer.added
            assert answer.extra == max(0, len(first.committed) - len(event.committed))
            gained += answer.added > 0
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
    run = bundled.generate(PROMPT, DecodeConfig("d2sd", 3))
    past = redraft(bundled, run, 0, 0)  # nothing is rejected after the end of the text
    assert past.accepted <= 2
    assert past.extra == 0
    assert past.wanted is None or past.accepted < 2


def of_other(run, part):
    """The run, as if another model with other weights had written it."""
    return replace(run, header={**run.header, "parts": {**run.header["parts"], part: {"weights": "0"}}})


@pytest.mark.parametrize("question", [partial(redraft, prefix=0), partial(verify_typed, words="a")])
def test_step_questions_refuse_unusable_step_or_run(bundled, story, question):
    moved = structs.replace(story.steps[2], anchor_position=story.steps[2].anchor_position + 10**6)
    for run, step, sentence in (
        (story, last := len(story.steps), f"no step {last + 1}"),
        (story, -1, "no step 0"),
        (bundled.generate(PROMPT, DecodeConfig("d2sd", 8, temperature=0.7)), 0, "need a run at temperature 0"),
        (of_other(story, "target"), 0, "another target than tiny has"),
        (replace(story, steps=(*story.steps[:2], moved, *story.steps[3:])), 2, "does not match the text"),
    ):
        with pytest.raises(InputError, match=sentence):
            question(bundled, run, step)


def test_step_questions_refuse_impossible_prefixes_words_or_models(bundled, story):
    (end, *_) = bundled.models.target.end_ids
    draft = story.steps[0].first_draft
    ended = structs.replace(draft, ids=(*draft.ids[:3], end, *draft.ids[4:]))
    ended = replace(story, steps=(structs.replace(story.steps[0], first_draft=ended), *story.steps[1:]))
    assert redraft(bundled, ended, 0, 3).draft.prefix == 3
    plain, dflash = (bundled.generate(PROMPT, DecodeConfig(method, 4)) for method in ("autoregressive", "dflash"))
    for question, run, asked, sentence in (
        (redraft, story, -1, "no prefix of -1"),
        (redraft, story, 16, "no prefix of 16 tokens; choose 0 to 15"),
        (redraft, story, 15, "needs γ₂ > γ"),
        (redraft, ended, 4, "token 4 of the first draft ends the text"),
        (redraft, dflash, 0, "DFlash, has no second drafter"),
        (redraft, of_other(story, "second_drafter"), 0, "another second drafter"),
        (verify_typed, story, " \n", "type the words that come next"),
        (verify_typed, story, "a" * (MAX_TYPED + 1), f"the maximum is {MAX_TYPED}"),
        (verify_typed, plain, "a", "nothing was drafted in step 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            question(bundled, run, 0, asked)
    with pytest.raises(InputError, match="needs a VP-Drafter"):
        redraft(Engine(replace(bundled.models, second=None)), story, 0, 0)


def pieces_from(run, step):
    return [c.text for s in run.steps[step:] for c in s.committed]


def test_verify_typed_accepts_recorded_text_within_block(bundled, story):
    pieces, room = pieces_from(story, 2), len(story.steps[2].first_draft.ids)
    answer = verify_typed(bundled, story, 2, "".join(pieces[:6]).removeprefix(" "))
    assert (len(answer.texts), answer.accepted, answer.cut) == (6, 6, 0)
    assert answer.wanted == pieces[6]
    whole = verify_typed(bundled, story, 2, "".join(pieces[: room + 2]))
    assert (len(whole.texts), whole.accepted, whole.cut) == (room, room, 2)
    assert all(0 < p <= 1 for p in whole.probabilities)


def test_verify_typed_probabilities_equal_one_target_pass(bundled, story):
    start = story.steps[1].anchor_position
    ids = [*story.prefill.prompt_token_ids, *story.token_ids][: start + 1]
    answer = verify_typed(bundled, story, 1, " zebra zebra")
    target = bundled.models.target
    typed = target.tokenizer(" zebra zebra", add_special_tokens=False)["input_ids"]
    assert answer.texts == tuple(bundled.texts[i] for i in typed)
    rows = torch.tensor([*ids, *typed])
    with torch.inference_mode():
        hidden = target.forward(rows, torch.arange(len(rows)), target.new_cache(len(rows)), None, None)
        chances = target.logits(hidden[start:]).float().softmax(-1)
    assert answer.probabilities == pytest.approx([float(chances[n, i]) for n, i in enumerate(typed)], rel=1e-3)
    assert answer.accepted == 0
    assert answer.wanted == pieces_from(story, 1)[0]


def test_verify_typed_reads_special_tokens_and_lone_surrogates_as_text(bundled, story):
    special = bundled.models.target.tokenizer.all_special_tokens[0]
    answer = verify_typed(bundled, story, 1, f"zebra {special}")
    assert special not in answer.texts
    assert "".join(answer.texts).endswith(special) or answer.cut
    assert verify_typed(bundled, story, 1, "\ud800 cat").accepted == 0


def test_typed_text_is_compared_in_whole_pieces_after_a_corrected_space():
    assert spaced([" cat"], "cat sat") == " cat sat"
    assert spaced(["s", " sat"], " s sat") == "s sat"
    assert spaced(["", "é"], "é") == "é"
    assert agreeing([" cat", " sat"], " cat sat on") == (2, 8)
    assert agreeing([" cats"], " cat sat") == (0, 0)
    assert agreeing(["a", "", "é", ""], "aé") == (3, 2)
    assert agreeing(["a", "", "é"], "ab") == (1, 1)
