"""The events of a generation: plain, frozen data without tensors. Screen, trace file and metrics read only these.

Positions are absolute (0 = first prompt token). Probabilities are in [0, 1] and taken at temperature 1 for
drafters and at the run's temperature for the target. Times are in seconds. The annotated types are what a trace is
checked against when it is read (``d2sd.trace.schema``).
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
    """One entry of a drafter's top list at a position. Hundreds are made a step: a Struct costs a sixth of a dataclass."""

    id: Count
    text: str
    probability: Probability


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted block. Entry j has depth ``prefix + 1 + j`` below the anchor.

    ``prefix`` drafted tokens of candidate ``base`` (0 = first draft, j = branch j−1) are kept in front; 0 for a
    draft that begins at the anchor. ``confidence[j]`` is the drafter's own probability of ``ids[j]`` (c_k in D²SD, arXiv 2606.04446).
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
    """One pass of a drafter whose tree grows level by level (EAGLE-3): the nodes that the pass after it went on from.

    Entry j is the j-th best of ``scored`` candidates: parents[j] its parent's place in the level above (0, the anchor, in the
    first level), scores[j] the natural logarithm of its path's probability, nodes[j] its node in the verified tree, None
    where better nodes took its place there.
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

    ``candidates`` are the numbers of the drafts whose most likely (or sampled) tokens run through it (0 = first draft,
    j = branch j−1); none where only a drafter's lower-ranked choices led here. ``drafter_probability`` is the
    probability that its proposer gave this token (``d2sd_tree``: that of both drafters together, as weighted there).
    ``target_probability`` and ``target_rank`` (0 = the target's favourite) are those of this token given its
    parent path; both are None for the anchor.
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
    """One token of the output. ``text`` is what it adds to the decoded text (may be empty inside a character)."""

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
    """What a cost-aware step did, of the ``options`` that it looked at: first those before anything was drafted, as of the step
    in which γ was last chosen, then those that were left with the first draft at hand.

    tokens, seconds: expected of the tree that was verified; looking: the option was not expected to pay and was taken to
    see whether it does by now.
    """

    options: tuple[Option, ...]
    taken: Count
    tokens: Amount
    seconds: Seconds
    looking: bool


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The prompt has been read. ``texts`` are the pieces of the prompt, one per token.

    committed: the first token of the output, which prefill gives; empty where the first
    step begins at the prompt's last token instead, as in traces of schema 1.
    """

    prompt_token_ids: tuple[Count, ...]
    texts: tuple[str, ...]
    seconds: Seconds
    committed: tuple[Committed, ...] = ()


@dataclass(frozen=True, slots=True)
class StepDone:
    """One draft → re-draft → verify → commit cycle. ``anchor_position`` tokens stand before the anchor.

    ``boundary_posterior[i]`` = r(i), i = 0 … γ−2; ``full_acceptance`` = the remaining mass ∏ c_k.
    ``actual_boundary`` = number of leading first-draft tokens that the target accepted, None where generation
    ended before that was decided or nothing was drafted. ``elapsed`` counts from the end of prefill.
    ``draft_passes``: number of sequential drafter passes, None if unknown.
    ``decision`` is None where the settings alone say what a step does.
    ``target_tops``: of the nodes behind which something was drafted or chosen; empty where nothing was inspected.
    ``trained``: what a confidence head of the drafter says of each token, by draft, 0 = first draft; empty where no drafter has one.
    ``tempered[k][n]``: the drafter's probability of token k of the first draft at ``TEMPERATURES[n]``; empty where nothing was inspected.
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
    """The event as JSON-ready data, with its type under ``event``."""
    return {"event": type(event).__name__, **asdict(event)}
