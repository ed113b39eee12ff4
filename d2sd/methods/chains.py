"""Methods whose drafts are chains: plain decoding, one drafted chain, and several chains sampled from one draft."""

from __future__ import annotations

from d2sd.methods.base import BRANCHED, ONE_DRAFT, Drafters, FirstDraft, Method, draft_block


def draft_nothing(drafters: Drafters) -> FirstDraft:
    return FirstDraft()


def draft_chain(drafters: Drafters) -> FirstDraft:
    """Drafts one chain of γ − 1 tokens with the draft model, token by token."""
    block = drafters.chain()
    return FirstDraft(block, drafters.boundary(block))


def draft_and_sample(drafters: Drafters) -> FirstDraft:
    """Drafts the greedy chain, and samples K more chains independently at temperature 1 from the drafter's distributions."""
    return draft_block(drafters)._replace(samples=drafters.samples(drafters.num_branches))


def draft_samples(drafters: Drafters) -> FirstDraft:
    """Samples K chains. They are verified together, and the one that is accepted furthest is committed."""
    drafters.first_block()
    first, *others = drafters.samples(drafters.num_branches)
    return FirstDraft(first, samples=others)


AUTOREGRESSIVE = Method(
    "autoregressive",
    "Plain decoding",
    "Plain decoding: the target writes one token per pass.",
    "baseline",
    frozenset(),
    draft_nothing,
    first_drafter=False,
    draft_levels=0,
    on_device="anchor",
)
DRAFT_MODEL = Method(
    "draft_model",
    "Draft model",
    "A small autoregressive model drafts a chain token by token; the target checks it in one pass.",
    "speculative sampling, arXiv 2211.17192 and 2302.01318",
    ONE_DRAFT,
    draft_chain,
    first_drafter=False,
    draft_model=True,
)
DFLASH = Method(
    "dflash",
    "DFlash",
    "One diffusion drafter drafts a whole block in one pass; the target checks the block as a single chain.",
    "DFlash, arXiv 2602.06036",
    ONE_DRAFT,
    on_device="chain",
)
DFLASH_RESAMPLE = Method(
    "dflash_resample",
    "DFlash, resampled",
    "The drafted chain plus K chains sampled from the drafter's distributions: more candidates without a second drafter.",
    "D²SD, arXiv 2606.04446, ablation 1",
    BRANCHED,
    draft_and_sample,
)
SPECDIFF2_SELECT = Method(
    "specdiff2_select",
    "SpecDiff-2",
    "K whole drafts sampled from the diffusion drafter are checked together; the longest accepted one is taken.",
    "SpecDiff-2, arXiv 2511.00606",
    BRANCHED,
    draft_samples,
)
