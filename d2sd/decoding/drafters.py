"""The drafters of one generation, with their caches."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from functools import cache

from torch import Tensor

from d2sd.config import DecodeConfig
from d2sd.decoding.autoregressive_drafters import ChainDrafter, LevelDrafter
from d2sd.decoding.cost_aware import Controller, Experience
from d2sd.decoding.inspection import TOP_ALTERNATIVES
from d2sd.decoding.verifier import Sampler, generator_seed
from d2sd.decoding.walked_drafter import drafter_class
from d2sd.methods import METHODS, Drafters, Proposal
from d2sd.nets.models import Models
from d2sd.nets.passes import Passes, row_shape
from d2sd.trace.metrics import Work
from d2sd.tree.block import Block
from d2sd.tree.levels import Level

log = logging.getLogger(__name__)


def slots(config: DecodeConfig, tokens: int) -> int:
    """Returns how many cache slots a run needs: for ``tokens`` tokens of text, followed by the largest tree or block."""
    method = METHODS[config.method]
    longest = max(config.block_size or 1, config.second_block_size or 1)
    if method.default_budget:
        nodes = max(config.node_budget or 0, longest - 1)
        if method.eagle3:  # the drafted tree may be larger than the verified one
            nodes = max(nodes, config.draft_depth * config.draft_top_k)
        elif method.second_drafter != "none":  # all re-drafts are rows of one pass
            nodes = max(nodes, config.num_branches * longest)
    else:
        nodes = (1 + 2 * (config.num_branches + 1)) * longest
    return tokens + row_shape(1 + nodes)


class CachedDrafters(Drafters):
    """The drafters of one generation, with their caches.

    config: resolved settings (``Engine.resolve``).
    passes: buffers with room for prompt, output and a tree (``slots``).
    experience: statistics for cost-aware steps; None: the settings determine the sizes of steps.

    The attribute ``block_drafters`` lists the drafters ``first`` and ``second`` that exist, without duplicates.
    """

    def __init__(self, models: Models, config: DecodeConfig, passes: Passes, experience: Experience | None = None):
        self.config, self.passes = config, passes
        self.end_ids, self.num_branches, self.budget = (
            models.target.end_ids,
            config.num_branches,
            config.node_budget or 0,
        )
        self.trained = config.confidence == "head"
        self.method = METHODS[config.method]
        self.block_size = config.draft_depth + 2 if self.method.eagle3 else config.block_size or 1
        first = models.first if self.method.first_drafter else None
        second = {"none": None, "vp": models.second, "first": models.first}[self.method.second_drafter]
        context = models.target, passes, Sampler.of(config)
        self.first = None if first is None else drafter_class(first)("first", first, *context, config.inspect)
        self.second = self.first
        if second is not first:
            self.second = None if second is None else drafter_class(second)("second", second, *context)
        self.block_drafters = list(dict.fromkeys(d for d in (self.first, self.second) if d is not None))
        for drafter in self.block_drafters:  # the next pass of a fixed shape overwrites the distributions
            drafter.keeps = config.inspect and config.temperature > 0 and not passes.fixed
        small = models.draft_model if self.method.draft_model else None
        self.draft_model = None if small is None else ChainDrafter(small, passes, config.inspect)
        level = models.eagle3 if self.method.eagle3 else None
        depth, top_k = config.draft_depth, config.draft_top_k
        self.eagle3 = None if level is None else LevelDrafter(level, models.target, passes, depth, top_k)
        self.extension = (config.second_block_size or self.block_size) - self.block_size if self.second else 0
        lengths = self.method.draft_lengths(self.block_size) if self.method.drafts else [1]
        self.controller = Controller(config, lengths, self.extension, experience)
        self._ids: Sequence[int] = ()
        self._warned = False

    def read_prompt(self, ids: Sequence[int], features: Callable[[list[int]], Tensor], positions: Tensor) -> None:
        """Lets all drafters read the prompt.

        ids: tokens of the prompt.
        features, positions: as for ``commit``.
        """
        self._extend(features, positions, later=False)
        if self.draft_model:
            self.draft_model.read(ids)
        if self.eagle3:
            self.eagle3.read(ids)

    def first_block(self, top: int = 1) -> Block:
        assert self.first is not None
        (block,) = self.first.draft(self.anchor, [()], self._size, self._top(top))
        return block

    def samples(self, count: int) -> list[Block]:
        assert self.first is not None
        return self.first.sample(count, generator_seed(self.config.seed, len(self._ids) - 1))

    def chain(self) -> Block:
        assert self.draft_model is not None
        return self.draft_model.draft(self._ids, self._size - 1)

    def levels(self) -> list[Level]:
        assert self.eagle3 is not None
        return self.eagle3.draft(self._ids)

    def second_blocks(self, prefixes: Sequence[Sequence[int]], top: int = 1) -> list[Block]:
        assert self.second is not None
        return self.second.draft(self.anchor, prefixes, self._size + self.extension, self._top(top))

    def rng(self) -> random.Random:
        return self.rng_at(len(self._ids) - 1)

    def rng_at(self, position: int) -> random.Random:
        """Returns the random generator of the step whose anchor is at ``position`` in the text."""
        return random.Random(generator_seed(self.config.seed, position))

    def propose(self, ids: Sequence[int], mark: Callable[[str], None] = lambda stage: None) -> Proposal:
        """Drafts after the committed ``ids``, whose last one is the anchor. Returns the tree to verify, with its drafts.

        mark: called at the end of each stage, with the stage's name.
        """
        self._ids, self.anchor = ids, ids[-1]
        self._size = self.controller.begin()
        self.min_log_probability = self.controller.min_log_probability
        # plain decoding, if a cost-aware step is better off without a draft
        method = self.method if self._size else METHODS["autoregressive"]
        draft = method.draft(self)  # with a confidence at every position
        mark("first_draft")
        # prefixes up to the likeliest rejection boundaries; if cost-aware, only prefixes that are worth a re-draft
        prefixes = self.controller.worthwhile(draft, method.select(self, draft))
        redrafts = method.redraft(self, draft, prefixes)  # one batch
        mark("second_draft")
        tree = self.controller.prune(method.merge(self, draft, redrafts))
        mark("tree")
        return Proposal.of(tree, draft, prefixes, redrafts)

    def commit(self, features: Callable[[list[int]], Tensor], positions: Tensor) -> None:
        """Adds the committed tokens of a step to the drafters' context.

        features: function that returns the target's features of the tokens, (1, T, layers·hidden), for a list of target layers.
        positions: positions of the tokens in the text, (T,).
        """
        # a cost-aware step does not always use all drafters
        self._extend(features, positions, later=self.controller.experience is not None)

    def _extend(self, features: Callable[[list[int]], Tensor], positions: Tensor, later: bool) -> None:
        """Adds committed tokens to the drafters' context; features, positions: as for ``commit``.

        later: whether block drafters that have not drafted since the last commit read the tokens only before their next draft.
        """
        read = cache(lambda *layers: features([*layers]))  # both block drafters may read the same layers
        for drafter in self.block_drafters:
            if later and not drafter.drafted:
                drafter.later(read(*drafter.taps))
            else:
                drafter.extend(read(*drafter.taps), positions)
        if self.eagle3 is not None:
            self.eagle3.extend(features(self.eagle3.model.target_layer_ids))

    def draft_passes(self, proposal: Proposal) -> int:
        """Returns how many passes the drafters needed for a proposal, one after another."""
        if self.eagle3 is not None:
            return 1 + self.eagle3.depth if proposal.levels else 0
        if proposal.first is None:
            return 0
        if self.draft_model is not None:
            return len(proposal.first.ids)
        branches = proposal.branches
        return min(self.method.draft_levels, 1 + bool(branches) + any(b.base > 0 for b in branches))

    def work(self, proposal: Proposal) -> Work:
        """Returns the number of rows of each pass of a step. Re-drafts of re-drafts (the third level) have a separate pass."""
        size = 1 + len(proposal.first.ids) if proposal.first else self.block_size if proposal.levels else 0
        redrafts = proposal.branches if self.second else ()
        third = sum(block.base > 0 for block in redrafts)
        batches = [count for count in (len(redrafts) - third, third) if count]
        return Work(size, tuple(count * (size + self.extension) for count in batches), len(proposal.tree))

    def warn_once(self, proposal: Proposal) -> None:
        """Logs a warning the first time that the second drafter drafts from an empty prefix without being trained for it."""
        empty = any(block.prefix == 0 for block in proposal.branches)
        if empty and self.second is not None and self.second.form.visible_prefixes and not self._warned:
            self._warned = True
            log.warning(
                "an empty prefix was selected, but %s was not trained to draft from empty prefixes: this re-draft may be worse",
                self.second.model.config.name_or_path,
            )

    def _top(self, wanted: int) -> int:
        return max(wanted, TOP_ALTERNATIVES) if self.config.inspect else wanted
