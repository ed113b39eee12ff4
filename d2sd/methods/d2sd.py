"""D²SD: re-draft from the K likeliest rejection boundaries, verify everything as one tree; and two controls.

D²SD, arXiv 2606.04446, section 3; the controls are its ablation 2 (the first drafter used twice) and prefixes
drawn uniformly, which shows what confidence buys.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.methods.base import SETTINGS, Drafters, Method, Proposal, merged, random_order
from d2sd.tree.block import Block
from d2sd.tree.boundary import Boundary, boundary_posterior, open_prefixes, select_prefixes


def propose(drafters: Drafters) -> Proposal:
    """First draft plus K branches from the prefixes with the largest r(i)."""
    (first,) = drafters.first([()])
    boundary = boundary_posterior(first.confidence)
    usable = open_prefixes(first.ids, drafters.end_ids)
    return redraft(drafters, first, boundary, select_prefixes(boundary.posterior[:usable], drafters.num_branches))


def propose_random(drafters: Drafters) -> Proposal:
    """First draft plus K branches from prefixes drawn uniformly without replacement."""
    (first,) = drafters.first([()])
    usable = open_prefixes(first.ids, drafters.end_ids)
    order = random_order(drafters.rng, len(first.ids))
    selected = [i for i in order if i < usable][: drafters.num_branches]
    return redraft(drafters, first, boundary_posterior(first.confidence), selected)


def redraft(drafters: Drafters, first: Block, boundary: Boundary, selected: Sequence[int]) -> Proposal:
    """One D²SD proposal with re-drafts from the selected prefixes."""
    branches = drafters.second([first.ids[:i] for i in redrafted(drafters, first, selected)])
    return merged(drafters.anchor, first, boundary, selected, branches)


def redrafted(drafters: Drafters, first: Block, selected: Sequence[int]) -> tuple[int, ...]:
    """All prefixes that are re-drafted from: where γ₂ > γ one more branch goes on behind the whole first block, unless
    the text ends in it."""
    whole = len(first.ids)
    goes_on = drafters.longer and open_prefixes(first.ids, drafters.end_ids) > whole
    return (*selected, whole) if goes_on else tuple(selected)


D2SD = Method(
    "d2sd",
    "A second, variable-prefix drafter re-drafts from the K likeliest rejection boundaries in one batch.",
    "D²SD, arXiv 2606.04446",
    propose,
    SETTINGS,
    second_drafter="vp",
    on_device="likeliest",
)
DFLASH_TWICE = Method(
    "dflash_twice",
    "D²SD with the first drafter used again for the re-drafts.",
    "D²SD, arXiv 2606.04446, ablation 2",
    propose,
    SETTINGS,
    second_drafter="first",
    on_device="likeliest",
)
RANDOM_PREFIX = Method(
    "random_prefix",
    "D²SD that re-drafts from K prefixes drawn at random: the control that shows what confidence buys.",
    "control",
    propose_random,
    SETTINGS,
    second_drafter="vp",
    on_device="random",
)
