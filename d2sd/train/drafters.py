"""What the training of every drafter shares: the frozen target, its features on disk, held-out texts, and the run itself.

A training step needs the target's features of a few sequences. With a small target, the pass that computes them costs more
than the drafter's own, and several drafters learn from the same responses: then they are computed once. For a large target the
file is too large to be worth it: 2 bytes × hidden size × (taps + 1) a token.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

from d2sd.errors import InputError, first_line
from d2sd.folders.loading import widened_experts
from d2sd.folders.store import located
from d2sd.folders.weights import weights_digest
from d2sd.nets.dtypes import halve, halved, mixes_by_default, quick_bfloat16
from d2sd.nets.target import LayerTaps
from d2sd.nets.types import check_supported, text_options
from d2sd.trace.text import progress
from d2sd.train.acceptance import HeldOut
from d2sd.train.loop import digest, processes, train
from d2sd.train.settings import DrafterTraining
from d2sd.train.text import Responses, read_responses

FEATURE_BATCH = 32  # sequences of a pass that computes features

# Random choices of a batch: prompt lengths (B,), lengths (B,) and a generator → further inputs of the objective.
Choose = Callable[[Tensor, Tensor, torch.Generator], dict[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Material:
    """What a drafter learns from: the frozen target with its tokenizer, its responses, and held-out texts."""

    target: Any
    tokenizer: Any
    data: Responses
    held_out: HeldOut | None

    @classmethod
    def load(cls, settings: DrafterTraining) -> Material:
        """Returns what the settings name, and seeds torch for the drafter that is made next. Raises ``InputError``."""
        target, tokenizer = load_frozen(settings.target)
        held_out = None
        if settings.held_out is not None:
            held_out = HeldOut(target, tokenizer, settings.held_out, settings.chat)
        torch.manual_seed(settings.loop.seed)
        data = read_responses(settings.responses, settings.max_length, tokenizer.eos_token_id)
        return cls(target, tokenizer, data, held_out)


def fit(
    settings: DrafterTraining,
    material: Material,
    drafter: Any,
    objective: nn.Module,
    choose: Choose,
    save: Callable[[Any, Path], None],
    kind: str,
    identity: dict[str, Any],
) -> None:
    """Trains a drafter in place, resumes an interrupted run, and saves the drafter in bfloat16.

    objective: maps ids (B, S), lengths (B,), the tensors of ``choose`` and the target's features to a loss and metrics.
    choose: makes the random choices of a batch.
    save: writes a drafter into a folder.
    kind: of the drafter, ``dflash``, ``vp`` or ``eagle3``.
    identity: what must be the same to resume, besides the loop's settings and the responses.
    """
    data, features = material.data, None
    read = ("features", "hidden") if kind == "eagle3" else ("features",)
    if settings.cache is not None:
        with processes().main_process_first():
            features = cache_features(settings.cache, material.target, drafter.target_layer_ids, data)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        lengths = data.lengths[index]
        ids = data.ids[index, : int(lengths.max())].long()
        batch = {"ids": ids, "lengths": lengths, **choose(data.prompt_lengths[index], lengths, generator)}
        return batch if features is None else {**batch, **features.rows(index, ids.shape[1], read)}

    measure = None
    if material.held_out is not None:
        measure = partial(material.held_out.measure, drafter, "eagle3" if kind == "eagle3" else "dflash")

    def save_so_far(folder: Path) -> None:
        save(copy.deepcopy(drafter).bfloat16(), folder)

    identity = {**identity, "data": digest(data.ids)}
    if train(objective, len(data.ids), sample, settings.out, settings.loop, measure, kind, identity, save_so_far):
        save(drafter.bfloat16(), settings.out)


def load_frozen(source: str | Path) -> tuple[Any, Any]:
    """Returns a target in float32 on this process's device, without gradients, and its tokenizer.

    source: folder, hub id, or the name that ``d2sd get`` knows. Raises ``InputError``.
    """
    source = located(str(source))
    try:
        raw, _ = PreTrainedConfig.get_config_dict(source)
        config = AutoConfig.from_pretrained(source)
        check_supported(config, source)
        tokenizer = AutoTokenizer.from_pretrained(source)
        options = text_options(config) | widened_experts(raw)
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **options)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the target {source}: {first_line(error)}") from error
    return model.to(processes().device).eval().requires_grad_(False), tokenizer


class FeatureCache:
    """Features (tokens, taps·hidden) and last hidden states (tokens, hidden) of packed sequences, mapped from a file."""

    def __init__(self, path: Path, lengths: Tensor):
        with safe_open(path, "pt") as f:
            self._rows = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 (not a dict)
        self._starts = lengths.cumsum(0) - lengths
        self._lengths = lengths

    def rows(self, index: Tensor, width: int, names: Iterable[str]) -> dict[str, Tensor]:
        """``features`` (B, width, taps·hidden) or ``hidden`` (B, width, hidden) of these sequences, zero-padded."""
        out = {}
        for name in names:
            source = self._rows[name]
            batch = torch.zeros(len(index), width, source.shape[1], dtype=source.dtype)
            for row, number in enumerate(index.tolist()):
                start, length = int(self._starts[number]), int(self._lengths[number])
                batch[row, :length] = source[start : start + length]
            out[name] = batch
        return out


@torch.no_grad()
def cache_features(path: Path, target: Any, taps: list[int], data: Responses) -> FeatureCache:
    """Returns the cache at ``path``, computed first if it is missing or of other responses or taps.

    The target runs in the dtype in which the engine runs it: if that is mixed, its linear layers are replaced by ones with
    weights in float16.
    """
    note = path.with_suffix(".json")
    identity = {"data": digest(data.ids), "taps": taps, "target": weights_digest(target)}
    if not (path.exists() and note.exists() and json.loads(note.read_text()) == identity):
        layers = LayerTaps(target.model.layers)
        layers.add(taps)
        path.parent.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        sizes = {"features": len(taps) * target.config.hidden_size, "hidden": target.config.hidden_size}
        stored = _new_file(path, int(data.lengths.sum()), sizes)
        starts = data.lengths.cumsum(0) - data.lengths
        if mixes_by_default(target):
            halve(target.model.layers)
        autocast = quick_bfloat16() and not halved(target.model.layers)
        order = data.lengths.argsort()
        for batch in progress(order.split(FEATURE_BATCH), desc="features", mininterval=1):
            width = int(data.lengths[batch].max())
            with torch.autocast(target.device.type, torch.bfloat16, enabled=autocast):  # the file is no finer
                read = target.model(input_ids=data.ids[batch, :width].long().to(target.device), use_cache=False)
            last = read.last_hidden_state
            for name, found in (("features", layers.features(taps, last.device)), ("hidden", last)):
                rows = found.bfloat16().cpu()
                for row, number in enumerate(batch.tolist()):
                    start, length = int(starts[number]), int(data.lengths[number])
                    stored[name][start : start + length] = rows[row, :length]
        note.write_text(json.dumps(identity))
    return FeatureCache(path, data.lengths)


def _new_file(path: Path, tokens: int, sizes: dict[str, int]) -> dict[str, Tensor]:
    """A memory-mapped safetensors file of bfloat16 rows (tokens, size) by name; features may be larger than memory."""
    header: dict[str, Any] = {}
    end = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [tokens, size], "data_offsets": [end, end + 2 * tokens * size]}
        end += 2 * tokens * size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + end)
    whole = torch.from_file(str(path), shared=True, size=(8 + len(text) + end) // 2, dtype=torch.bfloat16)
    begins = {name: (8 + len(text) + entry["data_offsets"][0]) // 2 for name, entry in header.items()}
    return {n: whole[begins[n] : begins[n] + tokens * size].view(tokens, size) for n, size in sizes.items()}
