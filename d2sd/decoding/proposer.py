"""The drafters of one generation, and the method that builds token trees from their drafts."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeVar, cast

from torch import Tensor

from d2sd.config import DecodeConfig
from d2sd.decoding.autoregressive_drafters import ChainDrafter, LevelDrafter
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.cost_aware import Controller, Experience
from d2sd.decoding.inspection import TOP_ALTERNATIVES
from d2sd.decoding.verifier import Sampler, generator_seed
from d2sd.decoding.walked_drafter import make_drafter
from d2sd.methods import METHODS, Drafters, Method, Proposal
from d2sd.methods.base import all_prefixes
from d2sd.nets.models import Models
from d2sd.nets.passes import Passes, row_shape
from d2sd.trace.events import Decision
from d2sd.trace.metrics import Work
from d2sd.tree.block import Block
from d2sd.tree.boundary import open_prefixes, select_prefixes
from d2sd.tree.tree import TokenTree, merge_drafts
from d2sd.tree.walk import Walk

log = logging.getLogger(__name__)
Drafted = TypeVar("Drafted")


def slots(config: DecodeConfig, tokens: int) -> int:
    """Returns the cache slots for this many tokens of prompt and output, and the largest tree or block after them."""
    method = METHODS[config.method]
    longest = max(config.block_size or 1, config.second_block_size or 1)
    if method.default_budget:
        nodes = max(config.node_budget or 0, longest - 1)
        if method.eagle3:  # its own tree may be larger than what is verified of it
            nodes = max(nodes, config.draft_depth * config.draft_top_k)
    else:
        nodes = (1 + 2 * (config.num_branches + 1)) * longest
    return tokens + row_shape(1 + nodes)


class Proposer:
    """The drafters with their caches.

    config: resolved settings (``Engine.resolve``).
    passes: with room for prompt, output and a tree (``slots``).
    experience: statistics for the controller; None without a controller.

    ``seconds`` is the measured time of the last proposal by stage. ``block_drafters`` are the drafters of ``first`` and
    ``second``; there is only one if both are the same network.
    """

    def __init__(self, models: Models, config: DecodeConfig, passes: Passes, experience: Experience | None = None):
        self.config, self.passes = config, passes
        self.end_ids = models.target.end_ids
        self.method: Method = METHODS[config.method]
        self.block_size = config.draft_depth + 2 if self.method.eagle3 else config.block_size or 1
        self.second_block_size = config.second_block_size or self.block_size
        first = models.first if self.method.first_drafter else None
        second = {"none": None, "vp": models.second, "first": models.first}[self.method.second_drafter]
        make = partial(make_drafter, target=models.target, passes=passes, sampler=Sampler.of(config))
        self.first = None if first is None else make("first", first, inspect=config.inspect)
        self.second = (
            self.first if second is first else None if second is None else make("second", second, inspect=False)
        )
        self.block_drafters = list(dict.fromkeys(d for d in (self.first, self.second) if d is not None))
        small = models.draft_model if self.method.draft_model else None
        self.chain = None if small is None else ChainDrafter(small, passes, config.inspect)
        level = models.eagle3 if self.method.eagle3 else None
        depth, top_k = config.draft_depth, config.draft_top_k
        self.levels = None if level is None else LevelDrafter(level, models.target, passes, depth, top_k)
        self.seconds: dict[str, float] = {}
        self._noticed = False
        self.extension = self.second_block_size - self.block_size if self.second else 0
        self.controller: Controller | None = None
        if experience is not None and self.method.drafts:
            lengths = self.method.draft_lengths(self.block_size)
            self.controller = Controller(experience, lengths, self.extension)

    @property
    def reads_features(self) -> bool:
        """Whether a drafter needs the target's features of committed tokens."""
        return bool(self.block_drafters) or self.levels is not None

    def draft_passes(self, proposal: Proposal) -> int:
        """Returns the number of sequential drafter passes of a proposal."""
        if self.levels is not None:
            return 1 + self.levels.depth if proposal.levels else 0
        if proposal.first is None:
            return 0
        if self.chain is not None:
            return len(proposal.first.ids)
        branches = proposal.branches
        return min(self.method.draft_levels, 1 + bool(branches) + any(b.base > 0 for b in branches))

    def extend(self, features: Callable[[list[int]], Tensor], positions: Tensor, later: bool = False) -> None:
        """Add committed tokens at these (T,) positions to the drafters' context.

        features: maps target layers to the tokens' features, (1, T, layers·hidden).
        later: whether block drafters that have not drafted since their last tokens may defer this to their next draft.
        """
        found: dict[tuple[int, ...], Tensor] = {}
        for drafter in self.block_drafters:
            layers = tuple(drafter.taps)
            if layers not in found:
                found[layers] = features(drafter.taps)
            if later and not drafter.drafted:
                drafter.later(found[layers])
            else:
                drafter.extend(found[layers], positions)
        if self.levels is not None:
            self.levels.extend(features(self.levels.model.target_layer_ids))

    def committed(self, features: Callable[[list[int]], Tensor], positions: Tensor) -> None:
        """Add the committed tokens of a step. With a controller, the next step may use one drafter or none."""
        self.extend(features, positions, later=self.controller is not None)

    def read_prompt(self, ids: Sequence[int]) -> None:
        """Let autoregressive drafters read the prompt."""
        if self.chain:
            self.chain.read(ids)
        if self.levels:
            self.levels.read(ids)

    def propose(self, ids: Sequence[int]) -> Proposal:
        """Returns the tree to verify after the committed ``ids``, whose last one is the anchor."""
        began = time.perf_counter()
        self.seconds = {"first_draft": 0.0, "second_draft": 0.0}
        seed, controller = generator_seed(self.config.seed, len(ids) - 1), self.controller
        first, chain, levels = cast(
            tuple[BlockDrafter, ChainDrafter, LevelDrafter], (self.first, self.chain, self.levels)
        )
        size = self.block_size if controller is None else controller.begin()
        if self.method.drafts and not size:
            proposal = Proposal(merge_drafts(ids[-1], []))
        else:
            drafters = Drafters(
                anchor=ids[-1],
                first=partial(self._draft, "first_draft", self.first, ids[-1], size),
                second=partial(self._draft, "second_draft", self.second, ids[-1], size + self.extension),
                sample=lambda count: first.sample(count, seed),
                model=lambda: self._timed("first_draft", chain.draft, ids, size - 1),
                levels=lambda: self._timed("first_draft", levels.draft, ids),
                num_branches=self.config.num_branches,
                extension=self.extension,
                budget=self.config.node_budget or 0,
                rng=self.rng(ids),
                end_ids=self.end_ids,
                choose_redrafts=all_prefixes if controller is None else controller.redraft,
                min_log_probability=-inf if controller is None else controller.min_log_probability,
                trained=self.config.confidence == "head",
            )
            proposal = self.method.propose(drafters)
            proposal = replace(proposal, tree=self._afford(proposal.tree))
        self.seconds["tree"] = time.perf_counter() - began - sum(self.seconds.values())
        return proposal

    def notice(self, proposal: Proposal) -> None:
        """Warn once if the second drafter drafts from an empty prefix without being trained for it."""
        empty = any(block.prefix == 0 for block in proposal.branches)
        if empty and self.second is not None and self.second.form.visible_prefixes and not self._noticed:
            self._noticed = True
            log.warning(
                "prefix 0 was selected, and %s was not trained to draft from an empty prefix: it may draft worse there",
                self.second.model.config.name_or_path,
            )

    def rng(self, ids: Sequence[int]) -> random.Random:
        """Returns the source of a proposal's random choices on the host, which depend on the run's seed and the text position only."""
        return random.Random(generator_seed(self.config.seed, len(ids) - 1))

    def _afford(self, tree: TokenTree) -> TokenTree:
        """What of a tree is verified, by the node budget and by what nodes cost."""
        most = self.config.node_budget or len(tree)
        if self.controller is None:
            return tree.keep(most)
        reach, again = self._reach(self.controller, tree)
        order = tree.likeliest(reach)
        count = self.controller.nodes([reach[n] for n in order], [again[n] for n in order], most)
        return tree.keep(count, order)

    def _reach(self, controller: Controller, tree: TokenTree) -> tuple[list[float], list[bool]]:
        """By node: its probability of acceptance, and whether the second drafter proposed it."""
        again = self._drafted_again(tree.blocks)
        first, second = controller.exponents
        reach = [1.0]
        for parent, p, other in zip(tree.parents[1:], tree.probabilities[1:], again[1:], strict=True):
            reach.append(reach[parent] * p ** (second if other else first))
        return reach, again

    def planned(self, proposal: Proposal) -> None:
        """Report the proposal of a planned step to the controller, if there is one."""
        first = proposal.first
        if self.controller is None or first is None:
            return
        usable = open_prefixes(first.ids, self.end_ids)
        if self.second:
            prefixes = select_prefixes(proposal.boundary.posterior[:usable], self.config.num_branches)
            whole = (len(first.ids),) if self.extension and usable > len(first.ids) else ()
            planned = [block.prefix for block in proposal.branches]
            self.controller.redraft(first.confidence, (*prefixes, *whole), planned)
        reach, again = self._reach(self.controller, proposal.tree)
        self.controller.nodes(reach[1:], again[1:], len(reach), planned=True)

    def _drafted_again(self, blocks: Iterable[int]) -> list[bool]:
        """Which of the drafts of these numbers are re-drafts of the second drafter."""
        two = self.second is not None
        return [two and block > 0 for block in blocks]

    def learn(self, proposal: Proposal, outcome: Walk, boundary: int | None) -> Decision | None:
        """Update the controller, if there is one, with the committed tokens; returns its decision.

        boundary: number of accepted tokens of the first draft; None if unknown.
        """
        if self.controller is None:
            return None
        again = sum(self._drafted_again(proposal.tree.blocks[n] for n in outcome.accepted))
        decision = self.controller.decision()
        self.controller.observe(len(outcome.accepted), again, boundary)
        return decision

    def work(self, proposal: Proposal) -> Work:
        """Returns the number of rows of each pass of a step; a third level is a separate pass after the second."""
        size = 1 + len(proposal.first.ids) if proposal.first else self.block_size if proposal.levels else 0
        redrafts = proposal.branches if self.second else ()
        third = sum(block.base > 0 for block in redrafts)
        batches = [count for count in (len(redrafts) - third, third) if count]
        return Work(size, tuple(count * (size + self.extension) for count in batches), len(proposal.tree))

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
        top = max(top, TOP_ALTERNATIVES) if self.config.inspect else top
        return self._timed(stage, drafter.draft, anchor, prefixes, block_size, top)

    def _timed(self, stage: str, draft: Callable[..., Drafted], *inputs: Any) -> Drafted:
        began = time.perf_counter()
        drafted = draft(*inputs)
        self.seconds[stage] += time.perf_counter() - began
        return drafted
