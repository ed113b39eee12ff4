"""The stages of training as functions of folders: regenerate, drafter. Each can be interrupted and resumed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

from d2sd.errors import InputError, first_line
from d2sd.folders.drafters import SHARD, save_speculators
from d2sd.folders.loading import DTYPES, load_drafter, load_target, quiet, widened_experts
from d2sd.folders.store import located
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.dtypes import halve, mixes_by_default
from d2sd.nets.target import Target
from d2sd.nets.types import check_supported, text_options
from d2sd.train.block_drafters import (
    DrafterConfig,
    DrafterObjective,
    draw_anchors,
    draw_prefixes,
    extended,
    new_drafter,
)
from d2sd.train.features import FeatureCache, cache_features
from d2sd.train.held_out import HeldOut
from d2sd.train.loop import LoopConfig, digest, processes, train
from d2sd.train.text import RegenerateConfig, Responses, read_jsonl, read_responses, regenerate

LAYERS, BLOCK_SIZE = 2, 16  # of a new drafter
OPTIONS = {"layers": "--layers", "block_size": "--block-size", "target_layer_ids": "--target-layers",
           "mask_token": "--mask-token"}  # fmt: skip


def load_frozen(source: str | Path) -> tuple[Any, Any]:
    """Target and tokenizer from a folder, a hub id or by the name that ``d2sd get`` knows, float32, on this process's device."""
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


def regenerate_responses(
    target: str | Path,
    prompts: Sequence[str],
    out: Path,
    config: RegenerateConfig,
    dtype: str | None = None,
    chat: bool = False,
) -> tuple[int, int]:
    """Let the target answer these prompts; see ``d2sd.train.text``. Returns how many answers are empty, and how many
    there are.

    chat: put each into the target's chat template. Without it, text that already begins with a special token gets no other.
    """
    writer = load_writer(target, dtype)
    room = writer.max_positions - config.max_new_tokens
    if room < 1:
        raise InputError(
            f"{config.max_new_tokens} new tokens leave no room for a prompt in this target's {writer.max_positions} "
            "positions; ask for fewer"
        )
    regenerate(writer, [prompt_ids(writer, p, chat)[-room:] for p in prompts if p.strip()], out, config)
    answers = [row["response_ids"] for row in read_jsonl(out, "response_ids")]
    return sum(answer[0] in writer.end_ids for answer in answers), len(answers)


def load_writer(target: str | Path, dtype: str | None) -> Target:
    """The target as the engine runs it, on this machine's first device.

    dtype: one of ``d2sd.nets.lean.DTYPES``; None: float32, with weights in float16 where the engine would take them so
    (``mixed``). Batched passes run transformers' own modules, so their linear layers are replaced.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    writer = load_target(str(target), DTYPES[dtype or "float32"], device)
    if dtype is None:
        dtype = "mixed" if mixes_by_default(writer.model) else "float32"
    if dtype == "mixed":
        halve(writer.base.layers)
    print(f"{writer.name} writes in {dtype}.", file=sys.stderr)
    return writer


def prompt_ids(target: Target, prompt: str, chat: bool) -> list[int]:
    """Token ids of a prompt; special tokens are added once, whether or not its text already begins with one."""
    if chat:
        return target.chat_ids(prompt, thinking=False)
    begun = prompt.startswith(tuple(target.tokenizer.all_special_tokens))
    return list(target.tokenizer(prompt, add_special_tokens=not begun)["input_ids"])


def train_drafter(
    target: str | Path,
    responses: Path,
    out: Path,
    *,
    objective: DrafterConfig,
    config: LoopConfig,
    layers: int | None = None,
    block_size: int | None = None,
    target_layer_ids: list[int] | None = None,
    mask_token: str | None = None,
    start: Path | None = None,
    max_length: int = 1024,
    cache: Path | None = None,
    own_tokens: bool = False,
    draft_vocab_size: int | None = None,
    markov_rank: int = 0,
    held_out: Path | None = None,
    chat: bool = False,
) -> None:
    """A drafter for ``target`` from its own responses, saved as a ``DFlashDraftModel`` folder in bfloat16.

    layers, block_size, target_layer_ids, mask_token: of a new drafter (default: LAYERS, BLOCK_SIZE, evenly spaced layers and
    the tokenizer's mask token), which begins with copies of the target's last layers.
    start: a drafter folder to begin from, which gives all four.
    cache: a file that keeps the target's features between runs; default: the target runs in every step.
    own_tokens: loss over the tokens that occur in the responses alone; train the last steps without it, so that
    confidence keeps its meaning.
    draft_vocab_size, markov_rank: added to the drafter, see ``d2sd.train.block_drafters.extended``; it is then saved in the form
    of speculators.
    held_out, chat: prompts that it is measured on at every save (``d2sd.train.held_out``), and whether they stand in the
    chat template.
    """
    shape = {"layers": layers, "block_size": block_size, "target_layer_ids": target_layer_ids, "mask_token": mask_token}
    if start is not None and (given := [OPTIONS[name] for name, value in shape.items() if value is not None]):
        raise InputError(f"the drafter to start from gives {', '.join(OPTIONS.values())}: leave out {', '.join(given)}")
    model, tokenizer = load_frozen(target)
    held = None if held_out is None else HeldOut(model, tokenizer, held_out, chat)
    torch.manual_seed(config.seed)
    data = read_responses(responses, max_length, tokenizer.eos_token_id)
    if start is not None:
        drafter: Any = load_drafter(str(start), torch.float32, str(model.device)).train().requires_grad_(True)
    else:
        drafter = new_drafter(
            model, tokenizer, data, layers=layers or LAYERS, block_size=block_size or BLOCK_SIZE,
            target_layer_ids=target_layer_ids, mask_token=mask_token,
        )  # fmt: skip
    drafter = extended(drafter, model, data, draft_vocab_size, markov_rank).train().requires_grad_(True)
    gamma = drafter.block_size
    if objective.variable_prefix:
        drafter.config.dflash_config["role"] = "second"
        drafter.form = replace(drafter.form, second_role=True)
    known = cached(cache, model, drafter.target_layer_ids, data)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        lengths = data.lengths[index]
        anchors = draw_anchors(data.prompt_lengths[index], lengths, objective.anchors, generator)
        shape = (len(index), objective.anchors)
        prefixes = torch.zeros(shape, dtype=torch.long)
        if objective.variable_prefix:
            prefixes = draw_prefixes(shape, gamma, objective.beta, generator)
        ids = data.ids[index, : int(lengths.max())].long()
        batch = {"ids": ids, "lengths": lengths, "anchors": anchors, "prefixes": prefixes}
        return batch if known is None else {**batch, **known.rows(index, ids.shape[1])}

    note = "vp" if objective.variable_prefix else "dflash"
    identity = {
        "objective": asdict(objective),
        "block_size": gamma,
        "target_layer_ids": drafter.target_layer_ids,
        "layers": len(drafter.layers),
        "data": digest(data.ids),
        "own_tokens": own_tokens,
        "draft_vocab_size": drafter.form.draft_vocabulary,
        "markov_rank": drafter.form.markov_rank,
    }
    tokens = data.ids.unique().long().to(model.device) if own_tokens else None
    net = DrafterObjective(drafter, model, objective, tokens)
    measure = None if held is None else partial(held.measure, drafter, "dflash")
    keep = partial(_keep, drafter)
    if train(net, len(data.ids), sample, out, config, measure, note, identity, keep):
        save_weights(drafter, out)


def _keep(drafter: Any, folder: Path) -> None:
    save_weights(copy.deepcopy(drafter), folder)


def cached(path: Path | None, target: Any, taps: list[int], data: Responses) -> FeatureCache | None:
    """The target's features of all responses, kept at ``path``; None where no path is given."""
    if path is None:
        return None
    with processes().main_process_first():
        return cache_features(path, target, taps, data, digest(data.ids))


def save_weights(model: Any, out: Path) -> None:
    """In bfloat16, in shards that a Space takes without large-file storage."""
    if isinstance(model, DFlashDraftModel) and model.form.layout == "speculators":
        save_speculators(model.bfloat16(), out)
    else:
        with quiet():
            model.bfloat16().save_pretrained(out, max_shard_size=SHARD)
