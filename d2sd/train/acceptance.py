"""The saved drafters of a training run, each replayed over the same texts; results are stored in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
from d2sd.trace.files import make_folder, write_whole
from d2sd.trace.progress import progress
from d2sd.trace.trace import Trace, load_trace
from d2sd.train.loop import digest_of
from d2sd.whatif import recorded_config, replayed

KEPT, TEXTS = "board.json", "board-texts"  # in the training folder: figures that were measured, and texts


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A drafter of a training run; step: None if its folder does not name it."""

    name: str
    step: int | None
    folder: Path


class Measured(msgspec.Struct, frozen=True):
    """Results of one drafter.

    weights: fingerprint of the drafter.
    committed: by text, the number of committed tokens of each step.
    cut: by text, whether it ended within the draft of its last step.
    date, versions: date of the measurement and versions of the packages.
    """

    weights: str
    committed: tuple[tuple[int, ...], ...]
    cut: tuple[bool, ...]
    date: str
    versions: str


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Returns the drafters in ``step-N`` in order of N, then the final one unless training is still running.

    Raises ``InputError`` if no drafter was saved during training.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give the one that `d2sd train` has as --out")
    numbers = (
        int(m[1]) for path in folder.glob("step-*/config.json") if (m := re.fullmatch(r"step-(\d+)", path.parent.name))
    )
    found = [Checkpoint(f"step-{n}", n, folder / f"step-{n}") for n in sorted(numbers)]
    if not found:
        raise InputError(
            f"{folder} holds no step-N folders: train with --keep-every N, which keeps a drafter there every N steps"
        )
    done = steps = None
    try:
        state = json.loads((folder / "checkpoint" / "state.json").read_text())
        done, steps = int(state["step"]), int(state["identity"]["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # a folder may be copied without what training resumes from
    if (folder / "config.json").is_file() and done == steps:
        found.append(Checkpoint("final", done, folder))
    return found


def with_checkpoint(models: Models, checkpoint: Checkpoint, dtype: str | None, role: str | None) -> Models:
    """Returns the models with a checkpoint's drafter.

    models: the target, and for second drafters the first one.
    dtype: of the target.
    role: of the drafter, ``first`` or ``second``; None for first, which refuses VP-Drafters.

    Raises ``InputError``, also if the drafter was trained for another target.
    """
    try:
        found = with_drafter(models, str(checkpoint.folder), dtype, role == "second")
    except InputError as error:
        if str(error).endswith("do not fit"):
            raise InputError(f"{error}; give the target that it was trained for with --target") from None
        raise
    if role == "second" and found.first is None:
        raise InputError("the drafter in --drafter is an EAGLE-3 one, which drafts alone; give a DFlash drafter")
    if role is None and found.first is not None and found.first.form.second_role:
        raise InputError(
            f"{checkpoint.folder} is a VP-Drafter, which drafts second: give --role second and its first drafter with "
            "--drafter, or --role first to measure it as a first one"
        )
    return found


def written_texts(
    engine: Engine, prompts: Sequence[tuple[str, Sequence[int]]], config: DecodeConfig, folder: Path
) -> list[Trace]:
    """Returns the target's greedy answers to prompts, each kept in ``folder`` as a trace and not decoded again.

    engine: the target, without drafters.
    prompts: text and token ids of each.
    config: of plain decoding.

    Raises ``InputError``.
    """
    origin = [_facts(engine.models), asdict(engine.resolve(config))]
    make_folder(folder)
    texts = []
    for prompt, ids in progress(prompts, desc="texts", unit="prompt", leave=False):
        path = folder / f"{digest_of([*origin, list(ids)])}.jsonl.gz"
        if not path.exists():
            trace = engine.generate(ids, config)
            replace(trace, header=trace.header | {"prompt": prompt}).save(path)
        texts.append(load_trace(path))
    return texts


def _facts(models: Models) -> dict[str, dict[str, Any]]:
    """What the models are, wherever they lie."""
    return {part: {name: f for name, f in own.items() if name != "name"} for part, own in parts(models).items()}


class Board:
    """Drafters over the same texts. Results are written to a file immediately, and read from it the next time."""

    def __init__(
        self, models: Models, texts: Sequence[Trace], path: Path, dtype: str | None = None, role: str | None = None
    ):
        """texts: greedy runs of this target, of at least two tokens each.
        path: the file.
        models, dtype, role: as for ``with_checkpoint``.
        Raises ``InputError`` where the file cannot be read.
        """
        self._models, self._texts, self._path, self._dtype, self._role = models, texts, path, dtype, role
        self.texts_digest = digest_of(
            [
                [list(t.prefill.prompt_token_ids) if t.prefill else [], t.token_ids, asdict(recorded_config(t))]
                for t in texts
            ]
        )
        self._kept: dict[str, Measured] = {}
        if path.exists():
            try:
                self._kept = msgspec.json.decode(path.read_bytes(), type=dict[str, Measured])
            except (OSError, msgspec.DecodeError) as error:
                raise InputError(
                    f"cannot read {path} ({first_line(error)}); remove it to measure its checkpoints again"
                ) from None

    def measure(self, checkpoint: Checkpoint) -> Measured:
        """Returns what the checkpoint's drafter commits over the texts, measured or read.

        Raises ``InputError``, as ``replayed`` does.
        """
        models = with_checkpoint(self._models, checkpoint, self._dtype, self._role)
        method = "d2sd" if self._role == "second" else "dflash" if models.first is not None else "eagle3"
        facts = _facts(models)
        key = digest_of([method, self.texts_digest, facts])
        if key not in self._kept:
            engine = Engine(models)
            texts = progress(self._texts, desc=checkpoint.name, unit="text", leave=False)
            outcomes = [replayed(engine, text, method) for text in texts]
            drafter = {"d2sd": "second_drafter", "dflash": "first_drafter", "eagle3": "eagle3"}[method]
            self._kept[key] = Measured(
                facts[drafter]["weights"],
                tuple(o.committed for o in outcomes),
                tuple(o.cut for o in outcomes),
                datetime.now(UTC).date().isoformat(),
                f"d2sd {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
            )
            write_whole(self._path, msgspec.json.encode(self._kept))
        return self._kept[key]
