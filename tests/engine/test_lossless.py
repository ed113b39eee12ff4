"""At temperature 0 in float32 every method returns exactly the text of plain greedy decoding."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.nets import flashinfer
from d2sd.nets.attention import BACKENDS, NAMES
from examples import d2sd_step
from tests.nets import CHEAP_DRAFTS, stock_greedy, turns
from tests.unit import reference_flashinfer

DRAFTED = [m for m in METHODS if m != "autoregressive"]
TARGETS = ("qwen3", "llama")
PROMPTS = ("the cat", "a dog ran to", "x")  # the last one is a single token
SETTINGS = [
    {"block_size": 2, "num_branches": 1},
    {"block_size": 5, "num_branches": 4},
    {"block_size": 16, "num_branches": 8},
    {"block_size": 6, "second_block_size": 11, "num_branches": 3},
    {"block_size": 16, "num_branches": 4, "node_budget": 9},
    {"num_branches": 2, "cost_aware": True},
]
# Every setting with each target and backend. A test runs two of them, so the turns are the whole product.
PRODUCT = list(itertools.product(SETTINGS, TARGETS, BACKENDS))
TURNS = len(PRODUCT) // 2


@pytest.fixture(scope="session")
def plain_ids(engines):
    """Returns a cached function: plain decoding's tokens after a prompt, checked against transformers."""

    @cache
    def decoded(kind, prompt, count):
        trace = engines(kind).generate(prompt, DecodeConfig("autoregressive", count))
        ids = list(trace.prefill.prompt_token_ids)
        assert trace.token_ids == stock_greedy(engines(kind).models.target.model, ids, count)
        return trace.token_ids

    return decoded


def test_small_drafters_have_some_tokens_accepted(engine):
    """Otherwise the tests below would pass even if no draft were accepted."""
    for method in ("dflash", "d2sd", "draft_model"):
        runs = [engine.generate(prompt, DecodeConfig(method, 24)) for prompt in PROMPTS]
        accepted, steps = sum(len(s.accepted) for r in runs for s in r.steps), sum(len(r.steps) for r in runs)
        assert steps / 2 < accepted < 8 * steps


@pytest.mark.parametrize("turn", turns(TURNS))
@pytest.mark.parametrize("method", DRAFTED)
def test_greedy_text_equals_plain_decoding(engines, plain_ids, method, turn, monkeypatch):
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)  # measurement is tested separately
    number = (turn + 5 * DRAFTED.index(method)) % TURNS
    for settings, kind, backend in PRODUCT[number::TURNS]:
        prompt = PROMPTS[number % len(PROMPTS)]
        config = DecodeConfig(method, 24, backend=backend, **settings)
        trace = engines(kind).generate(prompt, config)
        assert trace.token_ids == plain_ids(kind, prompt, 24), config
        assert max(len(s.nodes) for s in trace.steps) <= 1 + settings.get("node_budget", 10_000)


@pytest.mark.parametrize("turn", turns(len(SETTINGS) * len(TARGETS)))
@pytest.mark.parametrize("method", METHODS)
def test_padded_text_equals_plain_decoding(engines, plain_ids, method, turn, monkeypatch):
    """A reference of their documented behaviour replaces flashinfer's kernels."""
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    monkeypatch.setattr(flashinfer, "_library", lambda: reference_flashinfer)
    monkeypatch.setattr("d2sd.engine.choose", lambda name, *_: name)
    number = turn + list(METHODS).index(method)
    kind = TARGETS[(number + number // len(SETTINGS)) % 2]
    settings = {} if method == "autoregressive" else SETTINGS[number % len(SETTINGS)]
    padded, prompt = Engine(engines(kind).models, "padded"), PROMPTS[number % len(PROMPTS)]
    for backend in BACKENDS if method == "draft_model" else NAMES:
        config = DecodeConfig(method, 16, backend=backend, **settings)
        assert padded.generate(prompt, config).token_ids == plain_ids(kind, prompt, 24)[:16], backend


@pytest.mark.parametrize("method", METHODS)
def test_max_new_tokens_limits_text_exactly(bundled, method):
    for limit in (1, (2, 3, 7, 16, 17)[list(METHODS).index(method) % 5]):
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


def test_step_example_equals_engine_text_and_steps(bundled):
    trace = bundled.generate("One day, a cat", DecodeConfig("d2sd", 32))
    assert d2sd_step.generate(bundled.models, "One day, a cat", 32) == (trace.finished.text, trace.totals.steps)
    assert trace.totals.steps < 16
    assert len(Path(d2sd_step.__file__).read_text(encoding="utf-8").splitlines()) <= 120
