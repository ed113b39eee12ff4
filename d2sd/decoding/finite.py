"""Detection of NaN and infinity: the run stops and names the model that produced them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from d2sd.errors import InputError
from d2sd.models.target import Target


def check_confidence(confidence: Iterable[float], drafter: str, target: Target) -> None:
    """Raise ``InputError`` if a drafter's probabilities, already on the host, are not finite.

    The drafter reads the target's features, so if its probabilities are not finite, the target's weights are checked too.
    """
    if any(c != c for c in confidence):
        culprit = f"the drafter {drafter}" if _finite(_of(target)) else f"the target {target.name}"
        raise not_finite(culprit)


def not_finite(net: str) -> InputError:
    """Returns the error for a network whose outputs are not finite."""
    return InputError(
        f"{net} computed NaN or infinity; its weights are damaged or its numbers outgrow their type: "
        "choose other models, or another type such as float32 or bfloat16"
    )


def _of(target: Target) -> Iterable[Tensor]:
    yield from target.tapped()
    yield from target.model.parameters()


def _finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point() and not t.is_meta)
