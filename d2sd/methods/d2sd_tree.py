"""Best-first growth over both drafters: D²SD's re-drafts as distributions instead of chains."""

from __future__ import annotations

from d2sd.boundary import boundary_posterior, select_prefixes
from d2sd.methods.base import SETTINGS, Drafters, Method, Proposal
from d2sd.methods.growth import grow


def propose(drafters: Drafters) -> Proposal:
    """The B likeliest paths when a path's next token comes from the drafter that was given most of the path."""
    (first,) = drafters.first([()], top=drafters.budget)
    posterior, full = boundary_posterior(first.confidence)
    selected = select_prefixes(posterior, drafters.num_branches)
    prefixes = (*selected, len(first.ids)) if drafters.longer else selected
    branches = tuple(drafters.second([first.ids[:i] for i in prefixes], top=drafters.budget))
    tree = grow(drafters.anchor, [first, *branches], drafters.budget)
    return Proposal(tree, first, posterior, full, selected, branches)


D2SD_TREE = Method(
    "d2sd_tree",
    "A tree of the B likeliest paths over both drafters, grown best first from the re-anchored prefixes.",
    "this project, after D²SD and DDTree",
    propose,
    SETTINGS,
    second_drafter="vp",
    needs_budget=True,
)
