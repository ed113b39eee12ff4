"""The drafters of one generation and the method that turns what they say into token trees."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from d2sd.config import DecodeConfig
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.chain_drafter import ChainDrafter
from d2sd.decoding.cost import VerifyCost, affordable
from d2sd.decoding.inspection import TOP_ALTERNATIVES
from d2sd.methods import METHODS, Drafters, Method, Proposal
from d2sd.models.models import Models
from d2sd.passes.passes import Passes
from d2sd.passes.shapes import row_shape
from d2sd.tree.block import Block
from d2sd.tree.tree import TokenTree


def slots(config: DecodeConfig, tokens: int) -> int:
    """Cache slots for so many tokens of prompt and output and the largest tree that the method can make after them."""
    if METHODS[config.method].needs_budget:
        nodes = config.node_budget or 0
    else:
        longest = max(config.block_size or 1, config.second_block_size or 1)
        nodes = (1 + 2 * (config.num_branches + 1)) * longest
    return tokens + row_shape(1 + nodes)


class Proposer:
    """Drafters with their caches; ``seconds`` holds the measured time of the last proposal by stage.

    config: resolved settings (``Engine.resolve``); passes: with room for prompt, output and a tree (``slots``);
    cost: what verified nodes cost, where trees are to be cut by it. ``block_drafters``: those of ``first`` and
    ``second``, which share one where they are the same network.
    """

    def __init__(self, models: Models, config: DecodeConfig, passes: Passes, cost: VerifyCost | None = None):
        self.config, self.passes, self.cost = config, passes, cost
        self.end_ids = models.target.end_ids
        self.method: Method = METHODS[config.method]
        self.block_size = config.block_size or 1
        self.second_block_size = config.second_block_size or self.block_size
        first = models.first if self.method.first_drafter else None
        second = {"none": None, "vp": models.second, "first": models.first}[self.method.second_drafter]
        self.first = None if first is None else BlockDrafter("first", first, models.target, passes)
        if second is None or second is first:
            self.second = None if second is None else self.first
        else:
            self.second = BlockDrafter("second", second, models.target, passes)
        self.block_drafters = [d for d in (self.first, self.second) if d is not None]
        if self.second is self.first:
            del self.block_drafters[1:]
        self.chain: ChainDrafter | None = None
        if self.method.draft_model and models.draft_model is not None:
            self.chain = ChainDrafter(models.draft_model, passes)
        self.seconds: dict[str, float] = {}

    def extend(self, features: Callable[[list[int]], Tensor], positions: Tensor) -> None:
        """Add committed tokens at these (T,) positions to the drafters' context.

        features: target layers → the tokens' features, (1, T, layers·hidden).
        """
        for drafter in self.block_drafters:
            drafter.extend(features(drafter.model.target_layer_ids), positions)

    def read_prompt(self, ids: Sequence[int]) -> None:
        """Let the autoregressive draft model, if there is one, read the prompt."""
        if self.chain:
            self.chain.read(ids)

    def propose(self, ids: Sequence[int]) -> Proposal:
        """The tree to verify after the committed ``ids``, whose last one is the anchor."""
        began = time.perf_counter()
        self.seconds = {"first_draft": 0.0, "second_draft": 0.0}
        seed = self._seed(ids)
        proposal = self.method.propose(
            Drafters(
                anchor=ids[-1],
                first=partial(self._draft, "first_draft", self.first, ids[-1], self.block_size),
                second=partial(self._draft, "second_draft", self.second, ids[-1], self.second_block_size),
                sample=partial(self._sample, seed),
                model=partial(self._chain, ids),
                num_branches=self.config.num_branches,
                longer=self.second_block_size - self.block_size,
                budget=self.config.node_budget or 0,
                rng=self.rng(ids),
                end_ids=self.end_ids,
            )
        )
        proposal = replace(proposal, tree=self._afford(proposal.tree))
        self.seconds["tree"] = time.perf_counter() - began - sum(self.seconds.values())
        return proposal

    def _seed(self, ids: Sequence[int]) -> int:
        """Random choices depend on the run's seed and the text position only."""
        return (self.config.seed * 1_000_003 + len(ids) - 1) % 2**63

    def rng(self, ids: Sequence[int]) -> random.Random:
        """The source of a proposal's random choices on the host."""
        return random.Random(self._seed(ids))

    def _afford(self, tree: TokenTree) -> TokenTree:
        """What of a tree is verified, by the node budget and by what nodes cost."""
        count = self.config.node_budget or len(tree)
        if self.cost is not None:
            reach = sorted(tree.reach()[1:], reverse=True)
            count = min(count, affordable(reach, self.cost, sum(self.seconds.values())))
        return tree.keep(count)

    def _draft(
        self,
        stage: str,
        drafter: BlockDrafter | None,
        anchor: int,
        block_size: int,
        prefixes: Sequence[Sequence[int]],
        top: int = 1,
    ) -> list[Block]:
        assert drafter is not None
        began = time.perf_counter()
        blocks = drafter.draft(anchor, prefixes, block_size, max(top, TOP_ALTERNATIVES) if self.config.inspect else top)
        self.seconds[stage] += time.perf_counter() - began
        return blocks

    def _sample(self, seed: int, count: int) -> list[Block]:
        assert self.first is not None
        return self.first.sample(count, seed)

    def _chain(self, ids: Sequence[int]) -> Block:
        assert self.chain is not None
        began = time.perf_counter()
        block = self.chain.draft(ids, self.block_size - 1)
        self.seconds["first_draft"] += time.perf_counter() - began
        return block
