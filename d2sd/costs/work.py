"""The work of a step: the rows of its passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from d2sd.trace.events import StepDone


@dataclass(frozen=True, slots=True)
class Work:
    """Rows of one step's passes.

    first: of the first draft, the anchor's included (EAGLE-3: depth + 2); 0 where nothing was drafted.
    again: of each re-drafting pass: blocks × positions.
    nodes: verified tree nodes, the anchor included.
    """

    first: int
    again: tuple[int, ...]
    nodes: int

    @classmethod
    def of(cls, step: StepDone, header: Mapping[str, Any]) -> Work:
        """Returns the work of a recorded step. ``header``: of its trace, for the settings that give the length of re-drafts."""
        config = header.get("config")
        known = config if isinstance(config, Mapping) else {}
        size = 1 + len(step.first_draft.ids) if step.first_draft else 0
        if not size and header.get("method") == "eagle3" and len(step.nodes) > 1:
            size = _whole(known, "draft_depth") + 2
        # drafts that were only drawn from the first one's distributions took no pass
        drafted = step.branches if step.selected_prefixes else ()
        block = size + _whole(known, "second_block_size") - _whole(known, "block_size")
        third = sum(b.base > 0 for b in drafted)
        return cls(size, tuple(n * block for n in (len(drafted) - third, third) if n), len(step.nodes))


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0
