"""Predicts, from configs alone, whether and how a target would run with a drafter. No weights are downloaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import nn

from d2sd.folders.checks import Check, network, target_checks, until_error
from d2sd.folders.configs import drafter_form, published_config
from d2sd.folders.loading import supported_config, target_network
from d2sd.folders.model_sets import target_folder
from d2sd.nets.passes import row_shape
from d2sd.nets.types import (
    eager_reason,
    experts,
    layer_kinds,
    text_config,
    window,
)

CONTEXT, NODES = 4096, 64  # tokens and tree nodes of the memory estimate
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


def plan(target: str, drafter: str | None = None, dtype: str = "bfloat16") -> list[Check]:
    """Returns those checks of a target and a drafter (folders or hub ids) that need no weights, and an estimate of the memory.

    If a config is unreadable, wrong or unsupported, the last check is a fault.

    dtype: number type for which the memory is estimated.
    """
    return list(until_error(_checks(target, drafter, dtype)))


def _checks(target: str, drafter: str | None, dtype: str) -> Iterator[Check]:
    raw = published_config(target_folder(target))
    text, net = text_config(supported_config(raw, target)), None
    kinds = {"sliding": f"sliding ({window(text)} tokens)"}
    layers = ", ".join(f"{count} {kinds.get(kind, kind)}" for kind, count in Counter(layer_kinds(text)).items())
    layers += f", {experts(text)} experts per layer" if experts(text) else ""
    yield Check("target", "good", f"type {raw['model_type']}, layers: {layers}")
    eager = eager_reason(text)
    passes = f" eagerly, also on a GPU: {eager}" if eager else ", with passes captured as CUDA graphs on a GPU"
    yield Check("passes", "good", f"it runs{passes}")
    if method := (raw.get("quantization_config") or {}).get("quant_method"):
        yield Check("weights", "note", f"quantised ({method}); the memory is estimated for weights in {dtype}")
    if drafter is not None:
        form = drafter_form(drafter, text)
        for check in target_checks(form, text):
            yield check
            if check.name == "fit":
                return
        net = network(form)
    parts = memory(text, net, SIZES[dtype])
    yield Check(
        "memory", "good", f"it needs {sum(parts.values()) / 1e9:.3g} GB in {dtype} for a text of {CONTEXT} tokens"
    )
    yield Check(
        "memory by part", "good", ", ".join(f"{part} {count / 1e9:.3g} GB" for part, count in parts.items() if count)
    )


def memory(config: Any, drafter: nn.Module | None, size: int) -> dict[str, int]:
    """Returns the estimated memory in bytes by part, for a text of ``CONTEXT`` tokens and a tree of ``NODES`` nodes.

    config: the target's text config.
    drafter: the drafter's network; None without a drafter.
    size: bytes per number.
    """
    target, rows = target_network(config), row_shape(NODES + 1)
    cache = states = tree = 0
    for layer, kind in zip(target.model.layers, layer_kinds(config), strict=True):
        if kind == "linear":
            net = layer.linear_attn
            matrix = 4 * net.num_v_heads * net.head_k_dim * net.head_v_dim
            states += matrix + size * len(net.conv1d.weight) * (net.conv_kernel_size - 1)
            tree += rows * (size * len(net.conv1d.weight) + 4 * net.num_v_heads * (net.head_k_dim + net.head_v_dim + 1))
        elif not getattr(layer.self_attn, "is_kv_shared_layer", False):
            cache += 2 * size * layer.self_attn.k_proj.out_features
    return {
        "target": size * sum(w.numel() for w in target.parameters()),
        "drafter": size * sum(w.numel() for w in drafter.parameters()) if drafter else 0,
        f"keys and values of {CONTEXT} tokens": (CONTEXT + rows) * cache,
        "states of linear layers": states,
        f"buffers of linear layers for a tree of {NODES} nodes": tree,
    }
