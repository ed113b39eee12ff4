"""D²SD: re-draft from the K likeliest rejection boundaries and verify everything as one tree; and variants of it.

D²SD, arXiv 2606.04446, section 3. The variants are its ablation 2 (the first drafter used twice), its ablation 3 (a third
level), and a control that selects prefixes uniformly at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from d2sd.methods.base import TWO_DRAFTS, Drafters, Method, Proposal, merged, random_order, split
from d2sd.tree.block import Block
from d2sd.tree.boundary import Boundary, open_prefixes, select_prefixes
from d2sd.tree.tree import chains, merge_drafts


def propose(drafters: Drafters) -> Proposal:
    """Returns the first draft plus K branches from the prefixes with the largest r(i)."""
    (first,) = drafters.first([()])
    boundary = drafters.boundary(first)
    usable = open_prefixes(first.ids, drafters.end_ids)
    return redraft(drafters, first, boundary, select_prefixes(boundary.posterior[:usable], drafters.num_branches))


def propose_random(drafters: Drafters) -> Proposal:
    """Returns the first draft plus K branches from prefixes sampled uniformly without replacement."""
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


def propose_three_levels(drafters: Drafters) -> Proposal:
    """Returns up to 2K+1 drafts: every branch of D²SD is re-drafted once more from its own likeliest boundary.

    A branch's boundary is its largest r(i) with i ≥ 1 (re-drafting from i = 0 would repeat the branch). Prefixes
    that were already re-drafted from, or in which the text ends, are left out.
    """
    two = propose(drafters)
    assert two.first is not None
    whole = chains([two.first, *two.branches])
    known = {chain[: block.prefix] for chain, block in zip(whole[1:], two.branches, strict=True)}
    starts: list[tuple[int, tuple[int, ...]]] = []
    for number, block in enumerate(two.branches, 1):
        boundary = drafters.boundary(block, 1)
        usable = open_prefixes(block.ids, drafters.end_ids) - 1
        for best in select_prefixes(boundary.posterior[:usable], 1):
            prefix = whole[number][: block.prefix + 1 + best]
            if prefix not in known:
                known.add(prefix)
                starts.append((number, prefix))
    third = drafters.second([prefix for _, prefix in starts]) if starts else []
    blocks = (*two.branches, *(replace(b, base=number) for b, (number, _) in zip(third, starts, strict=True)))
    return replace(two, tree=merge_drafts(drafters.anchor, [two.first, *blocks]), branches=blocks)


D2SD = Method(
    "d2sd",
    "D²SD",
    "A second, variable-prefix drafter re-drafts from the K likeliest rejection boundaries in one batch.",
    "D²SD, arXiv 2606.04446",
    propose,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=2,
    on_device="likeliest",
)
D2SD_THREE_LEVEL = Method(
    "d2sd_three_level",
    "D²SD, re-drafted twice",
    "D²SD, and every branch is re-drafted once more from its own likeliest boundary.",
    "D²SD, arXiv 2606.04446, ablation 3",
    propose_three_levels,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=3,
)
DFLASH_TWICE = Method(
    "dflash_twice",
    "D²SD with one drafter",
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
    "D²SD that re-drafts from K prefixes drawn at random: the control that shows what confidence buys.",
    "control",
    propose_random,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=2,
    on_device="random",
)
