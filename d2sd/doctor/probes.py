"""Probes: change one thing of a drafter and draft again over the same texts, or put the same prompts into another template.

A few hundred steps are too few to measure a small change. Variants are therefore compared with the unchanged drafter at every
position of the texts, not only where a step begins. The measure is the geometric mean of a draft's committed tokens (accepted + 1).

Every variant is first screened at some positions of a few texts. The best ones are then tried over all texts. Intervals are paired
bootstraps over prompts. They hold simultaneously for all variants (Bonferroni), including variants that were only screened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.config import DecodeConfig
from d2sd.doctor.changes import Variant
from d2sd.engine import Engine
from d2sd.errors import InputError, error_line
from d2sd.nets.target import Target
from d2sd.replay.anchors import (
    Drafter,
    Redrafter,
    TextWalk,
    alpha,
    redrafter,
    tokens_and_steps,
    walk_text,
)
from d2sd.replay.recorded import Text

# Screening: number of texts, stride of positions, number of variants that are kept, and the gain that they must exceed.
SCREEN_TEXTS, SCREEN_EVERY, SCREEN_KEEP, SCREEN_FLOOR = 3, 6, 4, -0.15
SCREEN_STOP = -0.5  # gain below which a variant is not screened in further texts
MIN_GAIN = 0.02  # smallest relative gain that counts as help


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a variant.

    gain: relative change of the committed tokens per draft, with a simultaneous interval over prompts.
    helps: whether the whole interval is above 0, the gain is large enough, and α is not lower than before the change.
    walks: steps over all texts; empty if the variant was only screened.
    failure: why the variant could not be tried; None if it was tried.
    """

    variant: Variant
    gain: Estimate
    helps: bool = False
    walks: tuple[TextWalk, ...] = ()
    failure: str | None = None


def relative_gain(walks: Sequence[TextWalk], base: Sequence[TextWalk], tests: int) -> Estimate:
    """Returns the relative change of the committed tokens per draft from ``base``, as a geometric mean over the texts' positions."""
    anchors = np.array([len(w.by_anchor) for w in walks], float)
    pairs = [(1.0 + np.array(w.by_anchor), 1.0 + np.array(b.by_anchor)) for w, b in zip(walks, base, strict=True)]
    rises = np.array([np.log(own / before).sum() for own, before in pairs])
    resampler = _resampler(len(walks))
    resampled = np.expm1(resampler.ratios(rises, anchors, np.arange(len(walks))))
    return resampler.figure(float(np.expm1(rises.sum() / anchors.sum())), resampled, tests)


@lru_cache(4)
def _resampler(count: int) -> Resampler:
    """Cached, so that every variant is compared with the same resamples."""
    return Resampler(count)


def change_of_alpha(walks: Sequence[TextWalk], base: Sequence[TextWalk], tests: int) -> Estimate:
    """Returns the change of α from ``base``. The texts of ``base`` may be other responses to the same prompts."""
    own, before = tokens_and_steps(walks), tokens_and_steps(base)
    return _resampler(len(walks)).difference(own, before, np.arange(len(walks)), tests)


def changed(target: Target, model: Drafter, visible: int, variant: Variant) -> Redrafter:
    """Returns an object that drafts over texts with the changed drafter."""
    return redrafter(target, variant.apply(model), visible, lag=variant.lag, ahead=variant.ahead)


def probe(
    target: Target, model: Drafter, visible: int, texts: Sequence[Text], base: Sequence[TextWalk], variants: Sequence[Variant]
) -> Iterator[Trial]:  # fmt: skip
    """Yields the screening results of all variants, then the results of the best ones over all texts.

    visible: number of tokens after the anchor that the drafter is shown.
    base: the unchanged drafter's steps over all texts.
    """
    few = texts[:SCREEN_TEXTS]
    unchanged = [TextWalk((), 0, w.by_anchor[::SCREEN_EVERY]) for w in base[: len(few)]]
    gains: list[float] = []
    for variant in variants:
        try:
            screened = _screened(changed(target, model, visible, variant), few, unchanged)
        except Exception as error:  # a change may fail with damaged weights; other changes are still tried
            gains.append(-1.0)
            yield Trial(variant, Estimate(None), failure=error_line(error))
            continue
        gain = relative_gain(screened, unchanged[: len(screened)], len(variants))
        gains.append(gain.value or 0.0 if screened != unchanged else -1.0)
        yield Trial(variant, gain)
    order = sorted((n for n in range(len(gains)) if gains[n] > SCREEN_FLOOR), key=lambda n: -gains[n])
    others = [n for n in order[SCREEN_KEEP:] if variants[n].kind != variants[order[0]].kind]
    for variant in [variants[n] for n in (*order[:SCREEN_KEEP], *others[:1])]:  # another kind may help as much
        drafter = changed(target, model, visible, variant)
        walks = tuple(walk_text(drafter, text) for text in texts)
        gain = relative_gain(walks, base, len(variants))
        clear = (gain.low or 0.0) > 0 and (gain.value or 0.0) >= MIN_GAIN
        yield Trial(variant, gain, clear and alpha(walks) >= alpha(base), walks)


def _screened(drafter: Redrafter, texts: Sequence[Text], unchanged: Sequence[TextWalk]) -> list[TextWalk]:
    """Drafts at some positions of these texts. Stops if the gain is below ``SCREEN_STOP``."""
    walks: list[TextWalk] = []
    for text in texts:
        walks.append(TextWalk((), 0, tuple(drafter.accepted(text, text.anchors[::SCREEN_EVERY]))))
        if (relative_gain(walks, unchanged[: len(walks)], 1).value or 0.0) < SCREEN_STOP:
            break
    return walks


# The same prompts in other templates: with and without chat template, with and without thinking.


@dataclass(frozen=True, slots=True)
class Template:
    """A way to format prompts. ``fix``: the option that chooses it; ``ids``: token ids of each prompt."""

    description: str
    fix: str
    ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class TemplateTrial:
    """The result of another template, with which the target writes other texts.

    alpha: α over these texts.
    change: change of α compared with the original template, over the same prompts.
    unusable: number of prompts whose text is empty or mostly repeats itself.
    """

    template: Template
    alpha: float
    change: Estimate
    unusable: int = 0


def templates(engine: Engine, prompts: Sequence[str], config: DecodeConfig) -> list[Template]:
    """Returns other templates in which the prompts have other token ids than with ``config``."""
    if not engine.models.target.tokenizer.chat_template:
        return []
    ways = {"the chat template": ("--chat", replace(config, chat=True))}
    if config.chat:
        ways = {"no chat template": ("no --chat", replace(config, chat=False, thinking=False))}
        other = replace(config, thinking=not config.thinking)
        ways |= {"no thinking": ("no --thinking", other)} if config.thinking else {"thinking": ("--thinking", other)}
    seen, found = [[tuple(engine.encode(p, config)) for p in prompts]], list[Template]()
    for description, (fix, other) in ways.items():
        with suppress(InputError):  # the template rejects a prompt
            ids = [tuple(engine.encode(p, other)) for p in prompts]
            if ids not in seen:
                seen.append(ids)
                found.append(Template(description, fix, tuple(ids)))
    return found
