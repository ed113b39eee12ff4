"""The first drafter's confidence by group: by the prompt's domain, and by kind of drafted token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampler
from d2sd.calibration.scores import Scores, expected_calibration_error, uniform_edges
from d2sd.calibration.steps import StepTable
from d2sd.trace.events import StepDone

KINDS = ("word", "rest of a word", "number", "punctuation", "space or line end", "other")
NUMBER = re.compile(r"\s*[0-9][0-9.,:/-]*")
SIGNS = re.compile(r"\s*[^\w\s]+\s*")


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of a group's scored positions. ``tokens`` (α) and ``repaired`` are over its steps if whole steps are grouped,
    otherwise None."""

    name: str
    positions: int
    confidence: float | None
    accepted: float | None
    gap: Estimate
    error: float | None
    tokens: Estimate | None = None
    repaired: Estimate | None = None


def token_kind(text: str) -> str:
    """Returns the kind of a token; a word starts with a space or a capital letter, other letters continue a word."""
    if not text.strip():
        return "space or line end" if text else "other"
    if NUMBER.fullmatch(text):
        return "number"
    if SIGNS.fullmatch(text):
        return "punctuation"
    if text.strip().replace("'", "").replace("’", "").isalpha():
        return "word" if text[0].isspace() or text[0].isupper() else "rest of a word"
    return "other"


def token_kinds(steps: Sequence[StepDone], scores: Scores) -> np.ndarray:
    """Returns the index in ``KINDS`` of the token at each scored position, (M,)."""
    known: dict[str, int] = {}
    out = np.empty(len(scores), int)
    drafts = [s.first_draft for s in steps]
    for n, (row, position) in enumerate(zip(scores.row.tolist(), scores.position.tolist(), strict=True)):
        draft = drafts[row]
        text = draft.texts[position - 1] if draft and position <= len(draft.texts) else ""
        if text not in known:
            known[text] = KINDS.index(token_kind(text))
        out[n] = known[text]
    return out


def by_kind(scores: Scores, kinds: np.ndarray, resampler: Resampler) -> tuple[Group, ...]:
    """Returns one group for every kind of token that occurs."""
    groups = (_group(name, scores, kinds == n, resampler) for n, name in enumerate(KINDS))
    return tuple(g for g in groups if g.positions)


def by_domain(
    table: StepTable, scores: Scores, unit: np.ndarray, domains: Sequence[str], resampler: Resampler
) -> tuple[Group, ...]:
    """Returns one group for every domain, or none if all are the same.

    domains: domain of each run, by its number in the table."""
    names = sorted(set(domains))
    if len(names) < 2:
        return ()
    of_step = np.array([names.index(d) for d in domains], int)[table.run]
    judged = table.partly & (table.selected > 0)
    out = []
    for n, name in enumerate(names):
        steps = of_step == n
        group = _group(name, scores, steps[scores.row], resampler)
        tokens = resampler.ratio(table.committed[steps].astype(float), np.ones(int(steps.sum())), unit[steps])
        share = resampler.share(table.repaired[steps & judged], unit[steps & judged])
        out.append(
            Group(name, group.positions, group.confidence, group.accepted, group.gap, group.error, tokens, share)
        )
    return tuple(out)


def _group(name: str, scores: Scores, where: np.ndarray, resampler: Resampler) -> Group:
    confidence, accepted, count = scores.confidence[where], scores.accepted[where], int(where.sum())
    if not count:
        return Group(name, 0, None, None, Estimate(None), None)
    gap = resampler.ratio(accepted - confidence, np.ones(count), scores.unit[where])
    return Group(
        name,
        count,
        float(confidence.mean()),
        float(accepted.mean()),
        Estimate(gap.value) if len(np.unique(scores.unit[where])) < MIN_UNITS else gap,  # resamples hardly differ
        expected_calibration_error(confidence, accepted, uniform_edges()),
    )
