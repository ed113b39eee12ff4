"""D²SD: re-draft from the K likeliest rejection boundaries, verify everything as one tree; and two controls.

D²SD, arXiv 2606.04446, section 3; the controls are its ablation 2 (the first drafter used twice) and prefixes
drawn uniformly, which shows what confidence buys.
"""

from __future__ import annotations

from d2sd.boundary import boundary_posterior, select_prefixes
from d2sd.methods.base import SETTINGS, Drafters, Method, Proposal
from d2sd.tree import merge_drafts


def propose(drafters: Drafters) -> Proposal:
    """First draft plus K branches from the prefixes with the largest r(i)."""
    return redraft(drafters, random_prefixes=False)


def propose_random(drafters: Drafters) -> Proposal:
    """First draft plus K branches from prefixes drawn uniformly without replacement."""
    return redraft(drafters, random_prefixes=True)


def redraft(drafters: Drafters, random_prefixes: bool) -> Proposal:
    """One D²SD proposal. Where γ₂ > γ one more branch goes on behind the whole first block."""
    (first,) = drafters.first([()])
    posterior, full = boundary_posterior(first.confidence)
    if random_prefixes:
        selected = tuple(drafters.rng.sample(range(len(posterior)), drafters.num_branches))
    else:
        selected = select_prefixes(posterior, drafters.num_branches)
    prefixes = (*selected, len(first.ids)) if drafters.longer else selected
    branches = tuple(drafters.second([first.ids[:i] for i in prefixes]))
    return Proposal(merge_drafts(drafters.anchor, [first, *branches]), first, posterior, full, selected, branches)


D2SD = Method(
    "d2sd",
    "A second, variable-prefix drafter re-drafts from the K likeliest rejection boundaries in one batch.",
    "D²SD, arXiv 2606.04446",
    propose,
    SETTINGS,
    second_drafter="vp",
)
DFLASH_TWICE = Method(
    "dflash_twice",
    "D²SD with the first drafter used again for the re-drafts.",
    "D²SD, arXiv 2606.04446, ablation 2",
    propose,
    SETTINGS,
    second_drafter="first",
)
RANDOM_PREFIX = Method(
    "random_prefix",
    "D²SD that re-drafts from K prefixes drawn at random: the control that shows what confidence buys.",
    "control",
    propose_random,
    SETTINGS,
    second_drafter="vp",
)
