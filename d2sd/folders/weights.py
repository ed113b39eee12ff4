"""Short fingerprints of models, to tell two checkpoints apart in recorded runs."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from d2sd.nets.models import Models

_LOOKED_AT = 1024  # numbers of every weight: a big net is not copied to the host


def weights_digest(net: nn.Module) -> str:
    """Returns a short fingerprint of a network, from the first numbers of every weight: training moves all of them."""
    kept = (p for p in net.parameters() if not p.is_meta)
    heads = [p.detach().flatten()[:_LOOKED_AT].float().cpu() for p in kept]
    return hashlib.sha256(torch.cat(heads).numpy().tobytes()).hexdigest()[:16]


def parts(models: Models) -> dict[str, dict[str, Any]]:
    """Returns a description of every part of a set, by its name in ``Models.names``.

    All parts have name, weights (a fingerprint), dtype, layout (the network's class) and rope (rotary parameters). A target
    also has chat_template (a fingerprint). Drafters have taps (the target layers that they read), and block drafters
    block_size (γ as trained) and mask_token_id.
    """
    found = {}
    for part, target in (("target", models.target), ("draft_model", models.draft_model)):
        if target is not None:
            template = str(target.tokenizer.chat_template or "")
            found[part] = {**_of(target.model, target.config, target.name), "dtype": target.numbers}
            if template:
                found[part]["chat_template"] = hashlib.sha256(template.encode()).hexdigest()[:16]
    for part, block in (("first_drafter", models.first), ("second_drafter", models.second)):
        if block is not None:
            found[part] = {
                **_of(block, block.config, block.config.name_or_path),
                "taps": _words(block.target_layer_ids),
                "block_size": block.block_size,
                "mask_token_id": block.mask_token_id,
            }
    if (level := models.eagle3) is not None:
        own = _of(level, level.config.layer, level.config.name_or_path)
        found["eagle3"] = {**own, "taps": _words(level.target_layer_ids)}
    return found


def _of(net: Any, config: Any, name: str) -> dict[str, Any]:
    rope = getattr(config, "rope_parameters", None) or {}
    return {
        "name": name,
        "weights": weights_digest(net),
        "dtype": str(next(net.parameters()).dtype).removeprefix("torch."),
        "layout": type(net).__name__,
        "rope": ", ".join(f"{key} {value}" for key, value in sorted(rope.items())),
    }


def _words(numbers: Any) -> str:
    """As text: a header is not nested deeper."""
    return " ".join(map(str, numbers))
