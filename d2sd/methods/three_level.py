"""D²SD with a third level: every branch is re-drafted once more from its own likeliest boundary."""

from __future__ import annotations

from dataclasses import replace

from d2sd.methods.base import TWO_DRAFTS, Drafters, Method, Proposal
from d2sd.methods.d2sd import propose as propose_two_levels
from d2sd.tree.boundary import open_prefixes, select_prefixes
from d2sd.tree.tree import chains, merge_drafts


def propose(drafters: Drafters) -> Proposal:
    """Returns up to 2K+1 drafts.

    A branch's boundary is its largest r(i) with i ≥ 1 (re-drafting from i = 0 would repeat the branch). Prefixes
    that were already re-drafted from, or in which the text ends, are left out.
    """
    two = propose_two_levels(drafters)
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


D2SD_THREE_LEVEL = Method(
    "d2sd_three_level",
    "D²SD, re-drafted twice",
    "Ablations",
    "D²SD, and every branch is re-drafted once more from its own likeliest boundary.",
    "D²SD, arXiv 2606.04446, ablation 3",
    propose,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=3,
)
