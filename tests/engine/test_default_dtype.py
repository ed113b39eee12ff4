"""Runs and concurrent loads do not depend on torch's global default dtype, which transformers sets to build a model."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import torch

from d2sd import DecodeConfig, load
from d2sd.folders import loading
from tests.target_nets import make_typed_engine


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def drafted(trace):
    """Token ids and drafts of a run, without times."""
    return trace.token_ids, [
        (s.first_draft, s.branches, s.boundary_posterior, s.nodes, s.target_tops) for s in trace.steps
    ]


def test_runs_do_not_depend_on_the_default_dtype(tokenizer):
    usual, other = (make_typed_engine(tokenizer, "mistral") for _ in range(2))
    for method in ("d2sd_tree", "draft_model", "eagle3"):  # with every kind of drafter
        config = DecodeConfig(method, 5, temperature=0.8)
        expected = drafted(usual.generate("the cat", config))
        with default_dtype(torch.bfloat16):
            assert drafted(other.generate("the cat", config)) == expected, method


def test_concurrent_model_loads_are_serialized(monkeypatch):
    """Otherwise one load could find, and later restore, the default dtype that the other has set."""
    own, inside, most = loading.AutoModelForCausalLM.from_pretrained, [], []

    def slow(*args, **options):
        inside.append(1)
        most.append(len(inside))
        try:
            return own(*args, **options)
        finally:
            inside.pop()

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", slow)
    threads = [threading.Thread(target=load, args=("tiny",), kwargs={"dtype": d}) for d in ("bfloat16", "float32")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert torch.get_default_dtype() == torch.float32
