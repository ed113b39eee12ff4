"""Drafter folders in every published layout, with random weights, and their settings for ``Reference``."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

H, V, HEADS, KV, D, FF, LAYERS, RANK, GROUP = 64, 300, 4, 2, 16, 96, 2, 8, 16
TAPS = [0, 1]
SHAPE = {
    "model_type": "qwen3", "vocab_size": V, "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": D, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
THETA = {"rope_theta": 10000.0, "rope_scaling": None}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 128}
MASK = {"mask_token_id": 1, "target_layer_ids": TAPS}
HEAD = {"markov_rank": RANK, "enable_confidence_head": True, "confidence_head_with_markov": True}
SECOND = {"conv_kernel_size": 2, "conv_group_size": GROUP, "selector_rank": RANK, "selector_top_k": 16}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6, "use_sliding_window": True}


def nested(name="DFlashDraftModel", **inner):
    return {
        "architectures": [name],
        **SHAPE,
        **THETA,
        "block_size": 6,
        "num_target_layers": 3,
        "dflash_config": {**MASK, **inner},
    }


def flat(**own):
    return {"architectures": ["Qwen3DSparkModel"], **SHAPE, **THETA, **MASK, "block_size": 5, "num_anchors": 9, **own}


def speculators(kind, **own):
    layer = {**SHAPE, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    return {
        "architectures": ["DSparkSpeculator"], "speculators_model_type": kind, "transformer_layer_config": layer, "block_size": 6,
        "aux_hidden_state_layer_ids": [n + 1 for n in TAPS], "mask_token_id": 1, "draft_vocab_size": V, **own,
    }  # fmt: skip


# name → config, and settings that differ from DFlash v1 with six rows
FOLDERS = {
    "dflash": (nested(), {}),
    "vp": (nested(training_mode="vp_drafter", prefix_weight_base=0.9), {}),
    "inner block": ({k: v for k, v in nested(block_size=5).items() if k != "block_size"}, {"rows": 5}),
    "sliding": ({**nested(), **SLIDING}, {"windows": [6, None], "causal": [True, False]}),
    "sliding both ways": ({**nested(), **SLIDING, "is_causal": False}, {"windows": [6, None]}),
    "swa": (nested(use_swa=True, swa_window_size=4), {"windows": [4, 4]}),
    "jetspec": (nested(causal_head=True), {"causal": [True, True]}),
    "yarn": ({**nested(), "rope_theta": 5000.0, "rope_scaling": {k: v for k, v in YARN.items() if k != "rope_theta"}}, {"rope": YARN}),
    "rope": ({**{k: v for k, v in nested().items() if k not in THETA}, "rope_parameters": YARN}, {"rope": YARN}),
    "deepspec": (flat(markov_rank=0, enable_confidence_head=False), {"reads": "next", "rows": 5}),
    "vanilla": (flat(**HEAD, markov_head_type="vanilla"), {"reads": "next", "rows": 5, "markov": "vanilla", "with_markov": True}),
    "gated": (
        nested("DSparkDraftModel", markov_rank=RANK, markov_head_type="gated", projector_type="dspark", attention_mode="gqa"),
        {"reads": "next", "markov": "gated"},
    ),
    "rnn": (
        nested("DSparkDraftModel", **{**HEAD, "confidence_head_with_markov": False}, markov_head_type="rnn"),
        {"reads": "next", "markov": "rnn", "with_markov": False},
    ),
    "confidence alone": (
        nested("DSparkDraftModel", enable_confidence_head=True),
        {"reads": "next", "with_markov": False},
    ),
    "speculators": (speculators("dflash", draft_vocab_size=100, sample_from_anchor=False), {"draft": 100}),
    "speculators dspark": (
        speculators("dspark", **HEAD, markov_head_type="vanilla", sample_from_anchor=True, draft_vocab_size=100),
        {"reads": "next", "markov": "vanilla", "with_markov": True, "draft": 100},
    ),
    "speculators rnn": (
        speculators("dspark", **HEAD, markov_head_type="rnn", speculators_config={"proposal_methods": [{"speculative_tokens": 5}]}),
        {"markov": "rnn", "with_markov": True},
    ),
    "dflash2": (nested("DFlash2DraftModel", **SECOND), {"top": 16}),
    "dflash2 scaled": (
        {**nested("DFlash2DraftModel", **SECOND, output_multiplier=0.5, final_logit_softcapping=3.0, input_embedding_scale=2.0),
         "layer_types": ["sliding_attention"] * 2, "sliding_window": 6, "is_causal": False},
        {"top": 16, "multiplier": 0.5, "cap": 3.0, "embedding_scale": 2.0, "windows": [6, 6]},
    ),
    "speculators dflash2": (speculators("dflash2", **SECOND), {"top": 16}),
}  # fmt: skip


def plan(name):
    """Settings of a folder for ``Reference``."""
    same = {"layers": LAYERS, "heads": HEADS, "kv_heads": KV, "head_dim": D, "rope": {"rope_theta": 10000.0}, "mask": 1, "rows": 6,
            "reads": "fill", "windows": [None] * LAYERS, "causal": [False] * LAYERS, "rank": RANK, "kernel": 2, "group": GROUP}  # fmt: skip
    own = FOLDERS[name][1]
    ids = torch.arange(own["draft"]) * 3 if "draft" in own else None
    return {**same, **own, "ids": ids}


def tensors(name, base=None, seed=5):
    """Weights by their published names. ``base``: weights of a v1 drafter, copied into the backbone."""
    generator = torch.Generator().manual_seed(seed)
    c = plan(name)

    def draw(*shape, scale=0.3):
        return torch.randn(*shape, generator=generator) * scale

    w = {"fc.weight": draw(H, len(TAPS) * H, scale=0.1), "hidden_norm.weight": 1 + draw(H), "norm.weight": 1 + draw(H)}
    for n in range(LAYERS):
        at = f"layers.{n}"
        for part, rows, columns in (("q", HEADS * D, H), ("k", KV * D, H), ("v", KV * D, H), ("o", H, HEADS * D)):
            w[f"{at}.self_attn.{part}_proj.weight"] = draw(rows, columns, scale=0.15)
        for part, rows, columns in (("gate", FF, H), ("up", FF, H), ("down", H, FF)):
            w[f"{at}.mlp.{part}_proj.weight"] = draw(rows, columns, scale=0.15)
        w |= {f"{at}.self_attn.{part}_norm.weight": 1 + draw(D) for part in "qk"}
        w |= {f"{at}.{part}_layernorm.weight": 1 + draw(H) for part in ("input", "post_attention")}
    if base is not None:
        w = {key: base[key].clone() for key in w}
        w["fc.weight"] = torch.cat([torch.zeros(H, H), w["fc.weight"]], 1)  # so that it reads the second layer only
    drafted = c.get("draft", V)
    if c.get("markov"):
        w |= {"markov_head.markov_w1.weight": draw(V, RANK), "markov_head.markov_w2.weight": draw(drafted, RANK)}
        if c["markov"] == "gated":
            w |= {"markov_head.gate_proj.weight": draw(RANK, H + RANK), "markov_head.gate_proj.bias": draw(RANK)}
        if c["markov"] == "rnn":
            w |= {
                "markov_head.joint_proj.weight": draw(3 * RANK, 2 * RANK + H),
                "markov_head.joint_proj.bias": draw(3 * RANK),
            }
    if "with_markov" in c:
        width = H + (RANK if c["with_markov"] else 0)
        w |= {"confidence_head.proj.weight": draw(1, width, scale=0.1), "confidence_head.proj.bias": draw(1)}
    if "top" in c:
        for n in range(LAYERS):
            for part in ("attention_conv", "mlp_conv"):
                kernel = draw(2, 2, H, scale=0.1)
                kernel[:, 0] += 1
                w[f"layers.{n}.{part}.base_kernel"] = kernel
                w[f"layers.{n}.{part}.kernel_projection.weight"] = draw(2 * 2 * H // GROUP, H, scale=0.02)
        w |= {f"candidate_selector.{part}_codebook": draw(V, RANK) for part in ("predecessor", "successor")}
        w["candidate_selector.hidden_projection.weight"] = draw(RANK, H, scale=0.1)
    return w


def write(name, folder: Path, target, base=None) -> dict[str, torch.Tensor]:
    """Writes the folder, sometimes with copies of target tensors or old names; returns tensors for ``Reference``."""
    config, c = FOLDERS[name][0], plan(name)
    weights = tensors(name, base)
    stored = dict(weights)
    if "draft" in c:
        weights["lm_head.weight"] = stored["lm_head.weight"] = target.head.weight[c["ids"]].clone()
        present = torch.zeros(V, dtype=torch.bool)
        present[c["ids"]] = True
        stored |= {"d2t": c["ids"] - torch.arange(c["draft"]), "t2d": present, "verifier_norm.weight": torch.ones(H)}
    if "architectures" in config and config["architectures"] == ["Qwen3DSparkModel"]:
        stored |= {"embed_tokens.weight": target.embedding.weight.clone(), "lm_head.weight": target.head.weight.clone()}
    if name == "rnn":
        stored = {
            ("logit_head." + k if k.startswith(("markov_head", "confidence_head")) else k): v for k, v in stored.items()
        }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous() for k, v in stored.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    return weights
