"""What methods and lanes are called in lists."""

from __future__ import annotations

from app.methods import LANES, NAMES, grouped, lane_title
from d2sd import METHODS


def test_every_method_has_a_name_of_its_own():
    assert len(set(NAMES.values())) == len(METHODS)


def test_the_id_stands_beside_the_name_and_empty_groups_are_left_out():
    assert lane_title("dflash") == "DFlash (dflash)"
    assert lane_title("d2sd cost-aware") == "D²SD, quickest here (d2sd cost-aware)"
    assert grouped(["d2sd", "autoregressive"]) == {
        "Plain": {"autoregressive": "Plain decoding (autoregressive)"},
        "D²SD": {"d2sd": "D²SD (d2sd)"},
    }
    assert sorted(lane for group in grouped(LANES).values() for lane in group) == sorted(LANES)
