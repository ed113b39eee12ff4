"""What a run was made from, in short: it is resumed, and its files are used again, only with the same data and nets."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

_LOOKED_AT = 1024  # numbers of every weight: a big net is not copied to the host


def digest(rows: Tensor) -> str:
    """A short fingerprint of token rows."""
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]


def weights_digest(net: nn.Module) -> str:
    """A short fingerprint of a net: of the first numbers of every weight, since training moves all of them."""
    heads = [p.detach().flatten()[:_LOOKED_AT].float().cpu() for p in net.parameters()]
    return hashlib.sha256(torch.cat(heads).numpy().tobytes()).hexdigest()[:16]
