"""Names of methods and lanes in lists."""

from __future__ import annotations

from app.methods import LANES, NAMES, lane_title, ordered
from d2sd import METHODS


def test_method_names_are_unique_and_lists_are_ordered():
    assert len(set(NAMES.values())) == len(METHODS)
    assert lane_title("dflash") == "DFlash"
    assert lane_title("d2sd cost-aware") == "D²SD, “quickest here”"
    assert ordered(["ddtree", "d2sd"]) == [("D²SD", "d2sd"), ("DDTree", "ddtree")]
    assert sorted(lane for _, lane in ordered(LANES)) == sorted(LANES)
