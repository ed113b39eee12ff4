"""Settings of one generation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from d2sd.attention import NAMES
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.methods.base import MAX_BLOCK

MAX_NEW_TOKENS = 4096
MAX_NODES = 512
MAX_DEPTH, MAX_TOP_K = 15, 64
MAX_BRANCHES = 64
CONFIDENCES = ("softmax", "head")


def _whole(value: object) -> bool:
    """Returns whether a value is an integer of ordinary size; JSON may contain one with a million digits."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def _short(value: object) -> str:
    """Returns a wrong value for an error message, shortened."""
    return repr(value)[:40]


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Settings of one generation, validated on construction; an ``InputError`` says what to change.

    block_size: γ, anchor included (None: the drafter's trained block). second_block_size: γ₂ ≥ γ of the re-drafts
    (None: γ). num_branches: K. node_budget: B, the most tree nodes below the anchor that are verified (None: all;
    methods that grow a tree then use 64, eagle3 59: with the anchor, its authors' ``total_token`` of 60).
    draft_depth and draft_top_k: of eagle3 alone, ``depth`` and ``top_k`` of its authors: passes after the first one, each
    of which adds a level, and nodes that a level keeps and children that each of them gets. cost_aware: spend on a step only what is expected to pay on this
    machine, whether to draft at all, how long, from how many of the K prefixes again, and which nodes to verify
    (d2sd.decoding.adaptive); γ, K and B are then the most. Steps then depend on measured times, the text never does.
    backend: an attention backend, or "auto" for the fastest one on the device (d2sd.attention).
    chat: put a prompt given as text into the target's chat template; thinking: let the model think first, where its
    template knows of that (Qwen3).
    confidence: what says where the first draft will be rejected: "softmax", its tokens' probabilities, or "head", the confidence
    head of a drafter that has one (DSpark).
    top_p and top_k restrict the target's distribution at temperature > 0. ``inspect`` records alternatives,
    target probabilities and ranks for the page (≤ 5% of the time); the tokens do not depend on it.
    """

    method: str = "d2sd"
    max_new_tokens: int = 128
    block_size: int | None = None
    second_block_size: int | None = None
    num_branches: int = 4
    node_budget: int | None = None
    draft_depth: int = 5
    draft_top_k: int = 10
    cost_aware: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    backend: str = "auto"
    chat: bool = False
    thinking: bool = False
    inspect: bool = True
    confidence: str = "softmax"

    def __post_init__(self) -> None:
        def check(ok: bool, sentence: str) -> None:
            if not ok:
                raise InputError(sentence)

        known = isinstance(self.method, str) and self.method in METHODS
        check(known, f"unknown method {_short(self.method)}; choose one of: {', '.join(METHODS)}")
        check(
            self.backend in ("auto", *NAMES),
            f"unknown backend {_short(self.backend)}; choose one of: auto, {', '.join(NAMES)}",
        )
        check(
            self.confidence in CONFIDENCES,
            f"unknown confidence {_short(self.confidence)}; choose one of: {', '.join(CONFIDENCES)}",
        )
        for name in ("max_new_tokens", "num_branches", "draft_depth", "draft_top_k", "top_k", "seed"):
            check(_whole(getattr(self, name)), f"{name} must be a whole number")
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            check(isinstance(value, float) or _whole(value), f"{name} must be a number")
        for name in ("cost_aware", "chat", "thinking", "inspect"):
            check(isinstance(getattr(self, name), bool), f"{name} must be true or false")
        check(
            1 <= self.max_new_tokens <= MAX_NEW_TOKENS,
            f"max_new_tokens must be between 1 and {MAX_NEW_TOKENS}, not {self.max_new_tokens}",
        )
        bounds = {"block_size": (2, MAX_BLOCK), "second_block_size": (2, MAX_BLOCK), "node_budget": (1, MAX_NODES)}
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            check(value is None or _whole(value), f"{name} must be a whole number")
            check(value is None or value >= least, f"{name} must be at least {least}, not {value}")
            check(value is None or value <= most, f"{name} must be at most {most}, not {value}")
        for name, most in (("draft_depth", MAX_DEPTH), ("draft_top_k", MAX_TOP_K)):
            check(1 <= getattr(self, name) <= most, f"{name} must be between 1 and {most}, not {getattr(self, name)}")
        self._check_branches(self.block_size)
        check(0 <= self.temperature <= 5, f"temperature must be between 0 (greedy) and 5, not {self.temperature}")
        check(0 < self.top_p <= 1, f"top_p must be above 0 and at most 1, not {self.top_p}")
        check(self.top_k >= 0, f"top_k must be 0 (off) or more, not {self.top_k}")
        check(0 <= self.seed < 2**63, f"seed must be between 0 and 2^63 - 1, not {self.seed}")

    @property
    def decides(self) -> bool:
        """Whether a controller decides what a step spends, which needs a method that drafts."""
        return self.cost_aware and METHODS[self.method].drafts

    def for_drafter(self, trained_block_size: int) -> DecodeConfig:
        """Returns the settings with this method's γ, γ₂ and node budget filled in.

        Raises ``InputError`` where they do not fit the block that the drafters were trained with.
        """
        method = METHODS[self.method]
        gamma = self.block_size or trained_block_size
        longer = gamma if self.second_block_size is None else self.second_block_size
        for name, value in (("block_size", gamma), ("second_block_size", longer)):
            if value > trained_block_size:
                most = "what a draft model drafts" if method.draft_model else "the block this drafter was trained with"
                raise InputError(
                    f"{name} {value} is larger than {most} ({trained_block_size}); choose 2 to {trained_block_size}"
                )
        if "second_block_size" in method.settings and longer < gamma:
            raise InputError(f"second_block_size {longer} is smaller than block_size {gamma}; choose {gamma} or more")
        self._check_branches(gamma)
        budget = self.node_budget or method.default_budget
        return replace(self, block_size=gamma, second_block_size=longer, node_budget=budget)

    def _check_branches(self, gamma: int | None) -> None:
        """Check K against its bounds and, if γ is known, against the number of prefixes of a block."""
        if gamma is not None and METHODS[self.method].second_drafter != "none" and self.num_branches > gamma - 1:
            most, range_ = ("1 prefix", "1") if gamma == 2 else (f"{gamma - 1} prefixes", f"1 to {gamma - 1}")
            raise InputError(
                f"num_branches {self.num_branches} is more than the {most} that a block of {gamma} has; choose {range_}"
            )
        if not 1 <= self.num_branches <= MAX_BRANCHES:
            raise InputError(f"num_branches must be between 1 and {MAX_BRANCHES}, not {self.num_branches}")
