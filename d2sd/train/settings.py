"""Training settings with their defaults and checks: text, loop, objectives, and kinds of drafters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from d2sd.errors import InputError, require
from d2sd.folders.configs import drafter_kind
from d2sd.train.files import read_jsonl

PRECISIONS = ("auto", "float32", "bfloat16")
Clock = Callable[[], float]  # returns the time in seconds
LAYERS, BLOCK_SIZE = 2, 16  # defaults of a new block drafter


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
        if self.temperature < 0 or min(self.batch_size, self.max_new_tokens) < 1:
            raise InputError("batch size and new tokens must be at least 1, and the temperature at least 0")


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
    batch_size: int = 12
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
        counts = (self.steps, self.batch_size, self.save_every, self.log_every)
        if min(counts) < 1 or self.keep_every < 0:
            raise InputError("steps, batch size and intervals must be at least 1, and keep-every at least 0")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"precision must be {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, not {self.precision!r}"
            )

    def identity(self) -> dict[str, Any]:
        """Returns the settings that must be unchanged to resume a run."""
        free = ("save_every", "keep_every", "log_every")
        return {name: value for name, value in asdict(self).items() if name not in free}


@dataclass(frozen=True, slots=True)
class BlockObjective:
    """Objective of a block drafter.

    variable_prefix: whether to train a VP-Drafter, which sees the first l tokens after the anchor of each block. A first drafter
        sees only the anchor.
    anchors: number of blocks per sequence.
    beta: the random length l = 0 … γ−2 has a probability ∝ beta^l.
    """

    variable_prefix: bool = False
    anchors: int = 20
    beta: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1 or self.anchors < 1:
            raise InputError("beta must be in (0, 1], and anchors at least 1")


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

    def __post_init__(self) -> None:
        if self.unrolled < 1 or self.rows < 1 or not 0 < self.decay <= 1:
            raise InputError("unrolled steps and rows must be at least 1, and decay in (0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterTraining:
    """Training settings shared by all kinds of drafters.

    target: folder, hub id, or a name known to ``d2sd get``.
    responses: file of the target's responses, written by ``d2sd.train.text.regenerate``.
    out: folder of checkpoints, metrics and the drafter.
    target_layer_ids: target layers that the drafter reads; None: the default layers of this kind of drafter.
    draft_vocab_size: size of the draft vocabulary, the most frequent tokens of the responses; None: the whole vocabulary.
    max_length: maximum tokens of a sequence; longer ones are cut.
    held_out: file of prompts (JSON lines with ``prompt``). At every save, α is measured on the target's answers to them.
    chat: whether to put held-out prompts into the chat template.
    """

    target: str | Path
    responses: Path
    out: Path
    loop: LoopConfig
    target_layer_ids: list[int] | None = None
    draft_vocab_size: int | None = None
    max_length: int = 1024
    held_out: Path | None = None
    chat: bool = False

    def __post_init__(self) -> None:
        require(
            self.responses.is_file(),
            f"there is no response file {self.responses}; write one with `python -m d2sd train regenerate`",
        )
        # the first rows are read now, so that another kind of file is refused before models are loaded
        for path, *fields in ((self.responses, "prompt_ids", "response_ids"), (self.held_out, "prompt")):
            if path is not None and next(read_jsonl(path, *fields), None) is None:
                raise InputError(f"{path} is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTraining(DrafterTraining):
    """Training settings of a DFlash drafter or a VP-Drafter.

    layers, block_size: number of layers and γ of a new drafter; None: ``LAYERS`` and ``BLOCK_SIZE``.
    mask_token: mask token of a new drafter, as text; None: chosen as by ``d2sd.train.block_drafters.mask_id``.
    start: folder of a drafter to start from. The drafter determines layers, block size, mask token and ``target_layer_ids``.
    markov_rank: rank of a Markov head to add to the drafter; 0 adds no head.
    """

    objective: BlockObjective = BlockObjective()
    loop: LoopConfig = LoopConfig(1200)
    layers: int | None = None
    block_size: int | None = None
    mask_token: str | None = None
    start: Path | None = None
    markov_rank: int = 0

    def __post_init__(self) -> None:
        DrafterTraining.__post_init__(self)
        determined = {
            "--layers": self.layers,
            "--block-size": self.block_size,
            "--target-layers": self.target_layer_ids,
            "--mask-token": self.mask_token,
        }
        repeated = [option for option, value in determined.items() if value is not None]
        if self.start is not None and repeated:
            raise InputError(f"--start determines {', '.join(determined)}: leave out {', '.join(repeated)}")
        if self.start is not None:
            drafter_kind(str(self.start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Training(DrafterTraining):
    objective: Eagle3Objective = Eagle3Objective()
    loop: LoopConfig = LoopConfig(1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTraining:
    """Settings for training a first drafter and a VP-Drafter within a given time.

    target: as for ``DrafterTraining``.
    out: folder of both drafters, their training data, and the model card.
    minutes: time for the whole run.
    prompts: prompts for the target to answer; a chat model writes more prompts if there are too few.
    held_out: prompts to measure the drafters on; if empty, some of the training prompts are held out.
    layers, block_size, target_layer_ids, mask_token, markov_rank: as for ``BlockTraining``, for both drafters; by default, they
        read five target layers.
    draft_vocab_size: as for ``DrafterTraining``; None: 16,384, or the whole vocabulary if that is smaller.
    max_new_tokens: maximum tokens of an answer.
    dtype: number type of the target; None: bfloat16 on a GPU, and the default of ``load_writer`` on a CPU.
    """

    target: str | Path
    out: Path
    minutes: float = 10.0
    prompts: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    layers: int = LAYERS
    block_size: int = 8
    target_layer_ids: list[int] | None = None
    mask_token: str | None = None
    draft_vocab_size: int | None = None
    markov_rank: int = 32
    max_new_tokens: int = 192
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        minutes = 0 < self.minutes < math.inf
        if not minutes or min(self.layers, self.markov_rank, self.max_new_tokens) < 1 or self.block_size < 2:
            raise InputError(
                "minutes, layers, Markov rank and new tokens must be numbers above 0, and the block size at least 2"
            )
