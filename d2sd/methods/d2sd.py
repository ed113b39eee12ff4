"""D²SD: re-draft from the K likeliest rejection boundaries, verify everything as one tree; and two controls.

D²SD, arXiv 2606.04446, section 3; the controls are its ablation 2 (the first drafter used twice) and prefixes
drawn uniformly, which shows what confidence buys.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.methods.base import TWO_DRAFTS, Drafters, Method, Proposal, merged, random_order, split
from d2sd.tree.block import Block
from d2sd.tree.boundary import Boundary, open_prefixes, select_prefixes


def propose(drafters: Drafters) -> Proposal:
    """Returns the first draft plus K branches from the prefixes with the largest r(i)."""
    (first,) = drafters.first([()])
    boundary = drafters.boundary(first)
    usable = open_prefixes(first.ids, drafters.end_ids)
    return redraft(drafters, first, boundary, select_prefixes(boundary.posterior[:usable], drafters.num_branches))


def propose_random(drafters: Drafters) -> Proposal:
    """Returns the first draft plus K branches from prefixes drawn uniformly without replacement."""
    (first,) = drafters.first([()])
    usable = open_prefixes(first.ids, drafters.end_ids)
    order = random_order(drafters.rng, len(first.ids))
    selected = [i for i in order if i < usable][: drafters.num_branches]
    return redraft(drafters, first, drafters.boundary(first), selected)


def redraft(drafters: Drafters, first: Block, boundary: Boundary, selected: Sequence[int]) -> Proposal:
    """Returns one D²SD proposal. If γ₂ > γ, one more branch continues the whole first block."""
    selected, prefixes = split(drafters, first, selected)
    branches = drafters.second([first.ids[:i] for i in prefixes]) if prefixes else []
    return merged(drafters.anchor, first, boundary, selected, branches)


D2SD = Method(
    "d2sd",
    "D²SD",
    "D²SD",
    "A second, variable-prefix drafter re-drafts from the K likeliest rejection boundaries in one batch.",
    "D²SD, arXiv 2606.04446",
    propose,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=2,
    on_device="likeliest",
)
DFLASH_TWICE = Method(
    "dflash_twice",
    "D²SD with one drafter",
    "Ablations",
    "D²SD with the first drafter used again for the re-drafts.",
    "D²SD, arXiv 2606.04446, ablation 2",
    propose,
    TWO_DRAFTS,
    second_drafter="first",
    draft_levels=2,
    on_device="likeliest",
)
RANDOM_PREFIX = Method(
    "random_prefix",
    "D²SD from random prefixes",
    "Ablations",
    "D²SD that re-drafts from K prefixes drawn at random: the control that shows what confidence buys.",
    "control",
    propose_random,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=2,
    on_device="random",
)
