"""The bundled nets from nothing: corpus → target → its own responses → DFlash drafter → VP-Drafter.

Each stage writes into its own folder and is skipped or resumed when run again.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from d2sd.errors import InputError
from d2sd.train.data import normalise, read_documents
from d2sd.train.drafters import DrafterConfig
from d2sd.train.loop import LoopConfig
from d2sd.train.regenerate import RegenerateConfig
from d2sd.train.stages import regenerate_responses, train_drafter, train_target
from d2sd.train.synthetic import documents, prompt_of
from d2sd.train.target import TargetShape

TRAIN_SEED, HELD_OUT_SEED = 1, 2_000_003
SYNTHETIC = {"stories": 12_000, "sums": 36_000, "code": 16_000}
STORY_REPEATS = 4
RESPONSES = {"stories": 2_600, "sums": 2_400, "code": 2_000}
TARGET_LOOP = LoopConfig(
    steps=1300, batch_size=12, learning_rate=2.5e-3, warmup=60, compile=shutil.which("c++") is not None, save_every=100
)
# two rounds, the second from the weights of the first; both drafters get the same steps
DRAFTER_ROUNDS = (
    LoopConfig(steps=1000, batch_size=12, learning_rate=2e-3, warmup=60, seed=0),
    LoopConfig(steps=800, batch_size=12, learning_rate=1.5e-3, warmup=60, seed=1),
)
HELD_OUT_SHARE = 40  # every 40th public story is held out


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


def corpus(folder: Path) -> tuple[list[str], list[str]]:
    """Training and held-out documents of the tiny recipe, shuffled; held-out prompts never occur in training."""
    public = public_stories(folder)
    train = [s for i, s in enumerate(public) if i % HELD_OUT_SHARE] * STORY_REPEATS
    held = [s for i, s in enumerate(public) if not i % HELD_OUT_SHARE]
    seen = {normalise(prompt_of(s)) for s in train}
    for domain, count in SYNTHETIC.items():
        made = list(documents(domain, count, TRAIN_SEED))
        train += made
        seen |= {normalise(prompt_of(d)) for d in made}
        held += list(documents(domain, 100, HELD_OUT_SEED))
    random.Random(TRAIN_SEED).shuffle(train)
    return train, [d for d in held if normalise(prompt_of(d)) not in seen]


def held_out_prompts(domain: str, count: int, train: list[str]) -> Iterator[dict[str, str]]:
    """Prompts of a domain that were never trained on, checked against every training document."""
    seen = {normalise(prompt_of(d)) for d in train}
    for document in documents(domain, 4 * count, HELD_OUT_SEED):
        prompt = prompt_of(document)
        if normalise(prompt) not in seen and count:
            count -= 1
            yield {"domain": domain, "prompt": prompt}


def write_jsonl(path: Path, rows: Iterator[dict[str, str]] | list[dict[str, str]]) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")


def drafter_prompts(train: list[str]) -> list[str]:
    """Prompts for the target's responses: document openings, and for stories cuts at a random sentence end."""
    rng = random.Random(TRAIN_SEED + 1)
    prompts: dict[str, list[str]] = {domain: [] for domain in RESPONSES}
    for document in train:
        domain = "sums" if document.startswith("Question:") else "code" if document.startswith("# Task:") else "stories"
        if len(prompts[domain]) == RESPONSES[domain]:
            continue
        prompt = prompt_of(document)
        if domain == "stories":
            ends = [m.end() for m in re.finditer(r'[.!?]"?(?= )', document[: len(document) // 2])]
            prompt = document[: rng.choice(ends)] if ends else prompt
        prompts[domain].append(prompt)
    return [p for group in prompts.values() for p in dict.fromkeys(group)]


def run(stories: Path, out: Path) -> None:
    """All stages into ``out``, one folder each; ``out/bundle`` is what to keep, ``out/heldout.jsonl`` what to test on."""
    train, held = corpus(stories)
    target = out / "target"
    train_target(train, held, target, TargetShape(), TARGET_LOOP, row_length=384)
    responses = out / "responses.jsonl"
    regenerate_responses(target, drafter_prompts(train), responses, RegenerateConfig())
    rows = [row for domain in SYNTHETIC for row in held_out_prompts(domain, 40, train)]
    write_jsonl(out / "heldout.jsonl", rows)
    parts = {"target": target}
    for name, variable in (("dflash", False), ("vp", True)):
        for number, loop in enumerate(DRAFTER_ROUNDS, 1):
            start, parts[name] = parts.get(name), out / f"{name}-{number}"
            train_drafter(
                target,
                responses,
                parts[name],
                objective=DrafterConfig(variable_prefix=variable, anchors=20, objective="survival"),
                config=loop,
                target_layer_ids=[1, 3, 5],
                start=start,
            )
    for name, folder in parts.items():
        ignored = shutil.ignore_patterns("checkpoint*", "metrics.jsonl")
        shutil.copytree(folder, out / "bundle" / name, ignore=ignored, dirs_exist_ok=True)
