"""What the training of all kinds of drafters uses: the target's features of a batch, and saved drafters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from d2sd.folders.fingerprint import write_fingerprint
from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.target import LayerTaps, Target
from d2sd.trace.files import writing
from d2sd.train.features import FeatureStore, read_features
from d2sd.train.text import Responses


class ComputedFeatures(FeatureStore):
    """The target's features, of which none is stored: they are computed whenever they are read."""

    def __init__(self, base: Any, taps: list[int], data: Responses):
        """base, taps: as for ``read_features``."""
        self._base, self._taps, self._data = base, taps, data

    @torch.no_grad()
    def rows(self, index: Tensor, width: int, names: Iterable[str]) -> dict[str, Tensor]:
        """Same as ``FeatureStore.rows``."""
        ids = self._data.ids[index, :width].long().to(self._base.embed_tokens.weight.device)
        with LayerTaps(self._base.layers).only(self._taps) as layers, quick_autocast(ids.device):
            hidden = self._base(input_ids=ids, use_cache=False).last_hidden_state
            found = {"features": layers.features(self._taps, ids.device), "hidden": hidden}
        return {name: found[name] for name in names}


def features_of(
    target: Target, taps: list[int], data: Responses, names: Sequence[str] = ("features",), stored: bool = True
) -> FeatureStore:
    """Returns the target's features of the responses.

    taps, names: as for ``read_features``.
    stored: whether to compute the features of all responses now, if they fit into memory. Otherwise they are computed when they
        are read.
    """
    torch.cuda.empty_cache()  # release cached memory of earlier stages, so that it counts as free
    found = read_features(target.base, taps, data, names) if stored else None
    return found or ComputedFeatures(target.base, taps, data)


def save_marked(save: Callable[[Any, Path], None], drafter: Any, folder: Path, mark: Mapping[str, Any]) -> None:
    """Saves a copy of a drafter in bfloat16, and its fingerprint. Raises ``InputError`` if that fails.

    save: function that writes a drafter into a folder.
    mark: result of ``fingerprint``.
    """
    with writing(folder, SafetensorError):
        save(copy.deepcopy(drafter).bfloat16(), folder)
        write_fingerprint(folder, mark)
