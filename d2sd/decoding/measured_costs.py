"""The table of what stages cost on this machine, from a few measured passes of every shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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

CORNERS = (2, 12, 20, 24, 32, 64)  # between which a node costs the same
BRANCHES = (1, 2, 4, 8)
REPEATS = 5
OFTEN = 3  # times in every round: plain passes and first drafts, whose small differences decide
CONTEXT = 192
COMMITTED = 2  # tokens a step that a drafter has to read first
WARM_NODES, WARM_COMMITTED, WARM_SECONDS = 64, 16, 0.5
MEASURED_SLOTS = CONTEXT + 128
OTHER = 0.05  # of a plain pass, until the run's own times say more
NOTHING = Curve(((1, 0.0),))


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
    """Median times of every stage of a method after a context of 192 tokens; one or two seconds on a small model.

    block_size: the largest γ (of EAGLE-3's trees: 2 + depth, with ``top_k`` nodes a level); passes: how they are run,
    with ``measured_slots`` slots.
    """
    verifier = Verifier(models.target, passes)
    verifier.cache.length = CONTEXT
    jobs: list[tuple[str, int, Callable[[], object]]] = [
        ("verify", n, partial(_verify, verifier, path_tree(n))) for n in SIZES
    ]
    lengths = draft_lengths(method, block_size)
    top = WIDEST if method.default_budget else 1
    first = second = None
    if method.draft_model and models.draft_model is not None:
        chain = ChainDrafter(models.draft_model, passes)
        jobs += [("first_draft", g, partial(_chain, chain, g)) for g in lengths]
    elif method.eagle3 and models.eagle3 is not None:
        levels = LevelDrafter(models.eagle3, models.target, passes, block_size - 2, top_k)
        jobs.append(("first_draft", block_size, partial(_levels, levels, models.target)))
    elif method.first_drafter and models.first is not None:
        first = BlockDrafter("first", models.first, models.target, passes)
        jobs += [("first_draft", g, partial(_blocks, first, 1, g, top=top)) for g in lengths]
        model = {"none": None, "vp": models.second, "first": models.first}[method.second_drafter]
        if model is not None:
            second = first if model is models.first else BlockDrafter("second", model, models.target, passes)
            again = partial(_blocks, second, block_size=block_size, top=top)
            jobs += [("second_draft", b * block_size, partial(again, count=b)) for b in BRANCHES]
    if not passes.fixed:
        _warm_up(verifier, first, second, lengths)
    # what a run does before each stage, so that the processor's caches are as warm as there
    works = {(stage, rows): work for stage, rows, work in jobs}
    verified = works["verify", 8]
    drafted = next((works[s, r] for s, r in reversed(works) if s == "first_draft"), verified)
    before = {"first_draft": (drafted, verified), "second_draft": (drafted,), "verify": (drafted,)}
    rounds: list[dict[tuple[str, int], list[float]]] = []
    for _ in range(REPEATS + 1):  # the first round warms up
        times: dict[tuple[str, int], list[float]] = {key: [] for key in works}
        rounds.append(times)
        for (stage, rows), work in works.items():
            plain = (stage, rows) == ("verify", 1)
            for _ in range(OFTEN if plain or stage == "first_draft" else 1):
                for earlier in (work,) if plain else before[stage]:
                    earlier()
                began = time.perf_counter()
                work()
                times[stage, rows].append(time.perf_counter() - began)
    points: dict[str, list[tuple[int, float]]] = {"first_draft": [], "second_draft": [], "verify": []}
    for (stage, rows), seconds in _typical(rounds[1:]).items():
        points[stage].append((rows, seconds))
    first_draft, second_draft = (Curve.through(p) if (p := points[stage]) else NOTHING for stage in STAGES[:2])
    one, *larger = sorted(points["verify"])
    verify = Curve.through([one, *Curve.fitted(larger, CORNERS).points])
    return CostTable(first_draft, second_draft, verify, OTHER * verify.seconds(1))


def _typical(rounds: Sequence[Mapping[tuple[str, int], Sequence[float]]]) -> dict[tuple[str, int], float]:
    """Median times; a round in which the machine was slower as a whole counts as if it had not been."""
    wholes = [sum(map(sum, times.values())) for times in rounds]
    usual = median(wholes)
    return {
        key: median(t * usual / whole for times, whole in zip(rounds, wholes, strict=True) for t in times[key])
        for key in rounds[0]
    }


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
