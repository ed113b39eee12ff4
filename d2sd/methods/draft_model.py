"""Classical speculative decoding: a small autoregressive model drafts a chain, one token per pass of its own."""

from __future__ import annotations

from d2sd.methods.base import Drafters, Method, Proposal, merged
from d2sd.tree.boundary import boundary_posterior


def propose(drafters: Drafters) -> Proposal:
    """Returns one chain of γ−1 tokens."""
    first = drafters.model()
    return merged(drafters.anchor, first, boundary_posterior(first.confidence))


DRAFT_MODEL = Method(
    "draft_model",
    "Draft model",
    "Chains",
    "A small autoregressive model drafts a chain token by token; the target checks it in one pass.",
    "speculative sampling, arXiv 2211.17192 and 2302.01318",
    propose,
    frozenset({"block_size", "node_budget", "cost_aware"}),
    first_drafter=False,
    draft_model=True,
)
