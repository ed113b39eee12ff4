"""Best-first growth over both drafters: D²SD's re-drafts as distributions instead of chains."""

from __future__ import annotations

from d2sd.boundary import boundary_posterior, select_prefixes
from d2sd.drafting import Block
from d2sd.methods.base import SETTINGS, Drafters, Method, Proposal
from d2sd.methods.growth import Offer, grow, offers

TOP = 12  # likeliest tokens per position and drafter that are looked at
SHARE = 0.6  # of the second drafter where both have an opinion (docs/tree-log.md)


def propose(drafters: Drafters) -> Proposal:
    """The B likeliest paths.

    Below a re-anchored prefix a token's probability is the weighted mean of both drafters': where they disagree,
    neither is calibrated alone. Elsewhere it is the first drafter's.
    """
    (first,) = drafters.first([()], top=TOP)
    posterior, full = boundary_posterior(first.confidence)
    selected = select_prefixes(posterior, drafters.num_branches)
    prefixes = (*selected, len(first.ids)) if drafters.longer else selected
    branches = tuple(drafters.second([first.ids[:i] for i in prefixes], top=TOP))
    offered = [offers(first, 0), *(mixed(first, b, n) for n, b in enumerate(branches, 1))]
    tree = grow(drafters.anchor, [first, *branches], offered, drafters.budget)
    return Proposal(tree, first, posterior, full, selected, branches)


def mixed(first: Block, second: Block, number: int) -> list[Offer]:
    """Both drafters' distributions behind a re-drafted prefix; a token is owed to the one that gave it more.

    number: that of the re-draft. Behind the end of the first block the second drafter is alone.
    """
    out = offers(second, number)
    for position, at in enumerate(range(second.prefix, len(first.ids))):
        own = dict(zip(first.tokens[at], first.probabilities[at], strict=True))
        other = dict(zip(second.tokens[position], second.probabilities[position], strict=True))
        mean = {t: SHARE * other.get(t, 0.0) + (1 - SHARE) * own.get(t, 0.0) for t in {**other, **own}}
        tokens = sorted(mean, key=lambda t: -mean[t])
        owners = [0 if own.get(t, 0.0) > other.get(t, 0.0) else number for t in tokens]
        out[position] = Offer(tokens, [mean[t] for t in tokens], owners)
    return out


D2SD_TREE = Method(
    "d2sd_tree",
    "A tree of the B likeliest paths over both drafters, grown best first from the re-anchored prefixes.",
    "this project, after D²SD and DDTree",
    propose,
    SETTINGS,
    second_drafter="vp",
    needs_budget=True,
)
