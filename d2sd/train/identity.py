"""Fingerprints of a run's data and networks: it is resumed, and its files are reused, only if they are equal."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
from torch import Tensor


def digest(rows: Tensor) -> str:
    """A short fingerprint of token rows."""
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16]


def digest_of(value: Any) -> str:
    """A short fingerprint of plain values: numbers, strings, lists and dictionaries of them."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
