"""Fingerprints of a run's data and networks: it is resumed, and its files are reused, only if they are equal."""

from __future__ import annotations

import hashlib

from torch import Tensor


def digest(rows: Tensor) -> str:
    """A short fingerprint of token rows."""
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]
