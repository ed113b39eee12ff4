"""Settings of one generation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from d2sd.attention import BACKENDS
from d2sd.errors import InputError
from d2sd.methods import METHODS

MAX_NEW_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """How to generate. Checked on construction; an ``InputError`` says what to change.

    block_size: γ, anchor included (None: the drafter's trained block). num_branches: K.
    backend: an attention backend, or "auto" for the fastest one on the device (d2sd.attention).
    top_p and top_k restrict the target's distribution at temperature > 0. ``inspect`` records alternatives,
    target probabilities and ranks for the page (≤ 5% of the time); the tokens do not depend on it.
    """

    method: str = "d2sd"
    max_new_tokens: int = 128
    block_size: int | None = None
    num_branches: int = 4
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    backend: str = "auto"
    inspect: bool = True

    def __post_init__(self) -> None:
        def check(ok: bool, sentence: str) -> None:
            if not ok:
                raise InputError(sentence)

        check(self.method in METHODS, f"unknown method {self.method!r}; choose one of: {', '.join(METHODS)}")
        check(
            self.backend in ("auto", *BACKENDS),
            f"unknown backend {self.backend!r}; choose one of: auto, {', '.join(BACKENDS)}",
        )
        for name in ("max_new_tokens", "num_branches", "top_k", "seed"):
            value = getattr(self, name)
            check(isinstance(value, int) and not isinstance(value, bool), f"{name} must be a whole number")
        check(
            1 <= self.max_new_tokens <= MAX_NEW_TOKENS,
            f"max_new_tokens must be between 1 and {MAX_NEW_TOKENS}, not {self.max_new_tokens}",
        )
        check(self.block_size is None or isinstance(self.block_size, int), "block_size must be a whole number")
        check(
            self.block_size is None or self.block_size >= 2,
            f"block_size must be at least 2 (the anchor and one drafted token), not {self.block_size}",
        )
        check(self.num_branches >= 1, f"num_branches must be at least 1, not {self.num_branches}")
        check(
            isfinite(self.temperature) and 0 <= self.temperature <= 5,
            f"temperature must be between 0 (greedy) and 5, not {self.temperature}",
        )
        check(isfinite(self.top_p) and 0 < self.top_p <= 1, f"top_p must be above 0 and at most 1, not {self.top_p}")
        check(self.top_k >= 0, f"top_k must be 0 (off) or more, not {self.top_k}")
        check(0 <= self.seed < 2**63, f"seed must be between 0 and 2^63 - 1, not {self.seed}")

    def for_drafter(self, trained_block_size: int, branches: bool) -> DecodeConfig:
        """The same settings with γ filled in, checked against the block that the drafters were trained with.

        ``branches``: whether the method re-drafts, so that K matters.
        """
        gamma = self.block_size or trained_block_size
        if gamma > trained_block_size:
            raise InputError(
                f"block_size {gamma} is larger than the block this drafter was trained with "
                f"({trained_block_size}); choose 2 to {trained_block_size}"
            )
        if branches and self.num_branches > gamma - 1:
            raise InputError(
                f"num_branches {self.num_branches} is more than the {gamma - 1} prefixes that a block of "
                f"{gamma} has; choose 1 to {gamma - 1}"
            )
        return replace(self, block_size=gamma)
