"""Checks untrusted model folders: the fields of config.json (before a model is built), the kind of drafter, and the weights.
A failed check raises ``InputError`` with one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf, isfinite, prod
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from d2sd.errors import InputError

# Largest accepted values.
SIZES = {
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "num_hidden_layers": 2**10,
    "num_attention_heads": 2**12,
    "num_key_value_heads": 2**12,
    "head_dim": 2**12,
    "vocab_size": 2**22,
    "max_position_embeddings": 2**27,
}
MAY_BE_NULL = ("num_key_value_heads", "head_dim")
BOOLEANS = ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window")
ROPE_TYPES = {"default", *ROPE_INIT_FUNCTIONS}
MAX_TAPS = 64
ENGINES = "vLLM or SGLang"  # engines that may run drafters that are refused here
# Options that any drafter may set to true: they are supported, or do not affect the network's output.
FLAGS_OF_DRAFTERS = frozenset(
    {"attention_bias", "mlp_bias", "use_cache", "tie_word_embeddings", "return_dict", "tie_weights"}
)
# Supported values of some options. Other values would change a drafter's output in ways that are not implemented.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",), "logit_scale": (1,), "partial_rotary_factor": (1,), "pretraining_tp": (1,),
    "add_attention_sink": (False,), "add_attention_sinks": (False,), "attention_sinks": (False,),
    "add_swa_attention_sink_bias": (False,), "add_full_attention_sink_bias": (False,), "attention_sink_bias": (False,),
}  # fmt: skip
LATENT = ("kv_lora_rank", "q_lora_rank", "dspark_block_size")
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
# part of a tensor's name → description of this unsupported kind of tensor
TENSORS = {
    "sinks": "attention sinks", "prefix_gru": "the recurrent net of a Domino drafter", "embed_proj": "the head of a Domino drafter",
    "kv_a_proj": "latent attention (MLA)", "experts": "experts (MoE)", "mask_embedding": "a learned mask embedding",
    "mask_hidden": "a P-EAGLE drafter's mask", "midlayer": "an EAGLE-3 layer", "lora_": "adapters", "weight_scale": "quantised weights",
    "qweight": "quantised weights", "weight_packed": "quantised weights",
}  # fmt: skip


def check_config(config: Mapping[str, Any], supported: Sequence[str]) -> None:
    """Check the raw config.json of a causal LM or drafter. ``supported``: allowed values of ``model_type``."""
    kind = config.get("model_type")
    require(kind in supported, f"its model_type is {short(kind)}; it must be {' or '.join(supported)}")
    for name, most in SIZES.items():
        if name in config and not (config[name] is None and name in MAY_BE_NULL):
            check_whole(config, name, 1, most)
    for name in BOOLEANS:
        flag = config.get(name)
        require(flag is None or isinstance(flag, bool), f"its {name} is {short(flag)}; it must be true or false")
    check_number(config, "rms_norm_eps", 0, 1)
    check_number(config, "initializer_range", 0, inf)
    act = config.get("hidden_act", "silu")
    require(isinstance(act, str) and act in ACT2FN, f"its hidden_act {short(act)} is unknown")
    _check_heads(config)
    kinds, layers = config.get("layer_types"), config.get("num_hidden_layers")
    fit = kinds is None or (isinstance(kinds, list) and layers in (None, len(kinds)))
    require(fit, f"its layer_types must be a list with one entry for each of its {layers} layers")
    for name in ("rope_parameters", "rope_scaling"):
        _check_rope(config.get(name), name)
    check_number(config, "rope_theta", 0, inf)
    if (vocabulary := config.get("vocab_size")) is not None:
        check_token_ids(config.get("eos_token_id"), vocabulary, "eos_token_id")
    _check_quantization(config.get("quantization_config"))


def _check_heads(config: Mapping[str, Any]) -> None:
    heads, kv_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
    hidden, size = config.get("hidden_size"), config.get("head_dim")
    if heads and kv_heads:
        require(heads % kv_heads == 0, f"its {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    if heads and hidden and size is None and config.get("model_type") == "llama":
        require(hidden % heads == 0, f"its hidden_size {hidden} cannot be split among {heads} attention heads")
        size = hidden // heads
    require(size is None or size % 2 == 0, f"its head_dim {size} is odd; rotary embeddings need an even size")


def _check_rope(rope: Any, name: str) -> None:
    if rope is None:
        return
    require(isinstance(rope, Mapping), f"its {name} is not a JSON object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    known = isinstance(kind, str) and kind in ROPE_TYPES
    require(known, f"its {name} has the unknown type {short(kind)}; known types: {', '.join(sorted(ROPE_TYPES))}")
    for field in ("rope_theta", "factor", "original_max_position_embeddings"):
        check_number(rope, field, 0, inf, f"{name}.")


def _check_quantization(quantization: Any) -> None:
    if quantization is None:
        return
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
    known = isinstance(method, str) and method in AUTO_QUANTIZER_MAPPING
    require(known, f"its quantization_config names the unknown method {short(method)}")


def check_taps(taps: Any, config: Mapping[str, Any], name: str) -> None:
    """Check the numbers of the target layers whose outputs a drafter reads."""
    good = isinstance(taps, list) and 0 < len(taps) <= MAX_TAPS and all(map(_is_whole, taps))
    require(good, f"its {name} must be a list of 1 to {MAX_TAPS} layer numbers, counted from 0")
    if good and min(taps) < 0:
        raise InputError(
            f"its {name} must be a list of layer numbers, counted from 0; reading the embeddings (-1) is not supported"
        )
    layers = config.get("num_target_layers")
    if layers is not None:
        check_whole(config, "num_target_layers", 1, SIZES["num_hidden_layers"])
        require(max(taps) < layers, f"it reads target layer {max(taps)}, but its num_target_layers is {layers}")


def check_token_ids(ids: Any, vocabulary: int, name: str) -> None:
    """Check that token ids (one, several or None) are in a vocabulary of this size."""
    for token in () if ids is None else ids if isinstance(ids, list | tuple | set | frozenset) else (ids,):
        inside = _is_whole(token) and 0 <= token < vocabulary
        require(inside, f"its {name} {short(token)} is not in its vocabulary of {vocabulary} (0 to {vocabulary - 1})")


def check_whole(config: Mapping[str, Any], name: str, least: int, most: int) -> None:
    """Check that a field is an integer between the two bounds, inclusive."""
    value = config[name]
    inside = _is_whole(value) and least <= value <= most
    require(inside, f"its {name} is {short(value)}; it must be a whole number from {least} to {most}")


def check_number(config: Mapping[str, Any], name: str, above: float, below: float, where: str = "") -> None:
    """Check that a field is missing, null, or a number strictly between the two bounds."""
    value = config.get(name)
    if value is None:
        return
    real = (isinstance(value, float) and isfinite(value)) or _is_whole(value)
    limit = f" and below {below:g}" if isfinite(below) else ""
    require(real and above < value < below, f"its {where}{name} is {short(value)}; it must be a number above {above:g}{limit}")  # fmt: skip


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def require(ok: bool, sentence: str) -> None:
    if not ok:
        raise InputError(sentence)


def short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a number of many digits"
    return "missing" if value is None else repr(value)[:40]


# Drafters that are not supported.


def refuse_options(*parts: Mapping[str, Any], flags: Collection[str], neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ``InputError`` if a drafter's config sets an unknown or unsupported option that may change the drafter's output.

    parts: JSON objects of the config.
    flags: options besides ``FLAGS_OF_DRAFTERS`` that this kind of drafter may set to true.
    neutral: supported values by option, in addition to ``NEUTRAL``.
    """
    neutral = {**NEUTRAL, **neutral}
    for key, value in ((k, v) for part in parts for k, v in part.items()):
        if key in neutral and value is not None and value not in neutral[key]:
            raise InputError(
                f"its config sets {key} to {short(value)}, which is not supported here; {ENGINES} may run this drafter"
            )
        if value is True and key not in FLAGS_OF_DRAFTERS and key not in flags and key not in neutral:
            raise InputError(
                f"its config sets {key}, which this version does not know and which may change the drafter's output"
            )


def refuse_others(raw: Mapping[str, Any]) -> None:
    """Raise ``InputError`` if a config.json belongs to an unsupported kind of drafter."""
    listed = raw.get("architectures")
    names = [n for n in listed if isinstance(n, str)] if isinstance(listed, list) else []
    inner = raw.get("dflash_config")
    parts = [p for p in (raw, inner, raw.get("transformer_layer_config")) if isinstance(p, Mapping)]
    if "PEagleDraftModel" in names or raw.get("speculators_model_type") == "peagle":
        raise _refused("a P-EAGLE drafter (an EAGLE-3 layer that drafts several tokens per pass)", "vLLM")
    if any(p.get("projector_type") == "domino" or p.get("shift_label") for p in parts) or any(
        "Domino" in n for n in names
    ):
        raise _refused("a Domino drafter (a recurrent net corrects its logits)", "SGLang")
    if any(n.endswith("Eagle3Model") for n in names):
        raise _refused("an EAGLE-3 drafter in DeepSpec's form", ENGINES)
    if (kind := raw.get("speculators_model_type")) in ("eagle", "mtp"):
        raise _refused(f"a drafter of kind {kind} in speculators' form", ENGINES)
    if any(name in p for p in parts for name in LATENT):
        raise _refused("a drafter with latent attention (MLA), like DeepSeek-V4's", ENGINES)
    if any(p.get(name) for p in parts for name in EXPERTS):
        raise _refused("a drafter with experts (MoE)", ENGINES)
    if any("Gemma" in n for n in names):
        raise _refused("a drafter with Gemma's layers", ENGINES)


def _refused(what: str, runs: str) -> InputError:
    return InputError(f"it is {what}, which is not supported here; run it with {runs}")


# Weights.


def check_shapes(held: Mapping[str, tuple[int, ...]], make: Callable[[], nn.Module]) -> None:
    """Check stored tensor shapes, by parameter name, against the shapes of the model that ``make`` builds.

    Without this check, a config with large sizes could request more memory than the machine has.
    """
    with torch.device("meta"):
        wanted = {name: tuple(weight.shape) for name, weight in make().state_dict().items()}
    _compare(held, wanted)
    numbers, needed = (sum(map(prod, shapes.values())) for shapes in (held, wanted))
    require(
        needed <= 3 * numbers,
        f"its weights do not match its config ({numbers} numbers are stored, and its config needs {needed})",
    )


def check_weights(model: nn.Module, held: Mapping[str, tuple[int, ...]]) -> None:
    """Check that stored tensors (shapes by parameter name) are exactly the parameters of a drafter's network."""
    wanted = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    _compare(held, wanted)
    missing = sorted(wanted.keys() - held.keys())
    require(not missing, f"its weights do not match its config: they lack {', '.join(missing[:3])}")
    refuse_tensors(held.keys() - wanted.keys())


def _compare(held: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    for name in sorted(held.keys() & wanted.keys()):
        stored, built = list(held[name]), list(wanted[name])
        require(
            stored == built,
            f"its weights do not match its config ({name} has shape {stored}, and its config needs {built})",
        )


def refuse_tensors(unknown: Iterable[str]) -> None:
    """Raise ``InputError`` if there are tensors that the network does not use. The message names their kind, if known."""
    left = sorted(unknown)
    if not left:
        return
    what = next((f" ({text})" for key, text in TENSORS.items() if any(key in name for name in left)), "")
    raise InputError(f"its weights hold {', '.join(left[:3])}{what}, which this version does not read")


def check_finite(model: nn.Module) -> None:
    for name, weight in itertools.chain(model.named_parameters(), model.named_buffers()):
        if weight.is_meta or not weight.is_floating_point() or weight.element_size() < 2:
            continue
        if not bool(torch.isfinite(weight).all()):
            raise InputError(
                f"its weight {name} holds NaN or infinity; the file is damaged: download it again, or train the model again"
            )
