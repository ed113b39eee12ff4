"""The target's choice of the next token: argmax at temperature 0, an exact sample otherwise.

Samples use the Gumbel-max rule, argmax(logits/T + g), with noise g that depends on the seed and on the position
in the text only. Each committed position has its own independent noise, so every token is an exact draw from the target
given its prefix. All methods share the noise, so a seed gives the same text with every method.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from d2sd.config import DecodeConfig

COLDEST = 1e-30  # a smaller temperature favours the same tokens, and logits divided by it would leave float32


def restrict(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Returns logits (N, V) with −inf outside the top-k and outside the smallest set of probability ≥ top-p, row by row."""
    if 0 < top_k < logits.shape[-1]:
        floor = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < floor, float("-inf"))
    if top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(-1)
        outside = probabilities.cumsum(-1) - probabilities >= top_p
        logits = logits.masked_fill(outside.scatter(-1, order, outside), float("-inf"))
    return logits


def generator_seed(seed: int, position: int) -> int:
    """Returns the random seed for a position in the text.

    A CPU generator uses only the low 32 bits. Higher bits of the seed are therefore hashed into the low ones, differently at
    every position.
    """
    high = seed >> 32
    mixed = int.from_bytes(hashlib.blake2b(f"{high} {position}".encode(), digest_size=4).digest()) if high else 0
    return ((seed * 1_000_003 + position) ^ mixed) % 2**63


def gumbel_noise(seed: int, positions: list[int], vocabulary: int, device: torch.device) -> Tensor:
    """Standard Gumbel noise, (positions, vocabulary) float32; row i depends on seed and positions[i] only."""
    rows = torch.empty(len(positions), vocabulary, dtype=torch.float32, device=device)
    generator = torch.Generator(device)
    for row, position in zip(rows, positions, strict=True):
        generator.manual_seed(generator_seed(seed, position))
        row.exponential_(generator=generator)
    return -rows.clamp_min_(torch.finfo(rows.dtype).tiny).log()


class Sampler:
    """Chooses a token per tree node for one generation."""

    def __init__(self, temperature: float, top_k: int, top_p: float, seed: int):
        self.temperature, self.top_k, self.top_p, self.seed = temperature, top_k, top_p, seed

    @classmethod
    def of(cls, config: DecodeConfig) -> Sampler:
        """Returns the sampler for these settings."""
        return cls(config.temperature, config.top_k, config.top_p, config.seed)

    def scores(self, logits: Tensor) -> Tensor:
        """Logits of the distribution that is sampled from, (N, V) float32; at temperature 0 the logits themselves."""
        if self.temperature == 0:
            return logits
        return restrict(logits / max(self.temperature, COLDEST), self.top_k, self.top_p)

    def noise(self, start: int, depths: int, vocabulary: int, device: torch.device) -> Tensor:
        """Returns the noise for ``choose`` at nodes of depth 0 … depths−1 below an anchor at position ``start``, (depths, V).

        Empty at temperature 0.
        """
        if self.temperature == 0:
            return torch.empty(0, dtype=torch.float32, device=device)
        return gumbel_noise(self.seed, list(range(start + 1, start + depths + 1)), vocabulary, device)

    def choose(self, scores: Tensor, depths: Tensor, noise: Tensor) -> Tensor:
        """Returns the chosen token after every node, (N,); a node's depth gives the position of that token."""
        if self.temperature == 0:
            return scores.argmax(-1)
        return (scores + noise.index_select(0, depths)).argmax(-1)
