"""How a step was verified: the walk of the target from node to node, what it might have drawn where the draft broke, and what
fewer re-drafts would have brought."""

from __future__ import annotations

from dataclasses import dataclass

from d2sd import StepDone


@dataclass(frozen=True, slots=True)
class Visit:
    """One node of the walk.

    text: the token that the target chose after ``node``.
    probability: the target's probability of that token; None if not recorded.
    child: the node with that token; None if there is none.
    """

    node: int
    text: str
    probability: float | None
    child: int | None


@dataclass(frozen=True, slots=True)
class Odd:
    """A possible next token of the target, with its probability; ``drafted``: whether a node has it."""

    text: str
    probability: float
    drafted: bool


def visits(step: StepDone) -> tuple[Visit, ...]:
    """Returns the walk, anchor first."""
    children = (*step.accepted, None)
    return tuple(Visit(c.node, c.text, c.probability, child) for c, child in zip(step.choices, children, strict=False))


def odds(step: StepDone) -> tuple[Odd, ...]:
    """Returns the target's possible tokens at the rejection of the first draft, likeliest first.

    If nothing was rejected, those after the anchor; empty if the probabilities were not recorded.
    """
    at = step.actual_boundary or 0
    path = [0, *step.accepted]
    choice = step.choices[at] if at < len(step.choices) else None
    here = [n for n in step.nodes if at < len(path) and n.parent == path[at]]
    if choice is None or choice.probability is None or any(n.target_probability is None for n in here):
        return ()
    out = [Odd(n.text, n.target_probability or 0.0, drafted=True) for n in here]
    if all(n.token != choice.token for n in here):
        out.append(Odd(choice.text, choice.probability, drafted=False))
    return tuple(sorted(out, key=lambda o: -o.probability))


def by_branches(step: StepDone) -> tuple[tuple[int, int], ...]:
    """What the tree of the first k re-drafts alone would have brought, k = 0, 1, …: exact, as they come best first."""
    out = []
    for k in range(len(step.branches) + 1):
        reached = 0
        for n in step.accepted:
            if min(step.nodes[n].candidates, default=0) > k:
                break
            reached += 1
        whole = reached == len(step.accepted)
        tokens = len(step.committed) if whole else reached + 1
        out.append((tokens, sum(min(n.candidates, default=0) <= k for n in step.nodes)))
    return tuple(out)
