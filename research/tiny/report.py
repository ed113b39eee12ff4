"""What a trained target's text is worth: bits per character, loops, right answers, on text that was held out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from d2sd.models.loading import load_target
from d2sd.models.target import Target
from d2sd.train.data import read_jsonl
from d2sd.train.regenerate import RegenerateConfig, respond_to
from research.tiny.corpus import Sources
from research.tiny.synthetic.worked import worked_steps

STORIES, OPENINGS, LOOP_TOKENS, ANSWER_TOKENS = 200, 16, 200, 120
_ANSWER = re.compile(r"the answer is (-?\d+)")


def report(target_folder: str, data: Path, prompts: Path) -> dict[str, Any]:
    """Figures of a target folder: data holds the public sets (their held-out part is used), prompts the held-out rows."""
    target = load_target(target_folder, torch.float32, "cpu")
    _, held = Sources.read(data)
    rows = list(read_jsonl(prompts, "prompt", "domain"))
    openings = [r["prompt"] for r in rows if r["domain"] == "stories"][:OPENINGS]
    shares = [distinct_share(ids, 4) for ids in answers(target, openings, LOOP_TOKENS)]
    wordings = [(w.question, worked[1]) for w in held.wordings if (worked := worked_steps(w.equation)) is not None]
    sums = [(r["prompt"], r["answer"]) for r in rows if r["domain"] == "sums"]
    return {
        "bits_per_character": bits_per_character(target, held.stories[:STORIES]),
        "distinct_4_grams_mean": sum(shares) / len(shares),
        "distinct_4_grams_worst": min(shares),
        "sums_right": _right(target, sums),
        "svamp_right": _right(target, wordings),
    }


@torch.inference_mode()
def bits_per_character(target: Target, documents: Sequence[str]) -> float:
    """Mean bits that the target needs for a character of these documents, each read from its start."""
    nats, characters = 0.0, 0
    end = min(target.end_ids)
    for document in documents:
        ids = torch.tensor([[end, *target.tokenizer(document, add_special_tokens=False)["input_ids"]]])
        hidden = target.base(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        nats += float(torch.nn.functional.cross_entropy(target.logits(hidden[0]), ids[0, 1:], reduction="sum"))
        characters += len(document)
    return nats / math.log(2) / characters


def distinct_share(ids: Sequence[int], size: int) -> float:
    """Share of distinct n-grams among all; 1 for a text too short to hold two."""
    grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def answers(target: Target, prompts: Sequence[str], max_new_tokens: int) -> list[list[int]]:
    """Greedy continuations, in the order of the prompts."""
    ids = [target.tokenizer(p)["input_ids"] for p in prompts]
    config = RegenerateConfig(max_new_tokens=max_new_tokens, greedy_share=1.0)
    return respond_to(target, ids, config)


def _right(target: Target, asked: Sequence[tuple[str, int]]) -> dict[str, int]:
    """How many answers end in the right number."""
    written = answers(target, [question for question, _ in asked], ANSWER_TOKENS)
    found = [_ANSWER.findall(target.tokenizer.decode(ids)) for ids in written]
    right = sum(bool(f) and int(f[0]) == number for f, (_, number) in zip(found, asked, strict=True))
    return {"right": right, "of": len(asked)}
