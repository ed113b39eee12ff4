"""Writes drafter folders in their published formats. docs/drafter-format.md lists keys and tensor names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict

from d2sd.nets.config_checks import EAGLE3_OPTIONS
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import LAYERS, SHAPE

SHARD = "9MB"  # per file; the limit of a Space without large-file storage


def save_speculators(model: DFlashDraftModel, folder: Path) -> None:
    """Writes a drafter in speculators' format. Embedding and LM head are not written if the drafter takes them from the target."""
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
    }
    _save(folder, published, model, "layers.0.")


def save_eagle3(model: Eagle3DraftModel, folder: Path) -> None:
    """Writes an EAGLE-3 drafter in the format of SpecForge and SGLang, without norms of queries and keys, and without an embedding."""
    form, rope = model.form, model.form.shape["rope_parameters"]
    published = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{key: value for key, value in form.shape.items() if key in SHAPE},
        "rope_theta": rope["rope_theta"],
        "rope_scaling": None if rope["rope_type"] == "default" else dict(rope),
        "target_hidden_size": form.width,
        **{option: getattr(form, option) for option in EAGLE3_OPTIONS},
        "eagle_config": {LAYERS: list(form.taps), "use_aux_hidden_state": True},
        "tie_word_embeddings": False,
    }
    _save(folder, published, model, "midlayer.")


def _save(folder: Path, config: dict[str, Any], model: DFlashDraftModel | Eagle3DraftModel, layer: str) -> None:
    """Writes ``config.json`` and safetensors files.

    layer: prefix of the published tensor names in the first layer.
    """
    weights = {key.replace("layers.0.", layer): w.detach().cpu().contiguous() for key, w in model.named_parameters()}
    if model.form.draft_vocabulary is not None and model.token_ids is not None:
        ids, present = model.token_ids.cpu(), torch.zeros(model.form.vocabulary, dtype=torch.bool)
        weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": present.index_fill(0, ids, True)}
    config |= {"draft_vocab_size": model.form.drafted, "torch_dtype": str(model.dtype).removeprefix("torch.")}
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(weights, folder, max_shard_size=SHARD)
    # Written last: a folder with this file counts as a drafter.
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
