"""What a frozen target says of its responses, computed once: tapped features and last hidden states, on disk.

A drafter's training step needs the target's features of a few sequences; with a small target the pass that makes
them costs more than the drafter's own, and several drafters learn from the same responses. For a big target the
file is too large to be worth it (2 bytes × hidden size × (taps + 1) a token).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from d2sd.models.taps import LayerTaps
from d2sd.train.data import Responses

_BATCH = 32


class FeatureCache:
    """Features (tokens, taps·hidden) and last hidden states (tokens, hidden) of packed sequences, mapped from a file."""

    def __init__(self, path: Path, lengths: Tensor):
        with safe_open(path, "pt") as f:
            self._features, self._hidden = f.get_tensor("features"), f.get_tensor("hidden")
        self._starts = lengths.cumsum(0) - lengths
        self._lengths = lengths

    def rows(self, index: Tensor, width: int) -> dict[str, Tensor]:
        """``features`` (B, width, taps·hidden) and ``hidden`` (B, width, hidden) of these sequences, zero-padded."""
        out = {}
        for name, source in (("features", self._features), ("hidden", self._hidden)):
            batch = torch.zeros(len(index), width, source.shape[1], dtype=source.dtype)
            for row, number in enumerate(index.tolist()):
                start, length = int(self._starts[number]), int(self._lengths[number])
                batch[row, :length] = source[start : start + length]
            out[name] = batch
        return out


@torch.no_grad()
def cache_features(path: Path, target: Any, taps: list[int], data: Responses, digest: str) -> FeatureCache:
    """Read the cache at ``path``, or make it first when it is missing or of other responses or taps."""
    note = path.with_suffix(".json")
    identity = {"data": digest, "taps": taps, "target": _fingerprint(target)}
    if not (path.exists() and note.exists() and json.loads(note.read_text()) == identity):
        keeper = LayerTaps(target.model.layers)
        keeper.add(taps)
        features: list[Tensor] = [torch.empty(0)] * len(data.ids)
        hidden: list[Tensor] = [torch.empty(0)] * len(data.ids)
        order = data.lengths.argsort()
        for batch in tqdm(order.split(_BATCH), desc="features", mininterval=1):
            width = int(data.lengths[batch].max())
            last = target.model(input_ids=data.ids[batch, :width].long().to(target.device), use_cache=False)
            tapped = keeper.features(taps, last.last_hidden_state.device)
            for row, number in enumerate(batch.tolist()):
                length = int(data.lengths[number])
                features[number] = tapped[row, :length].bfloat16().cpu()
                hidden[number] = last.last_hidden_state[row, :length].bfloat16().cpu()
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"features": torch.cat(features), "hidden": torch.cat(hidden)}, path)
        note.write_text(json.dumps(identity))
    return FeatureCache(path, data.lengths)


def _fingerprint(target: Any) -> float:
    """Identifies a target by its weights."""
    return float(sum(p.double().sum() for p in target.parameters()))
