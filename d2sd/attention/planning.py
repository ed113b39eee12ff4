"""Inputs of flashinfer's planner, computed on the host: row and key ranges, and packed masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionLevel:
    """One attention level as flashinfer sees it: requests over flat rows and flat keys.

    rows[i] … rows[i+1] are the query rows of request i, keys[i] … keys[i+1] its keys (int32 arrays).
    """

    rows: np.ndarray
    keys: np.ndarray


def prefix_level(batch: int, rows: int, context: int) -> AttentionLevel:
    """All rows of all branches over the one shared prefix: a single request, so that its keys are read once."""
    return AttentionLevel(np.array([0, batch * rows], np.int32), np.array([0, context], np.int32))


def block_level(batch: int, rows: int, masked: bool) -> AttentionLevel:
    """Every branch over its own block: a request each, or a single one where a mask tells the branches apart."""
    if masked:
        return AttentionLevel(np.array([0, batch * rows], np.int32), np.array([0, batch * rows], np.int32))
    ranges = np.arange(batch + 1, dtype=np.int32) * np.int32(rows)
    return AttentionLevel(ranges, ranges)


def pack_mask(mask: Tensor, batch: int = 1) -> Tensor:
    """Returns a (R, R) bool mask packed for flashinfer, uint8, on the mask's device: row-major, lowest bit first.

    Rows do not begin at bytes. With several branches the mask stands on the diagonal, for their rows as one request.
    """
    whole = torch.kron(torch.eye(batch, dtype=torch.uint8, device=mask.device), mask.to(torch.uint8)).flatten()
    bits = torch.nn.functional.pad(whole, (0, -len(whole) % 8)).view(-1, 8)
    shifts = torch.arange(8, dtype=torch.uint8, device=mask.device)
    return (bits << shifts).sum(-1, dtype=torch.uint8)
