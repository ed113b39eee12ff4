"""The methods, by id. A method only builds a token tree from the drafters' outputs."""

from __future__ import annotations

from d2sd.methods.base import TREE_SETTINGS, Drafters, FirstDraft, Method, Proposal
from d2sd.methods.chains import AUTOREGRESSIVE, DFLASH, DFLASH_RESAMPLE, DRAFT_MODEL, SPECDIFF2_SELECT
from d2sd.methods.d2sd import D2SD, D2SD_THREE_LEVEL, DFLASH_TWICE, RANDOM_PREFIX
from d2sd.methods.trees import D2SD_TREE, DDTREE, EAGLE3

METHODS = {
    m.id: m
    for m in (
        AUTOREGRESSIVE,
        DRAFT_MODEL,
        EAGLE3,
        DFLASH,
        DFLASH_RESAMPLE,
        SPECDIFF2_SELECT,
        DDTREE,
        D2SD,
        D2SD_TREE,
        D2SD_THREE_LEVEL,
        DFLASH_TWICE,
        RANDOM_PREFIX,
    )
}


def unused(method: str) -> frozenset[str]:
    """Returns the tree settings that do not affect this method; empty for an unknown method."""
    return TREE_SETTINGS - METHODS[method].settings if method in METHODS else frozenset()


__all__ = ["METHODS", "Drafters", "FirstDraft", "Method", "Proposal", "unused"]
