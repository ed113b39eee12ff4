"""At temperature 0 in float32 every method returns exactly the text of plain greedy decoding."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.bench.prompts import read_prompts
from d2sd.nets import flashinfer
from d2sd.nets.attention import BACKENDS
from tests.nets import CHEAP_DRAFTS, stock_greedy, stock_pass, turns
from tests.unit import reference_flashinfer

DRAFTED = [m for m in METHODS if m != "autoregressive"]
PROMPTS = ("the cat", "a dog ran to", "x")


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


HELDOUT = [
    ("autoregressive", 2, 1),
    ("d2sd", 2, 1),
    ("d2sd", 5, 4),
    ("dflash", 9, 2),
    ("d2sd", 16, 8),
    ("d2sd", None, 3),
]


@pytest.mark.parametrize(("method", "gamma", "branches"), HELDOUT)
def test_heldout_text_equals_transformers_greedy(bundled, method, gamma, branches):
    number = HELDOUT.index((method, gamma, branches))
    prompt = read_prompts("heldout", limit=len(HELDOUT))[number].text
    drafts = {} if method == "autoregressive" else {"block_size": gamma, "num_branches": branches}
    trace = bundled.generate(prompt, DecodeConfig(method, 32, backend=list(BACKENDS)[number % 2], **drafts))
    assert trace.token_ids == transformers_favourites(bundled, trace.prefill.prompt_token_ids, trace.token_ids)
    assert method == "autoregressive" or sum(len(s.accepted) for s in trace.steps) > 3  # drafts were really used


SETTINGS = [
    {"block_size": 2, "num_branches": 1},
    {"block_size": 5, "num_branches": 4},
    {"block_size": 16, "num_branches": 8},
    {"block_size": 6, "second_block_size": 11, "num_branches": 3},
    {"block_size": 8, "num_branches": 4, "node_budget": 9},
    {"num_branches": 2, "cost_aware": True},
]
# Settings with each backend. A test runs every sixth, so six turns are the whole product.
EAGER = list(itertools.product(SETTINGS, BACKENDS))


@pytest.mark.parametrize("turn", turns(len(SETTINGS)))
@pytest.mark.parametrize("method", DRAFTED)
def test_greedy_text_equals_plain_decoding(engine, plain_ids, method, turn, monkeypatch):
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)  # measurement is tested separately
    begin = turn + 2 * DRAFTED.index(method) + (engine.models.target.config.model_type == "llama")
    for place in range(begin % len(SETTINGS), len(EAGER), len(SETTINGS)):
        (settings, backend), prompt = EAGER[place], PROMPTS[(begin + place) % len(PROMPTS)]
        config = DecodeConfig(method, 24, backend=backend, **settings)
        trace = engine.generate(prompt, config)
        assert trace.token_ids == plain_ids(prompt, 24), config
        assert max(len(s.nodes) for s in trace.steps) <= 1 + settings.get("node_budget", 10_000)


@pytest.mark.parametrize("turn", turns(len(SETTINGS)))
@pytest.mark.parametrize("method", [m for m in METHODS if m != "draft_model"])
def test_text_with_flashinfer_equals_plain_decoding(engine, plain_ids, method, turn, monkeypatch):
    """Kernels are replaced by a reference of their documented behaviour. Padded passes with other backends are tested in
    test_passes.py and test_device_cycle.py."""
    expected = plain_ids("the cat", 24)[:16]
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    monkeypatch.setattr(flashinfer, "_library", lambda: reference_flashinfer)
    monkeypatch.setattr("d2sd.engine.choose", lambda name, *_: name)
    number = turn + list(METHODS).index(method) + (engine.models.target.config.model_type == "llama")
    settings = {} if method == "autoregressive" else SETTINGS[number % len(SETTINGS)]
    config = DecodeConfig(method, 16, backend="flashinfer", **settings)
    assert Engine(engine.models, "padded").generate("the cat", config).token_ids == expected


@pytest.mark.parametrize("method", [m for m in DRAFTED if METHODS[m].default_budget])
def test_node_budget_smaller_than_block_keeps_text(engine, plain_ids, method):
    config = DecodeConfig(method, 24, block_size=16, num_branches=6, node_budget=2)
    trace = engine.generate("the cat", config)
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


@pytest.mark.parametrize("method", METHODS)
def test_max_new_tokens_limits_text_exactly(bundled, method):
    for limit in (1, 2, (3, 7, 16, 17)[list(METHODS).index(method) % 4]):
        trace = bundled.generate("Once upon a time", DecodeConfig(method, limit, inspect=False))
        assert len(trace.token_ids) == limit
        assert trace.finished.stop_reason == "max_new_tokens"


def test_generation_stops_at_end_token_unless_endless(bundled):
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
        if method in ("autoregressive", "d2sd"):
            request = replace(bundled.request(almost, DecodeConfig(method, 12)), endless=True)
            *_, finished = bundled.run(request)
            assert finished.token_ids[:8] == tuple(trace.token_ids)
            assert finished.stop_reason == "max_new_tokens"
