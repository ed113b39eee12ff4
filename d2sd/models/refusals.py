"""Unsupported drafters: how they are recognised, and which engine runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from d2sd.errors import InputError

Raw = Mapping[str, Any]
ENGINES = "vLLM or SGLang"

# Flags that are understood, or that say nothing about what the network computes.
KNOWN_FLAGS = frozenset(
    {"attention_bias", "mlp_bias", "use_cache", "tie_word_embeddings", "return_dict", "is_causal", "causal", "causal_head",
     "use_swa", "use_sliding_window", "enable_confidence_head", "confidence_head_with_markov", "sample_from_anchor",
     "sliding_window_non_causal", "tie_weights", "gradient_checkpointing", "scale_loss"}
)  # fmt: skip
# Other values of these change what is computed, and no code here knows how.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",), "logit_scale": (1,), "attention_value_scale": (1,), "partial_rotary_factor": (1,), "mask_embedding": (),
    "hc_mult": (1,), "attention_dropout": (0,), "pretraining_tp": (1,), "embedding_multiplier": (1,), "residual_multiplier": (1,),
    "add_attention_sink": (False,), "add_attention_sinks": (False,), "attention_sinks": (False,), "add_swa_attention_sink_bias": (False,),
    "add_full_attention_sink_bias": (False,), "attention_sink_bias": (False,), "enable_d2_feature": (False,),
}  # fmt: skip
WHAT = {
    "add_attention_sink": "attention sinks", "add_attention_sinks": "attention sinks", "attention_sinks": "attention sinks",
    "add_swa_attention_sink_bias": "attention sinks", "add_full_attention_sink_bias": "attention sinks",
    "attention_sink_bias": "attention sinks",
}  # fmt: skip
LATENT = ("kv_lora_rank", "q_lora_rank", "dspark_block_size")
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")


def refuse_others(raw: Raw) -> None:
    """Raise ``InputError`` if a config belongs to an unsupported kind of drafter."""
    names = (
        [n for n in raw.get("architectures") or () if isinstance(n, str)]
        if isinstance(raw.get("architectures"), list)
        else []
    )
    inner = raw.get("dflash_config")
    parts = [p for p in (raw, inner, raw.get("transformer_layer_config")) if isinstance(p, Mapping)]
    if "PEagleDraftModel" in names or raw.get("speculators_model_type") == "peagle":
        raise _refused("a P-EAGLE drafter, an EAGLE-3 layer that drafts several tokens a pass", "vLLM")
    if any(p.get("projector_type") == "domino" or p.get("shift_label") for p in parts) or any(
        "Domino" in n for n in names
    ):
        raise _refused("a Domino drafter, whose logits are corrected by a recurrent net over the drafts", "SGLang")
    if any(n.endswith("Eagle3Model") for n in names):
        raise _refused("an EAGLE-3 drafter in DeepSpec's form", ENGINES)
    if (kind := raw.get("speculators_model_type")) in ("eagle", "mtp"):
        raise _refused(f"a drafter of kind {kind} in speculators' form", ENGINES)
    if any(name in p for p in parts for name in LATENT):
        raise _refused("a drafter with latent attention (MLA), as that of DeepSeek-V4", ENGINES)
    if any(p.get(name) for p in parts for name in EXPERTS):
        raise _refused("a drafter with experts (MoE)", ENGINES)
    if any("Gemma" in n for n in names):
        raise _refused("a drafter with Gemma's layers", ENGINES)


def refuse_unknown(*parts: Raw) -> None:
    """Raise ``InputError`` if a config sets an unknown option that may change the computation."""
    if any(p.get("quantization_config") is not None for p in parts):
        raise InputError(
            f"its weights are quantised; drafters are read as they are only. {ENGINES} runs quantised ones"
        )
    for key, value in ((k, v) for part in parts for k, v in part.items()):
        if key in NEUTRAL and value is not None and value not in NEUTRAL[key]:
            what = f"has {WHAT[key]} ({key})" if key in WHAT else f"sets {key} to {str(value)[:40]}"
            raise InputError(f"its config {what}, which is not supported here; {ENGINES} may run it")
        if value is True and key not in KNOWN_FLAGS and key not in NEUTRAL:
            raise InputError(
                f"its config sets {key}, which this version does not know and which may change what it computes"
            )


TENSORS = {
    "sinks": "attention sinks", "prefix_gru": "the recurrent net of a Domino drafter", "embed_proj": "the head of a Domino drafter",
    "kv_a_proj": "latent attention (MLA)", "experts": "experts (MoE)", "mask_embedding": "a learned mask embedding",
    "mask_hidden": "a P-EAGLE drafter's mask", "midlayer": "an EAGLE-3 layer", "lora_": "adapters", "weight_scale": "quantised weights",
    "qweight": "quantised weights", "weight_packed": "quantised weights",
}  # fmt: skip


def refuse_tensors(unknown: Iterable[str]) -> None:
    """Raise ``InputError`` for tensors that the network does not use, with their kind if known."""
    left = sorted(unknown)
    if not left:
        return
    what = next((f" ({text})" for key, text in TENSORS.items() if any(key in name for name in left)), "")
    raise InputError(
        f"its weights hold {', '.join(left[:3])}{what}, which this version does not read: unexpected keys {left[:3]}"
    )


def _refused(what: str, runs: str) -> InputError:
    return InputError(f"it is {what}, and is not supported here; {runs} runs it")
