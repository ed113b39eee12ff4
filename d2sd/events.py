"""What one generation emits: plain, frozen data without tensors. Screen, trace file and metrics read only these.

Positions are absolute (0 = first prompt token). Probabilities are in [0, 1] and taken at temperature 1 for
drafters and at the run's temperature for the target. Times are in seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["root", "accepted", "rejected", "unreached"]
Proposer = Literal["first", "second", "target"]
StopReason = Literal["end_token", "max_new_tokens", "stopped"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One entry of a drafter's top list at a position."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted block. Entry j stands at depth ``prefix + 1 + j`` below the anchor.

    ``prefix`` drafted tokens of candidate ``base`` (0 = first draft, j = branch j−1) are kept in front; 0 for a
    draft that begins at the anchor. ``confidence[j]`` is the drafter's own probability of ``ids[j]`` (c_k in D²SD, arXiv 2606.04446).
    """

    drafter: Literal["first", "second"]
    prefix: int
    ids: tuple[int, ...]
    texts: tuple[str, ...]
    confidence: tuple[float, ...]
    alternatives: tuple[tuple[Alternative, ...], ...]
    base: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the verified token tree; node 0 is the anchor.

    ``candidates`` are the numbers of the drafts whose most likely (or sampled) tokens run through it (0 = first draft,
    j = branch j−1); none where only a drafter's lower-ranked choices led here. ``drafter_probability`` is the
    probability that its proposer gave this token.
    ``target_probability`` and ``target_rank`` (0 = the target's favourite) are those of this token given its
    parent path; both are None for the anchor.
    """

    id: int
    parent: int
    depth: int
    token: int
    text: str
    candidates: tuple[int, ...]
    proposer: Proposer
    state: State
    drafter_probability: float | None
    target_probability: float | None
    target_rank: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The token that the target chose at a visited node."""

    node: int
    token: int
    text: str
    probability: float | None


@dataclass(frozen=True, slots=True)
class Committed:
    """One token of the output. ``text`` is what it adds to the decoded text (may be empty inside a character)."""

    token: int
    text: str
    proposer: Proposer
    node: int | None


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Measured wall-clock time of one step by stage."""

    first_draft: float = 0.0
    second_draft: float = 0.0
    tree: float = 0.0
    verify: float = 0.0
    commit: float = 0.0


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The prompt has been read. ``texts`` are the pieces of the prompt, one per token."""

    prompt_token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class StepDone:
    """One draft → re-draft → verify → commit cycle. ``anchor_position`` tokens stand before the anchor.

    ``boundary_posterior[i]`` = r(i), i = 0 … γ−2; ``full_acceptance`` = the remaining mass ∏ c_k.
    ``actual_boundary`` = number of leading first-draft tokens that the target accepted, None where generation
    ended before that was decided or nothing was drafted. ``elapsed`` counts from the end of prefill.
    """

    step: int
    anchor: int
    anchor_text: str
    anchor_position: int
    first_draft: Draft | None
    boundary_posterior: tuple[float, ...]
    full_acceptance: float
    selected_prefixes: tuple[int, ...]
    branches: tuple[Draft, ...]
    nodes: tuple[Node, ...]
    choices: tuple[Choice, ...]
    accepted: tuple[int, ...]
    committed: tuple[Committed, ...]
    actual_boundary: int | None
    seconds: StageSeconds
    elapsed: float


@dataclass(frozen=True, slots=True)
class Finished:
    """Totals of the run. ``seconds`` excludes prefill."""

    stop_reason: StopReason
    text: str
    token_ids: tuple[int, ...]
    steps: int
    seconds: float
    prefill_seconds: float


Event = PrefillDone | StepDone | Finished


def to_dict(event: Event) -> dict[str, Any]:
    """The event as JSON-ready data, with its type under ``event``."""
    return {"event": type(event).__name__, **asdict(event)}
