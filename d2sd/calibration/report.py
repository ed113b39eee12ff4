"""All calibration figures of a set of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from d2sd.calibration.boundaries import Matrix, Ranks, outcome_matrix, rank_table
from d2sd.calibration.gains import Gains, gains
from d2sd.calibration.paths import Paths
from d2sd.calibration.redrafts import RedraftTable, Second, second_report, tabulate_redrafts
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import (
    Bin,
    Position,
    Scores,
    acceptance_by_position,
    brier_score,
    calibration_error,
    chance_error,
    equal_mass_edges,
    reliability,
    score,
    uniform_edges,
)
from d2sd.calibration.splits import Group, by_domain, by_kind, token_kinds
from d2sd.calibration.steps import StepTable, units
from d2sd.calibration.temperature import TemperatureAdvice, temperature_advice
from d2sd.trace.events import StepDone


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of the first draft's confidence.

    runs, prompts, steps: numbers of runs, of distinct prompts, and of steps.
    positions: number of scored positions; with ``of_paths``, of verified nodes, scored by the probabilities of their paths.
    unit: name of the resampling unit of the intervals.
    confidence, accepted: means over scored positions. Positions without a confidence count in ``by_position`` only.
    gap: accepted − confidence; negative if the drafter is over-confident.
    error, adaptive: ECE with equal-width and with equal-mass bins.
    chance: expected ECE of a perfectly calibrated drafter.
    gains, outcomes: see their modules.
    second, domains, kinds: empty unless ``calibrate`` was given the labels that they need.
    """

    runs: int
    prompts: int
    steps: int
    positions: int
    of_paths: bool
    unit: str
    confidence: float | None
    accepted: float | None
    gap: Estimate
    error: Estimate
    chance: float | None
    adaptive: Estimate
    brier: Estimate
    uniform: tuple[Bin, ...]
    equal_mass: tuple[Bin, ...]
    by_position: tuple[Position, ...]
    matrix: Matrix
    ranks: Ranks
    gains: Gains
    advice: TemperatureAdvice | None
    second: Second | None = None
    domains: tuple[Group, ...] = ()
    kinds: tuple[Group, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of steps.

    domains: prompt group of every run.
    kinds: index in ``splits.KINDS`` of every scored position.
    redrafts: re-drafts of the second drafter."""

    domains: tuple[str, ...]
    kinds: np.ndarray
    redrafts: RedraftTable


def label(runs: Sequence[Sequence[StepDone]], table: StepTable, domains: Sequence[str] = ()) -> Labels:
    """Returns the labels of runs and their table; ``domains``: one per run, or none for a single group."""
    steps = [s for run in runs for s in run]
    scores = score(table, np.zeros(len(table), int))
    return Labels(tuple(domains) or ("all",) * len(runs), token_kinds(steps, scores), tabulate_redrafts(runs, table))


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of one side that a comparison draws, as in ``Report``."""

    steps: int
    positions: int
    uniform: tuple[Bin, ...]
    ranks: Ranks


def curves(table: StepTable) -> Curves:
    """Returns reliability and boundary ranks of these steps, without the other figures of a report."""
    unit, _ = units(table)
    scores = score(table, unit).known()
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    bins = tuple(reliability(scores, uniform_edges()))
    return Curves(len(table), len(scores), bins, rank_table(table, unit, resampler))


def calibrate(table: StepTable, paths: Paths | None = None, labels: Labels | None = None) -> Report:
    """Returns all figures of these steps; an empty table gives a report without observations.

    paths: their trees without a block draft, which are used if no step has a block draft."""
    unit, name = units(table)
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    observed = score(table, unit)
    scores, of_paths = observed.known(), False
    if paths is not None and len(paths) and not len(observed):
        of_paths = True
        scores = Scores(paths.probability, paths.accepted, paths.depth, paths.row, unit[paths.row])
    edges, adaptive = uniform_edges(), equal_mass_edges(scores.confidence)
    some = len(scores) > 0
    return Report(
        runs=table.runs,
        prompts=table.prompts,
        steps=len(table),
        positions=len(scores),
        of_paths=of_paths,
        unit=name,
        confidence=float(scores.confidence.mean()) if some else None,
        accepted=float(scores.accepted.mean()) if some else None,
        gap=resampler.ratio(scores.accepted - scores.confidence, np.ones(len(scores)), scores.unit),
        error=calibration_error(scores, edges, resampler),
        chance=chance_error(scores.confidence, edges) if some else None,
        adaptive=calibration_error(scores, adaptive, resampler),
        brier=brier_score(scores, resampler),
        uniform=tuple(reliability(scores, edges)),
        equal_mass=tuple(reliability(scores, adaptive)),
        by_position=tuple(acceptance_by_position(scores if of_paths else observed)),
        matrix=outcome_matrix(table, unit, resampler),
        ranks=rank_table(table, unit, resampler),
        gains=gains(table, unit, resampler),
        advice=None if of_paths else temperature_advice(table, scores, resampler),
        second=second_report(labels.redrafts, unit, resampler) if labels else None,
        domains=by_domain(table, scores, unit, labels.domains, resampler) if labels else (),
        kinds=by_kind(scores, labels.kinds[~np.isnan(observed.confidence)], resampler)
        if labels and not of_paths
        else (),
    )
