"""The bundled nets from nothing: corpus → target → its own responses → DFlash drafter → VP-Drafter.

Each stage writes into its own folder and is skipped or resumed when run again.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from d2sd.errors import InputError
from d2sd.train.data import normalise, pack, read_documents, train_tokenizer
from d2sd.train.loop import LoopConfig, train
from d2sd.train.synthetic import documents, prompt_of
from d2sd.train.target import NextToken, TargetShape, held_out_loss, new_target

TRAIN_SEED, HELD_OUT_SEED = 1, 2_000_003
SYNTHETIC = {"stories": 12_000, "sums": 36_000, "code": 16_000}
STORY_REPEATS = 4
HELD_OUT_SHARE = 40  # every 40th public story is held out


def public_stories(folder: Path) -> list[str]:
    """TinyStories found under ``folder`` (``tinystories*.txt``), one string a story."""
    stories = []
    for path in sorted(folder.glob("tinystories*.txt")):
        for document in read_documents(str(path)):
            parts = [document] if "<|endoftext|>" in path.read_text() else re.split(r"(?<!\n)\n(?!\n)", document)
            stories += [p.strip() for p in parts if len(p) > 200]
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


def train_target(documents_: list[str], held: list[str], out: Path, shape: TargetShape, config: LoopConfig,
                 row_length: int) -> None:  # fmt: skip
    """Tokenizer and target from documents, saved as a transformers folder ``out`` in bfloat16."""
    if (out / "tokenizer.json").exists():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(out)
    else:
        tokenizer = train_tokenizer(documents_, shape.vocab_size, shape.max_positions)
        tokenizer.save_pretrained(out)
    end = tokenizer.eos_token_id
    rows, held_rows = (pack(tokenizer, d, row_length, end) for d in (documents_, held))
    model = new_target(shape, tokenizer, config.seed)

    def sample(index, generator):
        return {"ids": rows[index].long()}

    train(
        NextToken(model), len(rows), sample, out, config, note="target",
        evaluate=lambda: {"held_out_loss": held_out_loss(model, held_rows[:96])},
    )  # fmt: skip
    model.bfloat16().save_pretrained(out, max_shard_size="9MB")
