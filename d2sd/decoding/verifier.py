"""The target during one generation: its passes over the prompt and over one token tree per step, and its choice of tokens.

At temperature 0, a choice is argmax; above 0, it is an exact sample. Samples use the Gumbel-max rule, argmax(logits/T + g). The
noise g depends only on the seed and on the position in the text. Each committed position has its own independent noise, so every
token is an exact sample from the target after its prefix. All methods share the noise, so a seed gives the same text with every
method.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from d2sd.config import DecodeConfig
from d2sd.nets.caches import CacheWindow
from d2sd.nets.lean import TORCH
from d2sd.nets.passes import Passes, padded_tree, row_shape
from d2sd.nets.target import Target
from d2sd.tree.tree import TokenTree

COLDEST = 1e-30  # lower limit of the temperature: logits divided by smaller numbers may overflow float32


class Verifier:
    """The target and its cache for one generation."""

    def __init__(self, target: Target, passes: Passes):
        self.target, self.passes = target, passes
        self.cache = passes.cache("target", target.new_cache)
        self.merged = target.merged(passes.kernels) if passes.merged else None

    def read(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Processes the prompt into the empty cache. Returns its positions, (T,), and the logits after it, (1, V)."""
        device = self.target.device
        positions = torch.arange(len(ids), device=device)
        hidden = self.target.forward(torch.tensor(ids, device=device), positions, self.cache, None, None)
        self.cache.commit(range(len(ids)))
        return positions, self.target.scores(hidden[-1:]).to(device)

    def logits(self, tree: TokenTree) -> Tensor:
        """Returns the target's logits (``Target.scores``) after every node, (N, V). The tree's anchor follows the cached text."""
        start, device, passes = self.cache.length, self.target.device, self.passes
        if not passes.fixed:
            mask = torch.from_numpy(tree.ancestor_mask()).to(device) if len(tree) > 1 else None
            positions = torch.tensor(tree.depths, device=device) + start
            tokens = torch.tensor(tree.tokens, device=device)
            hidden = self.target.forward(tokens, positions, self.cache, mask, passes.backend)
            return self.target.scores(hidden).to(device)  # with several GPUs, the scores are on the last one
        rows = row_shape(len(tree))
        tokens, depths, mask = (torch.from_numpy(x).to(device) for x in padded_tree(tree, rows))
        read, slots = passes.window(self.cache, rows)
        self.plan(rows)
        run = partial(self.forward, read)
        logits, *taps = passes.run(("verify", self.merged, rows, read), run, tokens, depths + start, slots, mask)
        self.target.taps.restore(taps)
        return logits[: len(tree)]

    def plan(self, rows: int) -> None:
        heads, kv_heads, size = self.target.head_shape
        shape, context, masked = (1, heads, rows, size), self.cache.length, True if rows > 1 else None
        # a single row is written to the cache before it attends, so it belongs to the prefix
        self.passes.plan(shape, self.target.dtype, kv_heads, context + (rows == 1), masked, self.target.scale)

    def forward(self, read: int, tokens: Tensor, positions: Tensor, slots: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Runs a pass of fixed shape over R rows. Returns the logits of all rows and the outputs of the tapped layers.

        read: number of cache slots that are read.
        slots: (R,) cache slots to which the keys and values of the rows are written.
        mask: (R, R) bool; which rows of the tree each row attends to.
        """
        if len(mask) > 1:
            self.passes.show(mask)
        kernels = TORCH if self.merged is None else self.merged.kernels
        window = CacheWindow(self.cache, read, slots, kernels.writer(slots, self.cache.capacity))
        hidden = self.target.forward(tokens, positions, window, mask, self.passes.backend, self.merged)
        return self.target.scores(hidden), *self.target.taps.outputs()


def restrict(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Returns logits (N, V) with −inf for tokens outside the top-k, or outside the smallest set with probability ≥ top-p."""
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
    """Returns the seed of the random generator for a position in the text.

    A CPU generator uses only the low 32 bits of its seed. Higher bits of ``seed`` are therefore hashed into the low ones,
    differently at every position.
    """
    high = seed >> 32
    mixed = int.from_bytes(hashlib.blake2b(f"{high} {position}".encode(), digest_size=4).digest()) if high else 0
    return ((seed * 1_000_003 + position) ^ mixed) % 2**63


def gumbel_noise(seed: int, positions: list[int], vocabulary: int, device: torch.device) -> Tensor:
    """Returns standard Gumbel noise, (positions, vocabulary) float32. Row i depends only on ``seed`` and ``positions[i]``."""
    return torch.stack([_noise_row(seed, position, vocabulary, device) for position in positions])


@lru_cache(maxsize=32)
def _noise_row(seed: int, position: int, vocabulary: int, device: torch.device) -> Tensor:
    # kept, because target and drafters use the same noise
    generator = torch.Generator(device).manual_seed(generator_seed(seed, position))
    return gumbel(generator, vocabulary)


def gumbel(generator: torch.Generator, *sizes: int) -> Tensor:
    """Returns standard Gumbel noise of these sizes, float32, on the generator's device."""
    noise = torch.empty(sizes, dtype=torch.float32, device=generator.device).exponential_(generator=generator)
    return -noise.clamp_min_(torch.finfo(noise.dtype).tiny).log()


@dataclass(frozen=True, slots=True)
class Sampler:
    """Chooses the target's token after every tree node during one generation."""

    temperature: float
    top_k: int
    top_p: float
    seed: int

    @classmethod
    def of(cls, config: DecodeConfig) -> Sampler:
        return cls(config.temperature, config.top_k, config.top_p, config.seed)

    def scores(self, logits: Tensor) -> Tensor:
        """Returns the logits of the sampling distribution, (N, V) float32; at temperature 0 the logits unchanged."""
        if self.temperature == 0:
            return logits
        return restrict(logits.float() / max(self.temperature, COLDEST), self.top_k, self.top_p)

    def noise(self, start: int, depths: int, vocabulary: int, device: torch.device) -> Tensor:
        """Returns the noise for ``choose`` at nodes of depth 0 … depths−1 below an anchor at position ``start``, (depths, V).

        The result is empty at temperature 0.
        """
        if self.temperature == 0:
            return torch.empty(0, dtype=torch.float32, device=device)
        return gumbel_noise(self.seed, list(range(start + 1, start + depths + 1)), vocabulary, device)

    def choose(self, scores: Tensor, depths: Tensor, noise: Tensor) -> Tensor:
        """Returns the chosen token after every node, (N,). The depth of a node selects its row of ``noise``."""
        if self.temperature == 0:
            return scores.argmax(-1)
        return (scores + noise.index_select(0, depths)).argmax(-1)
