"""Figures reported in papers, and the machine derived from them."""

from __future__ import annotations

from d2sd.costs.machines import Curve, Machine

SOURCE = "D²SD, arXiv 2606.04446: Qwen3-8B, temperature 0, γ = 16, K = 4, one H200"
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
GAMMA, BRANCHES = 16, 4


def cycle(method: str, data: str = "average of 8") -> float:
    """Returns the published cost of a step, in plain steps: α ÷ speedup (paper, Eq. 1–2)."""
    speedup, alpha = FIGURES[data][method]
    return alpha / speedup


def _machine() -> Machine:
    """Returns stage costs that give the published cycles of DFlash and D²SD.

    Two cycles do not determine four costs, so two assumptions are made: both drafters take the same time, since they have
    the same shape and read their weights once, and verifying 80 rows takes as long as 16. Both passes are memory-bound on an H200
    (``d2sd.costs.roofline``). The mean cycle of a third level that follows from them is 4% below the published one.
    """
    draft = cycle("d2sd") - cycle("dflash")
    verify = cycle("dflash") - draft
    return Machine(
        first_draft=Curve(((1, draft),)),
        second_draft=Curve(((1, draft),)),
        verify=Curve(((1, 1.0), (GAMMA, verify), ((BRANCHES + 1) * GAMMA, verify))),
        name="H200, as published",
        source=f"{SOURCE}; mean of eight sets of prompts. Stages are split as if both drafters took the same time and verifying "
        "80 rows as long as 16.",
        kind="published",
        relative=True,
        drafts={"eagle3": Curve(((1, cycle("eagle3") - verify),)), "draft_model": None},
    )


PAPER = _machine()
