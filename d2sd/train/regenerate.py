"""The target writes the responses that its drafters learn from: batched, resumable."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import torch
from tqdm.auto import tqdm

from d2sd.decoding.sampling import gumbel_noise
from d2sd.errors import InputError
from d2sd.models.target import Target
from d2sd.train.identity import weights_digest


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


def batches(prompts: Sequence[Sequence[int]], size: int) -> list[list[list[int]]]:
    """Prompts of the same length together, at most ``size`` a batch: no padding and no mask are needed."""
    out: list[list[list[int]]] = []
    # shuffled first, so that the greedy share of a batch does not go to whatever came first
    mixed = random.Random(0).sample(list(map(list, prompts)), len(prompts))
    for _, group in groupby(sorted(mixed, key=len), key=len):
        same = list(group)
        out += [same[i : i + size] for i in range(0, len(same), size)]
    return out


def regenerate(target: Target, prompts: Sequence[Sequence[int]], out: Path, config: RegenerateConfig) -> None:
    """Append lines with ``prompt_ids`` and ``response_ids`` (end token included) to ``out`` until all are done.

    A stopped run continues with the first batch that its file does not hold whole.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    todo = batches(prompts, config.batch_size)
    settings = out.with_name(out.name + ".settings.json")
    identity = json.loads(json.dumps({**asdict(config), "target": weights_digest(target.base)}))
    written = out.read_bytes().splitlines(keepends=True) if out.exists() else []
    if written and (not settings.exists() or json.loads(settings.read_text()) != identity):
        raise InputError(f"{out} was written with other settings or by another target; choose another file")
    done = [json.loads(line)["prompt_ids"] for line in written if line.endswith(b"\n")]
    kept, first = 0, 0
    while first < len(todo) and done[kept : kept + len(todo[first])] == todo[first]:
        kept += len(todo[first])
        first += 1
    if kept + max(map(len, todo)) < len(done):
        raise InputError(f"{out} holds responses to other prompts; choose another file")
    settings.write_text(json.dumps(identity))
    with out.open("ab") as f:
        f.truncate(sum(map(len, written[:kept])))
        for number in tqdm(range(first, len(todo)), initial=first, total=len(todo), desc="regenerate", mininterval=1):
            responses = _respond(target, todo[number], config, number)
            for prompt, response in zip(todo[number], responses, strict=True):
                f.write(json.dumps({"prompt_ids": prompt, "response_ids": response}).encode() + b"\n")
            f.flush()


def respond_to(target: Target, prompts: Sequence[Sequence[int]], config: RegenerateConfig) -> list[list[int]]:
    """Continuations in the order of the prompts, without a file."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number, batch in enumerate(batches(prompts, config.batch_size)):
        found.update(zip(map(tuple, batch), _respond(target, batch, config, number), strict=True))
    return [found[tuple(p)] for p in prompts]


@torch.inference_mode()
def _respond(target: Target, prompts: list[list[int]], config: RegenerateConfig, number: int) -> list[list[int]]:
    """Continuations of prompts of one length; finished sequences leave the batch."""
    device, width, end = target.device, len(prompts[0]), target.end_ids
    cache = target.new_cache(width + config.max_new_tokens, len(prompts))
    ids = torch.tensor(prompts, device=device)
    greedy = torch.arange(len(prompts), device=device) < round(config.greedy_share * len(prompts))
    responses: list[list[int]] = [[] for _ in prompts]
    alive = list(range(len(prompts)))
    for position in range(width, width + config.max_new_tokens):
        positions = torch.arange(position - ids.shape[1], position, device=device)[None]
        hidden = target.base(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
        cache.commit(range(ids.shape[1]))
        logits = target.logits(hidden.last_hidden_state[:, -1])
        tokens = logits.argmax(-1)
        if not bool(greedy.all()):
            noise = gumbel_noise(config.seed * 7_919 + number, [position], logits.numel(), device).view_as(logits)
            tokens = torch.where(greedy, tokens, (logits / config.temperature + noise).argmax(-1))
        for row, token in zip(alive, tokens.tolist(), strict=True):
            if not responses[row] or responses[row][-1] not in end:
                responses[row].append(token)
        keep = [i for i, row in enumerate(alive) if responses[row][-1] not in end]
        if not keep:
            break
        if len(keep) <= len(alive) // 2:  # rarely, since it copies the cache; ended sequences idle until then
            index = torch.tensor(keep, device=device)
            cache.keep_sequences(index)
            alive, tokens, greedy = [alive[i] for i in keep], tokens[index], greedy[index]
        ids = tokens[:, None]
    return responses
