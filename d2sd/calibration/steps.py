"""Recorded runs as tables, for vectorized statistics: arrays with one entry per step, re-drafted token or verified tree node."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import nan
from typing import Any, Self

import numpy as np

from d2sd.errors import InputError
from d2sd.trace.events import TEMPERATURES, StepDone
from d2sd.trace.metrics import verdict
from d2sd.tree.tree import chains

UNSEEN = -1
OTHER = -1  # number of the source of tree nodes that are lower-ranked alternatives
MIN_PROMPTS = 8
MAX_BLOCKS = 200
# maximum number of columns of ``confidence`` or ``nodes``; the outcome matrix has about MAX_WIDTH² cells
MAX_WIDTH = 1026
MAX_CELLS = 8 * 10**6  # 8-byte numbers in an array with one row per step


@dataclass(frozen=True, slots=True)
class Rows:
    """Base of tables whose columns are arrays with one entry per row."""

    def take(self, rows: np.ndarray) -> Self:
        """Returns a table of some of the rows. rows: the numbers of these rows, or a mask that is true for them."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Scores(Rows):
    """M scored tokens: drafted tokens, or verified tree nodes, whose acceptance is known. All columns are (M,).

    row: row of the token's step in the ``StepTable``, in ascending order.
    position: position of the token in its draft, or depth of the node, from 1.
    confidence: probability of the token, or of the path to the node, by the drafter; NaN if not recorded.
    accepted: 0 or 1.
    """

    row: np.ndarray
    position: np.ndarray
    confidence: np.ndarray
    accepted: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def known(self) -> Scores:
        """Returns the tokens with a confidence."""
        return self.take(~np.isnan(self.confidence))


@dataclass(frozen=True, slots=True)
class StepTable(Rows):
    """N steps of one or more runs; G is the longest first draft, J the largest number of re-drafts.

    run, step: number of the run and of the step in it, (N,).
    prompt: number of the run's prompt, (N,). Equal prompts have equal numbers; every unknown prompt has a different number.
    drafted: number of tokens of the first draft, (N,).
    confidence: confidence c_k of every first-draft token, (N, G); NaN after the last token, and in steps without confidences.
    matched: number of leading first-draft tokens that equal the committed ones, (N,); UNSEEN if nothing was drafted.
    boundary: equal to ``matched`` if the next token was rejected or all tokens were accepted, (N,). UNSEEN if nothing was drafted,
        or if the text or the verified part of the draft ended before the target and the draft differed.
    selected: number of selected prefixes, (N,).
    hit: whether the boundary was a selected prefix, (N,).
    repaired: whether the boundary was selected and re-drafts added tokens there, (N,).
    committed: number of committed tokens, including the bonus token, (N,).
    seconds: time of the step, (N,).
    branches: number of re-drafts, (N,).
    nodes, gained: numbers of verified and of accepted tree nodes by source, (N, J+2). Column 0 counts the nodes of the first draft,
        column j the nodes of re-draft j that are in no earlier draft, and the last column the lower-ranked alternatives.
    """

    run: np.ndarray
    step: np.ndarray
    prompt: np.ndarray
    drafted: np.ndarray
    confidence: np.ndarray
    matched: np.ndarray
    boundary: np.ndarray
    selected: np.ndarray
    hit: np.ndarray
    repaired: np.ndarray
    committed: np.ndarray
    seconds: np.ndarray
    branches: np.ndarray
    nodes: np.ndarray
    gained: np.ndarray

    def __len__(self) -> int:
        return len(self.run)

    @property
    def runs(self) -> int:
        return len(np.unique(self.run))

    @property
    def prompts(self) -> int:
        """Number of different prompts of these runs."""
        return len(np.unique(self.prompt))

    @property
    def boundary_known(self) -> np.ndarray:
        """Whether the boundary of each step is known, (N,) bool."""
        return self.boundary != UNSEEN

    @property
    def has_confidence(self) -> np.ndarray:
        """Whether the draft of each step has confidences, (N,) bool."""
        return ~np.isnan(self.confidence).all(1)

    @property
    def rejected(self) -> np.ndarray:
        """Whether a token of each step's first draft was rejected, so that there is a boundary to predict, (N,) bool."""
        return self.boundary_known & (self.boundary < self.drafted)

    @property
    def redrafted(self) -> np.ndarray:
        """Whether each step has a rejected first-draft token and selected prefixes, (N,) bool."""
        return self.rejected & (self.selected > 0)

    @property
    def scored(self) -> np.ndarray:
        """Whether the outcome of each position is known, (N, G) bool: true up to the first drafted token that differs from the
        committed one.

        A node budget does not change this: the target's choice after the last verified node shows whether the next drafted
        token would have been accepted.
        """
        positions = np.arange(self.confidence.shape[1])
        return positions < np.minimum(self.matched + self.boundary_known, self.drafted)[:, None]

    @property
    def scores(self) -> Scores:
        """The scored positions of the first drafts."""
        row, index = np.nonzero(self.scored)
        return Scores(row, index + 1, self.confidence[row, index], (index < self.matched[row]).astype(float))


@dataclass(frozen=True, slots=True)
class RunTables:
    """Recorded runs as tables. N, G: as for ``StepTable``.

    prompts, domains: prompt and prompt group of every run.
    tempered: confidence at ``TEMPERATURES``, (N, G, len(TEMPERATURES)) float32; (N, 0, …) if no step recorded it.
    head: output of the drafter's confidence head for each drafted token, (N, G); NaN elsewhere; (N, 0) without a head.
    right: for each re-draft of the second drafter, whether its prefix was accepted and the text continued after the prefix.
    redrafted: the scored tokens of the re-drafts for which ``right`` is true, up to and including the first rejected token.
    verified: the scored tree nodes of the steps that have no block draft (EAGLE-3). A node that the target did not reach counts as
        rejected, since the target chose another path. Steps without a bonus token, in which the text ended, are left out. Within
        a step, accepted nodes come first, then the others by descending probability.
    node: id of each node in ``verified``.
    """

    prompts: tuple[str, ...]
    domains: tuple[str, ...]
    table: StepTable
    tempered: np.ndarray
    head: np.ndarray
    right: np.ndarray
    redrafted: Scores
    verified: Scores
    node: np.ndarray

    @property
    def by_head(self) -> StepTable | None:
        """``table`` with the output of the confidence head as its confidences; None without a head."""
        return replace(self.table, confidence=self.head) if self.head.size else None


STEP_NUMBERS = ("run", "step", "drafted", "matched", "boundary", "selected", "hit", "repaired", "committed", "branches")


class TableBuilder:
    """Collects the columns of ``RunTables`` run by run, without padding. The steps themselves are not kept.

    prompts, domains: prompt and prompt group of every run.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.domains: list[str] = []
        # for every step: ``STEP_NUMBERS``, then its number of entries in ``_nodes``, ``_gained``, ``_tempered`` and ``_head``
        self._numbers = array("i")
        self._seconds = array("d")
        self._nodes, self._gained = array("h"), array("h")  # source of every verified and of every accepted node
        self._confidence, self._tempered, self._head = array("d"), array("f"), array("d")  # of all drafted tokens
        self._right = array("b")
        self._redrafted, self._verified = ([array(code) for code in "ihdb"] for _ in range(2))  # columns of ``Scores``
        self._node = array("h")
        self._width = 0

    def add(self, steps: Sequence[StepDone], prompt: str = "", domain: str = "all") -> None:
        """Adds the steps of a run. Raises ``InputError`` if the tables would take too much memory.

        prompt: the run's prompt; empty if unknown.
        domain: the run's prompt group.
        """
        count = len(self._seconds) + len(steps)
        widths = (max(len(s.branches) + 2, len(s.first_draft.ids) if s.first_draft else 0) for s in steps)
        width = max([self._width, *widths])
        if width > MAX_WIDTH or count * width > MAX_CELLS:
            raise InputError(
                f"{count} steps with up to {width} drafted tokens or re-drafts are too many to measure together; measure fewer"
            )
        self._width, before = width, 0.0
        for number, step in enumerate(steps):
            self._add(step, number)
            self._seconds.append(step.elapsed - before)
            before = step.elapsed
        self.prompts.append(prompt)
        self.domains.append(domain)

    def _add(self, step: StepDone, number: int) -> None:
        draft = step.first_draft
        drafted, head = len(draft.ids) if draft else 0, step.trained[0] if step.trained else ()
        # a node counts for the earliest draft that contains it
        sources = [min(n.candidates, default=OTHER) for n in step.nodes]
        matched, boundary = observed(step)
        hit, repaired = step.actual_boundary in step.selected_prefixes, verdict(step) == "repaired"
        self._numbers.extend((
            len(self.prompts), number, drafted, matched, boundary, len(step.selected_prefixes), hit, repaired,
            len(step.committed), len(step.branches), len(sources) - 1, len(step.accepted), len(step.tempered), len(head),
        ))  # fmt: skip
        if draft:
            self._confidence.extend(draft.confidence or (nan,) * drafted)
        for probabilities in step.tempered:
            self._tempered.extend(probabilities)
        self._head.extend(head)
        self._nodes.extend(sources[1:])
        self._gained.extend(sources[n] for n in step.accepted)
        if draft:
            self._add_redrafts(step)
        else:
            self._add_nodes(step)

    def _add_redrafts(self, step: StepDone) -> None:
        row, committed = len(self._seconds), tuple(c.token for c in step.committed)
        for draft, candidate in zip(step.branches, chains([step.first_draft, *step.branches])[1:], strict=True):
            if draft.drafter != "second":
                continue
            prefix = draft.prefix
            right = len(committed) > prefix and committed[:prefix] == candidate[:prefix]
            self._right.append(right)
            drafted = zip(draft.ids, draft.confidence, committed[prefix:], strict=False) if right else ()
            for position, (token, confidence, target) in enumerate(drafted, 1):
                _append(self._redrafted, row, position, confidence, token == target)
                if token != target:
                    break

    def _add_nodes(self, step: StepDone) -> None:
        if len(step.nodes) < 2 or step.committed[-1].node is not None:
            return
        row, path = len(self._seconds), [1.0]  # probability of the path to each node
        for node in step.nodes[1:]:
            path.append(path[node.parent] * (node.drafter_probability or 0.0))
        for node in sorted(step.nodes[1:], key=lambda n: (n.state != "accepted", -path[n.id], n.id)):
            _append(self._verified, row, node.depth, path[node.id], node.state == "accepted")
            self._node.append(node.id)

    def tables(self) -> RunTables:
        *columns, nodes, gained, tempered, head = (
            np.array(self._numbers, int).reshape(-1, len(STEP_NUMBERS) + 4).T.copy()
        )
        numbers = dict(zip(STEP_NUMBERS, columns, strict=True))
        drafted = numbers["drafted"]
        width, sources = int(drafted.max(initial=0)), int(numbers["branches"].max(initial=0)) + 2
        prompts = {prompt: n for n, prompt in enumerate(dict.fromkeys(self.prompts))}
        of_run = [prompts[p] if p else len(prompts) + n for n, p in enumerate(self.prompts)]
        return RunTables(
            tuple(self.prompts),
            tuple(self.domains),
            StepTable(
                **numbers | {name: numbers[name].astype(bool) for name in ("hit", "repaired")},
                prompt=np.array(of_run, int)[numbers["run"]],
                confidence=_padded(self._confidence, drafted, width),
                seconds=np.array(self._seconds),
                nodes=_by_source(self._nodes, nodes, sources),
                gained=_by_source(self._gained, gained, sources),
            ),
            _padded(self._tempered, tempered, width, len(TEMPERATURES)),
            _padded(self._head, head, width),
            np.array(self._right, bool),
            Scores(*map(np.array, self._redrafted)),
            Scores(*map(np.array, self._verified)),
            np.array(self._node),
        )


def _append(columns: Sequence[array[Any]], *values: float) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _padded(values: array[float], lengths: np.ndarray, width: int, *size: int) -> np.ndarray:
    """Returns N lists as one array padded with NaN, (N, width, *size); (N, 0, *size) if all lists are empty.

    values: the entries of all lists, one list after another.
    lengths: number of entries of each list, (N,).
    width: number of entries to which each list is padded.
    size: shape of an entry; none if the entries are numbers.
    """
    rows = np.full((len(lengths), width if values else 0, *size), nan, values.typecode)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = np.asarray(values).reshape(-1, *size)
    return rows


def _by_source(source: array[int], lengths: np.ndarray, count: int) -> np.ndarray:
    """Returns how many nodes of each step come from each source, (N, count); ``OTHER`` is the last column.

    source: source of every node, one step after another.
    lengths: number of nodes of each step, (N,).
    count: number of sources.
    """
    cells = np.repeat(np.arange(len(lengths)) * count, lengths)
    cells += np.asarray(source) % count  # ``OTHER`` is −1
    return np.bincount(cells, minlength=len(lengths) * count).reshape(-1, count)


def observed(step: StepDone) -> tuple[int, int]:
    """Returns ``matched`` and ``boundary`` of a step, as in ``StepTable``."""
    draft, boundary = step.first_draft, step.actual_boundary
    if draft is None or not draft.ids:
        return UNSEEN, UNSEEN
    if boundary is not None:
        return boundary, boundary
    pairs = zip(draft.ids, step.committed, strict=False)
    matched = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].token, pairs))
    return matched, matched if matched == len(draft.ids) or matched < len(step.committed) else UNSEEN


def units(table: StepTable) -> tuple[np.ndarray, str]:
    """Returns the resampling unit of every step, (N,), and the name of a unit.

    Units are whole prompts, because the steps of one text are correlated. With fewer than ``MIN_PROMPTS`` prompts, units are
    blocks of consecutive steps; intervals then do not apply to other prompts.
    """
    prompts, number = np.unique(table.prompt, return_inverse=True)
    if len(prompts) >= MIN_PROMPTS:
        return number, "prompt"
    length = max(1, -(-len(table) // MAX_BLOCKS))
    return np.arange(len(table)) // length, "step" if length == 1 else f"block of {length} steps"
