"""Cost-aware settings against plain decoding and against the best fixed setting of every domain."""

from __future__ import annotations

from typing import Any

FIXED_ALIKE = {"d2sd": "dflash", "d2sd_tree": "ddtree"}  # what a method is with K = 0
NOTE = (
    "“÷ plain”: tokens/s of a cost-aware setting over plain decoding. “÷ best fixed”: over the fastest fixed setting of its "
    "method in this run, chosen per domain with hindsight (dflash counts as d2sd, ddtree as d2sd_tree, with K = 0). α beside "
    "α: what deciding costs in committed tokens a step."
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


def ratios(by_domain: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns one entry per cost-aware setting and domain, from the rows of ``d2sd.bench.summary`` of a run."""
    out = []
    for domain, rows in by_domain.items():
        fixed = [r for r in rows if r["config"] is not None and not r["config"]["cost_aware"]]
        for row in rows:
            if row["config"] is None or not row["config"]["cost_aware"]:
                continue
            alike = row["method"], FIXED_ALIKE.get(row["method"])
            others = [r for r in fixed if r["method"] in alike]
            best = max(others, key=lambda r: r["tokens_per_second"], default=None)
            out.append(
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
    return out


def cells(entries: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of the table; the worst domain of every setting comes after its others."""
    head = ["cost-aware setting", "domain", "÷ plain", "÷ best fixed", "best fixed", "α", "its α"]
    rows = []
    for label in dict.fromkeys(e["label"] for e in entries):
        own = [e for e in entries if e["label"] == label]
        rows += [
            [
                label,
                e["domain"],
                _number(e["over_plain"]),
                _number(e["over_best"]),
                e["best"] or "–",
                _number(e["mean_acceptance_length"]),
                _number(e["best_mean_acceptance_length"]),
            ]
            for e in own
        ]
        worst = [min((e[k] for e in own if e[k] is not None), default=None) for k in ("over_plain", "over_best")]
        rows.append([label, "worst", _number(worst[0]), _number(worst[1]), "", "", ""])
    return head, rows


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
