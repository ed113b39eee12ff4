"""What a frozen target says of its responses, computed once: tapped features and last hidden states, on disk.

A drafter's training step needs the target's features of a few sequences. With a small target, the pass that makes them
costs more than the drafter's own, and several drafters learn from the same responses. For a big target the file is too large
to be worth it: 2 bytes × hidden size × (taps + 1) a token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from d2sd.folders.weights import weights_digest
from d2sd.nets.dtypes import halve, halved, mixes_by_default, quick_bfloat16
from d2sd.nets.target import LayerTaps
from d2sd.trace.text import progress
from d2sd.train.text import Responses

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
    """Read the cache at ``path``, or make it first when it is missing or of other responses or taps.

    The target runs in the numbers that the engine takes for it: where those are mixed, its linear layers are replaced by ones
    with weights in float16.
    """
    note = path.with_suffix(".json")
    identity = {"data": digest, "taps": taps, "target": weights_digest(target)}
    if not (path.exists() and note.exists() and json.loads(note.read_text()) == identity):
        keeper = LayerTaps(target.model.layers)
        keeper.add(taps)
        path.parent.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        sizes = {"features": len(taps) * target.config.hidden_size, "hidden": target.config.hidden_size}
        kept = _new_file(path, int(data.lengths.sum()), sizes)
        starts = data.lengths.cumsum(0) - data.lengths
        if mixes_by_default(target):
            halve(target.model.layers)
        autocast = quick_bfloat16() and not halved(target.model.layers)
        order = data.lengths.argsort()
        for batch in progress(order.split(_BATCH), desc="features", mininterval=1):
            width = int(data.lengths[batch].max())
            with torch.autocast(target.device.type, torch.bfloat16, enabled=autocast):  # what is kept is no finer
                read = target.model(input_ids=data.ids[batch, :width].long().to(target.device), use_cache=False)
            last = read.last_hidden_state
            for name, found in (("features", keeper.features(taps, last.device)), ("hidden", last)):
                rows = found.bfloat16().cpu()
                for row, number in enumerate(batch.tolist()):
                    start, length = int(starts[number]), int(data.lengths[number])
                    kept[name][start : start + length] = rows[row, :length]
        note.write_text(json.dumps(identity))
    return FeatureCache(path, data.lengths)


def _new_file(path: Path, tokens: int, sizes: dict[str, int]) -> dict[str, Tensor]:
    """A memory-mapped safetensors file of bfloat16 rows (tokens, size) by name; features may be larger than memory."""
    header: dict[str, Any] = {}
    end = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [tokens, size], "data_offsets": [end, end + 2 * tokens * size]}
        end += 2 * tokens * size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + end)
    whole = torch.from_file(str(path), shared=True, size=(8 + len(text) + end) // 2, dtype=torch.bfloat16)
    begins = {name: (8 + len(text) + entry["data_offsets"][0]) // 2 for name, entry in header.items()}
    return {n: whole[begins[n] : begins[n] + tokens * size].view(tokens, size) for n, size in sizes.items()}
