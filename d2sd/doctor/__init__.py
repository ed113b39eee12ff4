"""Finds out why drafted tokens are rejected: checks the drafter's folder, then tries changes of the drafter one at a time.

``examine(target, drafter)`` returns the ``Findings``: the likely cause, its fix and the measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from d2sd.__about__ import lazy_names

if TYPE_CHECKING:
    from d2sd.doctor.examination import examine
    from d2sd.doctor.findings import Findings

__all__ = ["Findings", "examine"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__, {"d2sd.doctor.examination": ("examine",), "d2sd.doctor.findings": ("Findings",)}
    )
