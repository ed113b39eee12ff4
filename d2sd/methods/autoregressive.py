"""Plain decoding: the tree is the anchor alone."""

from __future__ import annotations

from d2sd.methods.base import Drafters, Method, Proposal
from d2sd.tree.tree import merge_drafts


def propose(drafters: Drafters) -> Proposal:
    """Returns a tree of the anchor alone."""
    return Proposal(merge_drafts(drafters.anchor, []))


AUTOREGRESSIVE = Method(
    "autoregressive",
    "Plain decoding",
    "Plain",
    "Plain decoding: the target writes one token per pass.",
    "baseline",
    propose,
    frozenset(),
    first_drafter=False,
    draft_levels=0,
    on_device="anchor",
)
