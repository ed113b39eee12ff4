"""Training settings with their defaults and checks: text, loop, objectives, and kinds of drafters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from d2sd.errors import require
from d2sd.folders.configs import drafter_form, named_errors
from d2sd.train.files import read_jsonl

Clock = Callable[[], float]  # returns the time in seconds
Role = Literal["first", "second"]
ROLES: tuple[Role, ...] = ("first", "second")
# Block drafters: number of blocks per sequence; the length l = 0 … γ−2 of a visible prefix has a probability ∝ BETA^l
ANCHORS, BETA = 24, 0.75
BATCH = 12  # default batch size
MAX_LENGTH = 1024  # maximum tokens of a training text
# least values of settings
LEAST = {
    "steps": 1,
    "layers": 1,
    "block_size": 2,
    "markov_rank": 0,
    "batch_size": 1,
    "max_new_tokens": 1,
    "keep_every": 0,
}


@dataclass(frozen=True, slots=True)
class RegenerateConfig:
    """How the target writes texts.

    batch_size: number of texts written in parallel.
    max_new_tokens: maximum tokens of a text, without its prompt.
    temperature: 0 decodes greedily.
    top_k: when sampling, the number of likeliest tokens to sample from; 0: all tokens.
    seed: seed of the random generator for sampling.
    """

    batch_size: int = 64
    max_new_tokens: int = 160
    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            self.temperature >= 0 and min(self.batch_size, self.max_new_tokens) >= 1,
            "batch size and new tokens must be at least 1, and the temperature at least 0",
        )


QUESTIONS = RegenerateConfig(max_new_tokens=64, temperature=0.9, top_k=50)


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """Settings of the training loop. Intervals are in steps.

    min_rate: final learning rate ÷ peak learning rate.
    precision: number type of the drafter's matrix products. ``auto`` selects ``bfloat16`` (autocast) if it is fast on this machine
        (``d2sd.nets.dtypes.quick_bfloat16``), and otherwise ``float32``.
    seconds: duration of training; None: training ends after ``steps`` steps. With a duration, the learning rate and ``save_every``
        do not count steps: they count one step for every ``seconds`` ÷ ``steps`` seconds that have passed.
    clip: maximum norm of the gradient.
    save_every: interval of the checkpoints from which a run can resume; only the newest is kept.
    keep_every: interval of saved drafters, all of which are kept; 0 saves only the final drafter.
    """

    steps: int
    batch_size: int = BATCH
    learning_rate: float = 2e-3
    min_rate: float = 0.02
    seconds: float | None = None
    weight_decay: float = 0.05
    clip: float = 1.0
    seed: int = 0
    precision: str = "auto"
    save_every: int = 200
    keep_every: int = 0
    log_every: int = 10

    def __post_init__(self) -> None:
        require(
            min(self.steps, self.batch_size, self.save_every, self.log_every) >= 1 and self.keep_every >= 0,
            "steps, batch size and intervals must be at least 1, and keep-every at least 0",
        )
        known = self.precision in ("auto", "float32", "bfloat16")
        require(known, f"precision must be auto, float32 or bfloat16, not {self.precision!r}")


@dataclass(frozen=True, slots=True)
class Eagle3Objective:
    """Objective of an EAGLE-3 drafter.

    unrolled: number of steps of each chain.
    decay: step i has the loss weight decay^i.
    rows: number of chains per sequence.
    """

    unrolled: int = 7
    decay: float = 0.8
    rows: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Training:
    """Settings for training an EAGLE-3 drafter.

    target: folder, hub id, or a name known to ``d2sd get``.
    responses: file of the target's responses, written by ``d2sd.train.text.regenerate``.
    out: folder of checkpoints, metrics and the drafter.
    target_layer_ids: target layers that the drafter reads; None: EAGLE-3's default layers.
    draft_vocab_size: size of the draft vocabulary, the most frequent tokens of the responses; None: the whole vocabulary.
    max_length: maximum tokens of a sequence; longer ones are cut.
    held_out: file of prompts (JSON lines with ``prompt``). At every save, α is measured on the target's answers to them.
    chat: whether to put held-out prompts into the chat template.
    """

    target: str | Path
    responses: Path
    out: Path
    objective: Eagle3Objective = Eagle3Objective()
    loop: LoopConfig = LoopConfig(1500)
    target_layer_ids: list[int] | None = None
    draft_vocab_size: int | None = None
    max_length: int = MAX_LENGTH
    held_out: Path | None = None
    chat: bool = False

    def __post_init__(self) -> None:
        check_responses(self.responses)
        if self.held_out is not None:
            require(next(read_jsonl(self.held_out, "prompt"), None), f"{self.held_out} is empty")


def check_responses(path: Path) -> None:
    """Raises ``InputError`` if a file does not begin with a response of the target."""
    require(path.is_file(), f"there is no response file {path}; write one with `python -m d2sd train regenerate`")
    require(next(read_jsonl(path, "prompt_ids", "response_ids"), None), f"{path} is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTraining:
    """Settings for training a first drafter and a VP-Drafter.

    target: folder, hub id, or a name known to ``d2sd get``.
    out: folder of both drafters, their training data, and the model card.
    minutes: time for the whole run; not used if ``steps`` is given.
    steps: number of training steps; None: as many as the time allows.
    only: ``first`` or ``second``, to train only this drafter; None: both.
    responses: file of the target's responses to train on; None: the target writes them.
    prompts: prompts for the target to answer; a chat model writes more prompts if there are too few.
    held_out: prompts to measure the drafters on; if empty, some of the training prompts are held out.
    start: folder from which the drafters start: one with ``dflash`` or ``vp`` or both (then a missing drafter starts from the other)
        or, with ``only``, that of a drafter. It determines all settings of the drafters. None: new drafters.
    layers, block_size, markov_rank: number of layers, γ and rank of the Markov head of new drafters; with rank 0, they have no
        Markov head.
    target_layer_ids: target layers that new drafters read; None: five evenly spaced ones.
    mask_token: mask token of new drafters, as text; None: chosen as by ``d2sd.train.block_drafters.mask_id``.
    draft_vocab_size: size of the draft vocabulary of new drafters, the most frequent tokens of the responses; None: 16,384, or the
        whole vocabulary if that is smaller or if there is no Markov head.
    batch_size: sequences per training step; None: chosen for the time, or ``BATCH`` if ``steps`` is given.
    max_new_tokens: maximum tokens of an answer.
    keep_every: interval, in steps, of saved drafters, all of which are kept; 0 saves only the newest.
    dtype: number type of the target; None: bfloat16 on a GPU, and the default of ``load_target`` on a CPU.
    """

    target: str | Path
    out: Path
    minutes: float = 10.0
    steps: int | None = None
    only: Role | None = None
    responses: Path | None = None
    prompts: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    start: Path | None = None
    layers: int = 2
    block_size: int = 8
    target_layer_ids: list[int] | None = None
    mask_token: str | None = None
    draft_vocab_size: int | None = None
    markov_rank: int = 32
    batch_size: int | None = None
    max_new_tokens: int = 192
    keep_every: int = 0
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            require(value is None or value >= least, f"{name.replace('_', ' ')} must be at least {least}, not {value}")
        require(0 < self.minutes < math.inf, "minutes must be a number above 0")
        if self.responses is not None:
            check_responses(self.responses)
        for role in self.roles:
            if source := self.start_of(role):
                with named_errors(source):
                    drafter_form(source)
        measurable = self.only != "second" or not self.held_out
        require(measurable, "held-out prompts measure a first drafter; leave them out with --only second")

    @property
    def seconds(self) -> float:
        """Time for the whole run; infinite if the number of steps is given."""
        return 60 * self.minutes if self.steps is None else math.inf

    @property
    def roles(self) -> tuple[Role, ...]:
        """The drafters to train."""
        return (self.only,) if self.only else ROLES

    def start_of(self, role: Role) -> str | None:
        """Returns the folder from which a drafter starts; None for a new drafter."""
        if self.start is None:
            return None
        found = [place for part in ("dflash", "vp") if (place := self.start / part).is_dir()] or [self.start]
        require(self.only or found != [self.start], f"{self.start} has neither dflash/ nor vp/; add --only to continue from a single drafter")  # fmt: skip
        return str(found[0 if role == "first" else -1])
