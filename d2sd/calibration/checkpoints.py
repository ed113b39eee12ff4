"""Checkpoints of a training run over the same texts: which is the best, and whether it differs from the last by more than chance."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.calibration.replays import Row, compare_replays
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.sentences import percent, with_interval


def compare_checkpoints(
    names: Sequence[str], committed: Sequence[Sequence[Sequence[int]]], cut: Sequence[Sequence[bool]]
) -> list[Row]:
    """One row per checkpoint in the given order; differences are from the last one, which has none.

    committed, cut: as for ``compare_replays``.
    """
    names, committed, cut = ([given[-1], *given[:-1]] for given in (names, committed, cut))
    last, *others = compare_replays(names, committed, ["all"] * len(cut[0]), cut)
    return [*others, last]


def best(rows: Sequence[Row]) -> Row:
    """Returns the row with the highest α; among equal ones, the latest."""
    return max(reversed(rows), key=lambda row: row.whole.alpha.value or 0.0)


def verdict(rows: Sequence[Row]) -> str:
    """Returns one or two sentences that name the best checkpoint and how certain that is."""
    *others, last = rows
    found = best(rows)
    alpha = f"α {with_interval(found.whole.alpha)}"
    if not others:
        return f"There is one checkpoint, {last.name}: {alpha}."
    if found is last:
        rival = best(others)
        return f"The last checkpoint, {last.name}, is the best: {alpha}. The next, {rival.name}: {_chance(rival)}."
    return f"The best checkpoint is {found.name}: {alpha}. Against the last one, {last.name}: {_chance(found)}."


def _chance(row: Row) -> str:
    difference = row.whole.difference or Estimate(None)
    words = with_interval(difference, "+")
    if difference.low is None or difference.high is None:
        return f"{words}; too few texts to say whether that is chance"
    clear = difference.low > 0 or difference.high < 0
    return f"{words}, {'more than chance' if clear else 'which may be chance'}"


def first_position(row: Row) -> str:
    """Returns the share of a checkpoint's steps that accept the first drafted token, with its interval."""
    share = row.reached[0] if row.reached else Estimate(None)
    if share.value is None or share.low is None or share.high is None:
        return "–"
    return f"{percent(share.value)} [{percent(share.low)} to {percent(share.high)}]"
