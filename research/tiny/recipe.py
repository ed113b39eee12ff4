"""The bundled nets from nothing: text → target → its own responses → drafters, which it comes to meet → draft model.

Each stage writes into its own folder and is skipped or resumed when run again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from d2sd.train.data import write_jsonl
from d2sd.train.drafters import DrafterConfig
from d2sd.train.eagle3 import Eagle3Objective, train_eagle3
from d2sd.train.loop import LoopConfig
from d2sd.train.regenerate import RegenerateConfig
from d2sd.train.stages import regenerate_responses, train_drafter, train_target
from d2sd.train.target import TargetShape
from research.tiny.corpus import Mix, Sources, begun_anywhere, training_text
from research.tiny.heldout import held_out_prompts
from research.tiny.prompts import drafter_prompts
from research.tiny.stages import (
    average_targets,
    response_texts,
    stack_target,
    teach_target,
    tokenizer_from,
    unlearn_repetition,
)

COMPILE = shutil.which("c++") is not None
SHAPE = TargetShape()


@dataclass(frozen=True, slots=True)
class Round:
    """One part of the target's training; ``stack`` repeats the layers of the round before."""

    mix: Mix
    loop: LoopConfig
    row_length: int
    layers: int
    stack: int = 1


ROUNDS = (
    Round(
        Mix(seed=1),
        LoopConfig(
            steps=1600, batch_size=16, learning_rate=2.5e-3, min_rate=0.4, warmup=60, compile=COMPILE, save_every=200
        ),
        row_length=384,
        layers=8,
    ),
    Round(
        Mix(seed=2, reads=2),
        LoopConfig(steps=1040, batch_size=16, learning_rate=2e-3, warmup=60, compile=COMPILE, save_every=100, seed=2),
        row_length=512,
        layers=16,
        stack=2,
    ),
    Round(
        Mix(seed=3, strange=0.12, sums=20_000, wordings=24_000),
        LoopConfig(steps=600, batch_size=16, learning_rate=1.2e-3, warmup=30, compile=COMPILE, save_every=100, seed=3),
        row_length=512,
        layers=16,
    ),
)
# What the target repeats when it goes on from openings is unlearned; the mean with the weights of before keeps most of
# that and loses little elsewhere.
UNLEARN = Round(
    Mix(seed=4, strange=0.12, sums=20_000, wordings=40_000),
    LoopConfig(steps=120, batch_size=12, learning_rate=4e-4, warmup=10, compile=COMPILE, save_every=40, seed=4),
    row_length=512,
    layers=16,
)
OPENINGS = {"stories": 4_000}
UNLEARNED_SHARE = 0.6
# Documents had begun in the middle of a story only where they were worded questions, so "The truck" went on as one. Stories
# that begin anywhere are learned last, and what the target wrote to such openings is unlearned where it went wrong.
BEGUN = Round(
    Mix(seed=5, strange=0.12, sums=8_000, wordings=12_000, code=3_000),
    LoopConfig(steps=220, batch_size=5, learning_rate=5e-4, warmup=10, compile=COMPILE, save_every=60, seed=7),
    row_length=384,
    layers=16,
)
UNUSUAL = {"stories": 800, "asked": 200, "unusual": 5_000}
KNOWN = {
    "stories": 5_000,
    "asked": 1_000,
    "questions": 2_000,
    "code": 700,
    "varied": 3_500,
}
BEGUN_SHARE = 0.8
# A small target is undecided wherever a draft ends. Once it has a drafter, it decides as that one expects where it hardly
# cares, in rounds, since its text is another one after each. Every round is held to the undecided target and ends in a mean
# with it.
MEET = Round(
    Mix(seed=9, strange=0.12, sums=8_000, wordings=12_000, code=3_000),
    LoopConfig(steps=400, batch_size=6, learning_rate=5e-4, warmup=20, save_every=100, seed=32),
    row_length=384,
    layers=16,
)
MET = {"stories": 4_500, "asked": 600, "questions": 900, "code": 500, "varied": 700, "unusual": 1_800}
MET_SHARES = (0.5, 0.7, 0.8)
RESPONSES = {
    "stories": 21_000,
    "asked": 4_500,
    "questions": 12_000,
    "code": 3_000,
}
GREEDY_RESPONSES = {
    "stories": 26_000,
    "asked": 5_400,
    "questions": 14_700,
    "code": 9_000,
    "unanswered": 5_069,
    "varied": 10_000,
    "unusual": 4_000,
}
TARGET_LAYERS = [1, 4, 7, 10, 13]
DRAFTERS = LoopConfig(steps=15_500, batch_size=12, learning_rate=2e-3, warmup=60)
# Soft targets leave a drafter less sure than greedy text deserves, and text that it has read many times surer than new text
# deserves. So it ends on new text, all greedy, with hard labels.
GREEDY = LoopConfig(steps=9_700, batch_size=12, learning_rate=1e-3, warmup=60, seed=11)
DRAFT_SHAPE = replace(SHAPE, hidden_size=128, layers=2, heads=2, kv_heads=1, intermediate_size=384)
DRAFT_LOOP = LoopConfig(steps=1000, batch_size=12, learning_rate=4e-3, warmup=60, compile=COMPILE)


def target(data: Path, out: Path, upto: int = len(ROUNDS)) -> Path:
    """All rounds of the target (or the first ones); returns the folder of the last."""
    train, held = Sources.read(data)
    folder: Path | None = None
    for number, plan in enumerate(ROUNDS[:upto], 1):
        start, folder = folder, out / f"target-{number}"
        if start is not None and plan.stack > 1:
            start, shallow = out / f"target-{number}-start", start
            stack_target(shallow, plan.stack, start)
        shape = replace(SHAPE, layers=plan.layers)
        text = training_text(train, plan.mix)
        train_target(text, held.stories, folder, shape, plan.loop, plan.row_length, start=start)
    assert folder is not None
    return folder


def unrepetitive(data: Path, out: Path, folder: Path) -> Path:
    """The target with less repetition in its greedy text; returns its folder."""
    train, held = Sources.read(data)
    own, unlearned, mean = out / "openings.jsonl", out / "target-unlearned", out / "target-mean"
    config = RegenerateConfig(batch_size=128, max_new_tokens=200, greedy_share=1.0, seed=5)
    regenerate_responses(folder, drafter_prompts(train, OPENINGS, seed=5), own, config)
    text = training_text(train, UNLEARN.mix)
    unlearn_repetition(folder, text, own, held.stories, unlearned, UNLEARN.loop, UNLEARN.row_length)
    average_targets(folder, unlearned, UNLEARNED_SHARE, mean)
    return mean


def begun(data: Path, out: Path, folder: Path) -> Path:
    """The target that also tells stories from anywhere on; returns its folder."""
    train, held = Sources.read(data)
    own, known, taught, mean = (out / n for n in ("unusual.jsonl", "known.jsonl", "target-taught", "target-begun"))
    config = RegenerateConfig(batch_size=128, greedy_share=1.0, seed=20)
    regenerate_responses(folder, drafter_prompts(train, UNUSUAL, seed=20), own, config)
    regenerate_responses(folder, drafter_prompts(train, KNOWN, seed=21), known, config)
    text = [*training_text(train, BEGUN.mix), *response_texts(folder, known)]
    random.Random(BEGUN.mix.seed).shuffle(text)
    new = begun_anywhere(train.stories, BEGUN.mix.seed)
    teach_target(folder, new, text, own, held.stories, taught, BEGUN.loop, BEGUN.row_length)
    average_targets(folder, taught, BEGUN_SHARE, mean)
    return mean


def met(data: Path, out: Path, undecided: Path, drafter_folder: Path) -> Path:
    """The target that decides near ties as its drafter expects; returns its folder."""
    train, held = Sources.read(data)
    text, folder = training_text(train, MEET.mix), undecided
    for number, share in enumerate(MET_SHARES, 1):
        own, taught, mean = (
            out / n for n in (f"met-{number}.jsonl", f"target-meeting-{number}", f"target-met-{number}")
        )
        seed = 70 + number
        config = RegenerateConfig(batch_size=128, max_new_tokens=144, greedy_share=1.0, seed=seed)
        regenerate_responses(folder, drafter_prompts(train, MET, seed), own, config)
        new = begun_anywhere(train.stories, seed)
        loop, length = MEET.loop, MEET.row_length
        teach_target(folder, new, text, own, held.stories, taught, loop, length, drafter_folder, former=undecided)
        average_targets(undecided, taught, share, mean)
        folder = mean
    return folder


def responses(data: Path, out: Path, target_folder: Path) -> Path:
    """The target's own responses to what visitors may type."""
    return _responses(data, out / "responses.jsonl", target_folder, RESPONSES, greedy_share=0.8, seed=6)


def greedy_responses(data: Path, out: Path, target_folder: Path) -> Path:
    """More of them, all greedy."""
    return _responses(data, out / "responses-greedy.jsonl", target_folder, GREEDY_RESPONSES, greedy_share=1.0, seed=7)


def _responses(
    data: Path, path: Path, target_folder: Path, counts: dict[str, int], greedy_share: float, seed: int
) -> Path:
    train, _ = Sources.read(data)
    config = RegenerateConfig(batch_size=128, greedy_share=greedy_share, seed=seed)
    regenerate_responses(target_folder, drafter_prompts(train, counts, seed), path, config)
    return path


def first_drafter(out: Path, name: str, target_folder: Path, written: Path) -> Path:
    """The DFlash drafter or the VP-Drafter (``vp``) of the target before it meets them, with the same steps."""
    train_drafter(
        target_folder,
        written,
        out / f"{name}-1",
        objective=DrafterConfig(variable_prefix=name == "vp", anchors=20, objective="survival", soft_targets=0.5),
        config=DRAFTERS,
        layers=3,
        target_layer_ids=TARGET_LAYERS,
        cache=out / "features.safetensors",
    )
    return out / f"{name}-1"


def drafter(out: Path, name: str, start: Path, target_folder: Path, greedy: Path) -> Path:
    """The same drafter, gone on with greedy responses of the target as it is bundled."""
    train_drafter(
        target_folder,
        greedy,
        out / name,
        objective=DrafterConfig(variable_prefix=name == "vp", anchors=20, objective="survival"),
        config=GREEDY,
        start=start,
        cache=out / "features-greedy.safetensors",
    )
    return out / name


def eagle3(out: Path, target_folder: Path, written: Path) -> Path:
    """The EAGLE-3 drafter, on the same responses."""
    folder, cache = out / "eagle3", out / "features-eagle3.safetensors"
    train_eagle3(
        target_folder,
        written,
        folder,
        objective=Eagle3Objective(),
        config=DRAFTERS,
        target_layer_ids=TARGET_LAYERS[::2],
        cache=cache,
    )
    return folder


def draft_model(data: Path, out: Path, target_folder: Path, written: Path) -> Path:
    """The autoregressive draft model, from the same responses."""
    _, held = Sources.read(data)
    texts = response_texts(target_folder, written)
    folder = out / "draft"
    tokenizer_from(target_folder, folder)
    train_target(texts, held.stories, folder, DRAFT_SHAPE, DRAFT_LOOP, row_length=384)
    return folder


def run(data: Path, out: Path) -> None:
    """All stages into ``out``, one folder each; ``out/bundle`` is what to keep, ``out/heldout.jsonl`` what to test on."""
    undecided = begun(data, out, unrepetitive(data, out, target(data, out)))
    written = responses(data, out, undecided)
    first, second = (first_drafter(out, name, undecided, written) for name in ("dflash", "vp"))
    target_folder = met(data, out, undecided, first)
    greedy = greedy_responses(data, out, target_folder)
    parts: dict[str, Callable[[], Path]] = {
        "target": lambda: target_folder,
        "dflash": lambda: drafter(out, "dflash", first, target_folder, greedy),
        "vp": lambda: drafter(out, "vp", second, target_folder, greedy),
        "eagle3": lambda: eagle3(out, target_folder, greedy),
        "draft": lambda: draft_model(data, out, target_folder, greedy),
    }
    for name, make in parts.items():
        ignored = shutil.ignore_patterns("checkpoint*", "metrics.jsonl")
        shutil.copytree(make(), out / "bundle" / name, ignore=ignored, dirs_exist_ok=True)
    write_jsonl(out / "heldout.jsonl", held_out_prompts(data, [plan.mix for plan in (*ROUNDS, UNLEARN, BEGUN, MEET)]))
