"""Several drafts sampled from one pass of the first drafter: no second drafter is needed."""

from __future__ import annotations

from d2sd.methods.base import BRANCHED, Drafters, Method, Proposal, merged
from d2sd.tree.tree import merge_drafts


def propose_resample(drafters: Drafters) -> Proposal:
    """Returns the greedy chain plus K chains sampled i.i.d. at temperature 1 from the same distributions."""
    (first,) = drafters.first([()])
    boundary = drafters.boundary(first)
    return merged(drafters.anchor, first, boundary, branches=drafters.sample(drafters.num_branches))


def propose_select(drafters: Drafters) -> Proposal:
    """Returns K sampled drafts, verified jointly; the walk keeps the longest accepted one."""
    drafters.first([()])
    first, *others = drafters.sample(drafters.num_branches)
    return Proposal(merge_drafts(drafters.anchor, [first, *others]), first, branches=tuple(others))


DFLASH_RESAMPLE = Method(
    "dflash_resample",
    "DFlash, resampled",
    "Ablations",
    "The drafted chain plus K chains sampled from the same block: more candidates without a second drafter.",
    "D²SD, arXiv 2606.04446, ablation 1",
    propose_resample,
    BRANCHED,
)
SPECDIFF2_SELECT = Method(
    "specdiff2_select",
    "SpecDiff-2",
    "Chains",
    "K whole drafts sampled from the diffusion drafter are checked together; the longest accepted one is kept.",
    "SpecDiff-2, arXiv 2511.00606",
    propose_select,
    BRANCHED,
)
