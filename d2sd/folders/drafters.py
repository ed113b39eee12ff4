"""Loads drafter folders in their published forms, and writes them. docs/drafter-format.md lists keys and tensor names.

Weights must be complete and in safetensors files. No code of a folder is run. Unsupported drafters are refused.
"""

from __future__ import annotations

import json
import logging
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor

from d2sd.errors import InputError
from d2sd.folders.checks import MAPS, config_checks, drafter_form, network, own_name, tensor_checks
from d2sd.folders.weights import read_weights, weight_files
from d2sd.nets.config_checks import check_finite
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import LAYERS, SHAPE, Eagle3Form

if TYPE_CHECKING:
    from d2sd.nets.target import Target

log = logging.getLogger(__name__)
SHARD = "9MB"  # per file; the limit of a Space without large-file storage


def read_drafter(
    source: str, name: str, dtype: torch.dtype, target: Target | None = None
) -> DFlashDraftModel | Eagle3DraftModel:
    """Returns the drafter in a folder or hub id, on the CPU, with ``name`` as its name. Shapes are checked before weights are read.

    target: the drafter's target, for which it is checked. The drafter's embedding and a block drafter's LM head are dropped if they
        equal the target's. None: EAGLE-3 is refused, and nothing is dropped.

    Raises ``InputError`` with the first fault of the folder (``d2sd.folders.checks``).
    """
    config = target and target.config
    form, files = drafter_form(source, config), weight_files(source)
    of_target = () if config is None else config_checks(form, config, second=True)
    for check in chain(of_target, tensor_checks(files, form)):
        if check.state == "fault":
            raise InputError("; ".join(filter(None, (check.finding, check.fix))))
    eagle3 = isinstance(form, Eagle3Form)
    weights = {own: tensor for key, tensor in read_weights(files).items() if (own := own_name(key)) is not None}
    d2t, _ = (weights.pop(part, None) for part in MAPS)
    model, theirs = network(form, weights), dict[str, Any]()
    if target is not None:
        theirs = {"embed_tokens": target.embedding} | ({} if eagle3 else {"lm_head": target.head})
    for part in theirs:
        table, key = getattr(theirs[part], "weight", None), f"{part}.weight"
        if key not in weights or table is None or table.shape != weights[key].shape:
            continue
        if _same(weights[key], table):
            del weights[key]
            setattr(model, part, None)
        else:
            log.warning(
                "the drafter's own %s is used, since it differs from the target's: this part was trained, or the drafter was "
                "made for another target",
                key,
            )
    model.load_state_dict({key: weight.to(dtype) for key, weight in weights.items()}, assign=True)
    model.rotary_emb = type(model.rotary_emb)(model.config)  # frequencies are not stored
    check_finite(model.eval().requires_grad_(False))
    if eagle3 or form.draft_vocabulary is not None:
        model.token_ids = torch.arange(form.drafted) + (0 if d2t is None else d2t.long())
    model.config.name_or_path = name
    return cast(DFlashDraftModel | Eagle3DraftModel, model)


def _same(one: Tensor, other: Tensor) -> bool:
    """Returns whether two tables are equal after rounding to the coarser one of their dtypes."""
    coarse = max((one.dtype, other.dtype), key=lambda d: torch.finfo(d).eps if d.is_floating_point else 1.0)
    return bool(torch.equal(one.to(coarse), other.to(one.device, coarse)))


def save_speculators(model: DFlashDraftModel, folder: Path) -> None:
    """Write a drafter in speculators' form. Parts that it takes from the target (embedding, LM head) are not written."""
    form = model.form
    layer = {key: value for key, value in form.shape.items() if key != "num_target_layers"}
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
        "draft_vocab_size": form.drafted,
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
    _save(folder, published, model, "layers.0.")


# Writing.


def _save(folder: Path, config: dict[str, Any], model: DFlashDraftModel | Eagle3DraftModel, layer: str) -> None:
    """Write ``config.json`` and safetensors files. ``layer``: published prefix of the names in the first layer."""
    weights = {key.replace("layers.0.", layer): w.detach().cpu().contiguous() for key, w in model.named_parameters()}
    if model.form.draft_vocabulary is not None and model.token_ids is not None:
        ids, present = model.token_ids.cpu(), torch.zeros(model.form.vocabulary, dtype=torch.bool)
        weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": present.index_fill(0, ids, True)}
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(weights, folder, max_shard_size=SHARD)
    # Written last: a folder with this file counts as a drafter.
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def save_eagle3(model: Eagle3DraftModel, folder: Path) -> None:
    """Write an EAGLE-3 drafter in the form of SpecForge and SGLang, which has no norms of queries and keys, and no embedding."""
    form, rope = model.form, model.form.shape["rope_parameters"]
    published = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{key: value for key, value in form.shape.items() if key in SHAPE},
        "rope_theta": rope["rope_theta"],
        "rope_scaling": None if rope["rope_type"] == "default" else dict(rope),
        "draft_vocab_size": form.drafted,
        "target_hidden_size": form.width,
        "norm_before_residual": form.norm_before_residual,
        "norm_output": form.norm_output,
        "fc_norm": form.fc_norm,
        "eagle_config": {LAYERS: list(form.taps), "use_aux_hidden_state": True},
        "tie_word_embeddings": False,
        "torch_dtype": str(model.dtype).removeprefix("torch."),
    }
    _save(folder, published, model, "midlayer.")
