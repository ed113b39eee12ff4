"""Measures α of a training run's drafters, by replaying each drafter over the same texts of the target.

``HeldOut`` measures the current drafter at every save. ``Board`` measures all saved drafters after training, and stores α in a file.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

from d2sd.__about__ import __version__
from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError, first_line
from d2sd.folders.loading import with_drafter
from d2sd.folders.weights import parts
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.trace.events import Committed, PrefillDone
from d2sd.trace.files import make_folder, write_whole
from d2sd.trace.text import progress
from d2sd.trace.trace import Trace
from d2sd.train.loop import digest_of
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import read_jsonl, respond_to
from d2sd.whatif import Replay, recorded_config, replayed

HELD_OUT_TOKENS = 128  # maximum tokens of an answer
RESULTS, TEXTS = "board.json", "board-texts"  # file and folder in the training folder


class HeldOut:
    """The target's greedy answers to held-out prompts. During training, drafters are replayed over these answers.

    lengths: number of tokens of each answer.
    """

    def __init__(self, target: Target, texts: Iterable[tuple[Sequence[int], Sequence[int]]]):
        """texts: token ids of each prompt and of the target's answer. Leaves out answers without a token to draft. Also leaves out
        answers that the target would not write without batching, since batched passes round differently."""
        self._target = target
        # not flashinfer: compiling its kernels takes a minute of the training time
        self._backend = "cascade" if target.device.type == "cuda" else "auto"
        engine, given = Engine(Models(target), passes="eager"), [_recorded(*text) for text in texts]
        self._texts: list[Trace] = []
        for text in given:
            with suppress(InputError):
                Replay(engine, text)
                self._texts.append(text)
        self.lengths = [len(text.token_ids) for text in self._texts]
        if left_out := len(given) - len(self._texts):
            print(
                f"Held-out prompts: {left_out} of {len(given)} answers cannot be used: empty, or different without batching.",
                file=sys.stderr,
            )

    @classmethod
    def read(cls, model: Any, tokenizer: Any, path: Path, chat: bool) -> HeldOut:
        """Lets the target answer the prompts of ``path``, a file of JSON lines with ``prompt``.

        model: the frozen target. A copy with the same weight tensors is measured, so that training is not affected.
        chat: whether to put prompts into the chat template.

        Raises ``InputError`` if the file cannot be read, or if no answer can be used.
        """
        if not path.is_file():
            raise InputError(f"there is no prompt file {path}")
        weights = {id(w): w for w in (*model.parameters(), *model.buffers())}
        target = Target(copy.deepcopy(model, weights), tokenizer, "target")
        engine, config = Engine(Models(target)), DecodeConfig("autoregressive", HELD_OUT_TOKENS, chat=chat)
        prompts = [engine.encode(row["prompt"], config) for row in read_jsonl(path, "prompt")]
        answers = respond_to(target, prompts, RegenerateConfig(max_new_tokens=HELD_OUT_TOKENS))
        found = cls(target, zip(prompts, answers, strict=True))
        if not found.lengths:
            raise InputError(
                "none of the target's answers to the held-out prompts can be used: they are empty, or different without batching; "
                "a chat model needs --chat"
            )
        return found

    def measure(
        self, method: str, first: Any, second: Any = None, most: int | None = None, tokens: int | None = None
    ) -> dict[str, float]:
        """Measures drafters during training, with their weights rounded to bfloat16 as in saved drafters. Returns these figures:

        held_out_acceptance_length: α, the number of committed tokens per step.
        held_out_draft_length: mean number of accepted drafted tokens per step, leaving out the last step of each text.
        held_out_first_right: share of steps with an accepted drafted token, leaving out the last step of each text.

        method: ``eagle3``, ``dflash`` (also for a VP-Drafter that drafts alone), or a method with two drafters.
        most: number of texts to measure on, the first ones; None for all texts.
        tokens: maximum tokens of each text; None for whole texts.
        """
        saved = [
            copy.deepcopy(d).bfloat16().to(self._target.dtype).eval().requires_grad_(False)
            for d in (first, second or first)
        ]
        roles = {"eagle3": saved[0]} if method == "eagle3" else {"first": saved[0], "second": saved[1]}
        engine = Engine(Models(self._target, **roles), passes="eager")
        config = DecodeConfig(method, HELD_OUT_TOKENS, inspect=False, backend=self._backend)
        if method == "d2sd":  # a short block has fewer prefixes to re-draft from
            config = replace(config, num_branches=min(config.num_branches, first.block_size - 1))
        config = engine.resolve(config)
        steps = [next(Replay(engine, text, tokens).run([config])).committed for text in self._texts[:most]]
        accepted = [count - 1 for text in steps for count in text[:-1]]
        return {
            "held_out_acceptance_length": sum(map(sum, steps)) / sum(map(len, steps)),
            "held_out_draft_length": sum(accepted) / max(1, len(accepted)),
            "held_out_first_right": sum(count > 0 for count in accepted) / max(1, len(accepted)),
        }


def _recorded(prompt: Sequence[int], text: Sequence[int]) -> Trace:
    """Returns a greedy text as a recorded run with only the fields that a replay reads."""
    committed = tuple(Committed(token, "", "target", None) for token in text)
    config = DecodeConfig("autoregressive", HELD_OUT_TOKENS)
    return Trace({"config": asdict(config)}, PrefillDone(tuple(prompt), (), 0.0, committed), (), None)


# Checkpoints of a training run.


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A drafter saved by a training run. step: number of training steps before the save; None if unknown."""

    name: str
    step: int | None
    folder: Path


class DrafterResults(msgspec.Struct, frozen=True):
    """Results of one drafter.

    weights: fingerprint of the drafter's weights.
    committed: for each text, the number of committed tokens of each step.
    cut: for each text, whether the text ended within the draft of its last step.
    date, versions: date of the measurement, and versions of the packages that it used.
    """

    weights: str
    committed: tuple[tuple[int, ...], ...]
    cut: tuple[bool, ...]
    date: str
    versions: str


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Returns the drafters in the folders ``step-N``, ordered by N. The final drafter comes last, unless training is unfinished.

    Raises ``InputError`` if there is no folder ``step-N``.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give the --out folder of `d2sd train`")
    numbers = (
        int(m[1]) for path in folder.glob("step-*/config.json") if (m := re.fullmatch(r"step-(\d+)", path.parent.name))
    )
    found = [Checkpoint(f"step-{n}", n, folder / f"step-{n}") for n in sorted(numbers)]
    if not found:
        raise InputError(
            f"{folder} contains no step-N folders: train with --keep-every N to save a drafter every N steps"
        )
    done = steps = None
    try:
        state = json.loads((folder / "checkpoint" / "state.json").read_text())
        done, steps = int(state["step"]), int(state["identity"]["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the folder may be a copy without the training checkpoint
    if (folder / "config.json").is_file() and done == steps:
        found.append(Checkpoint("final", done, folder))
    return found


def with_checkpoint(models: Models, checkpoint: Checkpoint, dtype: str | None) -> Models:
    """Returns the models with a checkpoint's drafter added.

    models: the target, and the first drafter if the checkpoint is a second drafter.
    dtype: number type of the target.

    Raises ``InputError`` if the drafter cannot be loaded, was trained for another target, or does not fit the first drafter.
    """
    second = models.first is not None or models.eagle3 is not None
    try:
        found = with_drafter(models, str(checkpoint.folder), dtype, second)
    except InputError as error:
        if str(error).endswith("do not fit"):
            raise InputError(f"{error}; use --target to name the target that it was trained for") from None
        raise
    if second and found.first is None:
        raise InputError(
            "--drafter names an EAGLE-3 drafter, which cannot be combined with a second drafter; give a DFlash drafter"
        )
    if not second and found.first is not None and found.first.form.second_role:
        raise InputError(
            f"{checkpoint.folder} is a VP-Drafter, which drafts second: give its first drafter with --drafter"
        )
    return found


def text_paths(engine: Engine, prompts: Sequence[Sequence[int]], config: DecodeConfig, folder: Path) -> list[Path]:
    """Returns, for each prompt, the path at which the target's greedy answer is stored. Creates the folder.

    The file's name is a digest of target, settings and prompt.

    engine: engine with only the target.
    prompts: token ids of each prompt.
    config: settings of plain decoding.
    """
    origin = [_facts(engine.models), asdict(engine.resolve(config))]
    make_folder(folder)
    return [folder / f"{digest_of([*origin, list(ids)])}.jsonl.gz" for ids in prompts]


def _facts(models: Models) -> dict[str, dict[str, Any]]:
    return {part: {name: f for name, f in own.items() if name != "name"} for part, own in parts(models).items()}


class Board:
    """Measures drafters over the same texts. A drafter's results are saved immediately, and later runs reuse them."""

    def __init__(self, models: Models, texts: Sequence[Trace], path: Path, dtype: str | None = None):
        """Raises ``InputError`` if ``path`` exists but cannot be read.

        models, dtype: as for ``with_checkpoint``.
        texts: recorded greedy runs of the target, of at least two tokens each.
        path: file of the results.
        """
        self._models, self._texts, self._path, self._dtype = models, texts, path, dtype
        prompts = [list(text.prefill.prompt_token_ids) if text.prefill else [] for text in texts]
        written = [[text.token_ids, asdict(recorded_config(text))] for text in texts]
        self.texts_digest = digest_of([[prompt, *text] for prompt, text in zip(prompts, written, strict=True)])
        self._results: dict[str, DrafterResults] = {}
        if path.exists():
            try:
                self._results = msgspec.json.decode(path.read_bytes(), type=dict[str, DrafterResults])
            except (OSError, msgspec.DecodeError) as error:
                raise InputError(
                    f"cannot read {path} ({first_line(error)}); delete it to measure the checkpoints again"
                ) from None

    def measure(self, checkpoint: Checkpoint) -> DrafterResults:
        """Returns the results of a checkpoint. If the checkpoint was measured before, the results come from the file.

        Raises ``InputError`` as ``with_checkpoint`` and ``replayed`` do.
        """
        models = with_checkpoint(self._models, checkpoint, self._dtype)
        method = "d2sd" if self._models.first is not None else "dflash" if models.first is not None else "eagle3"
        facts = _facts(models)
        key = digest_of([method, self.texts_digest, facts])
        if key not in self._results:
            engine = Engine(models)
            texts = progress(self._texts, desc=checkpoint.name, unit="text", leave=False)
            outcomes = [replayed(engine, text, method) for text in texts]
            drafter = {"d2sd": "second_drafter", "dflash": "first_drafter", "eagle3": "eagle3"}[method]
            self._results[key] = DrafterResults(
                facts[drafter]["weights"],
                tuple(o.committed for o in outcomes),
                tuple(o.cut for o in outcomes),
                datetime.now(UTC).date().isoformat(),
                f"d2sd {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
            )
            write_whole(self._path, msgspec.json.encode(self._results))
        return self._results[key]
