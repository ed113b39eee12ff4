"""The table of what stages cost on this machine, from a few timed passes of every shape."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from functools import partial
from statistics import median

import torch

from d2sd.decoding.adaptive.costs import STAGES, CostTable, Curve
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.chain_drafter import ChainDrafter
from d2sd.decoding.level_drafter import LevelDrafter
from d2sd.decoding.verifier import Verifier
from d2sd.methods import Method
from d2sd.methods.base import WIDEST
from d2sd.models.models import Models
from d2sd.passes.passes import Passes
from d2sd.tree.tree import TokenTree

SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 48, 64)  # tree nodes that are timed
CORNERS = (2, 8, 16, 24, 32, 64)  # between which a node costs the same: kernels work on eight or sixteen rows at once
BRANCHES = (1, 2, 4, 8)  # re-drafts that are timed
ROUNDS, SECONDS = 12, 2.5  # so many times, or for so long
TYPICAL = 0.3  # quantile of the times that is believed: what disturbs a pass only makes it longer
CONTEXT, COMMITTED = 192, 2  # tokens before the pass, and those of the last step, which drafters read first
OTHER = 0.05  # of a plain pass, until the run's own times say more
Pass = tuple[str, int]  # stage and rows
Times = dict[Pass, list[float]]  # seconds


def draft_lengths(method: Method, block_size: int) -> list[int]:
    """Values of γ to choose from: the one asked for, and shorter ones that cost less.

    A draft model drafts its tokens one by one; trees of levels have one depth.
    """
    shorter = 4 if method.draft_model else 1 if method.eagle3 else 3
    return sorted({max(2, block_size >> halvings) for halvings in range(shorter)})


def measured_slots(method: Method, block_size: int, top_k: int = 1) -> int:
    """Cache slots that ``measure_costs`` needs: EAGLE-3's whole trees may be larger than all that is verified."""
    return CONTEXT + max(128, COMMITTED + 1 + (block_size - 2) * top_k if method.eagle3 else 0)


@torch.inference_mode()
def measure_costs(models: Models, method: Method, block_size: int, passes: Passes, top_k: int = 1) -> CostTable:
    """Usual times of every stage of a method after a context of 192 tokens; one to three seconds on a small model.

    block_size: the largest γ (of EAGLE-3's trees: 2 + depth, with ``top_k`` nodes a level).
    passes: how they are run, with ``measured_slots`` slots.
    """
    target, verifier = models.target, Verifier(models.target, passes)
    verifier.cache.length = CONTEXT

    def read(drafter: BlockDrafter | LevelDrafter, layers: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        drafter.cache.length = CONTEXT
        return torch.zeros(1, COMMITTED, layers * target.embedding.weight.shape[1], dtype=dtype, device=target.device)

    def verify(count: int) -> None:
        verifier.logits(path_tree(count)).argmax(-1).tolist()

    def blocks(drafter: BlockDrafter, count: int, size: int) -> None:
        drafter.later(read(drafter, len(drafter.taps), drafter.model.dtype))
        drafter.draft(0, [()] * count, size, WIDEST if method.default_budget else 1)

    def chain(drafter: ChainDrafter, size: int) -> None:
        drafter.cache.length = CONTEXT
        drafter.draft_after(torch.zeros(COMMITTED, dtype=torch.int64, device=target.device), size - 1)

    def levels(drafter: LevelDrafter) -> None:
        drafter.extend(read(drafter, len(drafter.model.target_layer_ids)))
        drafter.draft([0] * (CONTEXT + COMMITTED + 1))

    # a CPU's kernels for a number of rows are made when it first occurs, so all of them are met once
    met = SIZES if passes.fixed else range(1, SIZES[-1] + 1)
    works: dict[Pass, Callable[[], object]] = {("verify", n): partial(verify, n) for n in met}
    timed = {("verify", n) for n in SIZES} | {("second_draft", count * block_size) for count in BRANCHES}
    lengths = draft_lengths(method, block_size)
    if method.draft_model and models.draft_model is not None:
        drafter = ChainDrafter(models.draft_model, passes)
        works |= {("first_draft", size): partial(chain, drafter, size) for size in lengths}
    elif method.eagle3 and models.eagle3 is not None:
        grower = LevelDrafter(models.eagle3, target, passes, block_size - 2, top_k)
        works["first_draft", block_size] = partial(levels, grower)
    elif method.first_drafter and models.first is not None:
        first = second = BlockDrafter("first", models.first, target, passes)
        works |= {("first_draft", size): partial(blocks, first, 1, size) for size in lengths}
        if method.second_drafter == "vp" and models.second is not None:
            second = BlockDrafter("second", models.second, target, passes)
        if method.second_drafter != "none":
            works |= {("second_draft", n * block_size): partial(blocks, second, n, block_size) for n in BRANCHES}
    points: dict[str, list[tuple[int, float]]] = {stage: [] for stage in STAGES}
    for (stage, rows), seconds in sorted(_typical(_timed(works, timed)).items()):
        points[stage].append((rows, seconds))
    first_draft, second_draft = (Curve.through(points[stage] or [(1, 0.0)]) for stage in STAGES[:2])
    one, *larger = points["verify"]
    verified = Curve.through([one, *Curve.fitted(larger, CORNERS).points])
    return CostTable(first_draft, second_draft, verified, OTHER * verified.seconds(1))


def _timed(works: dict[Pass, Callable[[], object]], timed: Collection[Pass]) -> list[Times]:
    """Seconds of passes, round by round, each in a new order, after a first one over all of them that does not count.

    A pass comes after one that it comes after in a run, so that a processor's caches are as warm as there.
    """
    drafts, plain = [key for key in works if key[0] == "first_draft"], ("verify", 1)
    order, rounds, rng, end = list(works), list[Times](), random.Random(0), time.perf_counter() + SECONDS
    while len(rounds) <= ROUNDS and (len(rounds) < 2 or time.perf_counter() < end):
        rounds.append({key: [] for key in order})
        for key in rng.sample(order, len(order)):
            before = plain if key == plain else ("verify", 8) if key in drafts else rng.choice(drafts)
            works[before]()
            began = time.perf_counter()
            works[key]()
            rounds[-1][key].append(time.perf_counter() - began)
        order = [key for key in works if key in timed] + 2 * [*drafts, plain]  # all else is held against these
    return rounds[1:]


def _typical(rounds: list[Times]) -> dict[Pass, float]:
    """Usual seconds of every pass; a round in which the machine was slower as a whole counts as if it had not been."""
    usual = {key: median(t for times in rounds for t in times[key]) for key in rounds[0]}
    slower = [median(t / usual[key] for key, seconds in times.items() for t in seconds) for times in rounds]
    held = {key: sorted(t / s for times, s in zip(rounds, slower, strict=True) for t in times[key]) for key in usual}
    return {key: times[round(TYPICAL * (len(times) - 1))] for key, times in held.items()}


def path_tree(count: int) -> TokenTree:
    """So many nodes in a row: what they are and where they come from does not matter for their time."""
    parents, depths = tuple(range(-1, count - 1)), tuple(range(count))
    return TokenTree((0,) * count, parents, depths, (0,) * count, (1.0,) * count, ((),) * count)
