"""Runs measured together: the data for figures and step lists is extracted from each run as it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from d2sd import StepDone, Trace
from d2sd.calibration import Gathering
from d2sd.calibration.steps import UNSEEN, observed
from d2sd.trace.metrics import verdict

MAX_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class StepWords:
    """The texts of a step in the list of steps.

    texts: texts of the scored tokens of the first draft, or of all nodes in a tree without one.
    nodes: ids of the tree nodes of these tokens; tokens that are not in the tree have none.
    wanted: text of the target's token at the first rejection; empty if there was none.
    outcome: the step's ``d2sd.trace.metrics.verdict``; empty if it has none.
    """

    texts: tuple[str, ...]
    nodes: tuple[int, ...]
    wanted: str
    outcome: str

    @classmethod
    def of(cls, step: StepDone) -> StepWords:
        """Returns the texts of a step."""
        matched, boundary = observed(step)
        draft = step.first_draft
        count = 0 if draft is None else min(matched + (boundary != UNSEEN), len(draft.ids))
        texts = (n.text for n in step.nodes) if draft is None else draft.texts[: max(0, count)]
        wanted = cut(step.committed[boundary].text) if 0 <= boundary < len(step.committed) else ""
        return cls(tuple(map(cut, texts)), _nodes(step, max(0, count)), wanted, verdict(step) or "")


class Measured:
    """Data extracted from runs.

    gathering: the data for the figures.
    words: the texts of every step, in the order of the runs.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self.gathering = Gathering()
        self.words: list[StepWords] = []
        for trace in traces:
            self.add(trace)

    def add(self, trace: Trace) -> None:
        """Add a run. Raises ``InputError`` if the runs exceed the limits of ``Gathering``."""
        self.gathering.add(trace)
        self.words += map(StepWords.of, trace.steps)


def _nodes(step: StepDone, count: int) -> tuple[int, ...]:
    """The tree nodes of the first ``count`` tokens of the first draft; fewer where the tree leaves some out."""
    found, parent, nodes = [], 0, step.nodes
    for token in step.first_draft.ids[:count] if step.first_draft else ():
        here = parent + 1  # where a tree that begins with the first draft has it
        if here >= len(nodes) or nodes[here].parent != parent or nodes[here].token != token:
            here = next((n.id for n in nodes if n.parent == parent and n.token == token), 0)
        if not here:
            break
        found.append(here)
        parent = here
    return tuple(found)


def cut(text: str) -> str:
    """Returns a token's text as the list shows it."""
    return text.encode("utf-8", "replace").decode()[:MAX_CHARACTERS]
