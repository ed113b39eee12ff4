"""DDTree: best-first tree over the per-position distributions of one block draft, under a node budget."""

from __future__ import annotations

from d2sd.methods.base import DEFAULT_BUDGET, Drafters, Method, Proposal
from d2sd.methods.growth import grow, offers


def propose(drafters: Drafters) -> Proposal:
    """Returns the B likeliest paths if the block's positions were independent."""
    (first,) = drafters.first([()], top=drafters.width)
    tree = grow(drafters.anchor, [first], [offers(first, 0)], drafters.budget, drafters.min_log_probability)
    return Proposal(tree, first, drafters.boundary(first))


DDTREE = Method(
    "ddtree",
    "DDTree",
    "Trees",
    "A tree of the B likeliest paths over the first drafter's per-position distributions, grown best first.",
    "DDTree, arXiv 2604.12989",
    propose,
    frozenset({"block_size", "node_budget", "cost_aware"}),
    default_budget=DEFAULT_BUDGET,
)
