"""Best-first growth over both drafters: D²SD's re-drafts as distributions instead of chains."""

from __future__ import annotations

from math import exp, inf, log

from d2sd.methods.base import DEFAULT_BUDGET, TWO_DRAFTS, Drafters, Method, Proposal, split
from d2sd.methods.growth import Offer, grow, offers
from d2sd.tree.block import Block
from d2sd.tree.boundary import open_prefixes, select_prefixes

TOP = 12  # likeliest tokens per position and drafter that are looked at
# Exponents of the drafters' probabilities in their product, chosen on `tiny`: `git show 1e876e8:research/tiny/tree-log.md`.
SECOND, FIRST = 0.7, 0.3
UNLISTED = log(1e-3)  # log probability of a token that one drafter has not among its likeliest


def propose(drafters: Drafters) -> Proposal:
    """Returns the B likeliest paths.

    Below a re-anchored prefix a token's probability is a weighted product of both drafters': where they disagree,
    neither is calibrated alone. Elsewhere it is the first drafter's.
    """
    (first,) = drafters.first([()], top=TOP)
    boundary = drafters.boundary(first)
    usable = open_prefixes(first.ids, drafters.end_ids)
    likeliest = select_prefixes(boundary.posterior[:usable], drafters.num_branches)
    selected, prefixes = split(drafters, first, likeliest)
    branches = tuple(drafters.second([first.ids[:i] for i in prefixes], top=TOP)) if prefixes else ()
    offered = [offers(first, 0), *(agreed(first, b, n) for n, b in enumerate(branches, 1))]
    tree = grow(drafters.anchor, [first, *branches], offered, drafters.budget, drafters.min_log_probability)
    return Proposal(tree, first, boundary, selected, branches)


def agreed(first: Block, second: Block, number: int) -> list[Offer]:
    """Returns the product of both drafters' distributions after a re-drafted prefix, normalised over the tokens that they list.

    number: of the re-draft. A token is attributed to the draft with the higher probability. After the end of the first block
        only the second drafter counts.
    """
    out, ours, theirs = offers(second, number), first.scores, second.scores
    for position, at in enumerate(range(second.prefix, len(first.ids))):
        own = dict(zip(first.tokens[at], ours[at], strict=True))
        other = dict(zip(second.tokens[position], theirs[position], strict=True))
        weight = {t: SECOND * other.get(t, UNLISTED) + FIRST * own.get(t, UNLISTED) for t in {**other, **own}}
        tokens = sorted(weight, key=lambda t: -weight[t])
        best = weight[tokens[0]]
        total = best + log(sum(exp(w - best) for w in weight.values()))
        logs = [min(0.0, weight[t] - total) for t in tokens]
        owners = [0 if own.get(t, -inf) > other.get(t, -inf) else number for t in tokens]
        out[position] = Offer(tokens, [exp(s) for s in logs], logs, owners)
    return out


D2SD_TREE = Method(
    "d2sd_tree",
    "D²SD as a tree",
    "D²SD",
    "A tree of the B likeliest paths over both drafters, grown best first from the re-anchored prefixes.",
    "this project, after D²SD and DDTree",
    propose,
    TWO_DRAFTS,
    second_drafter="vp",
    draft_levels=2,
    default_budget=DEFAULT_BUDGET,
)
