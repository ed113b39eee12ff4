"""The bundled nets from nothing: corpus → target → its own responses → DFlash drafter → VP-Drafter → draft model.

Each stage writes into its own folder and is skipped or resumed when run again.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from d2sd.errors import InputError
from d2sd.trace.files import write_whole
from d2sd.train.data import normalise, read_documents
from d2sd.train.drafters import DrafterConfig
from d2sd.train.loop import LoopConfig
from d2sd.train.regenerate import RegenerateConfig
from d2sd.train.stages import regenerate_responses, response_texts, train_drafter, train_target
from d2sd.train.synthetic import documents, prompt_of
from d2sd.train.target import TargetShape

HELD_OUT_SEED, HELD_OUT_PROMPTS = 2_000_003, 80
HELD_OUT_SHARE = 40  # every 40th public story is held out
DOMAINS = ("stories", "sums", "code")


@dataclass(frozen=True, slots=True)
class Round:
    """One round over all nets, each from its weights of the round before; ``seed`` makes the round's texts new.

    synthetic: documents made per domain; story_repeats: how often the public stories are read; responses: prompts
    per domain that the target continues for its drafters; drafters: settings of DFlash drafter and VP-Drafter alike,
    one after the other from the same weights.
    """

    seed: int
    synthetic: dict[str, int]
    story_repeats: int
    target: LoopConfig
    responses: dict[str, int]
    drafters: tuple[LoopConfig, ...]


COMPILE = shutil.which("c++") is not None
ROUNDS = (
    Round(
        seed=1,
        synthetic={"stories": 12_000, "sums": 36_000, "code": 16_000},
        story_repeats=4,
        target=LoopConfig(steps=1300, batch_size=12, learning_rate=2.5e-3, warmup=60, compile=COMPILE, save_every=100),
        responses={"stories": 2_600, "sums": 2_400, "code": 2_000},
        drafters=(
            LoopConfig(steps=1000, batch_size=12, learning_rate=2e-3, warmup=60, seed=0),
            LoopConfig(steps=800, batch_size=12, learning_rate=1.5e-3, warmup=60, seed=1),
        ),
    ),
    Round(
        seed=2,
        synthetic={"stories": 16_000, "sums": 44_000, "code": 10_000},
        story_repeats=1,
        target=LoopConfig(
            steps=2000, batch_size=12, learning_rate=2e-3, warmup=60, compile=COMPILE, save_every=100, seed=2
        ),
        responses={"stories": 3_600, "sums": 2_400, "code": 1_800},
        drafters=(
            LoopConfig(steps=1200, batch_size=12, learning_rate=1.8e-3, warmup=60, seed=2),
            LoopConfig(steps=600, batch_size=12, learning_rate=1.5e-3, warmup=30, seed=3),
        ),
    ),
)


DRAFT_SHAPE = TargetShape(hidden_size=128, layers=2, heads=2, kv_heads=1, intermediate_size=384)
DRAFT_LOOP = LoopConfig(steps=1500, batch_size=12, learning_rate=4e-3, warmup=60, compile=COMPILE)


def public_stories(folder: Path) -> list[str]:
    """TinyStories found under ``folder`` (``tinystories*.txt``), one string a story."""
    stories = []
    for path in sorted(folder.glob("tinystories*.txt")):
        documents_ = list(read_documents(str(path)))
        if len(documents_) == 1:  # one story a paragraph group: single line breaks part them, blank lines do not
            documents_ = re.split(r"(?<!\n)\n(?!\n)", documents_[0])
        stories += [d.strip() for d in documents_ if len(d) > 200]
    if not stories:
        raise InputError(f"no tinystories*.txt in {folder}: give the folder that holds them with --stories")
    return stories


def corpus(folder: Path, plan: Round) -> tuple[list[str], list[str]]:
    """Training and held-out documents of a round, shuffled; held-out prompts never occur in its training text."""
    public = public_stories(folder)
    train = [s for i, s in enumerate(public) if i % HELD_OUT_SHARE] * plan.story_repeats
    held = [s for i, s in enumerate(public) if not i % HELD_OUT_SHARE]
    for domain in DOMAINS:
        train += list(documents(domain, plan.synthetic[domain], plan.seed))
        held += list(documents(domain, 100, HELD_OUT_SEED))
    seen = prompts_of(train)
    random.Random(plan.seed).shuffle(train)
    return train, [d for d in held if normalise(prompt_of(d)) not in seen]


def prompts_of(train: Iterable[str]) -> set[str]:
    """The prompts that these documents open with, as held-out prompts are compared."""
    return {normalise(prompt_of(d)) for d in train}


def held_out_prompts(domain: str, count: int, seen: set[str]) -> Iterator[dict[str, str]]:
    """Prompts of a domain that were never trained on; ``seen`` are those of every training document."""
    for document in documents(domain, 4 * count, HELD_OUT_SEED):
        prompt = prompt_of(document)
        if normalise(prompt) not in seen and count:
            count -= 1
            yield {"domain": domain, "prompt": prompt}


def write_jsonl(path: Path, rows: Iterator[dict[str, str]] | list[dict[str, str]]) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def drafter_prompts(train: list[str], plan: Round) -> list[str]:
    """Prompts for the target's responses: document openings, and for stories cuts at a random sentence end."""
    rng = random.Random(plan.seed + 1)
    prompts: dict[str, list[str]] = {domain: [] for domain in DOMAINS}
    for document in train:
        domain = "sums" if document.startswith("Question:") else "code" if document.startswith("# Task:") else "stories"
        if len(prompts[domain]) == plan.responses[domain]:
            continue
        prompt = prompt_of(document)
        if domain == "stories":
            ends = [m.end() for m in re.finditer(r'[.!?]"?(?= )', document[: len(document) // 2])]
            prompt = document[: rng.choice(ends)] if ends else prompt
        prompts[domain].append(prompt)
    return [p for group in prompts.values() for p in dict.fromkeys(group)]


def run(stories: Path, out: Path) -> None:
    """All stages into ``out``, one folder each; ``out/bundle`` is what to keep, ``out/heldout.jsonl`` what to test on."""
    parts: dict[str, Path] = {}
    seen: set[str] = set()
    for number, plan in enumerate(ROUNDS, 1):
        train, held = corpus(stories, plan)
        seen |= prompts_of(train)
        start, parts["target"] = parts.get("target"), out / f"target-{number}"
        train_target(train, held, parts["target"], TargetShape(), plan.target, row_length=384, start=start)
        responses = out / f"responses-{number}.jsonl"
        regenerate_responses(parts["target"], drafter_prompts(train, plan), responses, RegenerateConfig())
        for name in ("dflash", "vp"):
            for part, loop in enumerate(plan.drafters, 1):
                start, parts[name] = parts.get(name), out / f"{name}-{number}-{part}"
                train_drafter(
                    parts["target"],
                    responses,
                    parts[name],
                    objective=DrafterConfig(variable_prefix=name == "vp", anchors=20, objective="survival"),
                    config=loop,
                    target_layer_ids=[1, 3, 5],
                    start=start,
                )
    texts = response_texts(parts["target"], responses)
    train_target(texts, held, out / "draft", DRAFT_SHAPE, DRAFT_LOOP, row_length=384, tokenizer_of=parts["target"])
    parts["draft"] = out / "draft"
    rows = [row for domain in DOMAINS for row in held_out_prompts(domain, HELD_OUT_PROMPTS, seen)]
    write_jsonl(out / "heldout.jsonl", rows)
    for name, folder in parts.items():
        ignored = shutil.ignore_patterns("checkpoint*", "metrics.jsonl")
        shutil.copytree(folder, out / "bundle" / name, ignore=ignored, dirs_exist_ok=True)
