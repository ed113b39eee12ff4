"""Settings of training, with all defaults and checks: of the loop, of the objectives, and of what a drafter is trained from."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from d2sd.errors import InputError

PRECISIONS = ("auto", "float32", "bfloat16")
LAYERS, BLOCK_SIZE = 2, 16  # of a new block drafter


@dataclass(frozen=True, slots=True)
class RegenerateConfig:
    """How the target writes texts.

    batch_size: sequences that are written at once.
    max_new_tokens: longest text, in tokens.
    temperature: 0: greedily.
    top_k: above temperature 0, tokens are sampled from so many likeliest ones; 0: from all.
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
    """Settings of the training loop. Times are in steps.

    precision: of the drafter's products, ``float32`` or ``bfloat16`` autocast; ``auto``: bfloat16 where this machine is quick
        with it (``d2sd.nets.dtypes.quick_bfloat16``).
    seconds: time that training takes; None: as long as ``steps`` take. With it, schedule and intervals follow the time, of which
        a step is the part 1 / ``steps``.
    save_every: interval of checkpoints to resume from; only the newest one stays.
    keep_every: interval of saved drafters, all of which stay; 0: only the last one is saved.
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
        """Returns the settings that must be the same to resume a run."""
        free = ("save_every", "keep_every", "log_every")
        return {name: value for name, value in asdict(self).items() if name not in free}


@dataclass(frozen=True, slots=True)
class BlockObjective:
    """What a block drafter learns.

    variable_prefix: train as VP-Drafter, with l ∝ beta^l visible drafted tokens (0 … γ−2), else l = 0.
    anchors: blocks per sequence.
    """

    variable_prefix: bool = False
    anchors: int = 20
    beta: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1 or self.anchors < 1:
            raise InputError("beta must be in (0, 1], anchors above 0")


@dataclass(frozen=True, slots=True)
class Eagle3Objective:
    """What an EAGLE-3 drafter learns.

    unrolled: steps of training-time test.
    decay: the weight of step i is decay^i.
    rows: chains per sequence.
    """

    unrolled: int = 7
    decay: float = 0.8
    rows: int = 32

    def __post_init__(self) -> None:
        if self.unrolled < 1 or self.rows < 1 or not 0 < self.decay <= 1:
            raise InputError("unrolled steps and rows must be at least 1, decay in (0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterTraining:
    """Settings that the training of every drafter has.

    target: folder, hub id, or the name that ``d2sd get`` knows.
    responses: the target's responses, a file of ``d2sd.train.text.regenerate``.
    out: folder of checkpoints, metrics and the drafter.
    target_layer_ids: layers of the target that the drafter reads; None: those that its kind reads by default.
    draft_vocab_size: number of the responses' most frequent tokens that it drafts; None: the whole vocabulary.
    max_length: sequences are cut to so many tokens.
    held_out: JSON lines with ``prompt``, on which the drafter is measured at every save.
    chat: whether held-out prompts are put into the chat template.
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
        if not self.responses.is_file():
            raise InputError(
                f"there is no response file {self.responses}; write one with `python -m d2sd train regenerate`"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTraining(DrafterTraining):
    """Settings of the training of a DFlash drafter or a VP-Drafter.

    layers, block_size, mask_token: of a new drafter; None: LAYERS, BLOCK_SIZE and the tokenizer's mask token.
    start: a drafter folder to begin from, which determines these three and ``target_layer_ids``.
    markov_rank: rank of a Markov head that is added to the drafter; 0: none.
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
            raise InputError(
                f"the drafter to start from gives {', '.join(determined)}: leave out {', '.join(repeated)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Training(DrafterTraining):
    objective: Eagle3Objective = Eagle3Objective()
    loop: LoopConfig = LoopConfig(1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTraining:
    """Settings of the training of a first drafter and a VP-Drafter within a given time.

    target: as for ``DrafterTraining``.
    out: folder of both drafters, of what they are made from, and of the model card.
    prompts: texts that the target answers; a chat model writes more by itself if there are too few.
    held_out: prompts on whose answers the drafters are measured; empty: some of the others, which are then left out of training.
    layers, block_size, target_layer_ids, mask_token, markov_rank: of both drafters; None: as for ``BlockTraining``, five target
        layers.
    draft_vocab_size: as for ``DrafterTraining``; None: 16,384, or the whole vocabulary if it is smaller.
    max_new_tokens: longest answer, in tokens.
    dtype: of the target; None: bfloat16 on a GPU, otherwise what is quick on the processor.
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
