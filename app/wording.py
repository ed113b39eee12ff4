"""Formatting of tokens, probabilities and times in the tour."""

from __future__ import annotations

Pieces = tuple[tuple[str, str], ...]


def hat(index: str) -> Pieces:
    """Returns a drafted token in an equation."""
    return (("var", "t̂"), ("sub", index))


def quoted(text: str) -> str:
    """Returns a token between quotation marks."""
    return f"“{text}”"


def decimal(p: float) -> str:
    """Returns a probability with two digits."""
    return "<0.01" if 0 < p < 0.005 else f"{p:.2f}"


def milliseconds(seconds: float) -> str:
    """Returns a duration."""
    return f"{seconds * 1000:.1f} ms"
