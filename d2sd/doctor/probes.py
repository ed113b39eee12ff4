"""Probes: change one thing of a drafter and draft again over the same texts, or put the same prompts into another template.

A few hundred steps are too few to measure a small change. Variants are therefore compared with the unchanged drafter at every
position of the texts, not only where a step begins. The measure is the geometric mean of a draft's committed tokens (accepted + 1).

Every variant is first screened at some positions of a few texts. The best ones are then tried over all texts. Intervals are paired
bootstraps over prompts. They hold simultaneously for all variants (Bonferroni), including variants that were only screened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.config import DecodeConfig
from d2sd.decoding.replay import Text
from d2sd.doctor.changes import Variant
from d2sd.doctor.redraft import (
    BlockRedrafter,
    ChainRedrafter,
    Drafter,
    TextWalk,
    alpha,
    redrafter,
    tokens_and_steps,
    walk_text,
)
from d2sd.engine import Engine
from d2sd.errors import InputError, error_line
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

# Screening: number of texts, stride of positions, number of variants that are kept, and the gain that they must exceed.
SCREEN_TEXTS, SCREEN_EVERY, SCREEN_KEEP, SCREEN_FLOOR = 3, 6, 4, -0.15
SCREEN_STOP = -0.5  # gain in the first text below which a variant is not screened in other texts
# Numbers of texts, and of anchors per text, over which mask tokens are compared.
MASK_TEXTS, MASK_ANCHORS = 8, 2
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
    rises = np.array([_log_gain(w, b) for w, b in zip(walks, base, strict=True)])
    resampler = _resampler(len(walks))
    resampled = np.expm1(resampler.ratios(rises, anchors, np.arange(len(walks))))
    return resampler.figure(float(np.expm1(rises.sum() / anchors.sum())), resampled, tests)


@lru_cache(4)
def _resampler(count: int) -> Resampler:
    """Cached, so that every variant is compared with the same resamples."""
    return Resampler(count)


def _log_gain(walked: TextWalk, base: TextWalk) -> float:
    """Returns log(committed tokens of a draft ÷ committed tokens in ``base`` at the same position), summed over positions."""
    return float(np.log((1.0 + np.array(walked.by_anchor)) / (1.0 + np.array(base.by_anchor))).sum())


def change_of_alpha(walks: Sequence[TextWalk], base: Sequence[TextWalk], tests: int) -> Estimate:
    """Returns the change of α from ``base``. The texts of ``base`` may be other responses to the same prompts."""
    own, before = tokens_and_steps(walks), tokens_and_steps(base)
    return _resampler(len(walks)).difference(own, before, np.arange(len(walks)), tests)


def is_clear(change: Estimate, least: float) -> bool:
    """Returns whether a change is significantly positive and at least ``least``."""
    return change.low is not None and change.low > 0 and (change.value or 0.0) >= least


def changed(target: Target, model: Drafter, visible: int, variant: Variant) -> BlockRedrafter | ChainRedrafter:
    """Returns an object that drafts over texts with the changed drafter."""
    return redrafter(target, variant.apply(model), visible, lag=variant.lag, ahead=variant.ahead)


def probe(
    target: Target, model: Drafter, visible: int, texts: Sequence[Text], base: Sequence[TextWalk], variants: Sequence[Variant],
    tests: int,
) -> Iterator[Trial]:  # fmt: skip
    """Yields the screening results of all variants, then the results of the best ones over all texts.

    visible: number of tokens after the anchor that the drafter is shown.
    base: the unchanged drafter's steps over all texts.
    tests: number of simultaneous intervals, including the intervals of these variants.
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
        gain = relative_gain(screened, unchanged[: len(screened)], tests)
        gains.append(gain.value or 0.0 if screened != unchanged else -1.0)
        yield Trial(variant, gain)
    order = sorted((n for n in range(len(gains)) if gains[n] > SCREEN_FLOOR), key=lambda n: -gains[n])
    kinds = [variants[n].kind for n in order]
    other = next((n for n, kind in zip(order, kinds, strict=True) if kind != kinds[0]), None)
    kept = dict.fromkeys(
        [*order[:SCREEN_KEEP], *([] if other is None else [other])]
    )  # other kinds could explain as much
    for variant in [variants[n] for n in kept]:
        drafter = changed(target, model, visible, variant)
        walks = tuple(walk_text(drafter, text) for text in texts)
        gain = relative_gain(walks, base, tests)
        yield Trial(variant, gain, is_clear(gain, MIN_GAIN) and alpha(walks) >= alpha(base), walks)


def _screened(
    drafter: BlockRedrafter | ChainRedrafter, texts: Sequence[Text], unchanged: Sequence[TextWalk]
) -> list[TextWalk]:
    """Drafts at some positions of these texts. Stops after the first text if the gain there is below ``SCREEN_STOP``."""
    walks: list[TextWalk] = []
    for text in texts:
        walks.append(TextWalk((), 0, tuple(drafter.accepted(text, text.anchors[::SCREEN_EVERY]))))
        if len(walks) == 1 and np.expm1(_log_gain(walks[0], unchanged[0]) / len(walks[0].by_anchor)) < SCREEN_STOP:
            break
    return walks


def score_masks(
    target: Target, model: DFlashDraftModel, visible: int, texts: Sequence[Text], tokens: Sequence[int]
) -> Iterator[int]:
    """Yields how many drafted tokens are accepted with each of these mask tokens, at a few positions."""
    unchanged = BlockRedrafter(target, model, visible)
    some = [(t, t.anchors[:: max(1, len(t.anchors) // MASK_ANCHORS)][:MASK_ANCHORS]) for t in texts[:MASK_TEXTS]]
    contexts = [unchanged.context(text) for text, _ in some]
    for token in tokens:
        drafter = BlockRedrafter(target, model.reformed(replace(model.form, mask_token=token)), visible)
        places = zip(some, contexts, strict=True)
        yield sum(sum(drafter.accepted(text, anchors, context)) for (text, anchors), context in places)


# The same prompts in other templates: with and without chat template, with and without thinking.


# Smallest relative rises of α that count. Other templates lead to other responses, which may be easier for any drafter. The second
# value applies if a template with special tokens is left out, since that is certainly the target's template.
MIN_RISE, MIN_RISE_OWN = 0.15, 0.5


@dataclass(frozen=True, slots=True)
class Template:
    """A way to format prompts.

    fix: the option to change.
    ids: token ids of each prompt.
    min_rise: smallest relative rise of α that counts as help.
    """

    description: str
    fix: str
    ids: tuple[tuple[int, ...], ...]
    min_rise: float = MIN_RISE


@dataclass(frozen=True, slots=True)
class TemplateTrial:
    """The result of another template.

    alpha: α over the texts that the target generates with this template.
    change: change of α compared with the original template, over the same prompts.
    helps: whether the change is significant and large enough.
    unusable: number of prompts whose text is empty or mostly repeats itself.
    """

    template: Template
    alpha: float
    change: Estimate
    texts: int
    helps: bool
    unusable: int = 0


def templates(engine: Engine, prompts: Sequence[str], config: DecodeConfig) -> list[Template]:
    """Returns other templates in which the prompts have other token ids than with ``config``."""
    target = engine.models.target
    tokenizer = target.tokenizer

    def ids(chat: bool, thinking: bool) -> tuple[tuple[int, ...], ...]:
        other = replace(config, chat=chat, thinking=thinking)
        return tuple(tuple(engine.encode(p, other)) for p in prompts)

    without, ways = (False, False, "no chat template", "leave out --chat"), []
    if tokenizer.chat_template and not config.chat:
        ways = [(True, config.thinking, "the chat template", "--chat")]
    elif tokenizer.chat_template and config.thinking:
        ways = [without, (True, False, "no thinking", "leave out --thinking")]
    elif tokenizer.chat_template:
        ways = [without, (True, True, "thinking", "--thinking")]
    found: list[Template] = []
    seen = [ids(config.chat, config.thinking)]
    for chat, thinking, description, fix in ways:
        try:
            other = ids(chat, thinking)
        except InputError:
            continue  # the template rejects a prompt
        if other not in seen:
            seen.append(other)
            special = (t.content for t in tokenizer.added_tokens_decoder.values() if t.special)
            has_markers = any(token in tokenizer.chat_template for token in special)
            found.append(Template(description, fix, other, MIN_RISE_OWN if has_markers and not chat else MIN_RISE))
    return found
