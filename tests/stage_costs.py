"""A table of stage costs for tests, in which drafting pays: two drafts cost less than half a plain step."""

from __future__ import annotations

from d2sd.costs.machines import Curve, Machine

CHEAP_DRAFTS = Machine(Curve(((1, 1e-3),)), Curve(((1, 1e-3),)), Curve(((1, 5e-3), (64, 6e-3))))
