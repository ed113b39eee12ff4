"""Checks of untrusted model folders: of every field of config.json before anything is built from it, and of weights after
they are read. Errors are ``InputError`` with one sentence that names the field."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite, prod
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from d2sd.errors import InputError

# the largest value of each that is believed
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
FLAGS = ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window")
ROPE_TYPES = {"default", *ROPE_INIT_FUNCTIONS}
MAX_TAPS = 64


def check_config(config: Mapping[str, Any], supported: Sequence[str]) -> None:
    """Check the raw config.json of a causal LM or drafter. ``supported``: allowed values of ``model_type``."""
    kind = config.get("model_type")
    _need(kind in supported, f"its model_type is {short(kind)}; it must be {' or '.join(supported)}")
    for name, most in SIZES.items():
        if name in config and not (config[name] is None and name in MAY_BE_NULL):
            check_whole(config, name, 1, most)
    for name in FLAGS:
        flag = config.get(name)
        _need(flag is None or isinstance(flag, bool), f"its {name} is {short(flag)}; it must be true or false")
    check_number(config, "rms_norm_eps", 0, 1)
    check_number(config, "initializer_range", 0, inf)
    act = config.get("hidden_act", "silu")
    _need(isinstance(act, str) and act in ACT2FN, f"its hidden_act {short(act)} is unknown")
    _check_heads(config)
    kinds, layers = config.get("layer_types"), config.get("num_hidden_layers")
    fit = kinds is None or (isinstance(kinds, list) and layers in (None, len(kinds)))
    _need(fit, f"its layer_types must be a list with one entry for each of its {layers} layers")
    for name in ("rope_parameters", "rope_scaling"):
        _check_rope(config.get(name), name)
    check_number(config, "rope_theta", 0, inf)
    if (vocabulary := config.get("vocab_size")) is not None:
        check_token_ids(config.get("eos_token_id"), vocabulary, "eos_token_id")
    _check_quantization(config.get("quantization_config"))


def check_taps(taps: Any, config: Mapping[str, Any], name: str) -> None:
    """Check the target layers that a drafter reads, counted by their outputs."""
    good = isinstance(taps, list) and 0 < len(taps) <= MAX_TAPS and all(map(_is_whole, taps))
    _need(good, f"its {name} must be a list of 1 to {MAX_TAPS} layer numbers, from 0 on")
    if good and min(taps) < 0:
        raise InputError(f"its {name} must be a list of layer numbers from 0 on; the embeddings (-1) are not read here")
    layers = config.get("num_target_layers")
    if layers is not None:
        check_whole(config, "num_target_layers", 1, SIZES["num_hidden_layers"])
        _need(max(taps) < layers, f"it reads target layer {max(taps)}, but its num_target_layers is {layers}")


def check_token_ids(ids: Any, vocabulary: int, name: str) -> None:
    """Check that token ids (one, several or None) are in a vocabulary of this size."""
    for token in () if ids is None else ids if isinstance(ids, list | tuple | set | frozenset) else (ids,):
        inside = _is_whole(token) and 0 <= token < vocabulary
        _need(inside, f"its {name} {short(token)} is not in its vocabulary of {vocabulary} (0 to {vocabulary - 1})")


def check_shapes(held: Mapping[str, tuple[int, ...]], make: Callable[[], nn.Module]) -> None:
    """Check tensor shapes, by parameter name, against the model that ``make`` builds.

    A few numbers in a config could otherwise ask for more memory than the machine has.
    """
    with torch.device("meta"):
        wanted = {name: tuple(weight.shape) for name, weight in make().state_dict().items()}
    for name in sorted(held.keys() & wanted.keys()):
        there, asked = list(held[name]), list(wanted[name])
        _need(
            there == asked, f"its weights do not match its config ({name} is {there}, and its config makes it {asked})"
        )
    numbers, needed = (sum(map(prod, shapes.values())) for shapes in (held, wanted))
    _need(
        needed <= 3 * numbers,
        f"its weights do not match its config ({numbers} numbers are there, and it asks for {needed})",
    )


def check_finite(model: nn.Module) -> None:
    """Raise ``InputError`` if a weight is NaN or infinite."""
    for name, weight in itertools.chain(model.named_parameters(), model.named_buffers()):
        if weight.is_meta or not weight.is_floating_point() or weight.element_size() < 2:
            continue
        if not bool(torch.isfinite(weight).all()):
            raise InputError(f"its weight {name} holds NaN or infinity; the file is damaged, fetch or train it again")


def _check_heads(config: Mapping[str, Any]) -> None:
    heads, kept = config.get("num_attention_heads"), config.get("num_key_value_heads")
    hidden, size = config.get("hidden_size"), config.get("head_dim")
    if heads and kept:
        _need(heads % kept == 0, f"its {heads} attention heads cannot share {kept} key-value heads evenly")
    if heads and hidden and size is None and config.get("model_type") == "llama":
        _need(hidden % heads == 0, f"its hidden_size {hidden} cannot be split among {heads} attention heads")
        size = hidden // heads
    _need(size is None or size % 2 == 0, f"its head_dim {size} is odd; rotary positions need pairs")


def _check_rope(rope: Any, name: str) -> None:
    if rope is None:
        return
    _need(isinstance(rope, Mapping), f"its {name} is no object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    known = isinstance(kind, str) and kind in ROPE_TYPES
    _need(known, f"its {name} is of the unknown type {short(kind)}; known are {', '.join(sorted(ROPE_TYPES))}")
    for field in ("rope_theta", "factor", "original_max_position_embeddings"):
        check_number(rope, field, 0, inf, f"{name}.")


def _check_quantization(quantization: Any) -> None:
    if quantization is None:
        return
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
    known = isinstance(method, str) and method in AUTO_QUANTIZER_MAPPING
    _need(known, f"its quantization_config names the unknown method {short(method)}")


def check_whole(config: Mapping[str, Any], name: str, least: int, most: int) -> None:
    """Check that a field is an integer between the two bounds, inclusive."""
    value = config[name]
    inside = _is_whole(value) and least <= value <= most
    _need(inside, f"its {name} is {short(value)}; it must be a whole number from {least} to {most}")


def check_number(config: Mapping[str, Any], name: str, above: float, below: float, where: str = "") -> None:
    """Check that a field is missing, null, or a number strictly between the two bounds."""
    value = config.get(name)
    if value is None:
        return
    real = (isinstance(value, float) and isfinite(value)) or _is_whole(value)
    limit = f" and below {below:g}" if isfinite(below) else ""
    _need(real and above < value < below, f"its {where}{name} is {short(value)}; it must be a number above {above:g}{limit}")  # fmt: skip


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _need(ok: bool, sentence: str) -> None:
    if not ok:
        raise InputError(sentence)


def short(value: Any) -> str:
    """Returns a wrong value for an error message, shortened."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a number of many digits"
    return "missing" if value is None else repr(value)[:40]
