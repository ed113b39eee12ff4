"""What drafters read of the target: outputs of some of its layers for every token of the responses, computed once.

A training step needs the features of a few sequences. With a small target the pass that computes them costs more than the
drafter's own, and several drafters learn from the same responses. They are kept on the target's device as far as they fit, then in
the host's memory; or in a file, which later commands read too. A token takes 2 bytes × hidden size × (taps + 1).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from d2sd.folders.weights import weights_digest
from d2sd.nets.dtypes import halve, halved, mixes_by_default, quick_bfloat16
from d2sd.nets.target import LayerTaps
from d2sd.trace.text import progress
from d2sd.train.loop import digest
from d2sd.train.text import Responses

FEATURE_BATCH = 32  # sequences of a pass that computes features
KEPT = 0.4  # share of free memory that features may take


class FeatureStore:
    """bfloat16 rows of packed sequences by name: ``features`` (tokens, taps·hidden) and ``hidden`` (tokens, hidden)."""

    def __init__(self, lengths: Tensor, parts: list[tuple[int, dict[str, Tensor]]]):
        """lengths: (N,) of the sequences. parts: the number of each part's first sequence, and the rows of its sequences."""
        self._lengths, self._parts = lengths, parts
        self._starts = lengths.cumsum(0) - lengths

    def rows(self, index: Tensor, width: int, names: Iterable[str]) -> dict[str, Tensor]:
        """Returns ``features`` (B, width, taps·hidden) or ``hidden`` (B, width, hidden) of these sequences, on the device of the
        first part. Rows behind the end of a sequence are arbitrary."""
        out = {}
        ends = [*(first for first, _ in self._parts[1:]), len(self._lengths)]
        for name in names:
            home = self._parts[0][1][name]
            out[name] = home.new_empty(len(index), width, home.shape[1])
            for (first, part), end in zip(self._parts, ends, strict=True):
                mine = ((index >= first) & (index < end)).nonzero()[:, 0]
                if len(mine):
                    places = (self._starts[index[mine]] - self._starts[first])[:, None] + torch.arange(width)
                    rows = part[name][places.clamp_max(len(part[name]) - 1).to(part[name].device)]
                    out[name][mine.to(home.device)] = rows.to(home.device)
        return out


@torch.no_grad()
def read_features(
    base: Any, taps: list[int], data: Responses, autocast: bool = False
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yields the number of each sequence with its ``features`` and ``hidden``, in passes over sequences of like lengths.

    base: the target's layers between embedding and LM head.
    """
    with LayerTaps(base.layers).only(taps) as layers:
        for batch in progress(data.lengths.argsort().split(FEATURE_BATCH), desc="features", mininterval=1):
            width = int(data.lengths[batch].max())
            ids = data.ids[batch, :width].long().to(base.embed_tokens.weight.device)
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):  # what is kept is no finer
                last = base(input_ids=ids, use_cache=False).last_hidden_state
            found = {"features": layers.features(taps, last.device).bfloat16(), "hidden": last.bfloat16()}
            for row, number in enumerate(batch.tolist()):
                length = int(data.lengths[number])
                yield number, {name: rows[row, :length] for name, rows in found.items()}


def room(device: torch.device) -> tuple[int, int]:
    """Returns the bytes that features may take on the device and in the host's memory; on a CPU the first one is 0."""
    try:
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        host = 4 * 2**30  # where the system does not say
    return (int(KEPT * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0), int(KEPT * host)


def keep_features(base: Any, taps: list[int], data: Responses, on_device: int) -> FeatureStore:
    """Returns the features of these responses without last hidden states.

    on_device: bytes that they may take on the target's device; what is left is in the host's memory.
    """
    home = base.embed_tokens.weight.device
    width = len(taps) * base.embed_tokens.weight.shape[1]
    ends = data.lengths.cumsum(0)
    first = int((2 * width * ends <= on_device).sum()) if home.type == "cuda" else 0
    parts: list[tuple[int, dict[str, Tensor]]] = []
    for begin, end, device in ((0, first, home), (first, len(ends), torch.device("cpu"))):
        if end > begin:
            tokens = int(data.lengths[begin:end].sum())
            parts.append((begin, {"features": torch.empty(tokens, width, dtype=torch.bfloat16, device=device)}))
    starts = ends - data.lengths
    for number, found in read_features(base, taps, data):
        begin, part = next((begin, part) for begin, part in reversed(parts) if number >= begin)
        at = int(starts[number] - starts[begin])
        part["features"][at : at + len(found["features"])] = found["features"].to(part["features"].device)
    return FeatureStore(data.lengths, parts)


# In a file.


def cache_features(path: Path, target: Any, taps: list[int], data: Responses) -> FeatureStore:
    """Returns the features in the file ``path``, computed first if it is missing or of other responses or taps.

    The target runs in the dtype in which the engine runs it: if that is mixed, its linear layers are replaced by ones with
    weights in float16.
    """
    note = path.with_suffix(".json")
    identity = {"data": digest(data.ids), "taps": taps, "target": weights_digest(target)}
    if not (path.exists() and note.exists() and json.loads(note.read_text()) == identity):
        path.parent.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        sizes = {"features": len(taps) * target.config.hidden_size, "hidden": target.config.hidden_size}
        stored = _new_file(path, int(data.lengths.sum()), sizes)
        if mixes_by_default(target):
            halve(target.model.layers)
        autocast = quick_bfloat16() and not halved(target.model.layers)
        starts = data.lengths.cumsum(0) - data.lengths
        for number, found in read_features(target.model, taps, data, autocast):
            for name, rows in found.items():
                stored[name][int(starts[number]) :][: len(rows)] = rows
        note.write_text(json.dumps(identity))
    with safe_open(path, "pt") as f:
        return FeatureStore(data.lengths, [(0, {name: f.get_tensor(name) for name in f.keys()})])  # noqa: SIM118 (not a dict)


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
