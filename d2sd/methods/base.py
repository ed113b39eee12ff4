"""The interface of a method: the drafters, the stages of a step up to its token tree, and the resulting proposal.

Symbols: γ is the size of a block, with its anchor; γ₂ is the size of a re-drafted block; K is the number of re-drafts.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Literal, NamedTuple

from d2sd.tree.block import Block, DrafterName
from d2sd.tree.boundary import NOTHING_DRAFTED, Boundary, boundary_posterior
from d2sd.tree.levels import Level
from d2sd.tree.tree import TokenTree, merge_drafts

TWO_DRAFTS = frozenset({"block_size", "second_block_size", "num_branches", "node_budget", "cost_aware"})
BRANCHED = TWO_DRAFTS - {"second_block_size"}
ONE_DRAFT = BRANCHED - {"num_branches"}
# All fields of ``DecodeConfig`` that affect the trees of any method.
TREE_SETTINGS = TWO_DRAFTS | {"draft_depth", "draft_top_k"}
DEFAULT_BUDGET = 64
MAX_BLOCK = 1024  # largest γ
WIDEST = 16
MAX_LOG = 700.0  # the exponential of larger numbers overflows


class Drafters(ABC):
    """The drafters of one step, and the parameters of the step.

    anchor: the last committed token.
    num_branches: K.
    extension: γ₂ − γ.
    budget: maximum number of nodes below the anchor, for methods that grow trees.
    end_ids: tokens that end a text; nothing is re-drafted after them.
    trained: whether boundaries are estimated from a trained confidence head instead of the tokens' probabilities.
    min_log_probability: natural logarithm of the acceptance probability below which a path is not continued.
    """

    anchor: int
    num_branches: int
    extension: int
    budget: int
    end_ids: Collection[int]
    trained: bool = False
    min_log_probability: float = -inf

    @abstractmethod
    def first_block(self, top: int = 1) -> Block:
        """Returns the first drafter's block of size γ, with the ``top`` likeliest tokens of every position."""

    @abstractmethod
    def samples(self, count: int) -> list[Block]:
        """Returns ``count`` blocks, sampled from the distributions of the first drafter's block."""

    @abstractmethod
    def chain(self) -> Block:
        """Returns the autoregressive draft model's chain of γ − 1 tokens."""

    @abstractmethod
    def levels(self) -> list[Level]:
        """Returns the levels of EAGLE-3's draft tree."""

    @abstractmethod
    def second_blocks(self, prefixes: Sequence[Sequence[int]], top: int = 1) -> list[Block]:
        """Returns blocks of size γ₂ from the second drafter, drafted in one batch.

        prefixes: for each block, the tokens below the anchor that it continues.
        top: number of likeliest tokens to return per position.
        """

    @abstractmethod
    def rng(self) -> random.Random:
        """Returns the random generator of the step. It depends only on the seed and the position in the text."""

    def boundary(self, block: Block, after: int = 0) -> Boundary:
        """Returns the boundary estimate of a draft.

        after: number of leading tokens of the draft that are left out.
        """
        return boundary_posterior((block.trained if self.trained and block.trained else block.confidence)[after:])

    @property
    def width(self) -> int:
        """The maximum number of alternatives per position: at most the node budget.

        If nodes have a minimum probability, it is also at most 1 ÷ this probability, and at most the larger of ``WIDEST`` and a
        quarter of the budget. On a CPU, fetching 64 alternatives instead of 16 lengthens a draft of 1.8 ms by 0.2 ms.
        """
        if self.min_log_probability == -inf:
            return self.budget
        widest = min(self.budget, max(WIDEST, self.budget // 4))
        return max(1, min(widest, int(exp(min(MAX_LOG, -self.min_log_probability)))))


class FirstDraft(NamedTuple):
    """The first draft of a step.

    block: the first block; None for plain decoding and for trees that grow level by level.
    boundary: estimate of where the target will reject the block.
    samples: further chains, sampled from the distributions of the block.
    levels: the levels of a tree that grows level by level.
    """

    block: Block | None = None
    boundary: Boundary = NOTHING_DRAFTED
    samples: Sequence[Block] = ()
    levels: Sequence[Level] = ()


class Proposal(NamedTuple):
    """A token tree to verify, and the drafts that it was built from.

    first: the first block; None for plain decoding and for trees that grow level by level.
    boundary: the estimate from which prefixes of the first block were selected.
    selected: lengths of the prefixes that were re-drafted from, without that of the whole first block.
    branches: the re-drafts.
    levels: the levels of a tree that grew level by level.
    """

    tree: TokenTree
    first: Block | None = None
    boundary: Boundary = NOTHING_DRAFTED
    selected: tuple[int, ...] = ()
    branches: tuple[Block, ...] = ()
    levels: tuple[Level, ...] = ()

    @classmethod
    def of(cls, tree: TokenTree, draft: FirstDraft, prefixes: Sequence[int], redrafts: Sequence[Block]) -> Proposal:
        """Returns the proposal of a tree and its drafts.

        prefixes: lengths of all prefixes that were re-drafted from.
        """
        selected = tuple(p for p in prefixes if draft.block and p < len(draft.block.ids))
        return cls(tree, draft.block, draft.boundary, selected, tuple(redrafts), tuple(draft.levels))

    @property
    def blocks(self) -> tuple[Block, ...]:
        return () if self.first is None else (self.first, *self.branches)

    def drafter_of(self, node: int) -> DrafterName:
        """Returns the drafter that proposed a node below the anchor."""
        return self.blocks[self.tree.blocks[node]].drafter if self.blocks else "first"


def draft_block(drafters: Drafters, top: int = 1) -> FirstDraft:
    """Drafts one block with the first drafter, with the ``top`` likeliest tokens of every position."""
    block = drafters.first_block(top)
    return FirstDraft(block, drafters.boundary(block))


def select_nothing(drafters: Drafters, draft: FirstDraft) -> Sequence[int]:
    """Returns no prefixes, for methods that do not re-draft."""
    return ()


def redraft_nothing(drafters: Drafters, draft: FirstDraft, prefixes: Sequence[int]) -> Sequence[Block]:
    """Returns the chains that were sampled with the first draft, if any."""
    return draft.samples


def merge_all(drafters: Drafters, draft: FirstDraft, redrafts: Sequence[Block]) -> TokenTree:
    """Returns one tree of all drafts (``merge_drafts``); only the anchor if nothing was drafted."""
    return merge_drafts(drafters.anchor, [] if draft.block is None else [draft.block, *redrafts])


@dataclass(frozen=True, slots=True, repr=False)
class Method:
    """A drafting method.

    id: its key in ``METHODS``, on the command line and in traces.
    name: its name on the page.
    sentence: one sentence for help texts and the page.
    source: the paper.
    draft: returns the first draft. ``draft``, ``select``, ``redraft`` and ``merge`` are called once per step, in this order.
    select: returns the prefixes of the first draft to re-draft from, likeliest first.
    redraft: returns the further drafts, given the selected prefixes that are worth a re-draft.
    merge: returns the token tree of all drafts.
    settings: the fields of ``DecodeConfig`` that affect its trees.
    first_drafter: whether it uses the first block drafter.
    second_drafter: the drafter for re-drafts: the VP-Drafter ("vp"), the first drafter ("first"), or none ("none").
    draft_model: whether it uses the autoregressive draft model.
    eagle3: whether it uses the EAGLE-3 drafter.
    default_budget: the default node budget; None: no limit.
    draft_levels: number of sequential passes of block drafters per step.
    on_device: how ``d2sd.decoding.device_cycle`` builds its tree: the anchor alone, a single chain, or re-drafts from the
        likeliest or from random prefixes. None: its trees are built only on the host.
    """

    id: str
    name: str
    sentence: str
    source: str
    settings: frozenset[str]
    draft: Callable[[Drafters], FirstDraft] = draft_block
    select: Callable[[Drafters, FirstDraft], Sequence[int]] = select_nothing
    redraft: Callable[[Drafters, FirstDraft, Sequence[int]], Sequence[Block]] = redraft_nothing
    merge: Callable[[Drafters, FirstDraft, Sequence[Block]], TokenTree] = merge_all
    first_drafter: bool = True
    second_drafter: Literal["none", "vp", "first"] = "none"
    draft_model: bool = False
    eagle3: bool = False
    default_budget: int | None = None
    draft_levels: int = 1
    on_device: Literal["anchor", "chain", "likeliest", "random"] | None = None

    def __repr__(self) -> str:
        return f"<Method {self.id}: {self.sentence}>"

    def draft_lengths(self, block_size: int) -> list[int]:
        """Returns the values of γ that a cost-aware step chooses from, ascending: the configured value, its half and its quarter.

        A draft model's time grows with γ, so its choice includes an eighth too. Trees that grow by levels have a fixed depth, so
        that γ is not varied.
        """
        halvings = 3 if self.draft_model else 0 if self.eagle3 else 2
        return sorted({max(2, block_size >> n) for n in range(1 + halvings)})

    @property
    def drafts(self) -> bool:
        return self.first_drafter or self.draft_model or self.eagle3


def random_order(rng: random.Random, positions: int) -> tuple[int, ...]:
    """Returns the prefix lengths of a draft of ``positions`` tokens in random order."""
    return tuple(rng.sample(range(positions), positions))
