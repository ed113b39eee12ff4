"""Target features for drafters: outputs of some target layers for every token of the responses.

Every training step reads the features of a few sequences. For a small target, computing them in every step would take longer than
the drafter's pass. As many features as fit are stored on the target's device, the others in host memory. The features of a token
take 2 bytes × hidden size × number of taps.
"""

from __future__ import annotations

import sys
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.target import LayerTaps, Target
from d2sd.trace.text import progress
from d2sd.train.text import Responses

FEATURE_BATCH = {"cpu": 32, "cuda": 256}  # sequences per pass of the target
KEPT = 0.4  # maximum share of free memory for features


class Features:
    """The target's features of responses, under the name ``features``, and, if requested, its last hidden states, under ``hidden``.

    stored: by name, a tensor (tokens, size) in bfloat16 for each response; empty if the features are computed whenever they are
        read.
    """

    def __init__(self, target: Target, taps: list[int], data: Responses, hidden: bool = False, store: bool = True):
        """taps: indices of the layers to read.
        hidden: whether to also read the last hidden states.
        store: whether to compute the features of all responses now, if they fit into memory.
        """
        self._target, self._taps, self._data, size = target, taps, data, target.config.hidden_size
        self._sizes = {"features": len(taps) * size} | ({"hidden": size} if hidden else {})
        self.stored: dict[str, list[Tensor]] = {}
        torch.cuda.empty_cache()  # release cached memory of earlier stages, so that it counts as free
        if store:
            self._store()

    def batch(self, objective: Any, index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Returns the inputs of ``objective`` for a batch, by name: ``ids`` (B, S), ``lengths`` (B,), the random inputs of
        ``objective.draw``, and the features, all on the target's device.

        index: indices of the batch's responses, (B,).
        """
        lengths, prompts = self._data.lengths[index], self._data.prompt_lengths[index]
        inputs = {"ids": self._ids(index), "lengths": lengths}
        inputs |= objective.draw(prompts, lengths, generator) | self.rows(index)
        return {name: value.to(self._target.device) for name, value in inputs.items()}

    def rows(self, index: Tensor) -> dict[str, Tensor]:
        """Returns the features of some responses by name, padded: (B, S, taps·hidden) for ``features``, (B, S, hidden) for
        ``hidden``. Rows after the end of a response are arbitrary.

        index: indices of the responses, (B,).
        """
        if not self.stored:
            return self._computed(index)
        return {
            name: pad_sequence([rows[n].to(rows[0].device) for n in index.tolist()], batch_first=True)
            for name, rows in self.stored.items()
        }

    def _ids(self, index: Tensor) -> Tensor:
        return self._data.ids[index, : int(self._data.lengths[index].max())].long()

    @torch.no_grad()
    def _computed(self, index: Tensor) -> dict[str, Tensor]:
        base, ids = self._target.base, self._ids(index).to(self._target.device)
        # autocast is precise enough, since rows are stored in bfloat16
        with LayerTaps(base.layers).only(self._taps) as layers, quick_autocast(ids.device):
            last = base(input_ids=ids, use_cache=False).last_hidden_state
            found = {"features": layers.features(self._taps, last.device), "hidden": last}
        return {name: found[name] for name in self._sizes}

    def _store(self) -> None:
        lengths, size = self._data.lengths, 2 * sum(self._sizes.values())
        on_device, on_host = feature_bytes(self._target.device)
        for space in (on_device, 0):
            count = int((size * lengths.cumsum(0) <= space).sum())  # responses on the device
            if size * int(lengths[count:].sum()) > on_host:
                return
            try:
                self.stored = self._read(count)
                return
            except torch.OutOfMemoryError:
                if not count:
                    raise
            torch.cuda.empty_cache()
            print("Not enough GPU memory: the target's features are stored in host memory.", file=sys.stderr)

    def _read(self, count: int) -> dict[str, list[Tensor]]:
        """Computes the features of all responses. Those of the first ``count`` are on the target's device, the others in host
        memory.
        """
        lengths, device = self._data.lengths, self._target.device
        stored: dict[str, list[Tensor]] = {name: [] for name in self._sizes}
        for part, place in ((lengths[:count], device), (lengths[count:], "cpu")):
            for name, size in self._sizes.items():
                rows = torch.empty(int(part.sum()), size, dtype=torch.bfloat16, device=place)
                stored[name] += rows.split(part.tolist())
        for index in progress(lengths.argsort().split(FEATURE_BATCH[device.type]), desc="features", mininterval=1):
            for name, batch in self._computed(index).items():
                for row, number in zip(batch, index.tolist(), strict=True):
                    stored[name][number].copy_(row[: lengths[number]])
        return stored


def feature_bytes(device: torch.device) -> tuple[int, int]:
    """Returns how many bytes features may take on the GPU (0 if ``device`` is a CPU) and in host memory."""
    card = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    return int(KEPT * card), int(KEPT * psutil.virtual_memory().available)
