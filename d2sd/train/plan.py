"""Divides the minutes of ``train pair`` among its stages, from speeds measured on this machine; or plans a number of steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
import torch

from d2sd.errors import require
from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.target import Target
from d2sd.trace.text import duration
from d2sd.train.block_drafters import TAPS, drafters_of
from d2sd.train.features import Features, feature_bytes
from d2sd.train.loop import make_optimizers
from d2sd.train.settings import ANCHORS, BATCH, Clock, LoopConfig, PairTraining, RegenerateConfig
from d2sd.train.text import Responses
from d2sd.train.writer import STRIDE, Rows, WriterRequest, most_rows

ANCHORS_PER_TOKEN = 0.32  # anchors per token of text, for about two epochs of training; see docs/train-your-own.md
QUESTION_SHARE = 0.15  # tokens of questions per token of the texts
ATTEMPTS = 2  # attempts to write a question, per missing question
LONGEST, TYPICAL = 256, 160  # maximum tokens of a prompt; typical number of tokens of a text
POINTS = 5  # number of measurements of α during training; only one if time is short
# Shares of the time for writing held-out texts, for measuring α on them, and for the last stage.
WRITING_HELD_OUT, MEASURING, ENDING = 0.03, 0.075, 0.02
HELD_OUT_TOKENS, FEWER_TOKENS = 64, 32  # maximum tokens of a held-out text: normally, and if time is short
FEWEST_TEXTS = 10  # minimum held-out texts for reporting α
FEWEST_STEPS = 300  # the batch is chosen small enough for this many training steps
SMALLEST, LARGEST = 4, 128  # limits of the number of texts in a training batch
LOOK = 0.15  # seconds for measuring one speed, per planned minute


class Speeds(msgspec.Struct, frozen=True):
    """Measured speeds of this machine.

    writing: tokens per second that the target writes; infinite if no text is written.
    features: tokens per second for which features are computed.
    training: anchors per second in training.
    batch: maximum number of texts in a training batch.
    """

    writing: float
    features: float
    training: float
    batch: int


class TrainingPlan(msgspec.Struct, frozen=True):
    """How the time is divided among the stages, and the sizes of the stages.

    seconds: planned seconds of each stage; empty if the number of training steps is given.
    tokens: number of tokens of text for which the training suffices.
    room: maximum number of tokens to write.
    rows: number of texts written in parallel.
    batch: number of texts in a training batch.
    questions: number of attempts to write a question.
    points: number of times that α is measured on held-out texts.
    held_out: number of held-out texts in a measurement.
    tokens_held_out: maximum tokens of each of these texts.
    """

    seconds: dict[str, float] = {}
    tokens: int = 0
    room: int = 0
    rows: int = 1
    batch: int = 1
    questions: int = 0
    speeds: Speeds | None = None
    points: int = 0
    held_out: int = 0
    tokens_held_out: int = HELD_OUT_TOKENS


def divide(speeds: Speeds, seconds: float, room: int, rows: int, questions: bool, most: int | None) -> TrainingPlan:
    """Returns the plan for a run of the given seconds.

    room: maximum number of tokens whose features fit into memory.
    rows: maximum number of texts that are written in parallel.
    questions: whether the target writes questions first.
    most: maximum tokens of text that the prompts give; None if the target writes as many questions as needed.
    """
    time_left = seconds * (1 - WRITING_HELD_OUT - MEASURING - ENDING)
    asking = QUESTION_SHARE / speeds.writing if questions else 0.0
    token = asking + 1 / speeds.writing + 1 / speeds.features + ANCHORS_PER_TOKEN / speeds.training
    tokens = int(min(time_left / token, room, room if most is None else most))
    parts = {"questions": tokens * asking, "writing": tokens / speeds.writing, "features": tokens / speeds.features}
    training = time_left - sum(parts.values())
    batch = max(1, int(training * speeds.training / (FEWEST_STEPS * ANCHORS)))
    batch = min(speeds.batch, max(SMALLEST, 1 << batch.bit_length() - 1))
    rows = max(1, min(rows, tokens // (3 * TYPICAL)))  # few enough that texts end in time
    attempts = max(rows, tokens // 30) if questions else 0  # more than needed: the time ends them
    return TrainingPlan({**parts, "training": training}, tokens, room, rows, batch, attempts, speeds)


def plan_minutes(
    settings: PairTraining, target: Target, tokens: int | None, began: float, clock: Clock
) -> TrainingPlan:
    """Measures this machine's speeds, and returns the plan for the remaining time. Raises ``InputError`` if too little is left.

    tokens: number of tokens of the given responses; None: the target writes the text.
    began: time at which the run began.
    """
    chat, total, given = bool(target.tokenizer.chat_template), settings.seconds, len(settings.prompts)
    rows = most_rows(target, LONGEST + settings.max_new_tokens) if tokens is None else 0
    if not chat:
        rows = min(rows, max(1, given))
    speeds = measure_speeds(settings, target, rows, clock)
    bytes_per_token = 2 * len(settings.target_layer_ids or range(TAPS)) * target.config.hidden_size
    left = total - (clock() - began)
    require(left >= total / 2, f"{total / 60:g} minutes are too few: measuring this machine's speeds took more than half of them; give more --minutes")  # fmt: skip
    plan = partial(divide, speeds, left, sum(feature_bytes(target.device)) // bytes_per_token, rows)
    if tokens is not None:
        return plan(False, tokens)
    if not chat:
        return plan(False, given * settings.max_new_tokens)
    return plan(given * TYPICAL < plan(False, None).tokens, None)


def plan_steps(settings: PairTraining, chat: bool) -> TrainingPlan:
    """Returns the plan for a given number of training steps, for which no speed is measured.

    chat: whether the target can write questions.
    """
    batch = settings.batch_size or BATCH
    tokens = int((settings.steps or 0) * batch * ANCHORS / ANCHORS_PER_TOKEN)
    missing = tokens // TYPICAL + 1 - len(settings.prompts) if chat and settings.responses is None else 0
    return TrainingPlan({}, tokens, tokens, RegenerateConfig().batch_size, batch, max(0, ATTEMPTS * missing))


def points_of(lengths: Sequence[int], token: float, seconds: float) -> tuple[int, int, int]:
    """Returns how α is measured: number of measurements, number of held-out texts (the first ones), and maximum tokens of each
    text.

    ``POINTS`` measurements are made if each of them can cover ``FEWEST_TEXTS`` texts in the given time. Otherwise, one measurement
    is made after the last step, if necessary with fewer tokens of each text. If even that is impossible, the number is 0.

    lengths: tokens of each held-out text.
    token: seconds for measuring one token.
    seconds: time for all measurements.
    """
    texts = most = 0
    for points, most in ((POINTS, HELD_OUT_TOKENS), (1, HELD_OUT_TOKENS), (1, FEWER_TOKENS)):
        ends = accumulate(token * min(length, most) for length in lengths)
        texts = sum(points * end <= seconds for end in ends)
        if texts >= FEWEST_TEXTS:
            return points, texts, most
    return 0, texts, most


def describe(plan: TrainingPlan, s: Speeds, device: str) -> str:
    """Returns a description of the plan for the user."""
    written = f"{s.writing:,.0f} tokens/s written, " if plan.seconds["writing"] else ""
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in plan.seconds.items() if seconds)
    text = (
        f"Measured speeds: {written}features for {s.features:,.0f} tokens/s, {s.training:,.0f} anchors/s "
        f"in training.\nPlan: {parts}; about {plan.tokens:,} tokens of text and {plan.seconds['training'] * s.training:,.0f} anchors, in batches of {plan.batch} texts."
    )
    if device == "cpu":
        text += (
            "\nThis is a CPU. The SmolLM2 drafters had α 1.59 on unseen prompts after 0.7 million anchors and 1.76 after 3.0 million "
            "(docs/train-your-own.md); texts that are easy to predict need fewer."
        )
    return text


# Measurement of speeds.


def measure_speeds(settings: PairTraining, target: Target, rows: int, clock: Clock) -> Speeds:
    """Measures each speed of this machine for ``LOOK`` seconds per planned minute.

    rows: number of texts written in parallel; 0: no text is written.
    """
    writing, batch = _writing_speed(settings, target, rows, clock) if rows else math.inf, LARGEST
    while True:
        try:
            return Speeds(writing, *_training_speeds(settings, target, batch, clock), batch)
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
            batch //= 2
            print(f"Not enough memory for batches of more than {batch} texts.", file=sys.stderr)


def _training_speeds(settings: PairTraining, target: Target, batch: int, clock: Clock) -> tuple[float, float]:
    """Returns the tokens per second of computing features, and the anchors per second of training both drafters."""
    # on a CPU, measure the smallest batch: larger batches are not faster
    count, generator = batch if target.device.type == "cuda" else SMALLEST, torch.Generator().manual_seed(0)
    ids = torch.randint(target.config.vocab_size, (count, TYPICAL), dtype=torch.int32, generator=generator)
    data = Responses(ids, torch.full((count,), TYPICAL // 4), torch.full((count,), TYPICAL))
    drafters, objective = drafters_of(settings, target, data)
    taps = next(iter(drafters.values())).target_layer_ids
    features, least = Features(target, taps, data), LOOK * settings.minutes
    reading = seconds_of(partial(Features, target, taps, data), least, clock)
    optimizers = make_optimizers(dict(objective.named_parameters()), LoopConfig(1))

    def learn() -> None:
        inputs = features.batch(objective, torch.arange(count), torch.Generator().manual_seed(0))
        with quick_autocast(target.device):
            loss, _ = objective(**inputs)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        objective.zero_grad()

    return count * TYPICAL / reading, count * ANCHORS / seconds_of(learn, least, clock)


@torch.inference_mode()
def _writing_speed(settings: PairTraining, target: Target, rows: int, clock: Clock) -> float:
    """Returns tokens per second when ``rows`` texts are written in parallel."""
    config = RegenerateConfig(rows, settings.max_new_tokens)
    batch = Rows(target, rows, LONGEST + settings.max_new_tokens, config)
    batch.put(range(rows), [WriterRequest(n, [n % target.config.vocab_size] * LONGEST) for n in range(rows)])
    batch.place.fill_(TYPICAL)  # on a CPU, attention takes longer the longer the texts are
    steps = STRIDE.get(target.device.type, 1)
    return rows * steps / seconds_of(partial(batch.advance, steps), LOOK * settings.minutes, clock)


def seconds_of(work: Any, least: float, clock: Clock) -> float:
    """Calls ``work`` once to warm up, then for at least ``least`` seconds. Returns the mean seconds of a call."""

    def call() -> None:
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    call()
    began, count = clock(), 0
    while not count or clock() - began < least:
        call()
        count += 1
    return (clock() - began) / count
