"""Block drafter folders in any published layout: read by config, checked for complete weights, and written."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn
from transformers import Qwen3Config

from d2sd.errors import InputError
from d2sd.models.eagle3_folder import SHARD, published_config, token_ids, vocabulary_maps
from d2sd.models.form import DrafterForm
from d2sd.models.refusals import refuse_tensors
from d2sd.models.weight_files import read_weights, tensor_shapes, weight_files
from d2sd.nets.config_checks import check_finite, check_shapes
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.layouts import read_form

if TYPE_CHECKING:
    from d2sd.nets.target import Target

BORROWED = ("embed_tokens", "lm_head")
MAPS = ("d2t", "t2d")
log = logging.getLogger(__name__)


def read_drafter(source: str, name: str, dtype: torch.dtype, target: Target | None = None) -> DFlashDraftModel:
    """Returns the drafter in a folder or hub id, on the CPU, with ``name`` as its name.

    target: if given, copies of its embedding and LM head are dropped.

    Raises ``InputError`` if something is missing, unknown or wrong.
    """
    form = read_form(published_config(source))
    config = drafter_config_of(form)
    files = weight_files(source)
    held = {known: shape for key, shape in tensor_shapes(files).items() if (known := own_name(key)) is not None}
    own = tuple(part for part in BORROWED if f"{part}.weight" in held)
    check_shapes(held, partial(DFlashDraftModel, config, form, own))
    weights = {known: v for key, v in read_weights(files).items() if (known := own_name(key)) is not None}
    maps = {part: weights.pop(part, None) for part in MAPS}
    own = _differing(weights, target, own)
    with torch.device("meta"):
        model = DFlashDraftModel(config, form, own)
    _check_complete(model, weights)
    model.load_state_dict({k: v.to(dtype) for k, v in weights.items()}, assign=True)
    model.rotary_emb = type(model.rotary_emb)(config)  # its frequencies are computed, not stored
    if form.draft_vocabulary is not None:
        model.token_ids = token_ids(maps["d2t"], maps["t2d"], form.draft_vocabulary, config.vocab_size)
    check_finite(model)
    model.config.name_or_path = name
    return model.eval().requires_grad_(False)


def drafter_config_of(form: DrafterForm) -> Qwen3Config:
    """Returns the transformers config of a form."""
    inner = {"mask_token_id": form.mask_token, "target_layer_ids": list(form.taps)}
    settings: dict[str, Any] = {
        **form.shape,
        "block_size": form.rows,
        "dflash_config": inner,
        "tie_word_embeddings": False,
    }
    return Qwen3Config(**settings)


def own_name(key: str) -> str | None:
    """Returns our name of a published tensor; None for tensors used only in training."""
    key = key.removeprefix("model.").removeprefix("logit_head.")
    return None if key.startswith("verifier_") or key.endswith("rotary_emb.inv_freq") else key


def _differing(weights: dict[str, Tensor], target: Target | None, own: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of ``own`` that differ from the target's; equal ones are removed from the weights."""
    kept = []
    for part in own:
        key = f"{part}.weight"
        theirs: nn.Module | None = None
        if target is not None:
            theirs = target.embedding if part == "embed_tokens" else target.head
        table = getattr(theirs, "weight", None)
        if table is not None and table.shape == weights[key].shape:
            if _same(weights[key], table):
                del weights[key]
                continue
            log.warning(
                "the drafter's %s is not the target's, so its own is used: it was made for another target, or trained",
                key,
            )
        kept.append(part)
    return tuple(kept)


def _same(one: Tensor, other: Tensor) -> bool:
    """Returns whether two tables are equal up to the rounding of the coarser type."""
    coarse = max((one.dtype, other.dtype), key=lambda d: torch.finfo(d).eps if d.is_floating_point else 1.0)
    return bool(torch.equal(one.to(coarse), other.to(one.device, coarse)))


def _check_complete(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    wanted = {k: tuple(v.shape) for k, v in model.named_parameters()}
    missing, mismatched = sorted(set(wanted) - set(weights)), sorted(k for k in wanted.keys() & weights.keys() if tuple(weights[k].shape) != wanted[k])  # fmt: skip
    if missing:
        raise InputError(f"its weights do not match its config (missing keys {missing[:3]})")
    if mismatched:
        key = mismatched[0]
        raise InputError(f"its weights do not match its config ({key} is {tuple(weights[key].shape)}, and its config makes it {wanted[key]})")  # fmt: skip
    refuse_tensors(set(weights) - set(wanted))


def reshaped(drafter: DFlashDraftModel, form: DrafterForm) -> DFlashDraftModel:
    """Returns a drafter of another form with these weights; parameters that only the new form has are initialised."""
    made = DFlashDraftModel(drafter_config_of(form), form)
    made.load_state_dict(drafter.state_dict(), strict=False)
    made.token_ids = drafter.token_ids
    return cast(DFlashDraftModel, made.to(cast(Any, drafter.device)))


def save_speculators(model: DFlashDraftModel, folder: Path) -> None:
    """Write a drafter in the form of speculators; embedding and LM head stay the target's, whose rows it reads where it has a
    draft vocabulary."""
    form = model.form
    layer = {key: value for key, value in form.shape.items() if key != "num_target_layers"}
    vocabulary = form.shape["vocab_size"]
    published = {
        "architectures": ["DSparkSpeculator" if form.kind == "dspark" else "DFlashSpeculator"],
        "speculators_model_type": form.kind,
        "transformer_layer_config": {
            "model_type": "qwen3",
            **layer,
            "layer_types": ["full_attention"] * len(form.windows),
        },
        "block_size": form.rows,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in form.taps],
        "mask_token_id": form.mask_token,
        "draft_vocab_size": form.draft_vocabulary or vocabulary,
        "sample_from_anchor": form.reads == "next",
        **({"role": "second"} if form.second_role else {}),
        "markov_rank": form.markov_rank,
        "markov_head_type": form.markov,
        "enable_confidence_head": form.confidence is not None,
        "confidence_head_with_markov": form.confidence == "markov",
        "speculators_config": {
            "algorithm": form.kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": form.block_size - 1}],
        },
        "torch_dtype": str(model.dtype).removeprefix("torch."),
    }
    weights = {name: value.detach().cpu().contiguous() for name, value in model.named_parameters()}
    if model.token_ids is not None:
        weights |= vocabulary_maps(model.token_ids.cpu(), vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(published, indent=2) + "\n", encoding="utf-8")
    save_torch_state_dict(weights, folder, max_shard_size=SHARD)
