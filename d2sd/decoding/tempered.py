"""Probabilities of a drafter's tokens at other softmax temperatures, as needed to fit a temperature."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from d2sd.decoding.inspection import DIGITS
from d2sd.trace.events import TEMPERATURES

# nats from the best: such tokens weigh nothing, and their powers would be subnormal numbers, which are slow
FAR = -43.0


def tempered(scores: Tensor, own: Tensor) -> Tensor:
    """Returns the probability of a token at each of ``TEMPERATURES``, (M, len(TEMPERATURES)) float64.

    scores: (M, V) logits or log probabilities of all tokens.
    own: (M,) scores of the tokens in question.

    Squaring an exponential halves its temperature, so two exponentials are enough for all powers of √2.
    """
    best = scores.max(-1, keepdim=True).values
    below = [(x - best).clamp_min(FAR) for x in (scores, own[:, None])]
    found: dict[float, Tensor] = {}
    for temperature in TEMPERATURES[-2:]:
        everything, ours = ((x / temperature).exp_() for x in below)
        while temperature >= TEMPERATURES[0]:
            found[temperature] = ours[:, 0] / everything.sum(-1)
            everything, ours, temperature = everything.mul_(everything), ours.mul_(ours), temperature / 2
    return torch.stack([found[t] for t in TEMPERATURES], -1).double().clamp_max_(1).round(decimals=DIGITS)


def rows_of(found: Tensor | np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Returns the rows of ``tempered``'s result as they are stored in a block."""
    return tuple(map(tuple, found.tolist()))
