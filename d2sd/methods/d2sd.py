"""D²SD, which re-drafts from the K likeliest rejection boundaries and verifies all drafts as one tree, and its variants.

See D²SD, arXiv 2606.04446, section 3. r(i) is the probability that exactly the first i tokens of a draft are accepted
(``d2sd.tree.boundary``). The variants are ablation 2 of the paper (the first drafter also re-drafts), ablation 3 (a third level of
drafts), and a control that selects prefixes uniformly at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from d2sd.methods.base import TWO_DRAFTS, Drafters, FirstDraft, Method, random_order
from d2sd.tree.block import Block
from d2sd.tree.boundary import open_prefixes, select_prefixes
from d2sd.tree.tree import chains


def select_likeliest(drafters: Drafters, draft: FirstDraft) -> Sequence[int]:
    """Returns the lengths i of the K prefixes with the largest r(i)."""
    assert draft.block is not None
    usable = open_prefixes(draft.block.ids, drafters.end_ids)
    return and_whole(drafters, draft.block, select_prefixes(draft.boundary.posterior[:usable], drafters.num_branches))


def select_random(drafters: Drafters, draft: FirstDraft) -> Sequence[int]:
    """Returns the lengths of K prefixes, sampled uniformly without replacement."""
    assert draft.block is not None
    usable = open_prefixes(draft.block.ids, drafters.end_ids)
    order = random_order(drafters.rng(), len(draft.block.ids))
    return and_whole(drafters, draft.block, [i for i in order if i < usable][: drafters.num_branches])


def and_whole(drafters: Drafters, first: Block, prefixes: Sequence[int]) -> Sequence[int]:
    """Returns the prefixes and, if γ₂ > γ, the length of the whole first block, which an additional re-draft then continues.

    The whole block is left out if it contains an end token.
    """
    whole = len(first.ids)
    goes_on = drafters.extension and open_prefixes(first.ids, drafters.end_ids) > whole
    return (*prefixes, whole) if goes_on else prefixes


def redraft_once(drafters: Drafters, draft: FirstDraft, prefixes: Sequence[int], top: int = 1) -> Sequence[Block]:
    """Returns one block of the second drafter per prefix of the first block, drafted in one batch."""
    assert draft.block is not None
    return drafters.second_blocks([draft.block.ids[:i] for i in prefixes], top) if prefixes else []


def redraft_twice(drafters: Drafters, draft: FirstDraft, prefixes: Sequence[int]) -> Sequence[Block]:
    """Returns the blocks of ``redraft_once``, and for each of them one more block, re-drafted from its likeliest boundary.

    This is the i ≥ 1 with the largest r(i), since i = 0 would give the same block again. A prefix is left out if it was already
    used for a re-draft, or if the text ends in it.
    """
    branches = redraft_once(drafters, draft, prefixes)
    assert draft.block is not None
    whole = chains([draft.block, *branches])
    redrafted = {chain[: block.prefix] for chain, block in zip(whole[1:], branches, strict=True)}
    starts = []
    for number, block in enumerate(branches, 1):
        boundary = drafters.boundary(block, 1)
        usable = open_prefixes(block.ids, drafters.end_ids) - 1
        for best in select_prefixes(boundary.posterior[:usable], 1):
            prefix = whole[number][: block.prefix + 1 + best]
            if prefix not in redrafted:
                redrafted.add(prefix)
                starts.append((number, prefix))
    third = drafters.second_blocks([prefix for _, prefix in starts]) if starts else []
    return [*branches, *(replace(b, base=number) for b, (number, _) in zip(third, starts, strict=True))]


D2SD = Method(
    "d2sd",
    "D²SD",
    "A second, variable-prefix drafter re-drafts from the K likeliest rejection boundaries in one batch.",
    "D²SD, arXiv 2606.04446",
    TWO_DRAFTS,
    select=select_likeliest,
    redraft=redraft_once,
    second_drafter="vp",
    draft_levels=2,
    on_device="likeliest",
)
D2SD_THREE_LEVEL = Method(
    "d2sd_three_level",
    "D²SD, re-drafted twice",
    "D²SD, and every branch is re-drafted once more from its own likeliest boundary.",
    "D²SD, arXiv 2606.04446, ablation 3",
    TWO_DRAFTS,
    select=select_likeliest,
    redraft=redraft_twice,
    second_drafter="vp",
    draft_levels=3,
)
DFLASH_TWICE = Method(
    "dflash_twice",
    "D²SD with one drafter",
    "D²SD with the first drafter used again for the re-drafts.",
    "D²SD, arXiv 2606.04446, ablation 2",
    TWO_DRAFTS,
    select=select_likeliest,
    redraft=redraft_once,
    second_drafter="first",
    draft_levels=2,
    on_device="likeliest",
)
RANDOM_PREFIX = Method(
    "random_prefix",
    "D²SD from random prefixes",
    "D²SD that re-drafts from K random prefixes: a control that shows the effect of choosing prefixes by confidence.",
    "control",
    TWO_DRAFTS,
    select=select_random,
    redraft=redraft_once,
    second_drafter="vp",
    draft_levels=2,
    on_device="random",
)
