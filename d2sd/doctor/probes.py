"""Probes: change one thing of a drafter and draft again over the same texts.

The steps over a text are those of decoding, from anchor to anchor: those of the method ``dflash`` at temperature 0, or of an
EAGLE-3 chain. A few hundred steps are too few to measure a small change. Variants are therefore compared with the drafter as
given at every position of the texts, by the geometric mean of the number of tokens that a draft from there adds.

Every variant is first tried at some positions of a few texts, the best ones over more texts, and the best of these over all.
Intervals are paired bootstraps over prompts and hold simultaneously for all variants (Bonferroni), including those that were
dropped early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from d2sd.calibration.replays import reached
from d2sd.calibration.resampling import Estimate, Ratio, Resampler, wilson
from d2sd.doctor.changes import Variant
from d2sd.doctor.redraft import Redrafter
from d2sd.doctor.subject import Draft, Redrafting
from d2sd.doctor.texts import Text
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

# At first a look at every so many places of a few texts: so many variants go on, of those whose change is above this.
LOOK_TEXTS, LOOK_EVERY, LOOK_KEEP, LOOK_FLOOR = 3, 6, 6, -0.15
LOOK_NO_FURTHER = -0.5  # a variant that loses as much in the first of these texts is not looked at in the others
# After so many texts, so many of them.
ROUNDS = ((4, 3, -0.1), (12, 2, 0.0))
# Texts, and anchors of each, where mask tokens are compared before the likeliest become variants.
MASK_TEXTS, MASK_ANCHORS = 8, 2


@dataclass(frozen=True, slots=True)
class Walked:
    """The walk of one text.

    accepted: number of drafted tokens that each step accepts; the last step may have been cut by the text's end.
    tokens: number of generated tokens.
    places: number of accepted tokens of a draft after every position of the text, whether a step starts there or not.
    """

    accepted: tuple[int, ...]
    tokens: int
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a variant.

    alpha, before: tokens per step with and without it; None if it was tried at some positions only.
    change: relative change of the tokens that a draft adds, with a simultaneous interval over prompts.
    texts: number of texts that it was tried on.
    helps: whether the whole interval is above 0, the gain is large enough and α is not lower.
    walks: of these texts with it.
    """

    variant: Variant
    alpha: float | None
    before: float | None
    change: Estimate
    texts: int
    helps: bool
    walks: tuple[Walked, ...] = ()


def walk(drafter: Redrafting, text: Text) -> Walked:
    """Returns the steps of decoding: each commits the visible tokens, the accepted ones and the bonus token."""
    places = drafter.accepted(text, text.anchors)
    found = dict(zip(text.anchors, places, strict=True))
    at, end, accepted = text.start, len(text.ids) - 1, []
    while at < end:
        accepted.append(min(drafter.visible + found[at], end - at))
        at += accepted[-1] + 1
    return Walked(tuple(accepted), end - text.start, tuple(places))


def alpha(walks: Sequence[Walked]) -> float:
    """Returns committed tokens per step, including the bonus token."""
    return sum(w.tokens for w in walks) / max(1, sum(len(w.accepted) for w in walks))


def alpha_figure(walks: Sequence[Walked]) -> Estimate:
    """Returns α with its interval over prompts."""
    return Resampler(len(walks)).ratio(*_rows(walks), np.arange(len(walks)))


def gain(walks: Sequence[Walked], base: Sequence[Walked], tests: int) -> Estimate:
    """Returns the relative change from ``base`` of the tokens that a draft adds, over the same positions (geometric mean)."""
    places = np.array([len(w.places) for w in walks], float)
    rises = np.array([_rise(w, b) for w, b in zip(walks, base, strict=True)])
    resampler = _resampler(len(walks))
    drawn = np.expm1(resampler.ratios(rises, places, np.arange(len(walks))))
    return resampler.figure(float(np.expm1(rises.sum() / places.sum())), drawn, tests)


@lru_cache(4)
def _resampler(count: int) -> Resampler:
    """Returns the same resamples for every variant, drawn once."""
    return Resampler(count)


def _rise(walked: Walked, base: Walked) -> float:
    """Returns the sum over places of the logarithm of how many times as many tokens a draft brings."""
    return float(np.log((1.0 + np.array(walked.places)) / (1.0 + np.array(base.places))).sum())


def change_of_alpha(walks: Sequence[Walked], base: Sequence[Walked], tests: int) -> Estimate:
    """Returns the change of α from ``base``, whose texts may be other answers to the same prompts."""
    return _resampler(len(walks)).difference(_rows(walks), _rows(base), np.arange(len(walks)), tests)


def clear(change: Estimate, worth: float) -> bool:
    """Returns whether a change is significantly positive and large enough to report."""
    return change.low is not None and change.low > 0 and (change.value or 0.0) >= worth


def _rows(walks: Sequence[Walked]) -> Ratio:
    """Tokens and steps of each, of whose sums α is the ratio."""
    return np.array([w.tokens for w in walks], float), np.array([len(w.accepted) for w in walks], float)


def probe(
    draft: Draft, model: Any, texts: Sequence[Text], base: Sequence[Walked], variants: Sequence[Variant], tests: int
) -> Iterator[Tried]:
    """Yields the results of all variants, updated whenever one was tried on more texts.

    draft: returns a drafter over texts for a model.
    base: the drafter as given, over all texts.
    tests: number of intervals that are to hold simultaneously, including those of these variants.
    """
    few = texts[:LOOK_TEXTS]
    given = [Walked((), 0, w.places[::LOOK_EVERY]) for w in base[: len(few)]]
    looks: list[float] = []
    for variant in variants:
        drafter = draft(variant.of(model))
        seen: list[Walked] = []
        for text in few:
            seen.append(Walked((), 0, tuple(drafter.accepted(text, text.anchors[::LOOK_EVERY]))))
            if len(seen) == 1 and np.expm1(_rise(seen[0], given[0]) / len(given[0].places)) < LOOK_NO_FURTHER:
                break
        change = gain(seen, given[: len(seen)], tests)
        looks.append(change.value or 0.0 if seen != given else -1.0)
        yield Tried(variant, None, None, change, len(seen), False)
    order = sorted((n for n in range(len(looks)) if looks[n] > LOOK_FLOOR), key=lambda n: -looks[n])
    left: list[tuple[Variant, list[Walked]]] = [(variants[n], []) for n in order[:LOOK_KEEP]]
    for most, keep, floor in (*ROUNDS, (len(texts), 0, 0.0)):
        count = min(most, len(texts))
        before = base[:count]
        gains: list[float] = []
        for variant, walks in left:
            drafter = draft(variant.of(model))
            walks += [walk(drafter, text) for text in texts[len(walks) : count]]
            tried = _tried(variant, walks, before, tests)
            gains.append(tried.change.value or 0.0)
            yield tried
        if count == len(texts):
            return
        order = sorted(range(len(left)), key=lambda n: -gains[n])
        left = [left[n] for n in order if gains[n] > floor and left[n][1] != list(before)][:keep]


def _tried(variant: Variant, walks: Sequence[Walked], base: Sequence[Walked], tests: int) -> Tried:
    change, now, before = gain(walks, base, tests), alpha(walks), alpha(base)
    return Tried(variant, now, before, change, len(walks), clear(change, variant.worth) and now >= before, tuple(walks))


def score_masks(
    target: Target, model: DFlashDraftModel, texts: Sequence[Text], tokens: Sequence[int], visible: int = 0
) -> Iterator[int]:
    """Returns how many drafted tokens are accepted with each of these mask tokens, at a few positions."""
    given = Redrafter(target, model, visible)
    some = [(t, t.anchors[:: max(1, len(t.anchors) // MASK_ANCHORS)][:MASK_ANCHORS]) for t in texts[:MASK_TEXTS]]
    contexts = [given.context(text) for text, _ in some]
    for token in tokens:
        drafter = Redrafter(target, model.reformed(replace(model.form, mask_token=token)), visible)
        places = zip(some, contexts, strict=True)
        yield sum(sum(drafter.accepted(text, anchors, context)) for (text, anchors), context in places)


# Acceptance by position, and its classification into three known shapes.


Shape = Literal["low", "cliff", "smooth", "unclear"]
LOW = 0.6  # share accepted at position 1 that trained drafters are usually above
FEWEST = 20  # steps that a position needs to count
FALL = 0.6  # of the share before it: what a position after a cliff is below
STRICT = 3.0  # standard deviations, since every position is looked at
SAID = {
    "low": "Position 1 is already low, as with wrong taps, a wrong mask token, another template or too little training.",
    "cliff": "Acceptance drops at one position, as with a wrong γ, window or positions.",
    "smooth": "Acceptance decays smoothly, without a low start or a cliff, as in a drafter that works as it was trained.",
    "unclear": "Too few steps to tell the shape.",
}


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a draft.

    number: from 1.
    steps: number of steps that accepted all earlier tokens.
    accepted: number of these steps that also accept this one.
    """

    number: int
    steps: int
    accepted: int

    @property
    def share(self) -> float:
        """Accepted share of the steps that reached it."""
        return self.accepted / self.steps


def positions(walks: Sequence[Walked], most: int) -> list[Position]:
    """Returns acceptance for up to ``most`` drafted tokens; the last step of a text is left out, since the text ends there."""
    counts = reached([count for w in walks for count in w.accepted[:-1]])
    return [Position(number, *count) for number, count in enumerate(counts[:most], 1)]


def shape(found: Sequence[Position]) -> tuple[Shape, int | None]:
    """Returns the shape, and the position of a cliff: a significant drop after a good position 1."""
    known = [p for p in found if p.steps >= FEWEST]
    if not known:
        return "unclear", None
    if wilson(known[0].share, known[0].steps)[0] < LOW and known[0].share < LOW:
        return "low", None
    for before, after in pairwise(known):
        high = wilson(after.share, after.steps, STRICT)[1]
        if high < FALL * before.share:
            return "cliff", after.number
    return "smooth", None


# The cure of a drafter: the change that helps most, further changes on top, and whether they explain its acceptance.


MOST = 2  # changes that are made one after the other
LITTLE = 0.3  # share accepted at position 1 of a drafter that was trained a little
TIMES = 2.0  # accepted tokens of such a one, over those before the cure
EXPLAINS = 0.1  # gain of α that a soft change of a drafter must have which was not low before


@dataclass(frozen=True, slots=True)
class Cure:
    """A sequence of changes, each the one that helps most after those before it.

    steps: the changes and their results.
    before: the drafter as given, over the texts.
    clean: whether no further change helps.
    block: γ with all changes.
    visible: number of tokens after the anchor that the drafter is given.
    """

    steps: tuple[Tried, ...]
    before: tuple[Walked, ...]
    clean: bool
    block: int
    visible: int = 0

    @property
    def after(self) -> tuple[Walked, ...]:
        """The texts with all changes."""
        return self.steps[-1].walks

    @property
    def proved(self) -> bool:
        """Returns whether these changes restore a working drafter's acceptance, so that they are the cause.

        Either position 1 is accepted as with a trained drafter, and acceptance decays smoothly; or it is accepted as with a
        drafter after little training, and several times as many tokens are accepted as before. Changes that often help a
        drafter with another fault must also raise α by a good share, and leave no further change that helps.
        """
        gain = alpha(self.after) / alpha(self.before)
        times = (alpha(self.after) - 1) / max(alpha(self.before) - 1, 1e-3)
        first, kind = level(self.after, self.block, self.visible)
        back = (first >= LOW and kind == "smooth") or (first >= LITTLE and times >= TIMES)
        if not any(step.variant.soft for step in self.steps):
            return back
        return back and gain >= 1 + EXPLAINS and (self.clean or times >= 2 * TIMES)


def level(walks: Sequence[Walked], block: int, visible: int) -> tuple[float, str]:
    """Returns the accepted share at position 1, and the shape of acceptance by position."""
    found = positions(walks, block - 1)[visible:]
    return (found[0].share if found else 0.0), shape(found)[0]
