"""Settings of one generation, and the checks of settings and prompts that need no models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from math import inf
from typing import Any, Literal, TypedDict

from d2sd.errors import InputError, require
from d2sd.methods import METHODS
from d2sd.methods.base import MAX_BLOCK

MAX_NEW_TOKENS = 4096
MAX_NODES = 512
MAX_DEPTH, MAX_TOP_K = 15, 64
MAX_BRANCHES = 64
MAX_SEED = 2**63 - 1
CONFIDENCES = ("softmax", "head")
# Names that are repeated here because their modules in d2sd.nets import torch.
PLAIN_BACKENDS = ("cascade", "dense")
BACKENDS = ("auto", *PLAIN_BACKENDS, "flashinfer")
PASSES = ("auto", "eager", "padded", "captured")
DTYPE_NAMES = ("float32", "mixed", "bfloat16", "float16")
DEVICES = ("cpu", "cuda", "auto")  # covered by tests
MAX_PROMPT_CHARACTERS = 200_000


Kind = Literal["whole", "real", "flag", "choice"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: an entry of ``SETTINGS``, from which validation and all user interfaces are derived.

    name: name of the field in ``DecodeConfig`` and in links. The command-line option has dashes instead of underscores.
    default: default value.
    kind: type of the value.
    choices: allowed values of a setting of kind "choice".
    optional: whether the value may be None, which lets the engine choose a value.
    least, most: smallest and largest allowed number.
    above: whether the number must be larger than ``least``, not equal to it.
    bounds: the bounds in words, for error messages; by default "between ``least`` and ``most``".
    symbol: short name in the settings of ``bench`` (K in ``d2sd:K=8``).
    meaning: what the setting does. If the engine can choose a value, the text ends with "auto:" and what it chooses. A setting
        whose meaning is empty has no command-line option.
    metavar: placeholder of the value in the help of the command line.
    label: name on the page. A setting whose label is empty is not on the page.
    note: addition to the meaning on the page.
    control: id of the setting's element on the page.
    step: increment of the number field on the page.
    """

    name: str
    default: Any
    kind: Kind
    choices: tuple[str, ...] = ()
    optional: bool = False
    least: float = -inf
    most: float = inf
    above: bool = False
    bounds: str = ""
    symbol: str = ""
    meaning: str = ""
    metavar: str | None = None
    label: str = ""
    note: str = ""
    control: str = ""
    step: float = 1

    @property
    def help(self) -> str:
        """Help text of the command-line option."""
        if self.kind == "flag" or self.default is None:
            return self.meaning.replace("auto: ", "default: ")
        return (
            f"{self.meaning} (default {self.default:g})"
            if self.kind == "real"
            else f"{self.meaning} (default {self.default})"
        )

    def check(self, value: Any) -> None:
        """Raise ``InputError`` for a value of the wrong type or out of bounds."""
        if value is None and self.optional:
            return
        if self.kind == "choice":
            check_choice(self.name, value, self.choices)
        elif self.kind == "flag":
            require(isinstance(value, bool), f"{self.name} must be true or false")
        elif not (_whole(value) or (self.kind == "real" and isinstance(value, float))):
            raise InputError(f"{self.name} must be a {'whole ' if self.kind == 'whole' else ''}number")
        elif not self.least <= value <= self.most or (self.above and value == self.least):
            bounds = self.bounds or f"between {self.least} and {self.most}"
            raise InputError(f"{self.name} must be {bounds}, not {value}")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raises ``InputError`` if a value is none of the choices. name: what is chosen, for the error message."""
    if not (isinstance(value, str) and value in choices):
        raise InputError(f"unknown {name} {repr(value)[:40]}; choose one of: {', '.join(choices)}")


def check_device(device: str) -> None:
    """Raises ``InputError`` for kinds of devices that the tests do not cover. Whether this machine has the device is not checked."""
    require(
        str(device).partition(":")[0] in DEVICES,
        f"device {device!r} is not supported: losslessness was never tested on it; choose cpu or cuda",
    )


def check_prompt(prompt: str) -> None:
    """Raises ``InputError`` if a prompt is empty or has more than ``MAX_PROMPT_CHARACTERS`` characters."""
    require(prompt.strip(), "the prompt is empty; write a few words to continue from")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise InputError(f"the prompt has {len(prompt)} characters; the maximum is {MAX_PROMPT_CHARACTERS}")


def setting(default: Any, kind: Kind, **about: Any) -> Any:
    """Returns a dataclass field that becomes an entry of ``SETTINGS``. about: the other arguments of ``Setting``."""
    return field(default=default, metadata={"kind": kind, **about})


def _whole(value: object) -> bool:
    """Returns whether a value is an integer between −2⁶⁴ and 2⁶⁴. The limit is needed, since integers in JSON may be much longer."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Settings of one generation, checked on construction.

    method: id of a drafting method, a key of ``METHODS``.
    max_new_tokens: maximum number of generated tokens.
    block_size: γ, the number of tokens per drafted block, including the anchor. None: the block size with which the drafter was
        trained, which is also the maximum.
    second_block_size: γ₂, the block size of re-drafts, at least γ. None: γ.
    num_branches: K, the number of predicted rejection boundaries from which blocks are re-drafted.
    node_budget: B, the maximum number of tree nodes verified per step, without the anchor. None: 64 for ddtree and d2sd_tree; 59 for
        eagle3 (60 with the anchor, as ``total_token`` in the authors' code); no limit for all other methods.
    draft_depth: only for eagle3: number of passes after the first one; each pass adds a level to the tree.
    draft_top_k: only for eagle3: number of nodes continued per level, and number of children scored per node.
    cost_aware: draft and verify only tokens that are expected to save time on this machine. γ, K and B are then upper limits:
        each step chooses smaller values if measured times favour them. The generated text does not depend on these values.
    temperature: 0 for greedy decoding; above 0, tokens are sampled from the target's distribution.
    top_p: at temperature > 0, sample only from the likeliest tokens with this total probability; 1: off.
    top_k: at temperature > 0, sample only from this number of likeliest tokens; 0: off.
    seed: seed of all sampling; with the same seed, every method gives the same text.
    backend: attention backend: "cascade", "dense", "flashinfer", or "auto" for the fastest one on the device.
    chat: put a text prompt into the target's chat template.
    thinking: only with ``chat``: let the model think first, if its template supports that (Qwen3).
    inspect: record the likeliest tokens at each position, and each drafted token's target probability and rank. Recording takes
        up to 5% of the run's time and does not change the tokens.
    confidence: the values from which rejection boundaries are predicted. "softmax": the drafter's probabilities of its tokens;
        "head": the output of a trained confidence head, which DSpark drafters have.

    Raises ``InputError`` for an invalid value; the message says what to change.
    """

    # The only declaration of every setting: default, bounds, command-line option, and control on the page (``SETTINGS``).
    method: str = "d2sd"
    max_new_tokens: int = setting(
        128, "whole", least=1, most=MAX_NEW_TOKENS, metavar="N", label="max tokens", control="max-tokens", step=16,
        meaning="maximum number of generated tokens",
    )  # fmt: skip
    block_size: int | None = setting(
        None, "whole", optional=True, least=2, most=MAX_BLOCK, symbol="gamma", metavar="G", label="block γ", control="gamma",
        meaning="tokens per drafted block, including the anchor; auto: the drafter’s trained size, which is also the maximum",
    )  # fmt: skip
    second_block_size: int | None = setting(
        None, "whole", optional=True, least=2, most=MAX_BLOCK, symbol="gamma2", metavar="G2", label="block γ₂", control="gamma-2",
        meaning="tokens per block of the second drafter, at least γ; auto: same as γ",
    )  # fmt: skip
    num_branches: int = setting(
        4, "whole", least=1, most=MAX_BRANCHES, symbol="K", metavar="K", label="branches K", control="branches",
        meaning="number of likely boundaries to re-draft from",
    )  # fmt: skip
    node_budget: int | None = setting(
        None, "whole", optional=True, least=1, most=MAX_NODES, symbol="B", metavar="B", label="nodes B", control="budget",
        meaning="maximum number of tree nodes verified per step, without the anchor; auto: 64 for DDTree and for D²SD as a tree, 59 for EAGLE-3, all nodes for other methods",
        note="Node counts on the page include the anchor. On a CPU, the page starts with γ; in a race, B does not limit “quickest here”",
    )  # fmt: skip
    draft_depth: int = setting(
        5, "whole", least=1, most=MAX_DEPTH, symbol="depth", metavar="N", label="depth",
        meaning="eagle3: passes after the first one; each adds a level to the tree",
    )  # fmt: skip
    draft_top_k: int = setting(
        10, "whole", least=1, most=MAX_TOP_K, symbol="topk", metavar="K", label="top k",
        meaning="eagle3: nodes continued per level, and children scored per node",
    )  # fmt: skip
    cost_aware: bool = setting(
        False, "flag", label="quickest here",
        meaning="draft and verify only tokens that are expected to save time on this machine; γ, K and B become upper limits",
        note="Full tree: draft and verify all tokens that the settings allow",
    )  # fmt: skip
    temperature: float = setting(
        0.0, "real", least=0, most=5, bounds="between 0 (greedy) and 5", metavar="T", label="temperature", step=0.1,
        meaning="0: the target’s likeliest token; above 0: sampled from its probabilities",
    )  # fmt: skip
    top_p: float = setting(
        1.0, "real", least=0, above=True, most=1, bounds="above 0 and at most 1", metavar="P", label="top-p", step=0.05,
        meaning="sample only from the likeliest tokens with this total probability; 1: off",
    )  # fmt: skip
    top_k: int = setting(
        0, "whole", least=0, bounds="0 (off) or more", metavar="N",
        meaning="sample only from this number of likeliest tokens; 0: off",
    )  # fmt: skip
    seed: int = setting(
        0, "whole", least=0, most=MAX_SEED, bounds="between 0 and 2^63 - 1", metavar="S", label="seed",
        meaning="seed of all sampling: the same seed gives the same text",
    )  # fmt: skip
    backend: str = setting(
        "auto", "choice", choices=BACKENDS, metavar="NAME", meaning="attention backend: auto, cascade, dense or flashinfer"
    )  # fmt: skip
    chat: bool = setting(
        False, "flag", label="chat template", meaning="put the prompt into the target’s chat template"
    )  # fmt: skip
    thinking: bool = setting(False, "flag", meaning="with chat template: let the model think first (Qwen3)")
    inspect: bool = setting(True, "flag")
    confidence: str = setting(
        "softmax", "choice", choices=CONFIDENCES, metavar="KIND", label="confidence",
        meaning="prediction of where the target rejects the first draft. softmax: from the drafted tokens’ probabilities; head: by a trained confidence head, for drafters that have one",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        for entry in SETTINGS.values():
            entry.check(getattr(self, entry.name))
        self._check_branches(self.block_size)

    @property
    def decides(self) -> bool:
        """Whether a controller chooses γ, the re-drafts and the verified nodes of each step. This is the case if ``cost_aware`` is
        true and the method drafts."""
        return self.cost_aware and METHODS[self.method].drafts

    def for_drafter(self, trained_block_size: int) -> DecodeConfig:
        """Returns the settings with default values for γ, γ₂ and the node budget if they are None.

        trained_block_size: γ with which the drafters were trained, the upper limit of γ and γ₂.

        Raises ``InputError`` if γ or γ₂ is too large, γ₂ is smaller than γ, or K is too large for γ.
        """
        method = METHODS[self.method]
        gamma = self.block_size or trained_block_size
        longer = gamma if self.second_block_size is None else self.second_block_size
        for name, value in (("block_size", gamma), ("second_block_size", longer)):
            if value > trained_block_size:
                most = (
                    "the limit of draft models"
                    if method.draft_model
                    else "the block size this drafter was trained with"
                )
                raise InputError(
                    f"{name} {value} is larger than {most} ({trained_block_size}); choose 2 to {trained_block_size}"
                )
        if "second_block_size" in method.settings and longer < gamma:
            raise InputError(f"second_block_size {longer} is smaller than block_size {gamma}; choose {gamma} or more")
        self._check_branches(gamma)
        budget = self.node_budget or method.default_budget
        return replace(self, block_size=gamma, second_block_size=longer, node_budget=budget)

    def _check_branches(self, gamma: int | None) -> None:
        if gamma is not None and METHODS[self.method].second_drafter != "none" and self.num_branches > gamma - 1:
            most, range_ = ("1 prefix", "1") if gamma == 2 else (f"{gamma - 1} prefixes", f"1 to {gamma - 1}")
            raise InputError(
                f"num_branches {self.num_branches} is more than the {most} that a block of {gamma} has; choose {range_}"
            )


SETTINGS = {f.name: Setting(f.name, f.default, **f.metadata) for f in fields(DecodeConfig) if f.metadata}
"""All settings except the method, by name."""


class Settings(TypedDict, total=False):
    """The keyword arguments that set fields of ``DecodeConfig``, for type checkers."""

    method: str
    max_new_tokens: int
    block_size: int | None
    second_block_size: int | None
    num_branches: int
    node_budget: int | None
    draft_depth: int
    draft_top_k: int
    cost_aware: bool
    temperature: float
    top_p: float
    top_k: int
    seed: int
    backend: str
    chat: bool
    thinking: bool
    inspect: bool
    confidence: str


def with_settings(config: DecodeConfig, settings: Mapping[str, Any]) -> DecodeConfig:
    """Returns a config in which some fields have new values. Raises ``InputError`` for an invalid value or an unknown field."""
    names = [f.name for f in fields(DecodeConfig)]
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names)
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose from: {', '.join(names)}"
            raise InputError(f"unknown setting {name[:40]!r}; {hint}")
    return replace(config, **settings)
