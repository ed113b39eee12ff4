"""The events of a generation: plain, frozen data without tensors.

Positions are absolute (0 = first prompt token). Times are in seconds. Probabilities of drafters are at temperature 1.
Probabilities of the target are at the run's temperature, or at 1 if the run's temperature is 0.

These classes are the schema of a trace. A line of a trace is an event as JSON, with the name of its class under ``event``.
Reading a line checks every field against its annotation here; ``d2sd.trace.checks`` checks that the fields are consistent.
"""

from __future__ import annotations

import html
from functools import singledispatch
from reprlib import repr as shortened
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from d2sd.trace.text import all_encodable

Item = TypeVar("Item")
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # largest exact integer in JavaScript
Parent = Annotated[int, Meta(ge=-1, le=2**53 - 1)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Score = Annotated[float, Meta(le=0)]
Seconds = Annotated[float, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Speed = Annotated[float, Meta(gt=0)]
MAX_ITEMS = 4096  # maximum length of each list in a step, such as ``nodes``
MAX_TEXTS = 2**20  # maximum length of the lists of a whole prompt or output
Items = Annotated[tuple[Item, ...], Meta(max_length=MAX_ITEMS)]
LongItems = Annotated[tuple[Item, ...], Meta(max_length=MAX_TEXTS)]
State = Literal["root", "accepted", "rejected", "unreached"]
ProposedBy = Literal["first", "second", "target"]
StopReason = Literal["end_token", "max_new_tokens", "stopped"]
TEMPERATURES = (0.5, 0.707, 1.414, 2.0, 2.828, 4.0)  # temperatures of ``StepDone.tempered``; powers of √2


@singledispatch
def html_of(value: Any) -> str:
    """Returns a value as HTML for a notebook: at most 20 kB, without scripts. Higher modules register implementations for types."""
    return f"<pre>{html.escape(repr(value))}</pre>"


class Data(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Base class of events and of their parts. The objects have no reference cycles, so the garbage collector need not track them."""

    def __repr__(self) -> str:
        fields = (f"{name}={shortened(getattr(self, name))[:80]}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"


class Alternative(Data, frozen=True):
    """One of the likeliest tokens at a position."""

    id: Count
    text: str
    probability: Probability


class Draft(Data, frozen=True):
    """A drafted block. Entry j of every list is about the token at depth ``prefix + 1 + j`` below the anchor.

    drafter: the drafter that drafted the block.
    prefix, base: the block continues the first ``prefix`` tokens of draft number ``base`` (0 = first draft, n =
        ``branches[n − 1]``). ``prefix`` is 0 for a draft that starts at the anchor.
    ids, texts: id and text of each drafted token.
    confidence: the drafter's probability of each drafted token (c_k in D²SD, arXiv 2606.04446).
    alternatives: the drafter's likeliest tokens at each position.
    """

    drafter: Literal["first", "second"]
    prefix: Count
    ids: Items[Count]
    texts: Items[str]
    confidence: Items[Probability]
    alternatives: Items[Items[Alternative]]
    base: Count = 0


class DraftLevel(Data, frozen=True):
    """The best candidates of one pass of a drafter whose tree grows level by level (EAGLE-3). The next pass continued them.

    Entry j of every list is about the j-th best candidate.

    ids, texts: id and text of each candidate's token.
    parents: index of each candidate's parent in the previous level; in the first level 0, which stands for the anchor.
    scores: natural logarithm of the drafter's probability of the path to each candidate.
    nodes: id of each candidate's node in the verified tree; None if the tree contains better nodes instead.
    scored: number of candidates from which the best ones were chosen.
    """

    ids: Items[Count]
    texts: Items[str]
    parents: Items[Count]
    scores: Items[Score]
    nodes: Items[Count | None]
    scored: Count


class Node(Data, frozen=True):
    """A node of the verified token tree; node 0 is the anchor.

    id, parent, depth: id of the node, id of its parent (−1 for the anchor), and depth below the anchor.
    token, text: id and text of the node's token.
    candidates: numbers of the drafts that contain the node (0 = first draft, n = ``branches[n − 1]``); empty if the node is only
        a lower-ranked alternative of a drafter.
    proposer: who proposed the token.
    state: what became of the node when the target verified the tree.
    drafter_probability: probability of the token under its proposer; in ``d2sd_tree``, a weighted product over both drafters.
    target_probability: probability of the token under the target, given the path to its parent; None for the anchor.
    target_rank: rank of the token under the target, 0 = likeliest; None for the anchor.
    """

    id: Count
    parent: Parent
    depth: Count
    token: Count
    text: str
    candidates: Items[Count]
    proposer: ProposedBy
    state: State
    drafter_probability: Probability | None
    target_probability: Probability | None
    target_rank: Count | None


class Choice(Data, frozen=True):
    """The token that the target chose after a node of the accepted path."""

    node: Count
    token: Count
    text: str
    probability: Probability | None


class TargetTop(Data, frozen=True):
    """The target's likeliest next tokens after a node, best first."""

    node: Count
    top: Items[Alternative]


class Draw(Data, frozen=True):
    """How the target's next token after a node of the accepted path was sampled: by the largest sum of log probability and noise.

    node: id of the node.
    tokens: ids of some candidate tokens: the sampled token, the target's likeliest tokens, and the tokens drafted after the node.
    noise: standard Gumbel noise of each of ``tokens``. It depends only on the seed, the position and the token.
    rejected: id of a rejected child of the node; None if there is none.
    residual: the likeliest tokens of the distribution max(0, p − q) ÷ Σ max(0, p − q), from which speculative sampling
        (arXiv 2211.17192) would draw a replacement for ``rejected``. p is the target's distribution, and q the drafter's at
        temperature 1.
    """

    node: Count
    tokens: Items[Count]
    noise: Items[float]
    rejected: Count | None = None
    residual: Items[Alternative] = ()


class Committed(Data, frozen=True):
    """One token of the output.

    token: id of the token.
    text: what the token adds to the decoded text; empty if the token ends inside a character.
    proposer: who proposed the token.
    node: id of the token's node in the verified tree; None for a token that the target added.
    """

    token: Count
    text: str
    proposer: ProposedBy
    node: Count | None


class StageSeconds(Data, frozen=True):
    """Measured wall-clock time of one step by stage."""

    first_draft: Seconds = 0.0
    second_draft: Seconds = 0.0
    tree: Seconds = 0.0
    verify: Seconds = 0.0
    commit: Seconds = 0.0

    @property
    def total(self) -> float:
        return sum(msgspec.structs.astuple(self))


class Option(Data, frozen=True):
    """One of the options that a cost-aware step compares.

    block_size: γ of the first draft; 0 for plain decoding.
    branches: number of re-drafts.
    tokens, seconds: expected number of committed tokens and expected time of the step with this option.
    """

    block_size: Count
    branches: Count
    tokens: Amount
    seconds: Seconds


class Decision(Data, frozen=True):
    """The decision of a cost-aware step.

    options: the compared options: first those of γ, compared before the first draft, then those of the number of re-drafts,
        compared after it.
    taken: index of the selected option.
    tokens, seconds: expected number of committed tokens and expected time of the step, with the tree that was verified.
    looking: whether plain decoding was expected to be faster, but the step drafted to update the estimates.
    """

    options: Items[Option]
    taken: Count
    tokens: Amount
    seconds: Seconds
    looking: bool


class PrefillDone(Data, frozen=True, tag_field="event", tag=True):
    """The prompt has been read.

    prompt_token_ids, texts: id and text of each prompt token.
    seconds: time of the forward pass over the prompt.
    committed: the first token of the output, which prefill commits; empty if the first step starts at the last prompt token
        instead, as in traces of schema 1.
    """

    prompt_token_ids: LongItems[Count]
    texts: LongItems[str]
    seconds: Seconds
    committed: LongItems[Committed] = ()


class StepDone(Data, frozen=True, tag_field="event", tag=True):
    """One step: draft, re-draft, verify, commit.

    step: number of the step, from 0.
    anchor, anchor_text: id and text of the last committed token, after which the step drafts.
    anchor_position: number of tokens before the anchor.
    first_draft: the first draft; None if no block was drafted.
    boundary_posterior: predicted probability r(i) that exactly i drafted tokens are accepted, for i = 0 … γ−2.
    full_acceptance: predicted probability that all drafted tokens are accepted, ∏ c_k.
    selected_prefixes: lengths of the prefixes of the first draft that were re-drafted from. The likeliest boundary comes first;
        with the method ``random_prefix``, the order is random.
    branches: the re-drafts.
    nodes: the verified token tree, parents before children; node 0 is the anchor.
    choices: the target's choice at every node of the accepted path.
    accepted: ids of the accepted nodes, from the anchor's child on.
    committed: tokens that the step adds to the output: the accepted tokens, then the bonus token of the target.
    actual_boundary: number of leading first-draft tokens that the target accepted; None if there is no first draft, or
        generation ended before this number was decided.
    seconds: measured time by stage.
    elapsed: time from the end of prefill to the end of this step.
    draft_passes: number of sequential drafter passes; None if unknown.
    levels: the levels of a tree that grew level by level (EAGLE-3); empty for other trees.
    decision: the decision of a cost-aware step; None for other steps.
    target_tops: the target's likeliest tokens after each node that has children or an entry in ``choices``; empty if not inspected.
    trained: ``trained[d][k]`` is the output of a trained confidence head for token k of draft d (d = 0: first draft); empty without a
        head.
    tempered: ``tempered[k][n]`` is the drafter's probability of token k of the first draft at ``TEMPERATURES[n]``; empty if not
        inspected.
    draws: how each of ``choices`` was sampled; empty at temperature 0, if not inspected, and for captured passes.
    """

    step: Count
    anchor: Count
    anchor_text: str
    anchor_position: Count
    first_draft: Draft | None
    boundary_posterior: Items[Probability]
    full_acceptance: Probability
    selected_prefixes: Items[Count]
    branches: Items[Draft]
    nodes: Items[Node]
    choices: Items[Choice]
    accepted: Items[Count]
    committed: Items[Committed]
    actual_boundary: Count | None
    seconds: StageSeconds
    elapsed: Seconds
    draft_passes: Count | None = None
    levels: Items[DraftLevel] = ()
    decision: Decision | None = None
    target_tops: Items[TargetTop] = ()
    trained: Items[Items[Probability]] = ()
    tempered: Items[Items[Probability]] = ()
    draws: Items[Draw] = ()

    def __repr__(self) -> str:
        return f"<step {self.step + 1}: {len(self.committed)} tokens written, {len(self.nodes)} nodes verified>"

    def _repr_html_(self) -> str:
        return html_of(self)


class Finished(Data, frozen=True, tag_field="event", tag=True):
    """The run has ended.

    stop_reason: "end_token", "max_new_tokens" or "stopped".
    text, token_ids: the generated text and its token ids, prompt excluded. ``text`` leaves out special tokens.
    steps: number of steps.
    seconds, prefill_seconds: time of all steps, and of prefill.
    """

    stop_reason: StopReason
    text: str
    token_ids: LongItems[Count]
    steps: Count
    seconds: Seconds
    prefill_seconds: Seconds


Event = PrefillDone | StepDone | Finished
EVENTS = frozenset({"PrefillDone", "StepDone", "Finished"})  # names of the events in a trace


class Baseline(Struct, frozen=True, tag_field="event", tag=True, omit_defaults=True):
    """A line with which the page completes a run: the measured speed of plain decoding on the same machine, and of the run itself.

    The Explore tab measures plain decoding once per model and machine, and reuses the result. A race includes a plain run.

    tokens_per_second: speed of plain decoding.
    unwatched: tokens per second of the run itself, without the time of recording: its tokens divided by the sum of its stage times.
        In Explore on a CPU, the time used by other programs, such as the browser, is left out, too. None if not measured.
    disturbed: whether the measured times must be wrong, because other work kept the machine busy (``d2sd.costs.runs``).
    measured: ISO date of the reused measurement; empty in a race and in older traces.
    context: number of tokens before the measured step; None if unknown.
    """

    tokens_per_second: Speed
    unwatched: Speed | None = None
    disturbed: bool = False
    measured: Annotated[str, Meta(max_length=40)] = ""
    context: Count | None = None


Record = Event | Baseline | dict[str, Any]
"""Content of a trace line: an event, the header, the reason why a run failed, or the speed of plain decoding."""

_encoder = msgspec.json.Encoder()
# The last fields of a step are left out if they are empty, so that lines of older traces are written back unchanged.
_NOTHING = b',"draws":[]}', b',"tempered":[]}', b',"trained":[]}', b',"target_tops":[]}'


def to_line(record: Struct | dict[str, Any]) -> str:
    """Returns one JSON line with its newline. Characters that UTF-8 cannot encode are replaced."""
    try:
        line = _encoder.encode(record)
    except UnicodeEncodeError:  # a lone surrogate in some text
        line = _encoder.encode(all_encodable(msgspec.to_builtins(record)))
    for nothing in _NOTHING:
        if not line.endswith(nothing):
            break
        line = line[: -len(nothing)] + b"}"
    return line.decode() + "\n"
