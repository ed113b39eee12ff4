"""The tables of the papers, as lists of settings with the published figures."""

from __future__ import annotations

from dataclasses import dataclass

from d2sd.bench import adaptive
from d2sd.bench.published import BLOCK_SIZES, PublishedTable, by_block_size, by_method

BUDGETS = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Preset:
    """``methods`` in the syntax of ``d2sd.bench.settings``; ``published`` is None if the paper prints no figures."""

    sentence: str
    methods: tuple[str, ...]
    published: PublishedTable | None


def _table(sentence: str, *columns: str) -> Preset:
    return Preset(sentence, ("autoregressive", *columns), by_method(columns))


RESAMPLED = _table("D²SD against the first draft with K resampled chains", "dflash", "dflash_resample", "d2sd")

PRESETS: dict[str, Preset] = {
    "table1": Preset(
        "DFlash by block size γ, up to the trained one",
        ("autoregressive", *(f"dflash:gamma={g}" for g in (2, 4, *BLOCK_SIZES))),
        by_block_size(),
    ),
    "table2": RESAMPLED,
    "table3": _table("main comparison: plain decoding, DFlash, EAGLE-3, D²SD", "dflash", "eagle3", "d2sd"),
    "table5": RESAMPLED,
    "table6": _table("D²SD against the first drafter used twice", "dflash", "dflash_twice", "d2sd"),
    "table7": _table("D²SD against a third level of drafts", "dflash", "d2sd", "d2sd_three_level"),
    "equal-nodes": Preset(
        "trees of the same size: eagle3, ddtree, d2sd (with K = 15, so that it reaches B) and d2sd_tree",
        (
            "autoregressive",
            "dflash",
            *(f"{m}:B={b}" for b in (32, 64) for m in ("eagle3", "ddtree", "d2sd:K=15", "d2sd_tree")),
        ),
        None,
    ),
    "ddtree-budget": Preset(
        "node budgets B: ddtree, d2sd_tree, and d2sd cut to B nodes (with K = 4, and with K = 15 so that it reaches B)",
        (
            "autoregressive",
            "dflash",
            *(f"{m}:B={b}" for b in BUDGETS for m in ("ddtree", "d2sd:K=4", "d2sd:K=15", "d2sd_tree")),
        ),
        None,
    ),
    "adaptive": Preset(
        "cost-aware settings beside the fixed settings that they choose from, by domain",
        adaptive.COST_AWARE_AND_FIXED,
        None,
    ),
}
