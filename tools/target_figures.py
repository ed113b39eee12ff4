"""Compares long texts of every target type with transformers, and times a tree on a target with linear and full attention.

Run with ``python -m tools.target_figures``. It takes some minutes; the unit tests cover short texts only.
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import median

import torch

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.decoding.verifier import Verifier
from d2sd.nets.attention import BACKENDS
from d2sd.nets.passes import Passes
from d2sd.tree.tree import path_tree
from tests.engine.test_targets import SETTINGS, SMALL, random_tree
from tests.nets import CHEAP_DRAFTS, make_tokenizer, stock_greedy
from tests.target_nets import PROMPTS, TARGETS, make_typed, make_typed_engine


def texts(tokens: int) -> None:
    """Prints, for every target type, how many runs give the same tokens as transformers' ``generate``. A run uses one method and
    one CPU backend.
    """
    Engine.costs = lambda *_: CHEAP_DRAFTS  # type: ignore[method-assign, assignment]
    tokenizer, total, equal = make_tokenizer(), 0, 0
    for number, kind in enumerate(TARGETS):
        engine, prompt = make_typed_engine(tokenizer, kind), PROMPTS[number % 2]
        ids = engine.encode(prompt, DecodeConfig("autoregressive", tokens))
        wanted = stock_greedy(engine.models.target.model, ids, tokens)
        runs = [
            engine.generate(
                prompt,
                DecodeConfig(
                    method, tokens, backend=backend, **SETTINGS.get(method, {**SMALL, "cost_aware": number % 3 == 0})
                ),
            ).token_ids
            == wanted
            for method in METHODS
            for backend in BACKENDS
        ]
        total, equal = total + len(runs), equal + sum(runs)
        print(f"{kind}: {len(wanted)} tokens, {sum(runs)} of {len(runs)} runs equal", flush=True)
    print(f"all: {equal} of {total} runs equal")


@torch.inference_mode()
def tree_cost(rounds: int = 60) -> None:
    """Prints the CPU times of verifying a tree of 27 nodes and a chain of 16 nodes on a random target, and their ratio."""
    target = make_typed(make_tokenizer(), "qwen3_5_text")
    shapes = {"tree of 27": random_tree(random.Random(0), 27), "chain of 16": path_tree(16)}
    verifier = Verifier(target, Passes("eager", "dense", 256, target.device))
    verifier.read(list(range(1, 101)))
    seconds: dict[str, list[float]] = {name: [] for name in shapes}
    for _ in range(rounds):
        for name, tree in shapes.items():
            began = time.process_time()
            verifier.logits(tree)
            seconds[name].append(time.process_time() - began)
    usual = {name: median(times) for name, times in seconds.items()}
    print(", ".join(f"{name}: {1e3 * s:.2f} ms" for name, s in usual.items()))
    print(f"ratio: {usual['tree of 27'] / usual['chain of 16']:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200, metavar="N", help="tokens per text")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tree_cost()
    texts(arguments.tokens)
