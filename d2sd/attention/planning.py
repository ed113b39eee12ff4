"""What flashinfer's planner is told, worked out on the host without a GPU: row and key ranges, packed mask bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Level:
    """One attention level as flashinfer sees it: requests over flat rows and flat keys.

    rows[i] … rows[i+1] are the query rows of request i, keys[i] … keys[i+1] its keys (int32 arrays).
    """

    rows: np.ndarray
    keys: np.ndarray


def prefix_level(batch: int, rows: int, context: int) -> Level:
    """All rows of all branches over the one shared prefix: a single request, so that its keys are read once."""
    return Level(np.array([0, batch * rows], np.int32), np.array([0, context], np.int32))


def block_level(batch: int, rows: int, masked: bool) -> Level:
    """Every branch over its own block: a request each, or a single one where a mask tells the branches apart."""
    if masked:
        return Level(np.array([0, batch * rows], np.int32), np.array([0, batch * rows], np.int32))
    ranges = np.arange(batch + 1, dtype=np.int32) * np.int32(rows)
    return Level(ranges, ranges)


def pack_mask(mask: np.ndarray, batch: int = 1) -> np.ndarray:
    """Bits of a (R, R) bool mask in flashinfer's order, uint8: row by row, lowest bit first, rows not aligned.

    With several branches the mask stands on the diagonal, for their rows as one request.
    """
    whole = np.kron(np.eye(batch, dtype=bool), mask)
    return np.packbits(whole.reshape(-1), bitorder="little")
