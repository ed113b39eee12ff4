"""Texts that the target writes once, with its features of them: the input of all probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from d2sd.models.taps import LayerTaps
from d2sd.models.target import Target
from d2sd.train.regenerate import RegenerateConfig, respond_to

BATCH = 10  # prompts that are best answered together


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A text written by the target.

    ids: tokens of the prompt and of what was written after it.
    start: where that begins.
    features: by decoder layer, its outputs of all tokens but the last, (T − 1, hidden).
    """

    ids: tuple[int, ...]
    start: int
    features: dict[int, Tensor] = field(default_factory=dict)

    @property
    def anchors(self) -> range:
        """Positions at which a step can begin: those followed by generated text."""
        return range(self.start, len(self.ids) - 1)

    def read(self, taps: Sequence[int]) -> Tensor:
        """Returns the features for a drafter with these taps, (1, T − 1, taps·hidden)."""
        return torch.cat([self.features[n] for n in taps], -1)[None]


def write(target: Target, prompts: Sequence[Sequence[int]], tokens: int) -> list[Text]:
    """Returns greedy texts of at most so many new tokens, in the prompts' order, generated as a batch."""
    written = respond_to(target, prompts, RegenerateConfig(len(prompts), tokens, greedy_share=1.0))
    return [Text((*p, *answer), len(p)) for p, answer in zip(prompts, written, strict=True)]


@torch.inference_mode()
def study(target: Target, text: Text, layers: Iterable[int]) -> Text:
    """Returns the text with the features of these layers, from one pass over it, or the text itself where it has them already.

    The target's own taps are unchanged.
    """
    wanted = sorted(set(layers))
    if text.features.keys() >= set(wanted):
        return text
    ids = torch.tensor([text.ids[:-1]], device=target.device)
    with LayerTaps(target.base.layers).only(wanted) as taps:
        target.base(input_ids=ids, past_key_values=target.new_cache(ids.shape[1]), use_cache=True)
        features = {n: taps.features([n], target.device)[0].clone() for n in wanted}
    return Text(text.ids, text.start, features)
