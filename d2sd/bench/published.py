"""Figures that papers report, to be held beside measured ones; never mixed with them in a column."""

from __future__ import annotations

from dataclasses import dataclass

D2SD_SOURCE = (
    "D²SD, arXiv 2606.04446: Qwen3-8B, temperature 0, γ = 16, K = 4, one H200; speedup over plain decoding / α"
)
BLOCK_SOURCE = "D²SD, arXiv 2606.04446, Table 1: α of DFlash on GSM8K by block size"

# data set → column → (speedup over plain decoding, α)
FIGURES: dict[str, dict[str, tuple[float, float]]] = {
    "GSM8K": {
        "dflash": (5.51, 6.96), "eagle3": (4.14, 6.36), "d2sd": (6.54, 9.21), "dflash_resample": (6.18, 7.33),
        "dflash_twice": (5.76, 7.95), "d2sd_three_level": (6.25, 9.89),
    },
    "MATH": {
        "dflash": (5.11, 6.55), "eagle3": (4.11, 6.44), "d2sd": (6.03, 8.56), "dflash_resample": (5.67, 6.82),
        "dflash_twice": (5.28, 7.35), "d2sd_three_level": (5.79, 9.27),
    },
    "AIME25": {"dflash": (4.32, 5.49), "eagle3": (4.03, 6.33), "d2sd": (5.10, 7.26)},
    "HumanEval": {"dflash": (4.39, 5.50), "eagle3": (3.85, 5.92), "d2sd": (5.37, 7.47)},
    "MBPP": {
        "dflash": (4.07, 5.09), "eagle3": (3.92, 6.03), "d2sd": (5.03, 6.96), "dflash_resample": (4.66, 5.47),
        "dflash_twice": (4.36, 5.90), "d2sd_three_level": (4.85, 7.58),
    },
    "LiveCodeBench": {"dflash": (3.88, 4.86), "eagle3": (3.70, 5.93), "d2sd": (4.62, 6.44)},
    "MT-Bench": {
        "dflash": (3.23, 4.41), "eagle3": (3.35, 5.22), "d2sd": (3.80, 5.75), "dflash_resample": (3.74, 4.70),
        "dflash_twice": (3.35, 4.91), "d2sd_three_level": (3.63, 6.20),
    },
    "Alpaca": {"dflash": (2.79, 3.59), "eagle3": (3.30, 5.09), "d2sd": (3.38, 4.74)},
    "average of 8": {"dflash": (4.16, 5.31), "eagle3": (3.80, 5.91), "d2sd": (4.98, 7.05)},
}  # fmt: skip
BLOCK_SIZES = {8: 5.00, 16: 5.95, 24: 6.00, 32: 5.93}


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of printed figures with where they were printed."""

    source: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def by_method(methods: tuple[str, ...]) -> PublishedTable:
    """Speedup / α of these methods on every data set for which all of them are reported."""
    data = [name for name, row in FIGURES.items() if set(methods) <= set(row)]
    rows = tuple((m, *("{:.2f} / {:.2f}".format(*FIGURES[d][m]) for d in data)) for m in methods)
    return PublishedTable(D2SD_SOURCE, ("method", *data), rows)


def by_block_size() -> PublishedTable:
    """α of DFlash against γ; no speedups are quoted."""
    rows = tuple((f"dflash:gamma={g}", f"– / {a:.2f}") for g, a in BLOCK_SIZES.items())
    return PublishedTable(BLOCK_SOURCE, ("method", "GSM8K"), rows)
