"""Recorded runs as tables: their steps, re-drafts and verified tree nodes as columns of arrays, for vectorized statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any

import numpy as np

from d2sd.errors import InputError
from d2sd.trace.events import TEMPERATURES, Draft, StepDone
from d2sd.trace.metrics import verdict

UNSEEN = -1
MIN_PROMPTS = 8
MAX_BLOCKS = 200
MAX_WIDTH = 1026  # largest block plus two columns of sources; the outcome matrix has about MAX_WIDTH² cells
MAX_CELLS = 8 * 10**6  # 8-byte numbers in an array with one row per step


@dataclass(frozen=True, slots=True)
class StepTable:
    """N steps of one or more runs; G is the longest first draft, J the largest number of re-drafts.

    run, step: number of the run and of the step in it, (N,).
    prompt: number of the run's prompt, (N,).
    drafted: number of tokens of the first draft, (N,).
    confidence: c_k, (N, G); NaN after the last drafted token, and in steps recorded without confidences.
    tempered: confidence at ``TEMPERATURES``, (N, G, len(TEMPERATURES)) float32; (N, G, 0) if no step recorded it.
    head: value of the drafter's confidence head for each drafted token, (N, G); NaN elsewhere; (N, 0) if no step has a head.
    matched: number of leading first-draft tokens that equal the committed ones, (N,); UNSEEN if nothing was drafted.
    boundary: ``matched`` if the next token was rejected or all tokens were accepted, (N,); UNSEEN if the text ended, or a node
        budget cut the draft, before the target and the draft differed.
    selected: number of selected prefixes, (N,).
    hit: whether the boundary was a selected prefix, (N,).
    repaired: whether the boundary was selected and re-drafts added tokens there, (N,).
    committed: number of committed tokens, including the bonus token, (N,).
    seconds: time of the step, (N,).
    branches: number of re-drafts, (N,).
    nodes, gained: verified and accepted tree nodes by source, (N, J+2). Column 0 is the first draft, column j the nodes that
        re-draft j adds to the earlier drafts, and the last column the nodes on lower-ranked alternatives only.
    """

    run: np.ndarray
    step: np.ndarray
    prompt: np.ndarray
    drafted: np.ndarray
    confidence: np.ndarray
    tempered: np.ndarray
    head: np.ndarray
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
    def seen(self) -> np.ndarray:
        """Whether the boundary of each step is known, (N,) bool."""
        return self.boundary != UNSEEN

    @property
    def sure(self) -> np.ndarray:
        """Whether the draft of each step has confidences, (N,) bool."""
        return ~np.isnan(self.confidence).all(1)

    @property
    def partly(self) -> np.ndarray:
        """Whether a token of each step's first draft was rejected, (N,) bool, so that there is a boundary to predict."""
        return self.seen & (self.boundary < self.drafted)

    @property
    def redrafted(self) -> np.ndarray:
        """Whether each step has a rejected first-draft token and selected prefixes, (N,) bool."""
        return self.partly & (self.selected > 0)

    @property
    def scored(self) -> np.ndarray:
        """Whether the outcome of each position is known, (N, G) bool: true up to the first drafted token that differs from the
        committed one.

        A node budget does not change this: the target's choice after the last verified node shows whether the next drafted
        token would have been accepted.
        """
        at = np.arange(self.confidence.shape[1])
        observed = self.matched + self.seen
        return at < np.minimum(observed, self.drafted)[:, None]

    def take(self, rows: np.ndarray) -> StepTable:
        """Returns the steps at these row numbers (or where this mask is true)."""
        return StepTable(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def tabulate(runs: Sequence[Sequence[StepDone]], prompts: Sequence[str] = ()) -> StepTable:
    """Returns the steps of runs as columns.

    prompts: prompt of each run; an empty string if unknown, which counts as a different prompt from all others. Without
        prompts, all are unknown.

    Raises ``InputError`` if the table would take too much memory.
    """
    steps = [s for run in runs for s in run]
    drafts = [s.first_draft for s in steps]
    drafted = np.array([len(d.ids) if d else 0 for d in drafts], dtype=int)
    _check_size(len(steps), max(int(drafted.max(initial=0)), *(len(s.branches) + 2 for s in steps), 0))
    confidence = np.full((len(steps), max(drafted, default=0)), np.nan)
    confidences = [(d.confidence or (np.nan,) * len(d.ids)) if d else () for d in drafts]
    confidence[np.arange(confidence.shape[1]) < drafted[:, None]] = np.fromiter(chain.from_iterable(confidences), float)
    tempered = _tempered(steps, confidence.shape)
    fates = np.array([observed(s) for s in steps], dtype=int).reshape(-1, 2)
    nodes, gained = _by_source(steps)
    lengths = [len(run) for run in runs]
    return StepTable(
        run=np.repeat(np.arange(len(runs)), lengths),
        prompt=np.repeat(_numbered(prompts or [""] * len(runs)), lengths),
        step=np.fromiter(chain.from_iterable(map(range, lengths)), int),
        drafted=drafted,
        confidence=confidence,
        tempered=tempered,
        head=_head(steps, confidence.shape[1]),
        matched=fates[:, 0],
        boundary=fates[:, 1],
        selected=np.array([len(s.selected_prefixes) for s in steps], dtype=int),
        hit=np.array([s.actual_boundary in s.selected_prefixes for s in steps], dtype=bool),
        repaired=np.array([verdict(s) == "repaired" for s in steps], dtype=bool),
        committed=np.array([len(s.committed) for s in steps], dtype=int),
        seconds=np.concatenate([np.diff([0.0, *(s.elapsed for s in run)]) for run in runs] or [np.empty(0)]),
        branches=np.array([len(s.branches) for s in steps], dtype=int),
        nodes=nodes,
        gained=gained,
    )


def _tempered(steps: Sequence[StepDone], shape: tuple[int, ...]) -> np.ndarray:
    if not any(s.tempered for s in steps):
        return np.empty((*shape, 0), np.float32)
    tempered = np.full((*shape, len(TEMPERATURES)), np.nan, np.float32)
    for row, step in enumerate(steps):
        if step.tempered:
            tempered[row, : len(step.tempered)] = step.tempered
    return tempered


def _head(steps: Sequence[StepDone], width: int) -> np.ndarray:
    values = [s.trained[0] if s.trained else () for s in steps]
    if not any(values):
        return np.empty((len(steps), 0))
    head = np.full((len(steps), width), np.nan)
    head[np.arange(width) < np.array([len(v) for v in values])[:, None]] = np.fromiter(
        chain.from_iterable(values), float
    )
    return head


def joined(tables: Sequence[StepTable], prompts: Sequence[Sequence[str]]) -> StepTable:
    """Returns the steps of several tables as one.

    prompts: for each table, the prompts of its runs, as for ``tabulate``.

    Raises ``InputError`` as ``tabulate`` does.
    """
    before = np.cumsum([0, *map(len, prompts)])
    run = np.concatenate([table.run + first for table, first in zip(tables, before.tolist(), strict=False)])
    drafted, sources = (max(getattr(t, name).shape[1] for t in tables) for name in ("confidence", "nodes"))
    _check_size(len(run), max(drafted, sources))
    columns = {
        name: np.concatenate([getattr(t, name) for t in tables])
        for name in StepTable.__dataclass_fields__
        if name not in ("run", "prompt", "confidence", "tempered", "head", "nodes", "gained")
    }
    return StepTable(
        run=run,
        prompt=_numbered([p for of_table in prompts for p in of_table])[run],
        **{n: _stacked([getattr(t, n) for t in tables]) for n in ("confidence", "tempered", "head")},
        **{n: np.concatenate([_with_sources(getattr(t, n), sources) for t in tables]) for n in ("nodes", "gained")},
        **columns,
    )


def _stacked(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows of several columns; narrower columns are padded with NaN."""
    shape = np.max([part.shape[1:] for part in parts], axis=0)
    return np.concatenate(
        [
            np.pad(
                p, [(0, 0), *((0, n - own) for n, own in zip(shape, p.shape[1:], strict=True))], constant_values=np.nan
            )
            for p in parts
        ]
    )


def widened(rows: np.ndarray, width: int, value: float = 0) -> np.ndarray:
    """Returns rows (N, W) padded with this value to (N, width)."""
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=value)


def _with_sources(counts: np.ndarray, width: int) -> np.ndarray:
    """Returns counts by source, (N, W), with columns for more re-drafts, (N, width); the last column stays last."""
    return np.concatenate([widened(counts[:, :-1], width - 1), counts[:, -1:]], axis=1)


def _numbered(prompts: Sequence[str]) -> np.ndarray:
    """Returns a number for the prompt of each run: equal for equal prompts; each unknown prompt has a separate number."""
    numbers = {key: n for n, key in enumerate(dict.fromkeys(prompts))}
    return np.array([numbers[p] if p else len(numbers) + n for n, p in enumerate(prompts)], dtype=int)


def _check_size(steps: int, widest: int) -> None:
    if widest > MAX_WIDTH or steps * widest > MAX_CELLS:
        raise InputError(
            f"{steps} steps with up to {widest} drafted tokens or re-drafts are too many to measure together; measure fewer"
        )


def observed(step: StepDone) -> tuple[int, int]:
    """Returns ``matched`` and ``boundary`` of a step, as in ``StepTable``."""
    draft, known = step.first_draft, step.actual_boundary
    if draft is None or not draft.ids:
        return UNSEEN, UNSEEN
    if known is not None:
        return known, known
    pairs = zip(draft.ids, step.committed, strict=False)
    matched = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].token, pairs))
    return matched, matched if matched == len(draft.ids) or matched < len(step.committed) else UNSEEN


def _by_source(steps: Sequence[StepDone]) -> tuple[np.ndarray, np.ndarray]:
    """Returns ``nodes`` and ``gained`` of ``StepTable``. A node counts for the earliest draft that contains it."""
    most = max((len(s.branches) for s in steps), default=0)
    sizes = [len(s.nodes) for s in steps]
    owners = np.fromiter((min(n.candidates, default=most + 1) for s in steps for n in s.nodes), int, sum(sizes))
    starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, int)
    shape = (len(steps), most + 2)
    below = np.ones(len(owners), dtype=bool)
    below[starts[np.array(sizes) > 0] if sizes else []] = False
    row = np.repeat(np.arange(len(steps)), sizes)
    places = row * shape[1] + owners
    nodes = np.bincount(places[below], minlength=shape[0] * shape[1]).reshape(shape)
    accepted = np.fromiter(
        (start + a for start, s in zip(starts.tolist(), steps, strict=True) for a in s.accepted), int
    )
    gained = np.bincount(places[accepted], minlength=shape[0] * shape[1]).reshape(shape)
    return nodes, gained


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


def stacked(tables: Sequence[Any], before: Sequence[int]) -> Iterator[np.ndarray]:
    """Yields the columns of several tables of re-drafts or of paths, one after another.

    before: number of steps before each table, added to its column ``row``.
    """
    for name in tables[0].__dataclass_fields__:
        columns = [getattr(table, name) for table in tables]
        if name == "row":
            columns = [column + first for column, first in zip(columns, before, strict=False)]
        yield np.concatenate(columns)


# Re-drafts of the second drafter.


@dataclass(frozen=True, slots=True)
class RedraftTable:
    """M re-drafts of the second drafter, and S scored tokens of the re-drafts with a correct prefix.

    right: (M,) whether the prefix was accepted and the text continued after it.
    row: (S,) row of the token's step in the ``StepTable``.
    position: (S,) position of the token after the prefix, from 1.
    confidence, accepted: (S,) confidence and acceptance of the token.
    """

    right: np.ndarray
    row: np.ndarray
    position: np.ndarray
    confidence: np.ndarray
    accepted: np.ndarray


def tabulate_redrafts(runs: Sequence[Sequence[StepDone]]) -> RedraftTable:
    """Returns the re-drafts of the runs; their steps are numbered as by ``tabulate``."""
    prefixes, scored = [], []
    for row, step in enumerate(s for run in runs for s in run):
        written, known = tuple(c.token for c in step.committed), candidates(step)
        for branch, draft in enumerate(step.branches, 1):
            if draft.drafter != "second":
                continue
            right = len(written) > draft.prefix and written[: draft.prefix] == known[branch][: draft.prefix]
            prefixes.append(right)
            if right:
                scored += [(row, *s) for s in scored_tokens(draft, written)]
    columns = zip(*scored, strict=True) if scored else [()] * 4
    kinds = (int, int, float, float)
    return RedraftTable(
        np.array(prefixes, bool), *(np.array(own, kind) for own, kind in zip(columns, kinds, strict=True))
    )


def candidates(step: StepDone) -> list[tuple[int, ...]]:
    """Returns the tokens of the first draft and of every re-draft, from the anchor's child on.

    The tokens of a re-draft are a prefix of an earlier draft, followed by the re-drafted tokens.
    """
    known = [step.first_draft.ids if step.first_draft else ()]
    for draft in step.branches:
        known.append((*known[draft.base if draft.base < len(known) else 0][: draft.prefix], *draft.ids))
    return known


def scored_tokens(draft: Draft, written: Sequence[int]) -> Iterator[tuple[int, float, float]]:
    """Yields position, confidence and acceptance of a re-draft's tokens, up to and including the first rejected one."""
    seen = zip(draft.ids, draft.confidence, written[draft.prefix :], strict=False)
    for position, (token, confidence, wrote) in enumerate(seen, 1):
        yield position, confidence, float(token == wrote)
        if token != wrote:
            return


# Trees without a block draft (EAGLE-3). Every verified node counts; a node that the target did not reach counts as not accepted,
# since the target chose another path. Steps without a bonus token are left out: the text ended there.


@dataclass(frozen=True, slots=True)
class Paths:
    """M verified nodes. All columns are (M,).

    row: row of the node's step in the ``StepTable``.
    node, depth: id and depth of the node.
    probability: the drafter's probability of the path to the node.
    accepted: 0 or 1.

    Nodes are ordered by step; within a step, accepted nodes come first, then the others by descending probability.
    """

    row: np.ndarray
    node: np.ndarray
    depth: np.ndarray
    probability: np.ndarray
    accepted: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def tabulate_paths(runs: Sequence[Sequence[StepDone]]) -> Paths:
    """Returns the nodes of all steps without a block draft, in the order of the steps."""
    found: list[tuple[int, int, int, float, float]] = []
    for row, step in enumerate(s for run in runs for s in run):
        if step.first_draft is not None or len(step.nodes) < 2 or step.committed[-1].node is not None:
            continue
        reach = [1.0]
        for node in step.nodes[1:]:
            reach.append(reach[node.parent] * (node.drafter_probability or 0.0))
        nodes = sorted(step.nodes[1:], key=lambda n: (n.state != "accepted", -reach[n.id], n.id))
        found += [(row, n.id, n.depth, reach[n.id], float(n.state == "accepted")) for n in nodes]
    columns = zip(*found, strict=True) if found else [()] * 5
    return Paths(*(np.array(own, kind) for own, kind in zip(columns, (int, int, int, float, float), strict=True)))
