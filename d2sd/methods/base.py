"""The interface of a method: its inputs and its proposal."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Literal, Protocol

from d2sd.tree.block import Block, DrafterName
from d2sd.tree.boundary import NOTHING_DRAFTED, Boundary, boundary_posterior, open_prefixes
from d2sd.tree.levels import Level
from d2sd.tree.tree import TokenTree, merge_drafts

TWO_DRAFTS = frozenset({"block_size", "second_block_size", "num_branches", "node_budget", "cost_aware"})
BRANCHED = TWO_DRAFTS - {"second_block_size"}
# All fields of ``DecodeConfig`` that shape some method's trees.
TREE_SETTINGS = TWO_DRAFTS | {"draft_depth", "draft_top_k"}
DEFAULT_BUDGET = 64
MAX_BLOCK = 1024  # tokens of a block, the anchor included
WIDEST = 16
MAX_LOG = 700.0  # the exponential of more is more than a float holds


def all_prefixes(confidence: Sequence[float], prefixes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns all prefixes: each is worth a re-draft."""
    return prefixes


class DraftPass(Protocol):
    """Maps prefixes below the anchor to drafted blocks, with the ``top`` likeliest tokens of every position."""

    def __call__(self, prefixes: Sequence[Sequence[int]], top: int = 1) -> list[Block]: ...


@dataclass(frozen=True, slots=True)
class Drafters:
    """The drafters and settings that a method may use at one step.

    first: blocks of γ.
    second: blocks of γ₂.
    sample: blocks sampled from the distributions of the first draft.
    model: a chain of the autoregressive draft model.
    levels: a draft tree of EAGLE-3.
    extension: γ₂ − γ.
    budget: node budget B of tree methods.
    choose_redrafts: maps confidences and prefixes of the first draft to the prefixes that are worth a re-draft.
    min_log_probability: log probability of acceptance below which a path is not grown.
    end_ids: tokens that end a text; nothing is re-drafted after them.
    trained: whether boundaries are estimated from a trained confidence head instead of the tokens' probabilities.
    """

    anchor: int
    first: DraftPass
    second: DraftPass
    sample: Callable[[int], list[Block]]
    model: Callable[[], Block]
    levels: Callable[[], list[Level]]
    num_branches: int
    extension: int
    budget: int
    rng: random.Random
    end_ids: Collection[int] = ()
    choose_redrafts: Callable[[Sequence[float], tuple[int, ...]], tuple[int, ...]] = all_prefixes
    min_log_probability: float = -inf
    trained: bool = False

    def boundary(self, block: Block, after: int = 0) -> Boundary:
        """Returns the boundary estimate of a draft, from the confidences after its first ``after`` tokens."""
        return boundary_posterior((block.trained if self.trained and block.trained else block.confidence)[after:])

    @property
    def width(self) -> int:
        """The maximum number of alternatives per position to grow from.

        If nodes must be worth their time, their number is limited by their minimum probability, and by ``WIDEST`` or a quarter
        of the budget: fetching 64 instead of 16 makes a draft of 1.8 ms on a CPU 0.2 ms longer.
        """
        if self.min_log_probability == -inf:
            return self.budget
        widest = min(self.budget, max(WIDEST, self.budget // 4))
        return max(1, min(widest, int(exp(min(MAX_LOG, -self.min_log_probability)))))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token tree and its drafts; ``first`` is None if nothing was drafted.

    boundary: the estimate from which prefixes of the first draft were selected, if there is one.
    levels: the levels of a tree that grew level by level.
    """

    tree: TokenTree
    first: Block | None = None
    boundary: Boundary = NOTHING_DRAFTED
    selected: tuple[int, ...] = ()
    branches: tuple[Block, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All drafts in order of their number."""
        return () if self.first is None else (self.first, *self.branches)

    def drafter_of(self, node: int) -> DrafterName:
        """Returns the drafter that proposed a node below the anchor."""
        return self.blocks[self.tree.blocks[node]].drafter if self.blocks else "first"


@dataclass(frozen=True, slots=True)
class Method:
    """A drafting method.

    id: its key in ``METHODS``, on the command line and in traces.
    name: what the page calls it.
    sentence: one sentence for help texts and the page.
    source: the paper.
    propose: builds the token tree of a step.
    settings: the fields of ``DecodeConfig`` that shape its trees.
    first_drafter: it drafts with the first block drafter.
    second_drafter: the network that re-drafts, if any.
    draft_model: it drafts with the autoregressive draft model.
    eagle3: it drafts with the EAGLE-3 drafter.
    default_budget: the node budget of a method that cannot run without one.
    draft_levels: sequential passes of block drafters per step.
    on_device: how ``d2sd.decoding.device_cycle`` builds its tree: the anchor alone, a single chain, or re-drafts from the
        likeliest or from random prefixes. None: only the host does.
    """

    id: str
    name: str
    sentence: str
    source: str
    propose: Callable[[Drafters], Proposal]
    settings: frozenset[str]
    first_drafter: bool = True
    second_drafter: Literal["none", "vp", "first"] = "none"
    draft_model: bool = False
    eagle3: bool = False
    default_budget: int | None = None
    draft_levels: int = 1
    on_device: Literal["anchor", "chain", "likeliest", "random"] | None = None

    def draft_lengths(self, block_size: int) -> list[int]:
        """Returns the values of γ that a cost-aware step chooses from, ascending: the configured one, and shorter ones.

        A draft model drafts its tokens one by one, so the shortest saves most; trees of levels have one depth.
        """
        halvings = 3 if self.draft_model else 0 if self.eagle3 else 2
        return sorted({max(2, block_size >> n) for n in range(1 + halvings)})

    @property
    def drafts(self) -> bool:
        """Whether the method drafts at all."""
        return self.first_drafter or self.draft_model or self.eagle3


def random_order(rng: random.Random, positions: int) -> tuple[int, ...]:
    """Returns the prefix lengths of a draft of ``positions`` tokens in random order."""
    return tuple(rng.sample(range(positions), positions))


def split(drafters: Drafters, first: Block, selected: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the selected prefixes to re-draft from; and the same list with the whole first block, if γ₂ > γ and the text
    does not end in it, so that one more branch continues it."""
    whole = len(first.ids)
    goes_on = drafters.extension and open_prefixes(first.ids, drafters.end_ids) > whole
    prefixes = drafters.choose_redrafts(first.confidence, (*selected, whole) if goes_on else tuple(selected))
    return tuple(p for p in prefixes if p < whole), prefixes


def merged(
    anchor: int, first: Block, boundary: Boundary, selected: Sequence[int] = (), branches: Sequence[Block] = ()
) -> Proposal:
    """Returns the proposal that merges a first draft and its re-drafts."""
    tree = merge_drafts(anchor, [first, *branches])
    return Proposal(tree, first, boundary, tuple(selected), tuple(branches))
