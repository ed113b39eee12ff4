"""Methods whose drafts are chains: plain decoding, one drafted chain, and several chains sampled from one draft."""

from __future__ import annotations

from d2sd.methods.base import BRANCHED, Drafters, Method, Proposal, merged
from d2sd.tree.boundary import boundary_posterior
from d2sd.tree.tree import merge_drafts

ONE_CHAIN = frozenset({"block_size", "node_budget", "cost_aware"})  # settings


def propose_autoregressive(drafters: Drafters) -> Proposal:
    """Returns a tree of the anchor alone."""
    return Proposal(merge_drafts(drafters.anchor, []))


def propose_draft_model(drafters: Drafters) -> Proposal:
    """Returns one chain of γ−1 tokens, drafted one by one."""
    first = drafters.model()
    return merged(drafters.anchor, first, boundary_posterior(first.confidence))


def propose_dflash(drafters: Drafters) -> Proposal:
    """Returns one chain of γ−1 tokens, drafted in one pass."""
    (first,) = drafters.first([()])
    return merged(drafters.anchor, first, drafters.boundary(first))


def propose_resample(drafters: Drafters) -> Proposal:
    """Returns the greedy chain plus K chains sampled i.i.d. at temperature 1 from the same distributions."""
    (first,) = drafters.first([()])
    boundary = drafters.boundary(first)
    return merged(drafters.anchor, first, boundary, branches=drafters.sample(drafters.num_branches))


def propose_select(drafters: Drafters) -> Proposal:
    """Returns K sampled chains, verified jointly; the walk keeps the longest accepted one."""
    drafters.first([()])
    first, *others = drafters.sample(drafters.num_branches)
    return Proposal(merge_drafts(drafters.anchor, [first, *others]), first, branches=tuple(others))


AUTOREGRESSIVE = Method(
    "autoregressive",
    "Plain decoding",
    "Plain decoding: the target writes one token per pass.",
    "baseline",
    propose_autoregressive,
    frozenset(),
    first_drafter=False,
    draft_levels=0,
    on_device="anchor",
)
DRAFT_MODEL = Method(
    "draft_model",
    "Draft model",
    "A small autoregressive model drafts a chain token by token; the target checks it in one pass.",
    "speculative sampling, arXiv 2211.17192 and 2302.01318",
    propose_draft_model,
    ONE_CHAIN,
    first_drafter=False,
    draft_model=True,
)
DFLASH = Method(
    "dflash",
    "DFlash",
    "One diffusion drafter fills the whole block at once; the target checks it as a single chain.",
    "DFlash, arXiv 2602.06036",
    propose_dflash,
    ONE_CHAIN,
    on_device="chain",
)
DFLASH_RESAMPLE = Method(
    "dflash_resample",
    "DFlash, resampled",
    "The drafted chain plus K chains sampled from the same block: more candidates without a second drafter.",
    "D²SD, arXiv 2606.04446, ablation 1",
    propose_resample,
    BRANCHED,
)
SPECDIFF2_SELECT = Method(
    "specdiff2_select",
    "SpecDiff-2",
    "K whole drafts sampled from the diffusion drafter are checked together; the longest accepted one is kept.",
    "SpecDiff-2, arXiv 2511.00606",
    propose_select,
    BRANCHED,
)
