"""Findings that no change of the drafter reveals: its training role, its confidence, and the texts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import Any

import numpy as np
import torch

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.doctor.probes import Walked
from d2sd.doctor.redraft import Redrafter
from d2sd.doctor.texts import Text
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

SHOWN = 2  # tokens after the anchor
FEWEST = 60  # places that a comparison needs
FURTHER = (
    1.15  # accepted tokens after two that are shown, over those after two that were drafted rightly: of a VP-Drafter
)
UPSIDE_DOWN = 0.4  # of a pair of places, how often the more confident one is accepted; 0.5 is chance
GARBLED = 0.9  # of the surprise of tokens that follow from nothing
REPEATED = 0.5  # share of 4-token sequences that were written before
GRAM = 4


@dataclass(frozen=True, slots=True)
class Signs:
    """Findings; each is None if it was not examined or is inconclusive.

    further: accepted tokens from position 3 on, with two tokens shown, over those where it drafted the same two itself.
    ranks: how often, of two places, the one that its confidence head favours is the accepted one.
    surprise: of the prompts' tokens to the target, over that of tokens drawn evenly.
    repeated: share of 4-token sequences that stand in their text before.
    follows: how much likelier its Markov tables make the texts' pairs of tokens than with both tables exchanged, in nats a token.
    """

    further: float | None = None
    ranks: float | None = None
    surprise: float | None = None
    repeated: float | None = None
    follows: Estimate | None = None

    @property
    def second(self) -> bool:
        """Returns whether it behaves like a drafter trained with visible drafted tokens."""
        return self.further is not None and self.further >= FURTHER

    @property
    def upside_down(self) -> bool:
        """Whether its confidence head is anti-correlated with acceptance."""
        return self.ranks is not None and self.ranks < UPSIDE_DOWN

    @property
    def backwards(self) -> bool:
        """Whether its Markov tables surely describe what precedes a token, where they should describe what follows it."""
        return self.follows is not None and self.follows.high is not None and self.follows.high < 0

    @property
    def garbled(self) -> bool:
        """Whether the target finds the prompts as unlikely as random tokens."""
        return self.surprise is not None and self.surprise >= GARBLED


def signs(target: Target, model: Any, texts: Sequence[Text], walks: Sequence[Walked], visible: int) -> Signs:
    """Returns the findings about a drafter from texts and its walks."""
    block = isinstance(model, DFlashDraftModel)
    return Signs(
        further(target, model, texts, walks) if block and not visible else None,
        ranks(target, model, texts, walks) if block and model.confidence_head is not None else None,
        surprise(target, texts),
        repeated(texts),
        follows(model, texts) if block else None,
    )


def further(target: Target, model: DFlashDraftModel, texts: Sequence[Text], walks: Sequence[Walked]) -> float | None:
    """Returns accepted tokens from position 3 on when two tokens are given, relative to those when it drafts these two.

    A drafter that was trained on masks alone gains nothing from being given tokens that it drafted correctly.
    """
    shown = Redrafter(target, model, SHOWN)
    own, with_two = 0, 0
    places = 0
    for text, walked in zip(texts, walks, strict=True):
        right = [n for n, count in enumerate(walked.places) if count >= SHOWN]
        if right:
            places += len(right)
            own += sum(walked.places[n] - SHOWN for n in right)
            with_two += sum(shown.accepted(text, [text.anchors[n] for n in right]))
    return with_two / max(own, 1) if places >= FEWEST else None


@torch.inference_mode()
def ranks(target: Target, model: DFlashDraftModel, texts: Sequence[Text], walks: Sequence[Walked]) -> float | None:
    """Returns the AUROC of the confidence head at position 1: 1 is perfect, 0.5 chance, 0 inverted."""
    drafter = Redrafter(target, model)
    said = torch.cat([drafter.trained(text, text.anchors) for text in texts]).cpu().numpy()
    accepted = np.array([count > 0 for w in walks for count in w.places])
    good, bad = accepted.sum(), (~accepted).sum()
    if min(good, bad) < FEWEST:
        return None
    order = np.empty(len(said))
    order[said.argsort(kind="stable")] = np.arange(1, len(said) + 1)
    return float((order[accepted].sum() - good * (good + 1) / 2) / (good * bad))


@torch.inference_mode()
def follows(model: DFlashDraftModel, texts: Sequence[Text]) -> Estimate | None:
    """Returns the gain in log-likelihood of its Markov tables over the exchanged ones, with its interval over texts.

    A row of the first table times the second one is the logits that a token adds to those after it. None where there is more to it
    than that, and where the tables differ in shape, so that nobody can have exchanged them.
    """
    if model.markov_head is None or model.markov_head.kind != "vanilla":
        return None
    before, after = model.markov_head.markov_w1.weight.float(), model.markov_head.markov_w2.weight.float()
    if before.shape != after.shape:
        return None
    gains = []
    for text in texts:
        ids = torch.tensor(text.ids, device=before.device)
        one, other = (
            (rows[ids[:-1]] @ columns.T).log_softmax(-1).gather(1, ids[1:, None]).sum()
            for rows, columns in ((before, after), (after, before))
        )
        gains.append(float(one - other))
    counts = np.array([len(text.ids) - 1 for text in texts], float)
    return Resampler(len(texts)).ratio(np.array(gains), counts, np.arange(len(texts)))


@torch.inference_mode()
def surprise(target: Target, texts: Sequence[Text]) -> float | None:
    """Returns the mean surprise of the prompts' tokens to the target, divided by log V, without the first token of each."""
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([text.ids[: text.start]], device=target.device)
        if ids.shape[1] < 2:
            continue
        hidden = target.base(input_ids=ids).last_hidden_state[:, :-1]
        logs = target.logits(hidden)[0].float().log_softmax(-1)
        total -= float(logs.gather(1, ids[0, 1:, None]).sum())
        count += ids.shape[1] - 1
    return total / count / log(target.config.vocab_size) if count else None


def repeated(texts: Sequence[Text]) -> float | None:
    """Returns the share of generated 4-token sequences that occur earlier in the same text."""
    written = [text.ids[text.start :] for text in texts]
    grams = [list(zip(*(ids[n:] for n in range(GRAM)), strict=False)) for ids in written]
    count = sum(map(len, grams))
    return (
        1 - len(set(chain.from_iterable([(n, g) for g in some] for n, some in enumerate(grams)))) / count
        if count
        else None
    )
