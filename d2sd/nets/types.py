"""Supported types of targets, and properties of a target's layers that are known from its transformers config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from d2sd.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

KINDS = {f"{kind}_attention": kind for kind in ("full", "sliding", "linear")}


class TargetType(NamedTuple):
    """Properties of a target type that its config does not state.

    norm: class name of the type's RMSNorm, which is replaced by torch's equivalent; None if torch's RMSNorm is not equivalent.
    lean: whether layers can be run by ``d2sd.nets.lean``.
    gated: whether half of ``q_proj``'s output consists of output gates.
    centred: whether weights of norms are stored minus one.
    """

    norm: str | None = None
    lean: bool = False
    gated: bool = False
    centred: bool = False


# by model_type; for nested configs, the model_type of the text part
TYPES: dict[str, TargetType] = {
    "qwen3": TargetType("Qwen3RMSNorm", lean=True),
    "llama": TargetType("LlamaRMSNorm", lean=True),
    "qwen2": TargetType("Qwen2RMSNorm"),
    "qwen3_moe": TargetType("Qwen3MoeRMSNorm"),
    "mistral": TargetType("MistralRMSNorm", lean=True),
    "ministral": TargetType("MinistralRMSNorm", lean=True),
    "olmo3": TargetType(),
    "smollm3": TargetType("SmolLM3RMSNorm", lean=True),
    "granite": TargetType("GraniteRMSNorm", lean=True),
    "gpt_oss": TargetType(),
    "qwen3_next": TargetType(gated=True, centred=True),
    "qwen3_5_text": TargetType(gated=True, centred=True),
    "qwen3_5_moe_text": TargetType(gated=True, centred=True),
    "gemma3_text": TargetType(centred=True),
    "gemma4_text": TargetType(),
    "gemma4_unified_text": TargetType(),
}
NESTED = {"mistral3": "mistral"}  # type → type of its text part, if this is neither the type nor type_text
SUPPORTED = tuple(name.removesuffix("_text") for name in (*TYPES, *NESTED))  # names in published configs

# config key → unsupported part of the network
PARTS = {
    "kv_lora_rank": "latent attention",
    "is_encoder_decoder": "encoder",
    "attn_logit_softcapping": "soft caps on attention logits",
    "ssm_state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "attention_chunk_size": "chunked attention",
}


def final_logits(config: Any, logits: Tensor) -> Tensor:
    """Returns logits (…, V) from the LM head's output.

    Granite divides the output, and Gemma caps it softly, both in float32. Other types do not change it. Drafters that use the
    target's head are trained without this scale and cap.

    config: the target's text config.
    """
    divisor, cap = getattr(config, "logits_scaling", 1.0), getattr(config, "final_logit_softcapping", None)
    logits = logits if divisor == 1 else logits.float() / divisor
    return logits if cap is None else cap * (logits.float() / cap).tanh()


def text_config(config: Any) -> Any:
    """Returns the text part of a transformers config. Other objects with a config's attributes are returned unchanged."""
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def text_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = raw.get("text_config")
    return nested if isinstance(nested, Mapping) else raw


def target_type(config: Any) -> TargetType:
    return TYPES[text_config(config).model_type]


def layer_kinds(config: Any) -> list[str]:
    """Returns the kind of each layer: full, sliding, linear, or the config's name of another kind."""
    config = text_config(config)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if window(config) else "full_attention"] * config.num_hidden_layers
    return [KINDS.get(kind, kind) for kind in kinds]


def window(config: Any) -> int | None:
    """Returns how many tokens a row of a sliding layer sees, including itself; None without sliding layers."""
    config = text_config(config)
    size = getattr(config, "sliding_window", None)
    return size if size and getattr(config, "use_sliding_window", True) else None


def head_shape(config: Any) -> tuple[int, int, int]:
    """Returns the number of attention heads, the number of key-value heads and the head size. If layers differ, the first layer's
    are returned.
    """
    config = text_config(config)
    layers = getattr(config, "per_layer_config", None)
    shape = config if layers is None else layers[0]
    size = getattr(shape, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_attention_heads, shape.num_key_value_heads, size


def experts(config: Any) -> int:
    """Returns the number of experts per layer; 0 if layers are dense."""
    config = text_config(config)
    return next((n for key in ("num_experts", "num_local_experts") if (n := getattr(config, key, None))), 0)


def eager_reason(config: Any) -> str | None:
    """Returns why a target's passes cannot be captured as CUDA graphs, as the end of a sentence; None if they can."""
    config = text_config(config)
    if "linear" in layer_kinds(config):
        return "its linear layers' states depend on the tree's shape"
    if experts(config):
        return "the selection of experts depends on the data"
    if getattr(config, "num_kv_shared_layers", 0):
        return "its layers share keys and values"
    return None


# prefix of text tensors in multimodal checkpoints (of new and old transformers) → prefix in text-only checkpoints
TEXT_KEYS = {
    r"^model\.language_model\.": "model.",
    r"^language_model\.model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}
OTHER_PARTS = re.compile(
    r"(?:model\.)?(?:vision_tower|multi_modal_projector)\."
)  # names of tensors outside the text part


def text_key(name: str) -> str:
    """Returns the name that a tensor of a multimodal checkpoint has in a text-only checkpoint."""
    for pattern, plain in TEXT_KEYS.items():
        name = re.sub(pattern, plain, name)
    return name


def text_options(config: Any) -> dict[str, Any]:
    """Returns options that make transformers load only the text part of a multimodal checkpoint; empty for other targets."""
    text = text_config(config)
    if config.model_type not in ("gemma3", "gemma4", "gemma4_unified", *NESTED):
        return {}
    return {"config": text, "key_mapping": TEXT_KEYS}


def check_supported(config: Any, name: str) -> None:
    """Raises ``InputError`` if a target with this transformers config cannot verify token trees exactly."""
    text = text_config(config)
    if text.model_type not in TYPES:
        named = (part for key, part in PARTS.items() if getattr(text, key, None))
        kinds = (f"{kind.replace('_', ' ')} layers" for kind in _unknown_kinds(text))
        missing = next(chain(named, kinds), None)
        reason = f" (unsupported part: {missing})" if missing else ""
        raise InputError(
            f"targets of type {config.model_type!r} are not supported{reason}; choose {', '.join(SUPPORTED[:-1])} or "
            f"{SUPPORTED[-1]}"
        )
    if unknown := _unknown_kinds(text):
        raise InputError(
            f"{name} has layers of kind {unknown[0]}, which tree verification does not support; choose a target with "
            "full, sliding-window or gated delta net layers"
        )


def _unknown_kinds(config: Any) -> list[str]:
    return sorted(set(layer_kinds(config)) - set(KINDS.values()))
