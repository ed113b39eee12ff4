"""The target's passes in one generation: the prompt, then one token tree per step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from d2sd.models.target import Target
from d2sd.passes.cache import CacheWindow
from d2sd.passes.passes import Passes
from d2sd.passes.shapes import padded_tree, row_shape
from d2sd.tree.tree import TokenTree


class Verifier:
    """The target and its cache for one generation."""

    def __init__(self, target: Target, passes: Passes):
        self.target, self.passes = target, passes
        self.cache = passes.cache("target", target.new_cache)

    def read(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Read the prompt into the empty cache. Returns its positions, (T,), and the logits after it, (1, V) float32."""
        device = self.target.device
        positions = torch.arange(len(ids), device=device)
        hidden = self.target.forward(torch.tensor(ids, device=device), positions, self.cache, None, None)
        self.cache.commit(range(len(ids)))
        return positions, self.target.logits(hidden[-1:]).to(device)

    def logits(self, tree: TokenTree) -> Tensor:
        """Returns the target's logits after every node of a tree, (N, V) float32; its anchor follows the cached text."""
        start, device, passes = self.cache.length, self.target.device, self.passes
        if not passes.fixed:
            mask = torch.from_numpy(tree.ancestor_mask()).to(device) if len(tree) > 1 else None
            positions = torch.tensor(tree.depths, device=device) + start
            tokens = torch.tensor(tree.tokens, device=device)
            hidden = self.target.forward(tokens, positions, self.cache, mask, passes.backend)
            return self.target.logits(hidden).to(device)  # of several GPUs, the last one has them
        rows = row_shape(len(tree))
        tokens, depths, mask = (torch.from_numpy(x).to(device) for x in padded_tree(tree, rows))
        read, slots = passes.window(self.cache, rows)
        self.plan(rows)
        run = partial(self.forward, read)
        logits, *taps = passes.run(("verify", rows, read), run, tokens, depths + start, slots, mask)
        self.target.restore_taps(taps)
        return logits[: len(tree)]

    def plan(self, rows: int) -> None:
        """Plan a fixed-shape pass over this many rows."""
        heads, kv_heads, size = self.target.head_shape
        shape = (1, heads, rows, size)
        self.passes.plan(shape, self.target.dtype, kv_heads, self.cache.length, True, self.target.scale)

    def forward(self, read: int, tokens: Tensor, positions: Tensor, slots: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Run a fixed-shape pass. Returns the logits of all rows and the outputs of the tapped layers."""
        self.passes.show(mask)
        window = CacheWindow(self.cache, read, slots)
        hidden = self.target.forward(tokens, positions, window, mask, self.passes.backend)
        return self.target.logits(hidden), *self.target.tapped()
