"""Block drafter folders, read in any published layout: what the config describes, and weights that fit it, all of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config

from d2sd.errors import InputError
from d2sd.models.checking import check_finite, check_shapes
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.eagle3_folder import published_config, token_ids
from d2sd.models.form import DrafterForm
from d2sd.models.layouts import read_form
from d2sd.models.refusals import refuse_tensors
from d2sd.models.weight_files import read_weights, tensor_shapes, weight_files

if TYPE_CHECKING:
    from d2sd.models.target import Target

BORROWED = ("embed_tokens", "lm_head")
MAPS = ("d2t", "t2d")
log = logging.getLogger(__name__)


def read_drafter(source: str, name: str, dtype: torch.dtype, target: Target | None = None) -> DFlashDraftModel:
    """The drafter in a folder or hub id, on the CPU, called ``name``.

    target: where it is given, copies of its embedding and of its LM head are not kept. Raises ``InputError`` where something
    is missing, unknown or wrong.
    """
    form = read_form(published_config(source))
    config = drafter_config_of(form)
    files = weight_files(source)
    held = {known: shape for key, shape in tensor_shapes(files).items() if (known := own_name(key)) is not None}
    own = _own(form, held)
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
    """The transformers config of a described network."""
    inner = {"mask_token_id": form.mask_token, "target_layer_ids": list(form.taps)}
    settings: dict[str, Any] = {
        **form.shape,
        "block_size": form.rows,
        "dflash_config": inner,
        "tie_word_embeddings": False,
    }
    return Qwen3Config(**settings)


def own_name(key: str) -> str | None:
    """Our name of a published tensor, None for one that only training needs."""
    key = key.removeprefix("model.").removeprefix("logit_head.")
    return None if key.startswith("verifier_") or key.endswith("rotary_emb.inv_freq") else key


def _own(form: DrafterForm, held: Collection[str]) -> tuple[str, ...]:
    """Which of embedding and LM head the folder brings; of a smaller vocabulary the LM head must be its own."""
    there = tuple(part for part in BORROWED if f"{part}.weight" in held)
    if form.draft_vocabulary is not None and "lm_head" not in there:
        raise InputError(
            f"it drafts {form.draft_vocabulary} tokens of the vocabulary and has no lm_head.weight for them"
        )
    return there


def _differing(weights: dict[str, Tensor], target: Target | None, own: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``own`` that are no copies of the target's; copies are taken out of the weights."""
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
    """Whether two tables are equal up to the rounding of the coarser type."""
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
