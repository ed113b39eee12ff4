"""Checks untrusted model folders: the values in config.json (before a model is built), the kind of drafter, and the weights.

A failed check raises ``InputError`` with one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain
from math import inf, isfinite, prod
from typing import TYPE_CHECKING, Any

from d2sd.errors import InputError, require
from d2sd.methods.base import MAX_BLOCK

if TYPE_CHECKING:
    from torch import Tensor, nn

Raw = Mapping[str, Any]  # a JSON object
Shapes = Mapping[str, tuple[int, ...]]  # of tensors, by name
NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
# Key of any object of a config → bounds of its value: a whole number, bounds included, or a number strictly between the bounds.
WHOLE = {
    **dict.fromkeys((*NEEDED, "selector_rank", "selector_top_k", "conv_group_size"), (1, 2**22)),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "head_dim", "conv_kernel_size"), (1, 2**12)),
    **dict.fromkeys(("markov_rank", "draft_vocab_size", "target_hidden_size"), (0, 2**22)),
    **dict.fromkeys(("max_position_embeddings", "swa_window_size"), (1, 2**27)),
    **dict.fromkeys(("num_hidden_layers", "num_target_layers"), (1, 2**10)),
    "sliding_window": (0, 2**27),
    "block_size": (2, MAX_BLOCK),
}
REAL = {
    **dict.fromkeys(("initializer_range", "rope_theta", "factor", "original_max_position_embeddings"), (0, inf)),
    **dict.fromkeys(("output_multiplier", "input_embedding_scale"), (0, inf)),
    "rms_norm_eps": (0, 1),
    "final_logit_softcapping": (-1, inf),  # 0: no cap
}
# Options of block drafters and of EAGLE-3 drafters, and all options that are true or false.
BLOCK_OPTIONS = (
    "is_causal", "causal", "causal_head", "use_swa", "use_sliding_window", "enable_confidence_head", "confidence_head_with_markov",
    "sample_from_anchor", "sliding_window_non_causal",
)  # fmt: skip
EAGLE3_OPTIONS = ("norm_before_residual", "norm_output", "fc_norm")
BOOLEANS = ("attention_bias", "mlp_bias", "tie_word_embeddings", *BLOCK_OPTIONS, *EAGLE3_OPTIONS)
HARMLESS = (  # options that may be true: they do not affect the output
    "use_cache", "return_dict", "tie_weights", "gradient_checkpointing", "scale_loss", "embed_requires_grad", "enable_sp_ulysses",
)  # fmt: skip
ROPES = ("rope_parameters", "rope_scaling")
MISMATCH = "its weights do not match its config"
ENGINES = "vLLM or SGLang"  # engines that may run drafters that are refused here
# Unsupported kinds of drafters: pattern of key=value in a config → description, and engine that may run it
UNSUPPORTED = {
    "architectures=PEagleDraftModel|speculators_model_type=peagle": ("a P-EAGLE drafter (an EAGLE-3 layer that drafts several tokens per pass)", "vLLM"),
    "projector_type=domino|shift_label=.*|architectures=.*Domino.*": ("a Domino drafter (a recurrent net corrects its logits)", "SGLang"),
    "architectures=.*Eagle3Model": ("an EAGLE-3 drafter in DeepSpec's form", ENGINES),
    "speculators_model_type=(eagle|mtp)": ("an EAGLE-1 or MTP drafter in speculators' form", ENGINES),
    "(kv_lora_rank|q_lora_rank|dspark_block_size)=.*": ("a drafter with latent attention (MLA), like DeepSeek-V4's", ENGINES),
    "(num_experts|n_routed_experts|num_local_experts)=.*": ("a drafter with experts (MoE)", ENGINES),
    "architectures=.*Gemma.*": ("a drafter with Gemma's layers", ENGINES),
}  # fmt: skip


def check_config(config: Raw, supported: Sequence[str]) -> None:
    """Checks the config.json of a causal LM or a drafter.

    supported: allowed values of ``model_type``.
    """
    kind = config.get("model_type")
    require(kind in supported, f"its model_type is {short(kind)}; it must be {' or '.join(supported)}")
    check_values(config)
    _check_heads(config)
    kinds, layers = config.get("layer_types"), config.get("num_hidden_layers")
    fit = kinds is None or (isinstance(kinds, list) and layers in (None, len(kinds)))
    require(fit, f"its layer_types must be a list with one entry for each of its {layers} layers")
    if (vocabulary := config.get("vocab_size")) is not None:
        check_token_ids(config.get("eos_token_id"), vocabulary, "eos_token_id")
    if (act := config.get("hidden_act", "silu")) != "silu":
        require(act in _names("activations", "ACT2FN"), f"its hidden_act {short(act)} is unknown")
    for name in ROPES:
        rope = object_at(config, name)
        if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
            known = ["default", *_names("modeling_rope_utils", "ROPE_INIT_FUNCTIONS")]
            require(kind in known, f"its {name} has the unknown type {short(kind)}; known types: {', '.join(known)}")
        check_values(rope, f"{name}.")
    if (method := config.get("quantization_config")) is not None:
        method = method.get("quant_method") if isinstance(method, Mapping) else method
        known = _names("quantizers.auto", "AUTO_QUANTIZER_MAPPING")
        require(method in known, f"its quantization_config names the unknown method {short(method)}")


def _names(module: str, table: str) -> list[str]:
    """Returns the names in one of transformers' tables. The import takes seconds, so common values are not looked up."""
    return sorted(getattr(import_module(f"transformers.{module}"), table))


def check_values(part: Raw, where: str = "") -> None:
    """Checks those values of a JSON object whose keys have bounds.

    where: path of the object in the config, followed by a full stop; "" for the config itself.
    """
    for name, value in part.items():
        said = f"its {where}{name} is {short(value)}; it must be"
        if value is None and name not in (*NEEDED, "max_position_embeddings"):
            continue
        if name in WHOLE:
            least, most = WHOLE[name]
            require(is_whole(value) and least <= value <= most, f"{said} a whole number from {least} to {most}")
        elif name in REAL:
            above, below = REAL[name]
            real = (isinstance(value, float) and isfinite(value)) or is_whole(value)
            limit = f" and below {below:g}" if isfinite(below) else ""
            require(real and above < value < below, f"{said} a number above {above:g}{limit}")
        elif name in BOOLEANS:
            require(isinstance(value, bool), f"{said} true or false")


def _check_heads(config: Raw) -> None:
    heads, kv_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
    hidden, size = config.get("hidden_size"), config.get("head_dim")
    if heads and kv_heads:
        require(heads % kv_heads == 0, f"its {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    if heads and hidden and size is None and config.get("model_type") == "llama":
        require(hidden % heads == 0, f"its hidden_size {hidden} cannot be split among {heads} attention heads")
        size = hidden // heads
    require(size is None or size % 2 == 0, f"its head_dim {size} is odd; rotary embeddings need an even size")


def check_token_ids(ids: Any, vocabulary: int, name: str) -> None:
    """Checks that one or several token ids are in a vocabulary of this size. None passes the check."""
    for token in () if ids is None else ids if isinstance(ids, list | tuple | set | frozenset) else (ids,):
        require(
            is_whole(token) and 0 <= token < vocabulary,
            f"its {name} {short(token)} is not in its vocabulary of {vocabulary} (0 to {vocabulary - 1})",
        )


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def object_at(config: Raw, path: str) -> Raw:
    """Returns the JSON object under the key ``path``, or the config itself if ``path`` is empty. Returns an empty object if the key
    is missing or null.
    """
    part = config.get(path) if path else config
    require(part is None or isinstance(part, Mapping), f"its {path} is not a JSON object")
    return part or {}


def require_template(template: object, name: str) -> None:
    """Raises ``InputError`` if a tokenizer has no chat template. name: the model's name."""
    require(bool(template), f"{name} has no chat template; give the prompt without one")


def short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a number of many digits"
    return "missing" if value is None else repr(value)[:40]


# Drafters that are not supported.


def refuse_others(raw: Raw) -> None:
    """Raises ``InputError`` if a config.json belongs to an unsupported kind of drafter."""
    lines = [
        f"{key}={one}"
        for part in (raw, raw.get("dflash_config"), raw.get("transformer_layer_config"))
        if isinstance(part, Mapping)
        for key, value in part.items()
        for one in (value if isinstance(value, list) else [value])
        if one
    ]
    for pattern, (what, engine) in UNSUPPORTED.items():
        matches = any(re.fullmatch(pattern, line, re.DOTALL) for line in lines)
        require(not matches, f"it is {what}, which is not supported here; run it with {engine}")


def refuse_options(*parts: Raw, neutral: Raw) -> None:
    """Raises ``InputError`` if a drafter's config sets an unknown or unsupported option that may change the drafter's output.

    parts: JSON objects of the config.
    neutral: the supported value of each option, besides null. Attention sinks are never supported.
    """
    for key, value in chain.from_iterable(part.items() for part in parts):
        if key in neutral or "attention_sink" in key:
            is_neutral = value in (None, neutral.get(key, False))
            require(is_neutral, f"its config sets {key} to {short(value)}, which is not supported here; {ENGINES} may run this drafter")  # fmt: skip
        elif value is True:
            require(key in (*BOOLEANS, *HARMLESS), f"its config sets {key}, which this version does not know and which may change the drafter's output")  # fmt: skip


# Weights.


def check_shapes(held: Shapes, model: nn.Module) -> None:
    """Compares stored tensor shapes, by parameter name, with the shapes of a model on torch's device "meta", which allocates no
    memory.

    Without this check, a config with large sizes could request more memory than the machine has.
    """
    wanted = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    if wrong := wrong_shapes(held, wanted):
        raise InputError(next(iter(wrong.values())))
    numbers, needed = (sum(map(prod, shapes.values())) for shapes in (held, wanted))
    require(
        needed <= 3 * numbers,
        f"{MISMATCH} ({numbers} numbers are stored, and its config needs {needed})",
    )


def wrong_shapes(held: Shapes, wanted: Shapes) -> dict[str, str]:
    """Returns a clause for each tensor whose stored shape differs from the wanted one, by name."""
    return {
        name: f"{MISMATCH} ({name} has shape {list(held[name])}, and its config needs {list(wanted[name])})"
        for name in sorted(held.keys() & wanted.keys())
        if held[name] != wanted[name]
    }


def check_finite(model: nn.Module) -> None:
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        require(is_finite(weight), f"its weight {name} holds NaN or infinity; the file is damaged: download it again, or train the model again")  # fmt: skip


def is_finite(tensor: Tensor) -> bool:
    """Returns whether all values are finite. It returns True for tensors on the device "meta", for integers and for 8-bit floats."""
    real = not tensor.is_meta and tensor.is_floating_point() and tensor.element_size() > 1
    return not real or bool(tensor.isfinite().all())
