"""The settings of a run that a user can change: one table for controls, parsing and links."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from d2sd import METHODS, DecodeConfig, InputError
from d2sd.config import CONFIDENCES
from d2sd.methods.base import TREE_SETTINGS

Value = float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    name: the field of ``DecodeConfig`` and of a link.
    meaning: what it is, in a few words.
    value: None leaves the choice to the engine.
    choices: the values that one of kind "choice" can have.
    """

    name: str
    label: str
    meaning: str
    elem_id: str
    kind: Literal["whole", "real", "flag", "choice"]
    value: Value
    step: float = 1
    optional: bool = False
    choices: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """The value as ``DecodeConfig`` wants it, from a control; raises ``InputError``, which ``readable`` puts into the page's words."""
        if self.kind == "flag":
            if not isinstance(value, bool):
                raise InputError(f"{self.name} must be true or false")
            return value
        if self.kind == "choice":
            if value not in self.choices:
                raise InputError(f"{self.name} must be one of {', '.join(self.choices)}")
            return value
        if self.optional and not value:  # a number field that was never touched says 0
            return None
        if self.kind == "whole":
            return whole(value, self.name)
        return float(value) if _is_number(value) else math.nan


def whole(value: Any, name: str) -> int:
    """The whole number of a control; raises ``InputError``."""
    if not _is_number(value) or not math.isfinite(value) or value != int(value):
        raise InputError(f"{name} must be a whole number")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


SETTINGS = (
    Setting("block_size", "block γ", "tokens in a drafted block, the anchor among them; auto: as the drafter was trained, which is also the most", "gamma", "whole", None, optional=True),
    Setting("second_block_size", "block γ₂", "the same for the second drafter; auto: as γ", "gamma-2", "whole", None, optional=True),
    Setting("num_branches", "branches K", "of how many likely boundaries a re-draft starts", "branches", "whole", 4),
    Setting("node_budget", "nodes B", "drafted nodes verified at most (counts of nodes have one more, the anchor); auto: all, or 64 for methods that grow trees", "budget", "whole", None, optional=True),
    Setting("draft_depth", "depth", "eagle3: passes after the first one, each of which adds a level to its tree", "draft-depth", "whole", 5),
    Setting("draft_top_k", "top k", "eagle3: nodes that a level keeps, and children that each of them gets", "draft-top-k", "whole", 10),
    Setting("temperature", "temperature", "0: the target’s favourite; more: drawn from its probabilities", "temperature", "real", 0, step=0.1),
    Setting("top_p", "top-p", "draw only from the likeliest tokens that have this probability together", "top-p", "real", 1, step=0.05),
    Setting("seed", "seed", "of all random draws: the same seed, the same text", "seed", "whole", 0),
    Setting("max_new_tokens", "max tokens", "where the text is cut off", "max-tokens", "whole", 128, step=16),
    Setting("confidence", "confidence", "what tells where the first draft will be rejected. Softmax: its tokens’ probabilities. Head: what a confidence head was trained to say, for drafters that have one", "confidence", "choice", "softmax", choices=CONFIDENCES),
    Setting("cost_aware", "cost-aware", "spend on a step only what pays here: draft or not, how long, how many re-drafts and nodes (at most γ, K, B). For speed on text that is hard to guess", "cost-aware", "flag", False),
    Setting("chat", "chat template", "put the prompt into the form that chat models expect", "chat", "flag", False),
)  # fmt: skip
_NAMES = re.compile(rf"\b({'|'.join(s.name for s in SETTINGS if '_' in s.name)})\b")


def readable(error: InputError) -> str:
    """What is wrong, with settings called as the page calls them."""
    labels = {s.name: s.label for s in SETTINGS}
    return _NAMES.sub(lambda match: labels[match[0]], str(error))


def used_by(method: str) -> frozenset[str]:
    """Names of the settings that have a meaning for this method: those of every run, and those that shape its trees."""
    return frozenset(s.name for s in SETTINGS) - TREE_SETTINGS | METHODS[method].settings


def config(method: str, values: dict[str, Any]) -> DecodeConfig:
    """The configuration of a run from the controls' values by name; raises ``InputError``."""
    if method not in METHODS:
        raise InputError(f"unknown method {str(method)[:40]!r}; choose one of: {', '.join(METHODS)}")
    return DecodeConfig(method=method, **{s.name: s.read(values[s.name]) for s in SETTINGS if s.name in values})
