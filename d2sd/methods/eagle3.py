"""EAGLE-3: an autoregressive drafter at the level of features, and a tree that grows where it is surest."""

from __future__ import annotations

from d2sd.methods.base import Drafters, Method, Proposal
from d2sd.tree.levels import level_tree


def propose(drafters: Drafters) -> Proposal:
    """Returns the best nodes of a tree that is grown level by level, one pass per level."""
    levels = drafters.levels()
    return Proposal(level_tree(drafters.anchor, levels, drafters.budget), levels=tuple(levels))


EAGLE3 = Method(
    "eagle3",
    "EAGLE-3",
    "Trees",
    "A one-layer drafter reads the target's features and writes token after token; its tree grows level by level.",
    "EAGLE-3, arXiv 2503.01840",
    propose,
    frozenset({"draft_depth", "draft_top_k", "node_budget", "cost_aware"}),
    first_drafter=False,
    eagle3=True,
    default_budget=59,
)
