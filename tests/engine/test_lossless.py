"""At temperature 0 in float32 every method returns exactly the text of plain greedy decoding."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.bench.prompts import read_prompts
from d2sd.nets.attention import BACKENDS
from tests.nets import CHEAP_DRAFTS, stock_greedy, stock_pass

DRAFTED = [m for m in METHODS if m != "autoregressive"]
PROMPTS = ("the cat", "a dog ran to", "x")
SHAPES = [(2, 1), (5, 4), (9, 2), (16, 4), (16, 8), (None, 3)]  # γ and K


@pytest.fixture(scope="session")
def plain_ids(engine):
    """Returns a cached function: plain decoding's tokens after a prompt, checked against transformers."""

    @cache
    def decoded(prompt, count):
        trace = engine.generate(prompt, DecodeConfig("autoregressive", count))
        assert trace.token_ids == stock_greedy(engine.models.target.model, list(trace.prefill.prompt_token_ids), count)
        return trace.token_ids

    return decoded


def transformers_favourites(engine, prompt_ids, ids):
    """Transformers' most probable tokens after the prompt and each prefix of ``ids``. Greedy ``ids`` equal them."""
    logits = stock_pass(engine.models.target.model, [[*prompt_ids, *ids[:-1]]]).logits
    return logits[0, len(prompt_ids) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize(("gamma", "branches"), SHAPES)
def test_heldout_texts_equal_transformers_greedy(bundled, gamma, branches):
    """D²SD runs every shape on both backends; the two other methods alternate over the shapes."""
    turn = SHAPES.index((gamma, branches))
    methods = ("d2sd", ("dflash", "autoregressive")[turn // 2 % 2], "d2sd")
    prompts = read_prompts("heldout", limit=len(SHAPES) * len(methods))
    assert len(prompts) == len(SHAPES) * len(methods)
    accepted = 0
    for number, (method, prompt) in enumerate(zip(methods, prompts[turn :: len(SHAPES)], strict=True)):
        backend = list(BACKENDS)[(turn + number // 2) % len(BACKENDS)]
        drafts = {} if method == "autoregressive" else {"block_size": gamma, "num_branches": branches}
        config = DecodeConfig(method, 32, backend=backend, **drafts)
        trace = bundled.generate(prompt.text, config)
        found = transformers_favourites(bundled, trace.prefill.prompt_token_ids, trace.token_ids)
        assert trace.token_ids == found, (prompt, config)
        accepted += sum(len(s.accepted) for s in trace.steps)
    assert accepted > 20  # the drafts were really used


SETTINGS = [
    {"block_size": 2, "num_branches": 1},
    {"block_size": 5, "num_branches": 4},
    {"block_size": 16, "num_branches": 8},
    {"block_size": 6, "second_block_size": 11, "num_branches": 3},
    {"block_size": 8, "num_branches": 4, "node_budget": 9},
    {"num_branches": 2, "cost_aware": True},
]


@pytest.mark.parametrize("method", DRAFTED)
def test_greedy_text_equals_plain_decoding(engine, plain_ids, method, monkeypatch):
    """Every method runs all settings, half of them on each kind of target. Prompts and backends rotate."""
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)  # measurement is tested separately
    kind, number = engine.models.target.config.model_type == "llama", DRAFTED.index(method)
    for turn in range((kind + number) % 2, len(SETTINGS), 2):
        settings, prompt = SETTINGS[turn], PROMPTS[(number + turn) % len(PROMPTS)]
        config = DecodeConfig(method, 24, backend=list(BACKENDS)[(turn // 2 + number // 2) % len(BACKENDS)], **settings)
        trace = engine.generate(prompt, config)
        assert trace.token_ids == plain_ids(prompt, 24), config
        if "node_budget" in settings:
            assert max(len(s.nodes) for s in trace.steps) <= 10


@pytest.mark.parametrize("method", [m for m in DRAFTED if METHODS[m].default_budget])
def test_node_budget_smaller_than_block_keeps_text(engine, plain_ids, method):
    trace = engine.generate("the cat", DecodeConfig(method, 24, block_size=16, node_budget=2))
    assert trace.token_ids == plain_ids("the cat", 24)
    assert max(len(s.nodes) for s in trace.steps) <= 3


def test_small_drafters_have_some_tokens_accepted(engine):
    """Otherwise the test above would pass even if no draft were accepted."""
    for method in ("dflash", "d2sd", "draft_model"):
        runs = [engine.generate(prompt, DecodeConfig(method, 24)) for prompt in PROMPTS]
        accepted, steps = sum(len(s.accepted) for r in runs for s in r.steps), sum(len(r.steps) for r in runs)
        assert steps / 2 < accepted < 8 * steps


def test_one_token_prompt_equals_transformers_greedy(engine):
    plain = engine.generate([5], DecodeConfig("autoregressive", 12))
    assert plain.prefill.prompt_token_ids == (5,)
    assert plain.token_ids == stock_greedy(engine.models.target.model, [5], 12)
    assert engine.generate([5], DecodeConfig("d2sd", 12)).token_ids == plain.token_ids


LIMITS = (1, 2, 3, 7, 16, 17)


@pytest.mark.parametrize("turn", range(len(LIMITS)))
def test_max_new_tokens_limits_text_exactly(bundled, turn):
    for number, method in enumerate(METHODS):
        if turn > 1 and (number + turn) % 2:  # the smallest limits for all methods, the others in turns
            continue
        limit = LIMITS[turn]
        trace = bundled.generate("Once upon a time", DecodeConfig(method, limit))
        assert len(trace.token_ids) == limit
        assert trace.finished.stop_reason == "max_new_tokens"


def test_generation_stops_at_end_token(bundled):
    prompt = "Question: Tom has 5 red pens and 3 blue pens. How many pens does Tom have in all?\nAnswer:"
    plain = bundled.generate(prompt, DecodeConfig("autoregressive", 200, inspect=False))
    almost = [*plain.prefill.prompt_token_ids, *plain.token_ids[:-8]]
    for method in METHODS:
        trace = bundled.generate(almost, DecodeConfig(method, 200))
        assert trace.token_ids == plain.token_ids[-8:]
        assert trace.finished.stop_reason == "end_token"
        assert trace.token_ids[-1] in bundled.models.target.end_ids
        assert not set(trace.token_ids[:-1]) & bundled.models.target.end_ids
        assert "<|endoftext|>" not in trace.finished.text


def test_endless_request_goes_on_after_end_token(bundled):
    request = bundled.request("Question: Tom has 5 red pens. How many?\nAnswer:", DecodeConfig("autoregressive", 200))
    *_, ended = bundled.run(request)
    *_, endless = bundled.run(replace(request, endless=True))
    assert (ended.stop_reason, endless.stop_reason) == ("end_token", "max_new_tokens")
    assert endless.token_ids[: len(ended.token_ids)] == ended.token_ids
