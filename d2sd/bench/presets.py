"""Presets of ``bench``: lists of settings. Most presets are tables of papers, and have the published figures, too.

Reports show published and measured figures in separate tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from d2sd.calibration.text import Table, decimal
from d2sd.costs.machines import FIGURES, SOURCE

BLOCK_SIZES = {8: 5.00, 16: 5.95, 24: 6.00, 32: 5.93}
FIXED_ALIKE = {"d2sd": "dflash", "d2sd_tree": "ddtree"}  # by method: the method that equals it for K = 0
COST_AWARE_NOTE = (
    "“÷ plain”: speedup of a cost-aware setting over plain decoding. “÷ best fixed”: tokens/s of a cost-aware setting ÷ "
    "tokens/s of the fastest fixed setting of the same method in this run. The fastest setting is chosen per domain, in hindsight. With "
    "K = 0, d2sd is dflash, and d2sd_tree is ddtree, so these count as the same method. α is the number of tokens written per step."
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


class Preset(NamedTuple):
    """A predefined comparison.

    sentence: says what is compared.
    methods: settings in the syntax of ``d2sd.bench.settings``.
    published: the published figures; None if there are none.
    source: source of the published figures.
    """

    sentence: str
    methods: tuple[str, ...]
    published: Table | None = None
    source: str = ""


def _table(sentence: str, *methods: str) -> Preset:
    """Returns a preset of these methods. Its published figures are the speedup / α on each data set with figures of all methods."""
    data = [name for name, row in FIGURES.items() if set(methods) <= set(row)]
    rows = tuple((m, *("{:.2f} / {:.2f}".format(*FIGURES[d][m]) for d in data)) for m in methods)
    table = Table(("method", *data), rows)
    return Preset(sentence, ("autoregressive", *methods), table, f"{SOURCE}; speedup over plain decoding / α")


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
        "D²SD, arXiv 2606.04446, Table 1: α of DFlash on GSM8K by block size",
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


# Cost-aware settings, compared with plain decoding and with the best fixed setting of each domain.


def cost_aware_table(by_domain: dict[str, list[dict[str, Any]]]) -> Table:
    """Returns a table that compares the speed of each cost-aware setting in each domain with plain and with fixed settings.

    There is a row for each setting and domain, and after these a row with the setting's lowest ratios.

    by_domain: for each domain, the rows of ``d2sd.bench.report.summarise``.
    """
    table = []
    # baselines, which have no config, are left out
    settings = {domain: [row for row in rows if row["config"]] for domain, rows in by_domain.items()}
    for label in dict.fromkeys(r["label"] for rows in settings.values() for r in rows if r["config"]["cost_aware"]):
        ratios = []
        for domain, rows in settings.items():
            row = next(r for r in rows if r["label"] == label)
            alike = row["method"], FIXED_ALIKE.get(row["method"])
            fixed = [r for r in rows if r["method"] in alike and not r["config"]["cost_aware"]]
            best = max(fixed, key=lambda r: r["tokens_per_second"], default=None)
            ratios.append((row["speedup"], row["tokens_per_second"] / best["tokens_per_second"] if best else None))
            alphas = row["mean_acceptance_length"], best["mean_acceptance_length"] if best else None
            name = best["label"] if best else "–"
            table.append((label, domain, *map(decimal, ratios[-1]), name, *map(decimal, alphas)))
        lowest = (min((r for r in column if r is not None), default=None) for column in zip(*ratios, strict=True))
        table.append((label, "worst", *map(decimal, lowest), "", "", ""))
    head = ("cost-aware setting", "domain", "÷ plain", "÷ best fixed", "best fixed", "α", "α of best fixed")
    return Table(head, tuple(table))
