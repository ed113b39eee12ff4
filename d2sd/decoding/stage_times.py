"""Measures the table of stage costs on this machine, by timing every stage a few times with passes of different sizes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from functools import partial
from statistics import median

import torch

from d2sd.costs.machines import STAGES, Curve, StageCosts
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.drafters import CachedDrafters
from d2sd.decoding.verifier import Verifier
from d2sd.methods.base import WIDEST
from d2sd.tree.tree import path_tree

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32, 64)  # timed tree sizes, in nodes
# Corners of the piecewise linear cost curve, in nodes. Kernels process six, eight or more rows together.
CORNERS = (2, 4, 6, 8, 12, 16, 24, 32, 64)
BRANCHES = (1, 2, 4, 8)  # timed numbers of re-drafts
ROUNDS, SECONDS = 12, 2.5  # maximum number of rounds; time limit in seconds
# If a plain pass takes more seconds than this, only the corners are timed: creating a kernel then takes a negligible share.
SLOW = 0.01
TYPICAL = 0.3  # quantile that counts as the typical time: disturbances only lengthen a pass
CONTEXT, COMMITTED = 192, 2  # tokens before the pass; tokens of the last step, which drafters read first
MEASURED_TOKENS = CONTEXT + 128  # capacity of the caches
DIFFERENT = 0.2  # largest relative difference between the halves of a steady measurement
OTHER = 0.05  # time outside the stages, as a fraction of a plain pass; corrected by the times of a run
StageRows = tuple[str, int]  # a stage, and the number of rows of its pass
Times = dict[StageRows, list[float]]  # seconds


@torch.inference_mode()
def measure_costs(drafters: CachedDrafters, verifier: Verifier) -> tuple[StageCosts, bool]:
    """Returns typical times of every stage after a context of 192 tokens, and whether the measurement was steady.

    It was steady if, in every stage, the times of the first and of the second half of the rounds differ by at most a fifth.

    drafters, verifier: their caches must have room for ``MEASURED_TOKENS`` and a tree.
    """
    target, method, gamma = verifier.target, drafters.method, drafters.block_size
    verifier.cache.length, width = CONTEXT, target.embedding.weight.shape[1]

    def committed(taps: int) -> torch.Tensor:
        return torch.zeros(1, COMMITTED, taps * width, dtype=target.dtype, device=target.device)

    def verify(count: int) -> None:
        verifier.logits(path_tree(count)).argmax(-1).tolist()

    def blocks(drafter: BlockDrafter, count: int, size: int) -> None:
        drafter.cache.length = CONTEXT
        drafter.later(committed(len(drafter.taps)).to(drafter.model.dtype))
        drafter.draft(0, [()] * count, size, WIDEST if method.default_budget else 1)

    def first(size: int) -> None:
        if drafters.first:
            blocks(drafters.first, 1, size)
        if drafters.draft_model:
            drafters.draft_model.cache.length = CONTEXT
            drafters.draft_model.draft_after(torch.zeros(COMMITTED, dtype=torch.int64, device=target.device), size - 1)
        if drafters.eagle3:
            drafters.eagle3.cache.length = CONTEXT
            drafters.eagle3.extend(committed(len(drafters.eagle3.model.target_layer_ids)))
            drafters.eagle3.draft([0] * (CONTEXT + COMMITTED + 1))

    # minimum, because the first pass is slow
    sizes = (1, *CORNERS) if min(_seconds(partial(verify, 1)) for _ in range(3)) > SLOW else SIZES
    # the first pass with each number of rows creates CPU kernels, so every number is run once before timing
    met = sizes if drafters.passes.fixed or sizes != SIZES else range(1, SIZES[-1] + 1)
    works: dict[StageRows, Callable[[], object]] = {("verify", count): partial(verify, count) for count in met}
    works |= {("first_draft", size): partial(first, size) for size in method.draft_lengths(gamma)}
    if drafters.second:
        works |= {("second_draft", n * gamma): partial(blocks, drafters.second, n, gamma) for n in BRANCHES}
    rounds = _timed(works, [key for key in works if key[0] != "verify" or key[1] in sizes])
    times = _typical(rounds)
    points = {stage: [(rows, t) for (key, rows), t in sorted(times.items()) if key == stage] for stage in STAGES}
    first_draft, second_draft = (Curve.through(points[stage] or [(1, 0.0)]) for stage in STAGES[:2])
    plain, *more = Curve.through(points["verify"]).points
    verified = Curve.through([plain, *((n, max(t, plain[1])) for n, t in Curve.fitted(more, CORNERS).points)])
    return StageCosts(first_draft, second_draft, verified, OTHER * verified.seconds(1)), _steady(rounds)


def _timed(
    works: dict[StageRows, Callable[[], object]],
    timed: Collection[StageRows],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Times]:
    """Times passes in random order, after a warm-up round of all passes. Returns, for each round, the seconds of every timed pass.

    Each pass is timed after the pass that precedes it in a run, so that the processor's caches are as warm as in a run.

    works: functions that run the passes.
    timed: keys of the passes to time; the others run only in the warm-up round.
    """
    drafts, plain = [key for key in works if key[0] == "first_draft"], ("verify", 1)
    order, rounds, rng, end = list(works), list[Times](), random.Random(0), clock() + SECONDS
    while len(rounds) <= ROUNDS and (len(rounds) < 2 or clock() < end):
        rounds.append({key: [] for key in order})
        for key in rng.sample(order, len(order)):
            works[plain if key == plain else ("verify", 8) if key in drafts else rng.choice(drafts)]()
            rounds[-1][key].append(_seconds(works[key]))
        order = [*timed, *[*drafts, plain] * 2]  # timed more often, because all other passes are compared with them
    return rounds[1:]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _typical(rounds: list[Times]) -> dict[StageRows, float]:
    """Returns the typical seconds of every pass. Times of rounds in which the whole machine was slower are reduced accordingly."""
    usual = {key: median(t for times in rounds for t in times[key]) for key in rounds[0]}
    slower = [median(t / usual[key] for key, seconds in times.items() for t in seconds) for times in rounds]
    held = {key: sorted(t / s for times, s in zip(rounds, slower, strict=True) for t in times[key]) for key in usual}
    return {key: times[round(TYPICAL * (len(times) - 1))] for key, times in held.items()}


def _steady(rounds: list[Times]) -> bool:
    half = len(rounds) // 2
    halves = [_typical(part) for part in (rounds[: max(1, half)], rounds[half:])]
    totals = [[sum(t for (key, _), t in times.items() if key == stage) for times in halves] for stage in STAGES]
    return all(max(both) <= (1 + DIFFERENT) * min(both) for both in totals)
