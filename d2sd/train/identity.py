"""What a run was made from, in short: it is resumed, and its files are used again, only with the same data and nets."""

from __future__ import annotations

import hashlib

from torch import Tensor


def digest(rows: Tensor) -> str:
    """A short fingerprint of token rows."""
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]
