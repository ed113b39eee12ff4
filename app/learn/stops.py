"""The stops of the tour: titles, texts and figures."""

from __future__ import annotations

from dataclasses import dataclass

from d2sd import StepDone
from d2sd.costs.machines import BYTES, HARDWARE, TARGET

# Formatting of tokens, probabilities and times in the tour.


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


# How a step was verified: the walk of the target from node to node, what it might have drawn where the draft broke, and what
# fewer re-drafts would have brought.


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


@dataclass(frozen=True, slots=True)
class Verified:
    """A step's target pass for the chart of what passes cost: its nodes, its seconds and those of a step of plain decoding where
    it was recorded (None: not timed)."""

    nodes: int
    seconds: float
    plain: float | None


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the tour.

    id: the part of the page that is highlighted.
    say: sentences.
    numbers: (name, value) pairs of this step.
    walk: the nodes of an animated walk.
    odds: the tokens of a sampling demonstration.
    verified: the pass whose cost is drawn.
    asked: frequent questions as (question, answer) pairs."""

    id: str
    title: str
    say: tuple[str, ...]
    equation: Pieces
    numbers: tuple[tuple[str, str], ...]
    walk: tuple[Visit, ...] = ()
    odds: tuple[Odd, ...] = ()
    verified: Verified | None = None
    asked: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """One step as a tour; ``by_branches[k]``: (tokens, nodes) of the step with only its first k re-drafts."""

    stops: tuple[Stop, ...]
    by_branches: tuple[tuple[int, int], ...]


# The tour's stop about the cost of a pass over many tokens.


CARD, LAPTOP = HARDWARE["h100"], HARDWARE["laptop-cpu"]


def cost_of_a_pass(step: StepDone, plain: float | None) -> Stop:
    """Returns the stop. ``plain``: tokens per second of plain decoding on the machine where the run was recorded."""
    nodes = len(step.nodes)
    gigabytes = BYTES * TARGET.weights / 1e9
    reading = BYTES * TARGET.weights / CARD.bandwidth
    sum_of_one = 2 * TARGET.weights / CARD.peak
    seconds = 1 / plain if plain else None
    here = f"{milliseconds(step.seconds.verify)}" + (f", a plain step {milliseconds(seconds)}" if seconds else "")
    return Stop(
        "cost",
        f"Why a pass over {nodes} tokens may cost as much as one" if nodes > 1 else "What a pass costs",
        (
            f"To compute one token, a model with 8 billion weights reads all of them from memory: {gigabytes:.0f} GB. It reads "
            "them once for a whole pass, however many tokens are in it.",
            f"An {CARD.name} reads them in {milliseconds(reading)} and needs {1e3 * sum_of_one:.3f} ms of arithmetic for each "
            f"token. While it waits for the weights it can compute {CARD.ridge:.0f} tokens: up to there they cost nothing more.",
            f"A laptop’s processor reads slowly too, but computes so much slower that its limit is {LAPTOP.ridge:.0f} tokens. "
            "Beyond it every token costs, and that is why drafting may lose there what it wins on a large card.",
        ),
        (("var", "t"), ("", "("), ("var", "n"), ("", ") = max( bytes of weights ÷ bandwidth,  "), ("var", "n"), ("", " · 2 · weights ÷ peak )")),
        (("this pass over " + (f"{nodes} tokens" if nodes > 1 else "one token") + ", where it was recorded", here),),
        verified=Verified(nodes, step.seconds.verify, seconds),
    )  # fmt: skip
