"""Cycles that run entirely on the device: the host queues all passes of a cycle without waiting for a result.

Each stage is a pass of fixed shape that can be captured as a CUDA graph. At the end, one small copy returns all numbers that the
events need. From these numbers, the host rebuilds the tree and the accepted path with the same code as for cycles on the host. The
sizes of a cycle are chosen before it is queued: γ as usual, and the number of re-drafts that would have been best for the previous
first draft.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod

import numpy as np
import torch
from torch import Tensor

from d2sd.config import DecodeConfig
from d2sd.decoding.block_drafter import BlockDrafter, best_tokens
from d2sd.decoding.device_tree import (
    DeviceTree,
    accepted_rows,
    block_rows,
    first_open,
    likeliest_prefixes,
    merge,
    open_prefixes,
)
from d2sd.decoding.drafters import CachedDrafters
from d2sd.decoding.inspection import (
    TOP_ALTERNATIVES,
    Inspection,
    measure,
    measured_rows,
    rows_of,
    tempered,
)
from d2sd.decoding.verifier import Sampler, Verifier
from d2sd.methods import FirstDraft, Proposal
from d2sd.methods.base import random_order
from d2sd.nets.passes import StageClock, row_shape
from d2sd.trace.events import TEMPERATURES, Draw, StageSeconds
from d2sd.tree.block import Block
from d2sd.tree.boundary import boundary_posterior
from d2sd.tree.tree import TokenTree, merge_drafts
from d2sd.tree.walk import TreeWalk

Layout = dict[str, tuple[int, ...]]  # shapes of arrays by name


def pack(arrays: dict[str, Tensor], layout: Layout) -> Tensor:
    """Returns the arrays of the layout as one float64 vector on their device, so that a single copy transfers them. Integers are
    exact up to 2⁵³.
    """
    return torch.cat([arrays[name].flatten().double() for name in layout])


def unpack(vector: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
    """Returns the arrays in a packed vector, as views of it."""
    parts = np.split(vector, np.cumsum([prod(shape) for shape in layout.values()])[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(layout.items(), parts, strict=True)}


@dataclass(frozen=True, slots=True)
class CycleShape:
    """Sizes of the passes of a cycle.

    block_size: γ; 0: no draft.
    branches: K, the number of re-drafts.
    extension: γ₂ − γ.
    """

    block_size: int
    branches: int
    extension: int = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        """For each draft, the number of tokens below the anchor. If γ₂ > γ, the last draft continues the whole first draft."""
        if not self.block_size:
            return ()
        first = self.block_size - 1
        again = self.branches + int(self.extension > 0) if self.branches else 0
        return first, *[first + self.extension] * again

    @property
    def depths(self) -> int:
        """Number of levels of the tree, including the anchor's level."""
        return 1 + max(self.lengths, default=0)

    @property
    def rows(self) -> int:
        """Number of rows of the target's pass: the size of the largest possible tree.

        All re-drafted prefixes are different. A re-draft from a prefix of p tokens shares these p tokens with the first draft, so
        it adds at most (its length − p) nodes.
        """
        first = max(self.block_size - 1, 0)
        again = sum(first + self.extension - prefix for prefix in range(self.branches))
        return row_shape(1 + first + again + (self.extension if self.branches else 0))

    def layout(self, inspect: bool, vocabulary: int, ranked: int) -> Layout:
        """Returns the shapes of the arrays that a cycle copies to the host.

        inspect: whether the target's probabilities are recorded.
        vocabulary: size of the target's vocabulary.
        ranked: number of columns per drafted position: 3 × the number of likeliest tokens (``BlockDrafter.forward``).
        """
        shapes: Layout = {"measured": (measured_rows(inspect, vocabulary), self.rows)}
        lengths = self.lengths
        if lengths:
            shapes["first"] = (lengths[0], ranked)
            if inspect:
                shapes["tempered"] = (lengths[0], len(TEMPERATURES))
        if lengths[1:]:
            shapes |= {"prefixes": (len(lengths) - 1,), "second": (len(lengths) - 1, lengths[1], ranked)}
        return shapes


class DeviceCycle:
    """Runs decoding cycles on the device, for methods whose ``Method.on_device`` is set.

    It has the methods of ``HostCycle``. ``propose`` waits for a whole cycle, and the others only read its results.
    """

    @staticmethod
    def possible(config: DecodeConfig, drafters: CachedDrafters) -> bool:
        """Returns whether a run with these settings can use the device.

        It needs fixed-shape passes, no node budget that cuts trees, and drafters that predict the tokens of a block independently.
        """
        walked = any(drafter.form.walked for drafter in drafters.block_drafters)
        simple = drafters.method.on_device is not None and config.node_budget is None
        return drafters.passes.fixed and simple and not walked

    def __init__(self, config: DecodeConfig, drafters: CachedDrafters, verifier: Verifier):
        self.config, self.drafters, self.verifier = config, drafters, verifier
        self.passes, self.target = drafters.passes, verifier.target
        self.device = self.target.device
        self.sampler, self.clock = Sampler.of(config), StageClock(self.device)
        self.first, self.second = drafters.first, drafters.second
        self.top = TOP_ALTERNATIVES if config.inspect else 1
        self.vocabulary = self.target.head.out_features
        # possible numbers of re-drafts; only a few, because each number needs separate captured passes
        most = config.num_branches if self.second else 0
        self.counts = [0, *(1 << n for n in range(most.bit_length()) if 1 << n < most), most]
        ranked = 3 * min(self.top, self.vocabulary)
        self.layout = cache(lambda shape: shape.layout(config.inspect, self.vocabulary, ranked))
        self._ahead: tuple[CycleShape, Tensor] | None = None
        self._measured: np.ndarray | None = None  # result of ``measure``, for the nodes of the last proposal
        # parts of the keys of captured passes: for all passes of a cycle, and for the pass that chooses tokens
        merged = (d.merged for d in drafters.block_drafters)
        self.kind = (drafters.method.id, config.inspect, verifier.merged, *merged)
        self.choice = (config.temperature, config.top_k, config.top_p)

    def _shape(self) -> CycleShape:
        if self.first is None:
            return CycleShape(0, 0)
        controller = self.drafters.controller
        size = controller.begin()
        most = max(0, min(controller.next_redrafts, size - 1))  # a block has γ − 1 prefixes to re-draft from
        return CycleShape(size, max(count for count in self.counts if count <= most), self.drafters.extension)

    def propose(self, ids: Sequence[int]) -> Proposal:
        """Runs a cycle after the committed ``ids``, whose last one is the anchor. Returns the tree that was verified, with its
        drafts.
        """
        shape, queued = self.queue(ids) if self._ahead is None else self._ahead
        self._ahead = None
        arrays = unpack(queued.cpu().numpy(), self.layout(shape))  # the only copy from the device, and the only wait
        proposal, self._measured = self._proposal(shape, ids[-1], arrays), arrays["measured"]
        self.drafters.controller.queued(self.drafters, proposal)
        return proposal

    def verify(self, tree: TokenTree) -> Inspection:
        """Returns the target's choices at the nodes of the tree, with probabilities if inspected."""
        assert self._measured is not None, "propose first"
        return Inspection.read(self._measured[:, : len(tree)].tolist())

    def inspect(self, proposal: Proposal, seen: Inspection, path: TreeWalk) -> tuple[Inspection, tuple[Draw, ...]]:
        """Returns ``seen`` unchanged, and no draws: on the device, the target's draws are not recorded."""
        return seen, ()

    def commit(self, path: TreeWalk) -> None:
        """Counts the cache rows of the anchor and the accepted path as committed. The cycle has already moved them to their places."""
        for filled in (self.verifier.cache, *(drafter.cache for drafter in self.drafters.block_drafters)):
            filled.length += 1 + len(path.accepted)

    def seconds(self) -> StageSeconds:
        """Returns the seconds of each stage of this cycle."""
        return StageSeconds(**self.clock.read())

    def ahead(self, ids: Sequence[int]) -> None:
        """Queues the cycle that follows the committed ``ids`` before ``propose`` is called, so that the GPU does not wait while the
        host builds the events of the previous cycle.
        """
        if self.passes.mode == "captured":
            self._ahead = self.queue(ids)

    def queue(self, ids: Sequence[int]) -> tuple[CycleShape, Tensor]:
        """Queues all passes of a cycle after the committed ``ids``, and the move of the accepted cache rows. Returns the cycle's
        shape, and its results as a packed vector.
        """
        passes, clock, start, shape = self.passes, self.clock, len(ids) - 1, self._shape()
        clock.start()
        read = passes.read(self.verifier.cache)
        state = self._send([ids[-1], start])
        noise = self.sampler.noise(start, shape.depths, self.vocabulary, self.device)
        self._plan(shape)

        def stage(name: Hashable, work: partial[tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
            return passes.run((name, *self.kind, shape, read), work, *inputs)

        results = {}
        chains: tuple[Tensor, ...] = ()
        if shape.block_size:
            chain, results["first"], results["tempered"] = stage("first", partial(self._draft, shape, read), state)
            chains = (chain[None],)
        clock.mark("first_draft")
        if shape.branches:
            random = self.drafters.method.on_device == "random"
            order = random_order(self.drafters.rng_at(start), shape.lengths[0]) if random else ()
            basis = self._send(order) if random else results["first"][..., 0]  # the confidences
            results["prefixes"], whole, results["second"] = stage(
                "second", partial(self._redraft, shape, read), state, chain, basis
            )
            chains = (whole,)
        clock.mark("second_draft")
        tree = stage("tree", partial(self._merge, shape), state, *chains)
        clock.mark("tree")
        chosen, results["measured"], *taps = stage(
            ("verify", self.choice), partial(self._verify, shape, read), state, noise, *tree
        )
        clock.mark("verify")
        if self.first is not None:  # otherwise the tree is only the anchor, whose cache row is in place
            moved = stage("walk", partial(self._walk, shape), state, chosen, *tree, *taps)
            stage("commit", partial(self._commit, shape), state, *moved)
        clock.mark("commit")
        return shape, pack(results, self.layout(shape))

    def _proposal(self, shape: CycleShape, anchor: int, arrays: dict[str, np.ndarray]) -> Proposal:
        """Returns the proposal that a cycle verified, rebuilt on the host from the cycle's results ``arrays``."""
        if self.first is None or not shape.block_size:
            return Proposal(merge_drafts(anchor, []))
        first = self.first.block(0, arrays["first"].tolist())
        if self.config.inspect:
            first = replace(first, tempered=rows_of(arrays["tempered"]))
        draft, branches = FirstDraft(first, boundary_posterior(first.confidence)), list[Block]()
        if self.second is not None and shape.branches:
            pairs = zip(arrays["prefixes"].astype(int).tolist(), arrays["second"], strict=True)
            branches = [self.second.block(p, rows[p:].tolist()) for p, rows in pairs if p >= 0]  # −1: unused branch
        return Proposal.of(
            merge_drafts(anchor, [first, *branches]), draft, [block.prefix for block in branches], branches
        )

    def _plan(self, shape: CycleShape) -> None:
        if self.first is not None and shape.block_size:
            self.first.plan(1, shape.block_size - self.first.shift)
        if self.second is not None and shape.branches:
            rows = shape.block_size + shape.extension - self.second.shift
            self.second.plan(len(shape.lengths) - 1, rows)
        self.verifier.plan(shape.rows)

    def _send(self, numbers: Sequence[int]) -> Tensor:
        """Copies integers to the device. They are copied from pinned memory, because other copies would block the host."""
        return torch.tensor(numbers, pin_memory=self.device.type == "cuda").to(self.device, non_blocking=True)

    def _fill(
        self, drafter: BlockDrafter, read: int, state: Tensor, chain: Tensor, prefixes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Drafts B blocks. Returns the outputs of ``BlockDrafter.forward`` for all M positions below the anchor: the likeliest
        tokens, (B, M, 3·top), and the logits, (B·M, V).

        state: the anchor and its position, (2,).
        chain: tokens of the first draft, (M,), from which the prefixes are taken.
        prefixes: lengths of the blocks' prefixes, (B,).
        """
        anchor, start = state[:1], state[1]
        rows = block_rows(anchor, chain, prefixes, drafter.mask_token)
        rows = rows[:, : rows.shape[1] - drafter.shift]
        count, size = rows.shape
        slots = start + torch.arange(size, device=self.device)
        drafted = torch.arange(count * size, device=self.device).view(count, size)[:, 1 - drafter.shift :].flatten()
        best, logits = drafter.forward(rows, slots, drafted, read, self.top)
        return best.view(count, len(drafted) // count, -1), logits

    def _draft(self, shape: CycleShape, read: int, state: Tensor) -> tuple[Tensor, ...]:
        """Returns the drafted tokens (M,), the likeliest tokens of each position (M, 3·top), and the result of ``tempered``, which
        is empty if the run is not inspected.
        """
        nothing = torch.zeros(shape.lengths[0], dtype=torch.int64, device=self.device)
        assert self.first is not None
        (drafted,), logits = self._fill(self.first, read, state, nothing, nothing[:1])
        others = tempered(logits, logits.argmax(-1)) if self.config.inspect else drafted[:0]
        return best_tokens(drafted), drafted, others

    def _redraft(self, shape: CycleShape, read: int, state: Tensor, chain: Tensor, basis: Tensor) -> tuple[Tensor, ...]:
        """Returns prefix lengths (B,), all candidates (1 + B, M), and the likeliest tokens of the re-drafts (B, M, 3·top).

        Only prefixes without an end token are used. If there are fewer of these than branches, prefix and tokens of the other
        branches are −1.

        chain: the first draft, (M,).
        basis: what determines the prefixes: the confidences of the first draft, or prefix lengths in order of preference.
        """
        assert self.second is not None
        if self.drafters.method.on_device == "likeliest":
            basis = likeliest_prefixes(basis)
        usable, longest = open_prefixes(chain, self.drafters.end_ids), max(shape.lengths)
        prefixes = first_open(basis, usable, shape.branches)
        if shape.extension:
            whole = torch.full_like(usable, len(chain))
            prefixes = torch.cat([prefixes, torch.where(usable > whole, whole, -1)])
        used, lengths = prefixes >= 0, prefixes.clamp(min=0)
        chain = torch.nn.functional.pad(chain, (0, longest - len(chain)), value=-1)
        length = shape.lengths[1]
        drafted, _ = self._fill(self.second, read, state, chain[:length], lengths)
        in_prefix = torch.arange(length, device=self.device) < lengths[:, None]
        branches = torch.where(in_prefix, chain[:length], best_tokens(drafted))
        branches = torch.where(used[:, None], branches, -1)
        return prefixes, torch.cat([chain[None], branches]), drafted

    def _merge(self, shape: CycleShape, state: Tensor, chains: Tensor | None = None) -> tuple[Tensor, ...]:
        anchor = state[:1]
        if chains is None:
            nothing = torch.zeros(1, dtype=torch.int64, device=self.device)
            return anchor.clone(), nothing, nothing, torch.ones(1, 1, dtype=torch.bool, device=self.device)
        return tuple(merge(anchor, chains, shape.rows))

    def _verify(self, shape: CycleShape, read: int, state: Tensor, noise: Tensor, *tree: Tensor) -> tuple[Tensor, ...]:
        """Returns the target's choice after every node, the result of ``measure``, and the outputs of tapped layers."""
        tokens, parents, depths, mask = DeviceTree(*tree)
        start = state[1]
        slots = start + torch.arange(shape.rows, device=self.device)
        logits, *taps = self.verifier.forward(read, tokens, start + depths, slots, mask)
        scores = self.sampler.scores(logits)
        chosen = self.sampler.choose(scores, depths, noise)
        return chosen, measure(scores, chosen, tokens, parents, self.config.inspect), *taps

    def _walk(self, shape: CycleShape, state: Tensor, chosen: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Returns the target's keys and values of the accepted rows and, for each drafter, the target's features of these rows.

        ``_commit`` overwrites the inputs of this pass. The two passes are separate because capturing runs a pass more than once.
        """
        start, fields = state[1], len(DeviceTree._fields)
        tree, taps = DeviceTree(*rest[:fields]), rest[fields:]
        rows = accepted_rows(tree, chosen, shape.depths)
        self.target.taps.restore(taps)
        features = [self.target.features(d.model.target_layer_ids, rows) for d in self.drafters.block_drafters]
        return *self.verifier.cache.gather(start + rows), *features

    def _commit(self, shape: CycleShape, state: Tensor, *moved: Tensor) -> tuple[Tensor, ...]:
        """Writes the outputs of ``_walk`` after the committed text. The next cycle overwrites the rows after the last accepted one."""
        start = state[1]
        slots = start + torch.arange(shape.depths, device=self.device)
        drafters = self.drafters.block_drafters
        keys_and_values = moved[: len(moved) - len(drafters)]
        self.verifier.cache.scatter(slots, keys_and_values)
        for drafter, features in zip(drafters, moved[len(keys_and_values) :], strict=True):
            drafter.project(features.to(drafter.model.dtype), slots)
        return ()
