"""The methods, by id. A method only builds a token tree from the drafters' outputs."""

from __future__ import annotations

from d2sd.methods.autoregressive import AUTOREGRESSIVE
from d2sd.methods.base import Drafters, Method, Proposal
from d2sd.methods.d2sd import D2SD, DFLASH_TWICE, RANDOM_PREFIX
from d2sd.methods.d2sd_tree import D2SD_TREE
from d2sd.methods.ddtree import DDTREE
from d2sd.methods.dflash import DFLASH
from d2sd.methods.draft_model import DRAFT_MODEL
from d2sd.methods.eagle3 import EAGLE3
from d2sd.methods.resample import DFLASH_RESAMPLE, SPECDIFF2_SELECT
from d2sd.methods.three_level import D2SD_THREE_LEVEL

METHODS: dict[str, Method] = {
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

__all__ = ["METHODS", "Drafters", "Method", "Proposal"]
