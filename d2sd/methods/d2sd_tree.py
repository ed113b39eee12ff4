"""Best-first growth over both drafters: D²SD's re-drafts as distributions instead of chains."""

from __future__ import annotations

from d2sd.methods.base import SETTINGS, Drafters, Method, Proposal
from d2sd.methods.d2sd import redrafted
from d2sd.methods.growth import Offer, grow, offers
from d2sd.tree.block import Block
from d2sd.tree.boundary import boundary_posterior, open_prefixes, select_prefixes

TOP = 12  # likeliest tokens per position and drafter that are looked at
SECOND, FIRST = 0.8, 0.4  # exponents of the drafters' probabilities in their product (docs/tree-log.md)
UNLISTED = 1e-3  # probability of a token that one drafter has not among its likeliest


def propose(drafters: Drafters) -> Proposal:
    """The B likeliest paths.

    Below a re-anchored prefix a token's probability is a weighted product of both drafters': where they disagree,
    neither is calibrated alone. Elsewhere it is the first drafter's.
    """
    (first,) = drafters.first([()], top=TOP)
    boundary = boundary_posterior(first.confidence)
    usable = open_prefixes(first.ids, drafters.end_ids)
    selected = select_prefixes(boundary.posterior[:usable], drafters.num_branches)
    prefixes = redrafted(drafters, first, selected)
    branches = tuple(drafters.second([first.ids[:i] for i in prefixes], top=TOP))
    offered = [offers(first, 0), *(agreed(first, b, n) for n, b in enumerate(branches, 1))]
    tree = grow(drafters.anchor, [first, *branches], offered, drafters.budget)
    return Proposal(tree, first, boundary, selected, branches)


def agreed(first: Block, second: Block, number: int) -> list[Offer]:
    """Product of both drafters' distributions after a re-drafted prefix, normalised over the tokens that they list.

    number: that of the re-draft; a token counts as that of the draft that gave it more. Behind the end of the first block the
    second drafter is alone.
    """
    out = offers(second, number)
    for position, at in enumerate(range(second.prefix, len(first.ids))):
        own = dict(zip(first.tokens[at], first.probabilities[at], strict=True))
        other = dict(zip(second.tokens[position], second.probabilities[position], strict=True))
        weight = {t: other.get(t, UNLISTED) ** SECOND * own.get(t, UNLISTED) ** FIRST for t in {**other, **own}}
        total = sum(weight.values())
        tokens = sorted(weight, key=lambda t: -weight[t])
        owners = [0 if own.get(t, 0.0) > other.get(t, 0.0) else number for t in tokens]
        out[position] = Offer(tokens, [weight[t] / total for t in tokens], owners)
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
