"""The methods, by id. A method only builds a token tree from what the drafters say."""

from __future__ import annotations

from d2sd.methods.autoregressive import AUTOREGRESSIVE
from d2sd.methods.base import Drafters, Method, Proposal
from d2sd.methods.d2sd import D2SD, DFLASH_TWICE, RANDOM_PREFIX
from d2sd.methods.dflash import DFLASH

METHODS: dict[str, Method] = {m.id: m for m in (AUTOREGRESSIVE, DFLASH, D2SD, DFLASH_TWICE, RANDOM_PREFIX)}

__all__ = ["METHODS", "Drafters", "Method", "Proposal"]
