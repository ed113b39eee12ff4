"""Probes: each changes one thing of a drafter and drafts again over the same texts, or puts the same prompts into another template.

A few hundred steps are too few to measure a small change. Variants are therefore compared with the unchanged drafter at every
position of the texts, not only where a step begins. The measure is the geometric mean of a draft's committed tokens (accepted + 1).

Every variant is first screened at some positions of a few texts. The best ones are then tried over all texts. Intervals are paired
bootstraps over prompts. They hold simultaneously for all variants (Bonferroni), including variants that were only screened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from d2sd.calibration.replays import Counts, DraftingRun, relative_gain
from d2sd.calibration.resampling import Estimate
from d2sd.config import DecodeConfig
from d2sd.doctor.changes import Variant
from d2sd.engine import Engine
from d2sd.errors import InputError, error_line
from d2sd.nets.target import Target
from d2sd.replay.anchors import Drafter, Redrafter, redrafter
from d2sd.replay.recorded import Text

# Screening: number of texts, stride of positions, number of variants that are kept, and the gain that they must exceed.
SCREEN_TEXTS, SCREEN_EVERY, SCREEN_KEEP, SCREEN_FLOOR = 3, 6, 4, -0.15
SCREEN_STOP = -0.5  # gain below which a variant is not screened in further texts
NO_STEPS = DraftingRun()
MIN_GAIN = 0.02  # smallest relative gain that counts as help


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying a variant.

    gain: relative change of the committed tokens per draft, with a simultaneous interval over prompts.
    helps: whether the whole interval is above 0, the gain is large enough, and α is not lower than before the change.
    run: steps over all texts; no steps if the variant was only screened.
    failure: why the variant could not be tried; None if it was tried.
    """

    variant: Variant
    gain: Estimate
    helps: bool = False
    run: DraftingRun = NO_STEPS
    failure: str | None = None


def probe(
    target: Target, model: Drafter, texts: Sequence[Text], base: DraftingRun, variants: Sequence[Variant]
) -> Iterator[Trial]:
    """Yields the screening results of all variants, then the results of the best ones over all texts.

    base: the unchanged drafter's steps over all texts.
    """

    def changed(variant: Variant) -> Redrafter:
        return redrafter(target, variant.apply(model), base.visible, variant.lag, variant.ahead)

    few = texts[:SCREEN_TEXTS]
    unchanged = [list(counts[::SCREEN_EVERY]) for counts in base.by_anchor[: len(few)]]
    gains: list[float] = []
    for variant in variants:
        try:
            screened = _screened(changed(variant), few, unchanged)
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
        drafter = changed(variant)
        run = drafter.run(map(drafter.steps, texts))
        gain = relative_gain(run.by_anchor, base.by_anchor, len(variants))
        clear = (gain.low or 0.0) > 0 and (gain.value or 0.0) >= MIN_GAIN
        yield Trial(variant, gain, clear and run.alpha >= base.alpha, run)


def _screened(drafter: Redrafter, texts: Sequence[Text], unchanged: Sequence[Counts]) -> list[Counts]:
    """Returns the variant's counts of accepted tokens at some positions of the texts. Stops early if its gain is below
    ``SCREEN_STOP``.

    unchanged: the same counts of the unchanged drafter.
    """
    counts: list[Counts] = []
    for text in texts:
        counts.append(drafter.accepted(text, text.anchors[::SCREEN_EVERY]))
        if (relative_gain(counts, unchanged[: len(counts)]).value or 0.0) < SCREEN_STOP:
            break
    return counts


# The same prompts in other templates: with and without chat template, with and without thinking.


@dataclass(frozen=True, slots=True)
class TemplateTrial:
    """The result of putting the prompts into another template, with which the target writes other texts.

    template: description of the template (see ``templates``).
    alpha: α over these texts.
    change: change of α compared with the original template, over the same prompts.
    unusable: number of prompts whose text is empty or mostly repeats itself.
    """

    template: str
    alpha: float
    change: Estimate
    unusable: int = 0


def templates(engine: Engine, prompts: Sequence[str], config: DecodeConfig) -> dict[str, list[list[int]]]:
    """Returns the prompts' token ids in each other template, by the template's description. Templates that do not change the ids
    are left out.
    """
    if not engine.models.target.tokenizer.chat_template:
        return {}
    ways = {"the chat template": replace(config, chat=True)}
    if config.chat:
        ways = {"no chat template": replace(config, chat=False, thinking=False)}
        ways["no thinking" if config.thinking else "thinking"] = replace(config, thinking=not config.thinking)
    unchanged, by_template = [engine.encode(p, config) for p in prompts], dict[str, list[list[int]]]()
    for description, other in ways.items():
        with suppress(InputError):  # the template rejects a prompt
            ids = [engine.encode(p, other) for p in prompts]
            if ids not in (unchanged, *by_template.values()):
                by_template[description] = ids
    return by_template
