"""What one browser window keeps between events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """The number of the newest run of this window; a run whose number is no longer the newest stops."""

    run: int = 0

    def begin(self) -> int:
        """Start a run: earlier ones of this window stop at their next step."""
        self.run += 1
        return self.run

    def stop(self) -> None:
        """Stop whatever runs in this window."""
        self.run += 1
