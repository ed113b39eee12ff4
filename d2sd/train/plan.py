"""How the minutes of ``train pair`` are divided, by speeds that are measured on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import torch

from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.target import Target
from d2sd.train.joint import ANCHORS, PairObjective, features_of, new_pair
from d2sd.train.loop import make_optimizers
from d2sd.train.settings import LoopConfig, PairTraining, RegenerateConfig
from d2sd.train.text import Responses
from d2sd.train.writer import STRIDE, Rows, WriterRequest

ANCHORS_PER_TOKEN = 0.32  # about two readings of every text: docs/train-your-own.md
QUESTION_SHARE = 0.15  # tokens of questions, as a share of those of the texts
LONGEST, TYPICAL = 256, 160  # tokens of a prompt at most, and of a text roughly
POINTS = 5  # at which the drafters are measured, where there is time for more than the last one
WRITING_HELD_OUT, MEASURING, ENDING = 0.03, 0.075, 0.02  # shares of the time: held-out texts, all measurements, the end
HELD_OUT_TOKENS, FEWER_TOKENS = 64, 32  # of a held-out text, at most; and where there is no time for so many
FEWEST_TEXTS = 10  # held-out texts of which α is a figure
FEWEST_STEPS = 300  # that a batch should leave time for
SMALLEST, LARGEST = 4, 128  # rows of a batch
LOOK = 0.15  # seconds for each minute given in which a speed is measured


class Speeds(msgspec.Struct, frozen=True):
    """Measured speeds: tokens a second that are written, and whose features are read; anchors a second on which both drafters train.

    batch: rows of the training batch that they were measured with, the largest that is used.
    """

    writing: float
    features: float
    training: float
    batch: int


class TrainingPlan(msgspec.Struct, frozen=True):
    """How the time is divided: seconds of each stage, tokens of text, the most that memory allows, and rows of the batches.

    points, held_out, tokens_held_out: how often the drafters are measured, on how many held-out texts, and on how many tokens of
        each at most; see ``points_of``.
    """

    seconds: dict[str, float]
    tokens: int
    room: int
    rows: int
    batch: int
    speeds: Speeds
    points: int = 0
    held_out: int = 0
    tokens_held_out: int = HELD_OUT_TOKENS


def divide(speeds: Speeds, seconds: float, room: int, rows: int, questions: bool, most: int | None) -> TrainingPlan:
    """Returns the plan for so many seconds.

    room: tokens whose features fit into memory.
    questions: whether the target writes questions first.
    most: tokens of text that the prompts give at most; None if it writes as many questions as are needed.
    """
    time_left = seconds * (1 - WRITING_HELD_OUT - MEASURING - ENDING)
    asking = QUESTION_SHARE / speeds.writing if questions else 0.0
    token = asking + 1 / speeds.writing + 1 / speeds.features + ANCHORS_PER_TOKEN / speeds.training
    tokens = int(min(time_left / token, room, room if most is None else most))
    parts = {"questions": tokens * asking, "writing": tokens / speeds.writing, "features": tokens / speeds.features}
    training = time_left - sum(parts.values())
    batch = max(1, int(training * speeds.training / (FEWEST_STEPS * ANCHORS)))
    batch = min(speeds.batch, max(SMALLEST, 1 << batch.bit_length() - 1))
    rows = max(1, min(rows, tokens // (3 * TYPICAL)))  # few enough for texts to end in time
    return TrainingPlan({**parts, "training": training}, tokens, room, rows, batch, speeds)


def points_of(lengths: Sequence[int], token: float, seconds: float) -> tuple[int, int, int]:
    """Returns how often the drafters are measured, on how many held-out texts, the first ones, and on how many tokens of each at most.

    That is at ``POINTS`` if the time suffices for ``FEWEST_TEXTS`` at each of them, else after the last step alone, else on fewer
    tokens. If it does not suffice for that either, or there are fewer texts, they are not measured at all.

    lengths: tokens of each text.
    token: seconds that measuring takes for each of them.
    seconds: time for all measurements.
    """
    texts = most = 0
    for points, most in ((POINTS, HELD_OUT_TOKENS), (1, HELD_OUT_TOKENS), (1, FEWER_TOKENS)):
        ends = accumulate(token * min(length, most) for length in lengths)
        texts = sum(points * end <= seconds for end in ends)
        if texts >= FEWEST_TEXTS:
            return points, texts, most
    return 0, texts, most


def describe(plan: TrainingPlan, device: str) -> str:
    """Returns the plan in words."""
    s, anchors = plan.speeds, plan.seconds["training"] * plan.speeds.training
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in plan.seconds.items() if seconds)
    text = (
        f"Measured here: {s.writing:,.0f} tokens/s written, features of {s.features:,.0f} tokens/s, {s.training:,.0f} anchors/s "
        f"in training both drafters.\nPlan: {parts}; about {plan.tokens:,} tokens of text and {anchors:,.0f} anchors, in batches of "
        f"{plan.batch} texts."
    )
    if device == "cpu":
        text += (
            "\nThis is a CPU. The SmolLM2 drafters had α 1.59 on unseen prompts after 0.7 million anchors and 1.76 after 3.0 million "
            f"(docs/train-your-own.md); with {anchors / 1e6:.2f} million expect {'less' if anchors < 7e5 else 'that'}, unless the "
            "target's texts are easy to foresee."
        )
    return text


def duration(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


# Measuring.


def measure_speeds(settings: PairTraining, target: Target, rows: int, clock: Callable[[], float]) -> Speeds:
    """Returns the speeds of this machine, measured for seconds of ``clock`` on random tokens."""
    writing, batch = _writing_speed(settings, target, rows, clock), LARGEST
    while True:
        try:
            return Speeds(writing, *_training_speeds(settings, target, batch, clock), batch)
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
            batch //= 2
            print(f"Not enough memory for larger batches than {batch} texts.", file=sys.stderr)


def _training_speeds(
    settings: PairTraining, target: Target, batch: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """Tokens a second whose features are read, and anchors a second in training; a CPU is as quick with a small batch."""
    count, vocabulary = batch if target.device.type == "cuda" else SMALLEST, target.config.vocab_size
    lengths = torch.full((count,), TYPICAL)
    ids = torch.randint(vocabulary, (count, TYPICAL), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    data = Responses(ids, torch.full((count,), TYPICAL // 4), lengths)
    kept = [features_of(settings, target, data)]

    def read() -> None:
        kept[:] = [features_of(settings, target, data)]
        _wait()

    least = LOOK * settings.minutes
    reading = seconds_of(read, least, clock)
    objective = PairObjective(*new_pair(settings, target, data), target.model)
    optimizers = make_optimizers(dict(objective.named_parameters()), LoopConfig(1))

    def learn() -> None:
        given = objective.sample(data, kept[0], torch.arange(count), torch.Generator().manual_seed(0))
        with quick_autocast(target.device):
            loss, _ = objective(**{name: value.to(target.device) for name, value in given.items()})
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        _wait()

    return count * TYPICAL / reading, count * ANCHORS / seconds_of(learn, least, clock)


@torch.inference_mode()
def _writing_speed(settings: PairTraining, target: Target, rows: int, clock: Callable[[], float]) -> float:
    """Tokens a second of so many rows."""
    config = RegenerateConfig(rows, settings.max_new_tokens)
    batch = Rows(target, rows, LONGEST + settings.max_new_tokens, config)
    batch.put(range(rows), [WriterRequest(n, [n % target.config.vocab_size] * LONGEST) for n in range(rows)])

    def step() -> None:
        batch.advance(STRIDE if target.device.type == "cuda" else 1)
        _wait()

    return rows * (STRIDE if target.device.type == "cuda" else 1) / seconds_of(step, LOOK * settings.minutes, clock)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Any, least: float, clock: Callable[[], float] = time.monotonic) -> float:
    """Seconds of a piece of work, repeated for at least so long, after a first one that sets things up."""
    work()
    began, count = clock(), 0
    while not count or clock() - began < least:
        work()
        count += 1
    return (clock() - began) / count
