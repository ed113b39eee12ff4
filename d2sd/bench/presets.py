"""Presets of ``bench``: the papers' tables as lists of settings with the published figures, and cost-aware settings.

Reports show published and measured figures in separate tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from d2sd.calibration.text import Table, decimal
from d2sd.costs.machines import FIGURES, SOURCE

D2SD_SOURCE = f"{SOURCE}; speedup over plain decoding / α"
BLOCK_SOURCE = "D²SD, arXiv 2606.04446, Table 1: α of DFlash on GSM8K by block size"

BLOCK_SIZES = {8: 5.00, 16: 5.95, 24: 6.00, 32: 5.93}
FIXED_ALIKE = {"d2sd": "dflash", "d2sd_tree": "ddtree"}  # method: name of the same method with K = 0
COST_AWARE_NOTE = (
    "“÷ plain”: speedup of a cost-aware setting over plain decoding. “÷ best fixed”: tokens/s of a cost-aware setting ÷ "
    "tokens/s of the fastest fixed setting of the same method in this run. The fastest setting is chosen per domain, in hindsight. With "
    "K = 0, d2sd is dflash, and d2sd_tree is ddtree, so these count as the same method. α is the number of committed tokens per step."
)
COST_AWARE_AND_FIXED = (
    "autoregressive",
    *(f"{m}:cost_aware=true" for m in ("dflash", "ddtree")),
    *(f"{m}:K=8:cost_aware=true" for m in ("d2sd", "d2sd_tree")),
    *(f"dflash:gamma={g}" for g in (4, 8, 16)),
    *(f"ddtree:gamma={g}:B={b}" for g in (4, 8, 16) for b in (16, 32, 64)),
    *(f"d2sd:K={k}:gamma={g}" for g in (4, 8, 16) for k in (1, 2, 4, 8) if k < g),
    *(f"d2sd:K={k}:gamma=16:B={b}" for k in (4, 8) for b in (16, 32, 64)),
    *(f"d2sd_tree:K={k}:gamma={g}:B=32" for g in (4, 8, 16) for k in (1, 2, 4, 8) if k < g),
    *(f"d2sd_tree:K=4:gamma=16:B={b}" for b in (16, 64)),
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A predefined comparison.

    sentence: what is compared.
    methods: settings in the syntax of ``d2sd.bench.settings``.
    published: the published figures; None if there are none.
    source: source of the published figures.
    """

    sentence: str
    methods: tuple[str, ...]
    published: Table | None = None
    source: str = ""


def _table(sentence: str, *methods: str) -> Preset:
    """Returns a preset with the published speedup / α of these methods on all data sets with figures of all these methods."""
    data = [name for name, row in FIGURES.items() if set(methods) <= set(row)]
    rows = tuple((m, *("{:.2f} / {:.2f}".format(*FIGURES[d][m]) for d in data)) for m in methods)
    return Preset(sentence, ("autoregressive", *methods), Table(("method", *data), rows), D2SD_SOURCE)


def _of_budgets(budgets: tuple[int, ...], *methods: str) -> tuple[str, ...]:
    return ("autoregressive", "dflash", *(f"{m}:B={b}" for b in budgets for m in methods))


# α of DFlash by γ, without speedups
BY_BLOCK_SIZE = tuple((f"dflash:gamma={g}", f"– / {a:.2f}") for g, a in BLOCK_SIZES.items())
RESAMPLED = _table("D²SD against the first draft with K resampled chains", "dflash", "dflash_resample", "d2sd")

PRESETS: dict[str, Preset] = {
    "table1": Preset(
        "DFlash by block size γ, up to the block size in training",
        ("autoregressive", *(f"dflash:gamma={g}" for g in (2, 4, *BLOCK_SIZES))),
        Table(("method", "GSM8K"), BY_BLOCK_SIZE),
        BLOCK_SOURCE,
    ),
    "table2": RESAMPLED,
    "table3": _table("main comparison: plain decoding, DFlash, EAGLE-3, D²SD", "dflash", "eagle3", "d2sd"),
    "table5": RESAMPLED,
    "table6": _table("D²SD against the first drafter used twice", "dflash", "dflash_twice", "d2sd"),
    "table7": _table("D²SD against a third level of drafts", "dflash", "d2sd", "d2sd_three_level"),
    "equal-nodes": Preset(
        "trees of the same size: eagle3, ddtree, d2sd (with K = 15, to reach B) and d2sd_tree",
        _of_budgets((32, 64), "eagle3", "ddtree", "d2sd:K=15", "d2sd_tree"),
    ),
    "ddtree-budget": Preset(
        "node budgets B: ddtree, d2sd_tree, and d2sd cut to B nodes (with K = 4, and with K = 15 to reach B)",
        _of_budgets((16, 32, 64, 128), "ddtree", "d2sd:K=4", "d2sd:K=15", "d2sd_tree"),
    ),
    "adaptive": Preset(
        "cost-aware settings compared with the fixed settings that they choose from, by domain", COST_AWARE_AND_FIXED
    ),
}


# Cost-aware settings against plain decoding and against the best fixed setting of every domain.


def cost_aware_ratios(by_domain: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns one entry per cost-aware setting and domain. by_domain: rows of ``d2sd.bench.report.summarise``."""
    entries = []
    for domain, rows in by_domain.items():
        settings = [row for row in rows if row["config"] is not None]  # not the baselines
        fixed = [row for row in settings if not row["config"]["cost_aware"]]
        for row in (row for row in settings if row["config"]["cost_aware"]):
            alike = row["method"], FIXED_ALIKE.get(row["method"])
            best = max(
                (other for other in fixed if other["method"] in alike),
                key=lambda other: other["tokens_per_second"],
                default=None,
            )
            entries.append(
                {
                    "label": row["label"],
                    "domain": domain,
                    "over_plain": row["speedup"],
                    "over_best": best and row["tokens_per_second"] / best["tokens_per_second"],
                    "best": best and best["label"],
                    "mean_acceptance_length": row["mean_acceptance_length"],
                    "best_mean_acceptance_length": best and best["mean_acceptance_length"],
                }
            )
    return entries


def cost_aware_table(entries: list[dict[str, Any]]) -> Table:
    """Returns the table of ``cost_aware_ratios``. The last row of each setting has its lowest ratios."""
    head = ("cost-aware setting", "domain", "÷ plain", "÷ best fixed", "best fixed", "α", "α of best fixed")
    ratios = ("over_plain", "over_best")
    rows: list[tuple[str, ...]] = []
    for label in dict.fromkeys(entry["label"] for entry in entries):
        by_domain = [entry for entry in entries if entry["label"] == label]
        for entry in by_domain:
            alphas = entry["mean_acceptance_length"], entry["best_mean_acceptance_length"]
            figures = (decimal(entry[ratio]) for ratio in ratios)
            rows.append((label, entry["domain"], *figures, entry["best"] or "–", *map(decimal, alphas)))
        lowest = (min((e[ratio] for e in by_domain if e[ratio] is not None), default=None) for ratio in ratios)
        rows.append((label, "worst", *map(decimal, lowest), "", "", ""))
    return Table(head, tuple(rows))
