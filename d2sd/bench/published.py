"""Figures reported in papers, shown beside measured ones and never mixed with them in a column."""

from __future__ import annotations

from dataclasses import dataclass

from d2sd.costs.machines import FIGURES, SOURCE

D2SD_SOURCE = f"{SOURCE}; speedup over plain decoding / α"
BLOCK_SOURCE = "D²SD, arXiv 2606.04446, Table 1: α of DFlash on GSM8K by block size"

BLOCK_SIZES = {8: 5.00, 16: 5.95, 24: 6.00, 32: 5.93}


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of published figures and its source."""

    source: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def by_method(methods: tuple[str, ...]) -> PublishedTable:
    """Returns speedup / α of these methods on every data set for which all of them are reported."""
    data = [name for name, row in FIGURES.items() if set(methods) <= set(row)]
    rows = tuple((m, *("{:.2f} / {:.2f}".format(*FIGURES[d][m]) for d in data)) for m in methods)
    return PublishedTable(D2SD_SOURCE, ("method", *data), rows)


def by_block_size() -> PublishedTable:
    """α of DFlash against γ; no speedups are quoted."""
    rows = tuple((f"dflash:gamma={g}", f"– / {a:.2f}") for g, a in BLOCK_SIZES.items())
    return PublishedTable(BLOCK_SOURCE, ("method", "GSM8K"), rows)
