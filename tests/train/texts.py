"""Worded sums, and a small target that is briefly trained on them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import regenerate_responses
from tests.nets import train_tokenizer

NAMES, THINGS = ("Tom", "Mia", "Ann", "Bo"), ("pens", "figs", "red stones", "cards")


def sums(count: int) -> list[str]:
    """Worded sums with their answers, drawn with a fixed seed."""
    rng = random.Random(1)
    drawn = [(rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 99), rng.randint(2, 99)) for _ in range(count)]
    return [
        f"Question: {name} has {a} {things} and gets {b} more. How many {things} are there?\nAnswer: {a} + {b} = {a + b}."
        for name, things, a, b in drawn
    ]


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def prompt_of(document: str) -> str:
    """The part before the answer."""
    return document.partition("Answer:")[0] + "Answer:"


def save_target(texts: list[str], out: Path, steps: int = 6) -> None:
    """Save a three-layer Qwen3 target, trained for a few steps on these texts, with a tokenizer made from them."""
    tokenizer = train_tokenizer(texts, 512, 256)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=None,
        )
    )  # fmt: skip
    stream = [token for text in texts for token in tokenizer(text)["input_ids"]]
    rows = torch.tensor(stream[: len(stream) // 64 * 64]).view(-1, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        batch = rows[torch.arange(4 * step, 4 * step + 4) % len(rows)]
        logits = model(batch[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.bfloat16().save_pretrained(out)
    tokenizer.save_pretrained(out)


def save_run(out: Path) -> list[str]:
    """Save a target and its responses to 20 prompts; returns 200 texts, the first 20 of which gave the prompts."""
    texts = sums(200)
    save_target(texts, out / "target")
    regenerate_responses(out / "target", [[prompt_of(t)] for t in texts[:20]], out / "r.jsonl", RegenerateConfig(8, 20))
    return texts
