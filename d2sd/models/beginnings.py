"""Initialisation of untrained drafters: shapes, and weights copied from the target's last layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d2sd.nets.types import TargetType, target_type


def dense_width(target: Any) -> int:
    """Returns the width of a drafter's MLP for a target's text config; 3 × hidden size if a mixture of experts has none."""
    return int(getattr(target, "intermediate_size", None) or 3 * target.hidden_size)


def plain_rope(target: Any) -> dict[str, Any]:
    """Returns RoPE parameters for a drafter of this target: those of full attention, over whole heads, for text alone."""
    rope = dict(target.rope_parameters)
    rope = dict(rope.get("full_attention") or rope)
    if rope.get("rope_type") == "proportional":  # of a part of each head
        rope["rope_type"] = "default"
    return {key: value for key, value in rope.items() if key != "partial_rotary_factor" and "mrope" not in key}


def start_from_target(drafter: Any, target: Any) -> None:
    """Initialise a drafter from the target's last attention layers, as far as shapes agree; ``fc`` starts as the identity on the
    last tap.

    Learns clearly faster than from noise (measured on ``tiny``: assets/models/tiny/PROVENANCE.md names the log).
    """
    kind, count = target_type(target.config), len(drafter.layers)
    with torch.no_grad():
        sources = [layer for layer in target.layers if hasattr(layer, "self_attn")][-count:]
        for layer, source in zip(drafter.layers[count - len(sources) :], sources, strict=True):
            own = layer.state_dict()
            weights = _plain_weights(source, kind)
            layer.load_state_dict(
                {k: v for k, v in weights.items() if k in own and v.shape == own[k].shape}, strict=False
            )
        drafter.norm.weight.copy_(target.norm.weight + kind.centred)
        hidden = drafter.config.hidden_size
        drafter.fc.weight[:, -hidden:] += torch.eye(hidden, device=drafter.fc.weight.device)


def _plain_weights(layer: Any, kind: TargetType) -> dict[str, Tensor]:
    """Returns a target layer's weights in Qwen3's form: queries without output gates, norms with whole weights."""
    weights: dict[str, Tensor] = layer.state_dict()
    if kind.gated:
        query = weights["self_attn.q_proj.weight"]
        weights["self_attn.q_proj.weight"] = query.view(-1, 2, layer.self_attn.head_dim, query.shape[1])[:, 0].flatten(
            0, 1
        )
    if kind.centred:
        weights = {name: w + 1 if "norm" in name else w for name, w in weights.items()}
    return weights
