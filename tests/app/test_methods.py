"""Names of methods and lanes in lists."""

from __future__ import annotations

from app.methods import LANES, MORE, NAMES, grouped, lane_title
from d2sd import METHODS


def test_method_names_are_unique():
    assert len(set(NAMES.values())) == len(METHODS)


def test_grouped_lists_further_methods_without_empty_groups():
    assert lane_title("dflash") == "DFlash"
    assert lane_title("d2sd cost-aware") == "D²SD, “quickest here”"
    assert grouped(["d2sd", "ddtree"]) == {"Methods": {"d2sd": "D²SD"}, MORE: {"ddtree": "DDTree"}}
    assert grouped(["autoregressive"]) == {"Methods": {"autoregressive": "Plain decoding"}}
    assert sorted(lane for group in grouped(LANES).values() for lane in group) == sorted(LANES)
