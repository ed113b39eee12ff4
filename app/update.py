"""What long work tells the page while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """``value``: what is shown from now on, None where it stays; ``problem`` and ``news`` are sentences, at most one of
    them not empty."""

    value: T | None = None
    problem: str = ""
    news: str = ""
