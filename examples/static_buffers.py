"""Measures the gain from static key-value buffers on this machine: plain decoding with static and with growing buffers.

Both kinds use the same target, attention and loop, and their rounds alternate. The static buffers are written in place;
the growing buffers (transformers' DynamicCache) are copied by concatenation in every layer at every token. Prints
milliseconds of CPU time per token on one thread: the median of the rounds, and the fastest round, which other work on
the machine disturbs least.

    python -m examples.static_buffers [context …]
"""

from __future__ import annotations

import sys
import time
from statistics import median

import torch
from transformers import DynamicCache

import d2sd
from d2sd.bench.shapes import SHAPES, Shape
from d2sd.bench.timings import random_engine
from d2sd.nets.target import Target

TOKENS, ROUNDS = 32, 7
SHAPES["middle"] = Shape("qwen3", 512, 1024, 8, 8, 4, 64, 4000, False, drafter_layers=1)


@torch.inference_mode()
def run(target: Target, context: int, static: bool) -> tuple[float, list[int]]:
    """Returns the CPU seconds per token after a prompt of this length, and the tokens."""
    cache = target.new_cache(context + TOKENS) if static else DynamicCache(config=target.config)
    ids, out = torch.arange(context) % 200 + 3, []
    hidden = target.forward(ids, torch.arange(context), cache, None, None)
    if static:
        cache.commit(range(context))
    began = time.process_time()
    for position in range(context, context + TOKENS):
        token = target.head(hidden[-1:]).argmax(-1)
        out.append(int(token))
        hidden = target.forward(token, torch.tensor([position]), cache, None, None)
        if static:
            cache.commit([0])
    return (time.process_time() - began) / TOKENS, out


def main() -> None:
    """Measure the bundled target, and a medium-sized target with random weights."""
    torch.set_num_threads(1)  # CPU time then measures the work, independently of other load
    contexts = [int(a) for a in sys.argv[1:]] or [128, 900, 4000]
    engines = {
        "tiny (bundled)": d2sd.load("tiny"),
        "random, 8 layers of 512": random_engine("middle", "float32", "cpu", "eager", 8192),
    }
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s), {TOKENS} tokens, {ROUNDS} rounds")
    for name, engine in engines.items():
        for context in (c for c in contexts if c + TOKENS <= engine.models.target.max_positions):
            times: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(ROUNDS):
                texts = []
                for static in (True, False) if turn % 2 else (False, True):
                    seconds, text = run(engine.models.target, context, static)
                    times[static].append(seconds)
                    texts.append(text)
                assert texts[0] == texts[1]
            for what, pick in (("median", median), ("fastest", min)):
                ours, grown = (1e3 * pick(times[s]) for s in (True, False))
                print(
                    f"{name}, context {context}, {what}: static {ours:.2f} ms, growing {grown:.2f} ms, {grown / ours:.2f}×"
                )


if __name__ == "__main__":
    main()
