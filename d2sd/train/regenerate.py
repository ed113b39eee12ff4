"""The target writes the responses that its drafters learn from: batched, resumable by line count.

Prompts are processed in their order, so a stopped run continues where its output file ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm.auto import tqdm
from transformers import DynamicCache, PreTrainedModel

from d2sd.errors import InputError
from d2sd.sampling import gumbel_noise


@dataclass(frozen=True, slots=True)
class RegenerateConfig:
    """greedy_share of the prompts (the first of every batch) are continued greedily, the rest at ``temperature``."""

    batch_size: int = 64
    max_new_tokens: int = 160
    greedy_share: float = 0.75
    temperature: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.greedy_share <= 1 or self.temperature <= 0 or min(self.batch_size, self.max_new_tokens) < 1:
            raise InputError("greedy_share must be in [0, 1]; temperature, batch size and new tokens above 0")


def regenerate(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], end_id: int, out: Path, config: RegenerateConfig
) -> None:
    """Append lines with ``prompt_ids`` and ``response_ids`` (end token included) to ``out`` until all are done."""
    out.parent.mkdir(parents=True, exist_ok=True)
    written = out.read_bytes() if out.exists() else b""
    complete = written[: written.rfind(b"\n") + 1]
    done = complete.count(b"\n")
    with out.open("wb") as f:
        f.write(complete)
        starts = range(done, len(prompts), config.batch_size)
        for start in tqdm(starts, desc="regenerate", mininterval=1):
            batch = [list(p) for p in prompts[start : start + config.batch_size]]
            for prompt, response in zip(batch, _respond(model, batch, end_id, config, start), strict=True):
                f.write(json.dumps({"prompt_ids": prompt, "response_ids": response}).encode() + b"\n")
            f.flush()


@torch.inference_mode()
def _respond(
    model: PreTrainedModel, prompts: list[list[int]], end_id: int, config: RegenerateConfig, start: int
) -> list[list[int]]:
    """Continuations of left-padded prompts; finished rows are dropped from the batch as they end."""
    device = model.device
    width = max(map(len, prompts))
    ids = torch.tensor([[end_id] * (width - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    greedy = torch.arange(len(prompts), device=device) < round(config.greedy_share * len(prompts))
    responses: list[list[int]] = [[] for _ in prompts]
    alive = torch.arange(len(prompts), device=device)
    cache = DynamicCache(config=model.config)
    for _ in range(config.max_new_tokens):
        hidden = model.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        ).last_hidden_state[:, -1]
        logits = model.lm_head(hidden).float()
        noise = gumbel_noise(config.seed * 7_919 + start, [int(positions[0, -1])], logits.numel(), device)
        sampled = (logits / config.temperature + noise.view_as(logits)).argmax(-1)
        tokens = torch.where(greedy[alive], logits.argmax(-1), sampled)
        for row, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            responses[row].append(token)
        keep = (tokens != end_id).nonzero()[:, 0]
        if not len(keep):
            break
        if len(keep) < len(alive):
            cache.batch_select_indices(keep)
            alive, tokens, mask, positions = alive[keep], tokens[keep], mask[keep], positions[keep]
        ids, positions = tokens[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
    return responses
