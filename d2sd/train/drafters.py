"""Trains any kind of drafter on a file of responses, and measures the drafter on held-out texts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from d2sd.errors import InputError, first_line
from d2sd.folders.configs import published_config
from d2sd.folders.fingerprint import fingerprint, write_fingerprint
from d2sd.folders.loading import supported_config, widened_experts
from d2sd.folders.model_sets import target_folder
from d2sd.nets.types import text_config, text_options
from d2sd.trace.files import writing
from d2sd.train.acceptance import HeldOut
from d2sd.train.features import batch_of, read_features
from d2sd.train.loop import digest, train
from d2sd.train.settings import DrafterTraining
from d2sd.train.text import Responses, read_responses


@dataclass(frozen=True, slots=True)
class Material:
    """What a drafter is trained with: the frozen target, its tokenizer and its responses."""

    target: Any
    tokenizer: Any
    data: Responses

    @classmethod
    def load(cls, settings: DrafterTraining) -> Material:
        """Loads the target and its responses, and seeds torch for the drafter's initial weights. Raises ``InputError`` if loading
        fails.
        """
        target, tokenizer = load_frozen(settings.target)
        data = read_responses(settings.responses, settings.max_length, tokenizer.eos_token_id)
        torch.manual_seed(settings.loop.seed)
        return cls(target, tokenizer, data)


def fit(
    settings: DrafterTraining,
    material: Material,
    objective: Any,
    save: Callable[[Any, Path], None],
    kind: str,
    identity: dict[str, Any],
) -> None:
    """Trains a drafter in place, and saves it in bfloat16. If an earlier run was interrupted, resumes it.

    objective: module with the drafter as ``drafter``. Its method ``draw`` returns random inputs for a batch. Its forward pass
        returns the loss and metrics of a batch, given ids (B, S), text lengths (B,), these random inputs, and the target's features
        that ``reads`` names.
    save: function that writes a drafter into a folder.
    kind: kind of drafter: ``dflash``, ``vp`` or ``eagle3``.
    identity: further values that must be the same as in the interrupted run; the loop's settings and the responses are always
        compared.
    """
    data, loop, drafter, features, measure = material.data, settings.loop, objective.drafter, None, None
    if loop.steps * loop.batch_size >= len(data.ids):  # every response is used, so compute all features first
        features = read_features(material.target.model, drafter.target_layer_ids, data, objective.reads)
    if settings.held_out is not None:
        held_out = HeldOut.read(material.target, material.tokenizer, settings.held_out, settings.chat)
        method = "eagle3" if kind == "eagle3" else "dflash"
        measure = lambda _: held_out.measure(method, drafter)  # noqa: E731

    mark = fingerprint(str(settings.target), material.tokenizer, text_config(material.target.config), drafter)

    def save_so_far(folder: Path) -> None:
        save_marked(save, drafter, folder, mark)

    identity = {**identity, "data": digest(data.ids)}
    batch = partial(batch_of, objective, data, features)
    train(objective, len(data.ids), batch, settings.out, loop, measure, kind, identity, save_so_far)
    save_so_far(settings.out)


def save_marked(save: Callable[[Any, Path], None], drafter: Any, folder: Path, mark: Mapping[str, Any]) -> None:
    """Saves a copy of a drafter in bfloat16, and its fingerprint. Raises ``InputError`` if that fails.

    save: as for ``fit``.
    mark: result of ``fingerprint``.
    """
    with writing(folder, SafetensorError):
        save(copy.deepcopy(drafter).bfloat16(), folder)
        write_fingerprint(folder, mark)


def load_frozen(source: str | Path) -> tuple[Any, Any]:
    """Returns a frozen target in float32, on the first GPU (on the CPU if there is no GPU), and the target's tokenizer.

    source: folder, hub id, bundled preset, or a name known to ``d2sd get``. Raises ``InputError`` if loading fails.
    """
    source = target_folder(str(source))
    try:
        raw = published_config(source)
        options = text_options(supported_config(raw, source)) | widened_experts(raw)
        tokenizer = AutoTokenizer.from_pretrained(source)
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **options)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the target {source}: {first_line(error)}") from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval().requires_grad_(False), tokenizer
