"""DFlash: one block drafted in parallel, verified as a chain."""

from __future__ import annotations

from d2sd.methods.base import Drafters, Method, Proposal, merged


def propose(drafters: Drafters) -> Proposal:
    """Returns one chain of γ−1 drafted tokens."""
    (first,) = drafters.first([()])
    return merged(drafters.anchor, first, drafters.boundary(first))


DFLASH = Method(
    "dflash",
    "DFlash",
    "Chains",
    "One diffusion drafter fills the whole block at once; the target checks it as a single chain.",
    "DFlash, arXiv 2602.06036",
    propose,
    frozenset({"block_size", "node_budget", "cost_aware"}),
    on_device="chain",
)
