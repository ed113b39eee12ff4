"""The table of what stages cost on this machine, from a few measured passes of every shape."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from statistics import median

import torch

from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.chain_drafter import ChainDrafter
from d2sd.decoding.costs import SIZES, STAGES, CostTable, Curve
from d2sd.decoding.level_drafter import LevelDrafter
from d2sd.decoding.verifier import Verifier
from d2sd.methods import Method
from d2sd.methods.base import WIDEST
from d2sd.models.models import Models
from d2sd.models.target import Target
from d2sd.passes.passes import Passes
from d2sd.tree.tree import TokenTree

CORNERS = (
    2,
    8,
    16,
    24,
    32,
    64,
)  # nodes between which each costs the same: kernels work on eight or sixteen rows at once
BRANCHES = (1, 2, 4, 8)
ROUNDS, SECONDS = 13, 2.5  # so many times, the first of which warms up, or for so long
OFTEN = 3  # plain passes in every round: all else is held against them
TYPICAL = 0.3  # quantile of the times that is believed: what disturbs a pass only makes it longer
CONTEXT = 192
COMMITTED = 2  # tokens a step that a drafter has to read first
WARM_NODES, WARM_COMMITTED, WARM_SECONDS = 64, 16, 0.5
MEASURED_SLOTS = CONTEXT + 128
OTHER = 0.05  # of a plain pass, until the run's own times say more
NOTHING = Curve(((1, 0.0),))
Times = dict[tuple[str, int], list[float]]  # seconds of passes by stage and rows


def draft_lengths(method: Method, block_size: int) -> list[int]:
    """Values of γ that a controller chooses from: the one asked for, and shorter ones that cost less.

    A draft model drafts its tokens one by one; trees of levels have one depth.
    """
    shorter = 4 if method.draft_model else 1 if method.eagle3 else 3
    return sorted({max(2, block_size >> halvings) for halvings in range(shorter)})


def measured_slots(method: Method, block_size: int, top_k: int = 1) -> int:
    """Cache slots that ``measure_costs`` needs: EAGLE-3's whole trees may be larger than all that is verified."""
    tree = (block_size - 2) * top_k if method.eagle3 else 0
    return max(MEASURED_SLOTS, CONTEXT + COMMITTED + 1 + tree)


@torch.inference_mode()
def measure_costs(models: Models, method: Method, block_size: int, passes: Passes, top_k: int = 1) -> CostTable:
    """Usual times of every stage of a method after a context of 192 tokens; one to three seconds on a small model.

    block_size: the largest γ (of EAGLE-3's trees: 2 + depth, with ``top_k`` nodes a level); passes: how they are run,
    with ``measured_slots`` slots.
    """
    verifier = Verifier(models.target, passes)
    verifier.cache.length = CONTEXT
    works: dict[tuple[str, int], Callable[[], object]] = {
        ("verify", n): partial(_verify, verifier, path_tree(n)) for n in SIZES
    }
    lengths = draft_lengths(method, block_size)
    top = WIDEST if method.default_budget else 1
    first = second = None
    if method.draft_model and models.draft_model is not None:
        chain = ChainDrafter(models.draft_model, passes)
        works |= {("first_draft", g): partial(_chain, chain, g) for g in lengths}
    elif method.eagle3 and models.eagle3 is not None:
        levels = LevelDrafter(models.eagle3, models.target, passes, block_size - 2, top_k)
        works["first_draft", block_size] = partial(_levels, levels, models.target)
    elif method.first_drafter and models.first is not None:
        first = BlockDrafter("first", models.first, models.target, passes)
        works |= {("first_draft", g): partial(_blocks, first, 1, g, top=top) for g in lengths}
        model = {"none": None, "vp": models.second, "first": models.first}[method.second_drafter]
        if model is not None:
            second = first if model is models.first else BlockDrafter("second", model, models.target, passes)
            again = partial(_blocks, second, block_size=block_size, top=top)
            works |= {("second_draft", b * block_size): partial(again, count=b) for b in BRANCHES}
    if not passes.fixed:
        _warm_up(verifier, first, second, lengths)
    points: dict[str, list[tuple[int, float]]] = {stage: [] for stage in STAGES}
    for (stage, rows), seconds in _typical(_timed(works)).items():
        points[stage].append((rows, seconds))
    first_draft, second_draft = (Curve.through(p) if (p := points[stage]) else NOTHING for stage in STAGES[:2])
    one, *larger = sorted(points["verify"])
    verify = Curve.through([one, *Curve.fitted(larger, CORNERS).points])
    return CostTable(first_draft, second_draft, verify, OTHER * verify.seconds(1))


def _timed(works: Mapping[tuple[str, int], Callable[[], object]]) -> list[Times]:
    """Seconds of every pass, round by round. Each follows what it follows in a run, so that the processor's caches are as warm
    as there, and the order is drawn anew every time, so that nothing else tilts how they compare."""
    drafts, plain = cycle(key for key in works if key[0] == "first_draft"), ("verify", 1)
    order = [key for key in works if key[0] != "first_draft"] + [plain] * (OFTEN - 1)
    rounds: list[Times] = []
    rng, end = random.Random(0), time.perf_counter() + SECONDS
    while len(rounds) < ROUNDS and (len(rounds) < 2 or time.perf_counter() < end):
        times: Times = {key: [] for key in works}
        rounds.append(times)

        def measure(key: tuple[str, int], times: Times = times) -> None:
            began = time.perf_counter()
            works[key]()
            times[key].append(time.perf_counter() - began)

        for key in rng.sample(order, len(order)):
            if key == plain:
                works[plain]()
            else:
                measure(next(drafts))
            measure(key)
            if key[0] == "second_draft":
                works["verify", 8]()
    return rounds[1:]


def _typical(rounds: Sequence[Times]) -> dict[tuple[str, int], float]:
    """Usual seconds of every pass; a round in which the machine was slower as a whole counts as if it had not been."""
    usual = {key: median(t for times in rounds for t in times[key]) for key in rounds[0]}
    slower = [median(t / usual[key] for key, seconds in times.items() for t in seconds) for times in rounds]
    found = {}
    for key in usual:
        seconds = sorted(t / slow for times, slow in zip(rounds, slower, strict=True) for t in times[key])
        found[key] = seconds[round(TYPICAL * (len(seconds) - 1))]
    return found


def _warm_up(
    verifier: Verifier, first: BlockDrafter | None, second: BlockDrafter | None, lengths: Sequence[int]
) -> None:
    """Meet every number of rows that a step may choose, as far as half a second goes: a CPU's kernels for a number are made
    when it first occurs, which takes as long as half a pass."""
    works: list[Callable[[], object]] = []
    for count in range(1, WARM_NODES + 1):
        works.append(partial(_verify, verifier, path_tree(count)))
        if count <= WARM_COMMITTED and first is not None:
            works.append(partial(_blocks, first, 1, lengths[0], count))
        if count <= max(BRANCHES) and second is not None:
            works += [partial(_blocks, second, count, size) for size in lengths]
    end = time.perf_counter() + WARM_SECONDS
    for work in works:
        if time.perf_counter() < end:
            work()


def _verify(verifier: Verifier, tree: TokenTree) -> None:
    """Read a tree and fetch what the target chooses at its nodes."""
    verifier.logits(tree).argmax(-1).tolist()


def _blocks(drafter: BlockDrafter, count: int, block_size: int, committed: int = COMMITTED, top: int = 1) -> None:
    """Read what a step commits and draft so many blocks."""
    model = drafter.model
    width = len(model.target_layer_ids) * model.config.hidden_size
    drafter.cache.length = CONTEXT
    drafter.later(torch.zeros(1, committed, width, dtype=model.dtype, device=model.device))
    drafter.draft(0, [()] * count, block_size, top)


def _chain(drafter: ChainDrafter, block_size: int) -> None:
    drafter.cache.length = CONTEXT
    drafter.draft_after(torch.zeros(COMMITTED, dtype=torch.int64, device=drafter.model.device), block_size - 1)


def _levels(drafter: LevelDrafter, target: Target) -> None:
    """Read what a step commits and draft a tree."""
    width = len(drafter.model.target_layer_ids) * target.embedding.weight.shape[1]
    drafter.cache.length = CONTEXT
    drafter.extend(torch.zeros(1, COMMITTED, width, device=drafter.model.device))
    drafter.draft([0] * (CONTEXT + COMMITTED + 1))


def path_tree(count: int) -> TokenTree:
    """So many nodes in a row: what they are and where they come from does not matter for their time."""
    parents, depths = tuple(range(-1, count - 1)), tuple(range(count))
    return TokenTree((0,) * count, parents, depths, (0,) * count, (1.0,) * count, ((),) * count)
