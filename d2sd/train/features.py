"""Target features for drafters: outputs of some target layers for every token of the responses, computed once before training.

Every training step reads the features of a few sequences. For a small target, computing them in every step would take longer than
the drafter's pass. As many features as fit are stored on the target's device, the others in host memory. The features of a token
take 2 bytes × hidden size × number of taps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.target import LayerTaps
from d2sd.trace.text import progress
from d2sd.train.text import Responses

FEATURE_BATCH = {"cpu": 32, "cuda": 256}  # sequences per pass of the target
KEPT = 0.4  # maximum share of free memory for features


class FeatureStore:
    """The target's outputs for the tokens of all sequences, in bfloat16, packed without padding.

    They are stored under the names ``features`` (tokens, taps·hidden) and, if requested, ``hidden`` (tokens, hidden), the target's
    last hidden states.
    """

    def __init__(self, lengths: Tensor, parts: list[tuple[int, dict[str, Tensor]]]):
        """lengths: number of tokens of each sequence, (N,).
        parts: consecutive parts of the sequences, which may be on different devices. Each is the index of its first sequence, and
            the rows of its sequences by name.
        """
        self._lengths, self._parts = lengths, parts
        self._starts = lengths.cumsum(0) - lengths

    def rows(self, index: Tensor, width: int, names: Iterable[str]) -> dict[str, Tensor]:
        """Returns the rows of some sequences by name, padded, on the device of the first part: (B, width, taps·hidden) for
        ``features``, (B, width, hidden) for ``hidden``.

        index: indices of the sequences, (B,).
        width: length to which the sequences are padded. Rows after the end of a sequence are arbitrary.
        names: ``features``, ``hidden`` or both.
        """
        out = {}
        ends = [*(first for first, _ in self._parts[1:]), len(self._lengths)]
        for name in names:
            home = self._parts[0][1][name]
            out[name] = home.new_empty(len(index), width, home.shape[1])
            for (first, part), end in zip(self._parts, ends, strict=True):
                selected = ((index >= first) & (index < end)).nonzero()[:, 0]
                if len(selected):
                    places = (self._starts[index[selected]] - self._starts[first])[:, None] + torch.arange(width)
                    rows = part[name][places.clamp_max(len(part[name]) - 1).to(part[name].device)]
                    out[name][selected.to(home.device)] = rows.to(home.device)
        return out


def batch_of(
    objective: Any, data: Responses, features: FeatureStore | None, index: Tensor, generator: torch.Generator
) -> dict[str, Tensor]:
    """Returns the inputs of ``objective`` for a batch, by name: ``ids`` (B, S), ``lengths`` (B,), the random inputs of
    ``objective.draw``, and the features that the objective reads.

    features: precomputed features; None: the features are left out.
    index: indices of the batch's responses, (B,).
    """
    lengths = data.lengths[index]
    ids = data.ids[index, : int(lengths.max())].long()
    batch = {"ids": ids, "lengths": lengths, **objective.draw(data.prompt_lengths[index], lengths, generator)}
    return batch if features is None else batch | features.rows(index, ids.shape[1], objective.reads)


def feature_bytes(device: torch.device) -> tuple[int, int]:
    """Returns how many bytes features may take on the GPU (0 if ``device`` is a CPU) and in host memory."""
    try:
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        host = 4 * 2**30  # assumed if the system does not report its free memory
    return (int(KEPT * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0), int(KEPT * host)


def read_features(
    base: Any, taps: list[int], data: Responses, names: Sequence[str] = ("features",)
) -> FeatureStore | None:
    """Computes the target's features for all responses. Returns None if they do not fit into memory.

    base: the target without its LM head.
    taps: indices of the layers to read.
    names: ``features``, ``hidden`` or both (see ``FeatureStore``).
    """
    weight = base.embed_tokens.weight
    sizes = {"features": len(taps) * weight.shape[1], "hidden": weight.shape[1]}
    sizes = {name: sizes[name] for name in names}
    on_device, on_host = feature_bytes(weight.device)
    for space in (on_device, 0):
        count = int((2 * sum(sizes.values()) * data.lengths.cumsum(0) <= space).sum())  # sequences on the device
        if 2 * sum(sizes.values()) * int(data.lengths[count:].sum()) > on_host:
            return None
        try:
            return _read(base, taps, data, sizes, count)
        except torch.OutOfMemoryError:
            if not count:
                raise
        torch.cuda.empty_cache()
        print("Not enough GPU memory: the target's features are stored in host memory.", file=sys.stderr)
    return None


@torch.no_grad()
def _read(base: Any, taps: list[int], data: Responses, sizes: dict[str, int], count: int) -> FeatureStore:
    """Computes the features of all responses.

    sizes: size of a token's row by name.
    count: number of sequences to store on the target's device; the others are stored in host memory.
    """
    weight = base.embed_tokens.weight
    parts: list[tuple[int, dict[str, Tensor]]] = []
    for begin, end, device in ((0, count, weight.device), (count, len(data.lengths), torch.device("cpu"))):
        if end > begin:
            tokens = int(data.lengths[begin:end].sum())
            parts.append(
                (begin, {n: torch.empty(tokens, s, dtype=torch.bfloat16, device=device) for n, s in sizes.items()})
            )
    starts = data.lengths.cumsum(0) - data.lengths
    # autocast is precise enough, since rows are stored in bfloat16
    with LayerTaps(base.layers).only(taps) as layers, quick_autocast(weight.device):
        for batch in progress(
            data.lengths.argsort().split(FEATURE_BATCH[weight.device.type]), desc="features", mininterval=1
        ):
            ids = data.ids[batch, : int(data.lengths[batch].max())].long().to(weight.device)
            last = base(input_ids=ids, use_cache=False).last_hidden_state
            outputs = {"features": layers.features(taps, last.device), "hidden": last}
            for row, number in enumerate(batch.tolist()):
                begin, part = next((begin, part) for begin, part in reversed(parts) if number >= begin)
                offset, length = int(starts[number] - starts[begin]), int(data.lengths[number])
                for name in sizes:
                    part[name][offset : offset + length] = outputs[name][row, :length]
    return FeatureStore(data.lengths, parts)
