"""Trains small drafters for tests, since almost no draft of a random drafter is accepted."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import LayerTaps, Target
from d2sd.train.block_drafters import DrafterObjective, draw_anchors, draw_prefixes
from d2sd.train.settings import BETA, RegenerateConfig
from d2sd.train.text import respond_to

PROMPTS = ("the cat", "a dog ran to", "x", "the cat sat")
TOKENS, STEPS, ANCHORS, RATE = 40, 80, 8, 4e-3
NOISE = 0.02


def teach(
    drafter: DFlashDraftModel,
    target: Target,
    variable_prefix: bool = False,
    prompts: Sequence[str] = PROMPTS,
    steps: int = STEPS,
) -> DFlashDraftModel:
    """Train a drafter for a second on the target's text after ``prompts``, so that some of its drafts are accepted."""
    prompt_ids = [target.tokenizer(prompt)["input_ids"] for prompt in prompts]
    answers = respond_to(target, prompt_ids, RegenerateConfig(max_new_tokens=TOKENS))
    texts = [[*ids, *answer] for ids, answer in zip(prompt_ids, answers, strict=True)]
    starts, lengths = torch.tensor([len(ids) for ids in prompt_ids]), torch.tensor([len(ids) for ids in texts])
    rows = torch.zeros(len(texts), int(lengths.max()), dtype=torch.long)
    for row, ids in zip(rows, texts, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    objective = DrafterObjective(drafter.train().requires_grad_(True), target.model)
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=RATE, fused=True)
    taps = LayerTaps(target.model.model.layers)
    taps.add(drafter.target_layer_ids)
    with torch.no_grad():
        target.model.model(input_ids=rows, use_cache=False)
        known = taps.features(drafter.target_layer_ids, rows.device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        anchors = draw_anchors(starts, lengths, ANCHORS, generator)
        prefixes = torch.zeros_like(anchors)
        if variable_prefix:
            prefixes = draw_prefixes((len(rows), ANCHORS), drafter.block_size, BETA, generator)
        objective(ids=rows, lengths=lengths, anchors=anchors, prefixes=prefixes, features=known)[0].backward()
        optimizer.step()
        optimizer.zero_grad()
    return drafter.eval().requires_grad_(False)


@torch.no_grad()
def disturb(target: Target) -> Target:
    """Change every weight slightly, so that some of the target's tokens stay the same."""
    generator = torch.Generator().manual_seed(1)
    for weight in target.model.parameters():
        weight.mul_(1 + NOISE * torch.randn(weight.shape, generator=generator))
    return target
