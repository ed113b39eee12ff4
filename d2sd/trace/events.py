"""The events of a generation: plain, frozen data without tensors. The page, traces and metrics read only these.

Positions are absolute (0 = first prompt token). Probabilities are in [0, 1]: at temperature 1 for drafters, and at the
run's temperature for the target. Times are in seconds. When a trace is read, it is checked against the annotated types
(``d2sd.trace.schema``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # what JavaScript holds exactly
Parent = Annotated[int, Meta(ge=-1, le=2**53 - 1)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Score = Annotated[float, Meta(le=0)]
Seconds = Annotated[float, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
State = Literal["root", "accepted", "rejected", "unreached"]
ProposedBy = Literal["first", "second", "target"]
StopReason = Literal["end_token", "max_new_tokens", "stopped"]
TEMPERATURES = (0.5, 0.707, 1.414, 2.0, 2.828, 4.0)  # of ``StepDone.tempered``: powers of √2


class Alternative(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One of the likeliest tokens at a position. A step makes hundreds of them: a Struct costs a sixth of a dataclass."""

    id: Count
    text: str
    probability: Probability


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted block. Entry j has depth ``prefix + 1 + j`` below the anchor.

    The draft continues the first ``prefix`` tokens of candidate ``base`` (0 = first draft, j = branch j−1); ``prefix`` is 0
    for a draft that starts at the anchor. ``confidence[j]`` is the drafter's probability of ``ids[j]`` (c_k in D²SD, arXiv 2606.04446).
    """

    drafter: Literal["first", "second"]
    prefix: Count
    ids: tuple[Count, ...]
    texts: tuple[str, ...]
    confidence: tuple[Probability, ...]
    alternatives: tuple[tuple[Alternative, ...], ...]
    base: Count = 0


@dataclass(frozen=True, slots=True)
class DraftLevel:
    """One pass of a drafter whose tree grows level by level (EAGLE-3): the nodes that the next pass continued.

    Entry j is the j-th best of ``scored`` candidates.

    parents: index of its parent in the previous level; in the first level 0, the anchor.
    scores: natural logarithm of the probability of its path.
    nodes: its node in the verified tree; None if the tree contains better nodes instead.
    """

    ids: tuple[Count, ...]
    texts: tuple[str, ...]
    parents: tuple[Count, ...]
    scores: tuple[Score, ...]
    nodes: tuple[Count | None, ...]
    scored: Count


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the verified token tree; node 0 is the anchor.

    candidates: numbers of the drafts that contain it (0 = first draft, j = branch j−1); empty if it is on no draft, only on
        a drafter's lower-ranked alternatives.
    drafter_probability: probability of this token under its proposer (``d2sd_tree``: weighted over both drafters).
    target_probability: probability of this token under the target, given its parent path; None for the anchor.
    target_rank: rank of this token under the target, 0 = likeliest; None for the anchor.
    """

    id: Count
    parent: Parent
    depth: Count
    token: Count
    text: str
    candidates: tuple[Count, ...]
    proposer: ProposedBy
    state: State
    drafter_probability: Probability | None
    target_probability: Probability | None
    target_rank: Count | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The target's choice at a visited node."""

    node: Count
    token: Count
    text: str
    probability: Probability | None


@dataclass(frozen=True, slots=True)
class TargetTop:
    """The target's likeliest next tokens after a node, best first."""

    node: Count
    top: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """One token of the output. ``text``: what it adds to the decoded text, empty if it ends inside a character."""

    token: Count
    text: str
    proposer: ProposedBy
    node: Count | None


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Measured wall-clock time of one step by stage."""

    first_draft: Seconds = 0.0
    second_draft: Seconds = 0.0
    tree: Seconds = 0.0
    verify: Seconds = 0.0
    commit: Seconds = 0.0

    @property
    def total(self) -> float:
        """Sum of all stages."""
        return self.first_draft + self.second_draft + self.tree + self.verify + self.commit


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a step: γ of the first draft (0: none), number of re-drafts, and expected tokens and time."""

    block_size: Count
    branches: Count
    tokens: Amount
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a cost-aware step.

    options: options considered before the first draft, in the step that last chose γ, then those considered after it.
    taken: index of the selected option.
    tokens, seconds: expected committed tokens and time of the step, for the tree that was verified.
    looking: whether the option was not expected to pay but tried again to update the estimates.
    """

    options: tuple[Option, ...]
    taken: Count
    tokens: Amount
    seconds: Seconds
    looking: bool


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The prompt has been read.

    texts: the text of each prompt token.
    committed: the first token of the output, which prefill commits; empty if the first step starts at the last prompt token
        instead, as in traces of schema 1.
    """

    prompt_token_ids: tuple[Count, ...]
    texts: tuple[str, ...]
    seconds: Seconds
    committed: tuple[Committed, ...] = ()


@dataclass(frozen=True, slots=True)
class StepDone:
    """One draft → re-draft → verify → commit cycle.

    anchor_position: number of tokens before the anchor.
    boundary_posterior: [i]: r(i), the probability that exactly i drafted tokens are accepted, i = 0 … γ−2.
    full_acceptance: the remaining probability ∏ c_k, that all are accepted.
    actual_boundary: number of leading first-draft tokens that the target accepted; None if generation ended before that was
        decided or nothing was drafted.
    elapsed: seconds since the end of prefill, after this step.
    draft_passes: number of sequential drafter passes; None if unknown.
    decision: None unless the step was cost-aware.
    target_tops: for the nodes after which something was drafted or chosen; empty if not inspected.
    trained: [d][k]: confidence of a trained head for token k of draft d, 0 = first draft; empty without such a head.
    tempered: [k][n]: the drafter's probability of token k of the first draft at ``TEMPERATURES[n]``; empty if not inspected.
    """

    step: Count
    anchor: Count
    anchor_text: str
    anchor_position: Count
    first_draft: Draft | None
    boundary_posterior: tuple[Probability, ...]
    full_acceptance: Probability
    selected_prefixes: tuple[Count, ...]
    branches: tuple[Draft, ...]
    nodes: tuple[Node, ...]
    choices: tuple[Choice, ...]
    accepted: tuple[Count, ...]
    committed: tuple[Committed, ...]
    actual_boundary: Count | None
    seconds: StageSeconds
    elapsed: Seconds
    draft_passes: Count | None = None
    levels: tuple[DraftLevel, ...] = ()
    decision: Decision | None = None
    target_tops: tuple[TargetTop, ...] = ()
    trained: tuple[tuple[Probability, ...], ...] = ()
    tempered: tuple[tuple[Probability, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """Totals of the run. ``seconds`` excludes prefill."""

    stop_reason: StopReason
    text: str
    token_ids: tuple[Count, ...]
    steps: Count
    seconds: Seconds
    prefill_seconds: Seconds


Event = PrefillDone | StepDone | Finished


def to_dict(event: Event) -> dict[str, Any]:
    """Returns the event as JSON-ready data, with its type under ``event``."""
    return {"event": type(event).__name__, **asdict(event)}
