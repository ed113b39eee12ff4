"""Examination of one drafter: a short run, probes and the search for a repair, as a generator with progress that can be stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log1p
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from d2sd.calibration.resampling import Estimate
from d2sd.config import DecodeConfig
from d2sd.doctor.changes import Variant
from d2sd.doctor.diagnosis import (
    MANY_UNUSABLE,
    diagnose,
    folder_fault,
    not_finished,
    proved_by_texts,
    proved_by_weights,
)
from d2sd.doctor.evidence import examine_texts, examine_weights, is_unusable, quantised_bits
from d2sd.doctor.findings import Examination, Repair
from d2sd.doctor.probes import (
    Template,
    TemplateTrial,
    Trial,
    change_of_alpha,
    completed,
    is_clear,
    probe,
    score_masks,
    templates,
)
from d2sd.doctor.redraft import Drafter, Text, Walk, alpha, block_size, generate_texts, redrafter, walk, with_features
from d2sd.doctor.reference import alpha_on_card, compared
from d2sd.doctor.variants import mask_tokens, readings, variants, with_mask
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.drafters import published_config
from d2sd.nets.drafter import DFlashDraftModel

TOKENS = 80  # of every text
BATCH = 10  # prompts that are best answered together
VISIBLE = 2  # tokens after the anchor that a VP-Drafter is shown
MOST_CHANGES = 2  # that are made one after the other
CLEAR_GAIN = 0.05  # of a further change: what gains less may be left where the cause is found
MIN_ADVANTAGE = 1.5  # by how many times a change's gain must exceed that of leaving something out, as logarithms
MASKS = 2  # mask tokens that are tried as variants, of all that are compared
WHOLE_IN = 20  # longer blocks are tried where one in so many drafts is accepted completely


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The current stage, in a few words, how much of it is done, and what was tried last."""

    stage: str
    done: int
    total: int
    tried: str = ""


def examine(
    engine: Engine, prompts: Sequence[str], config: DecodeConfig, into: Examination, texts: Sequence[Text] = (),
    reference: tuple[str, Drafter] | None = None, other: tuple[str, Drafter] | None = None,
) -> Iterator[StageProgress]:  # fmt: skip
    """Examine the engine's first drafter (its EAGLE-3 drafter if it has no other).

    If a check finds a fault, it is the cause, and nothing is run. Closing the iterator stops the examination. Damaged weights may
    break any calculation: what fails becomes one of the findings, and the rest goes on.

    prompts: without a chat template.
    config: only ``chat`` and ``thinking`` are used.
    into: holds the checks, and receives the findings.
    texts: the target's texts for the prompts, if they are known.
    reference: folder or hub id, and network, of a drafter to compare it with.
    other: name and network of another drafter of the same set, whose α on the same texts is known to be possible.
    """
    if folder_fault(into.checks) is None:
        began = perf_counter()
        into.chat = config.chat
        try:
            with into.noting("the run", whole=True):
                yield from _run(engine, prompts, config, into, list(texts), reference, other)
        finally:
            into.seconds = perf_counter() - began
    with into.noting("the diagnosis", whole=True):
        into.diagnosis = diagnose(into)
        return
    into.diagnosis = not_finished(into)


def _run(
    engine: Engine, prompts: Sequence[str], config: DecodeConfig, into: Examination, texts: list[Text],
    reference: tuple[str, Drafter] | None, other: tuple[str, Drafter] | None,
) -> Iterator[StageProgress]:  # fmt: skip
    config = DecodeConfig("autoregressive", TOKENS, chat=config.chat, thinking=config.thinking, inspect=False)
    target, model = engine.models.target, engine.models.first or engine.models.eagle3
    if model is None:
        raise InputError("these models have no drafter to examine")
    ids = [engine.encode(p, config) for p in prompts]
    into.block = block_size(model)
    with into.noting("the statistics of the weights"):
        into.bits, into.weights = quantised_bits(target), examine_weights(model, target)
    if next(proved_by_weights(into), None) is not None:
        return
    if not texts:
        yield StageProgress("write the texts", 0, len(ids))
        with into.noting("writing the texts", whole=True):
            for begin in range(0, len(ids), BATCH):
                with engine.lock:
                    texts += generate_texts(target, ids[begin : begin + BATCH], TOKENS)
                yield StageProgress("write the texts", len(texts), len(ids))
        if into.failed:
            return
    into.unusable = sum(map(is_unusable, texts)), len(texts)
    numbers = [number for number, text in enumerate(texts) if text.anchors]
    texts = [texts[number] for number in numbers]
    into.domains = [into.domains[number] for number in numbers] if into.domains else ()
    others = templates(engine, prompts, config)
    forgotten = bool(others) and not config.chat and into.unusable[0] >= MANY_UNUSABLE * len(ids)
    if not texts and not forgotten:
        raise InputError("the target ended every text at once; a chat model needs --chat")
    into.longest = max((len(t.ids) for t in texts), default=0)
    taps = {*model.target_layer_ids, *(n for v in readings(model, target, into.longest, True) for n in v.taps)}
    drafter = redrafter(target, model, into.visible)
    known_one = reference or other
    known_drafter = None if known_one is None else redrafter(target, known_one[1], into.visible)
    taps |= set(() if known_one is None else known_one[1].target_layer_ids)
    theirs: list[Walk] = []
    with into.noting("drafting over the texts", whole=True):
        for done, text in enumerate(texts):
            yield StageProgress("read and draft them", done, len(texts))
            with engine.lock:
                texts[done] = with_features(target, text, taps)
                into.walks.append(walk(drafter, texts[done]))
                if known_drafter is not None:
                    theirs.append(walk(known_drafter, texts[done]))
    if into.failed:
        into.walks = []
        return
    if reference is not None:
        with into.noting("the comparison with the reference"):
            configs = published_config(into.drafter), published_config(reference[0])
            into.reference = compared(reference[0], model, reference[1], into.walks, theirs, configs)
    elif other is not None:
        into.other = other[0], alpha(theirs)
    with into.noting("reading the model card"):
        into.on_card = None if into.visible else alpha_on_card(Path(into.drafter), model)
    with engine.lock, into.noting("the statistics of the texts"):
        into.texts = examine_texts(target, model, texts, into.walks, into.visible)
    known = dict(zip(numbers, into.walks, strict=True))
    if forgotten:
        with into.noting("other templates"):
            yield from _try_templates(engine, model, others, known, into)
    if next(proved_by_texts(into), None) is None:  # otherwise no change of the drafter is the cause
        with into.noting("changes of the drafter"):
            yield from _search_repair(engine, model, texts, taps, into)
        if not forgotten:
            with into.noting("other templates"):
                yield from _try_templates(engine, model, others, known, into)


def _search_repair(
    engine: Engine, model: Any, texts: Sequence[Text], taps: set[int], into: Examination
) -> Iterator[StageProgress]:
    """Try everything; make the change that helps most, and try everything again, until nothing helps.

    taps: target layers whose features the texts hold.
    """
    target, steps, base, promising = engine.models.target, list[Trial](), into.walks, set[str]()
    for _ in range(MOST_CHANGES + 1):
        if len(steps) == MOST_CHANGES and into.repair is not None and not replace(into.repair, complete=True).confirmed:
            return  # they are not the cause, whatever else would help
        accepted = [count for w in base for count in w.accepted]
        whole = sum(count >= block_size(model) - 1 for count in accepted)
        found = variants(model, target, into.longest, WHOLE_IN * whole >= len(accepted))
        left = [v for v in found if taps.issuperset(v.taps)]
        masks = 0
        if steps and into.confirmed_repair is not None:
            # A known level is reached: what is left is more of the same, such as a second tap, and what helped before.
            left = [v for v in left if v.kind == steps[0].variant.kind or v.description in promising]
        else:
            for progress in _compare_masks(engine, model, texts, into.visible, left):
                masks = progress.total
                yield progress
        into.masks = into.masks or masks
        latest: dict[str, Trial] = {}
        trials = probe(target, model, into.visible, texts, base, left, len(left) + masks)
        for done, trial in enumerate(_locked(engine, trials), 1):
            latest[trial.variant.description] = trial
            if not steps:
                into.trials = list(latest.values())
            stage = f"after {steps[-1].variant.description}" if steps else "probes"
            yield StageProgress(stage, min(done, len(left)), len(left), trial.variant.description)
        promising = {t.variant.description for t in latest.values() if (t.gain.value or 0.0) > 0}
        best = best_of([t for t in latest.values() if t.helps])
        while best is not None and best.texts < len(texts):  # it was dropped, since others were better
            with engine.lock:
                whole_trial = completed(target, model, into.visible, texts, base, best, len(left) + masks)
            latest[best.variant.description] = whole_trial
            best = best_of([t for t in latest.values() if t.helps])
        if not steps:
            into.trials = list(latest.values())
        if into.repair is not None:
            further = 0.0 if best is None else best.gain.value or 0.0
            into.repair = replace(into.repair, complete=further < CLEAR_GAIN)
        if best is None or len(steps) == MOST_CHANGES:
            return
        steps.append(best)
        model, base = best.variant.apply(model), list(best.walks)
        level = None if into.level is None else into.level[0]
        into.repair = Repair(tuple(steps), tuple(into.walks), None, block_size(model), into.visible, level)


def best_of(helping: Sequence[Trial]) -> Trial | None:
    """Returns the change that helps most, or the part that is best left out if that explains about as much: then it is damaged."""
    best = max(helping, key=_log_gain, default=None)
    removal = max((t for t in helping if t.variant.left_out is not None), key=_log_gain, default=None)
    if best is None or removal is None:
        return best
    return removal if _log_gain(best) < MIN_ADVANTAGE * _log_gain(removal) else best


def _log_gain(trial: Trial) -> float:
    return log1p(trial.gain.value or 0.0)


def _compare_masks(
    engine: Engine, model: Drafter, texts: Sequence[Text], visible: int, found: list[Variant]
) -> Iterator[StageProgress]:
    """Compare other mask tokens of a block drafter, and add the best of them to the variants."""
    if not isinstance(model, DFlashDraftModel):
        return
    target = engine.models.target
    tokens = mask_tokens(model.form, target)
    scores: dict[int, int] = {}
    results = _locked(engine, score_masks(target, model, visible, texts, tokens))
    for token, score in zip(tokens, results, strict=True):
        scores[token] = score
        yield StageProgress("mask tokens", len(scores), len(tokens), str(token))
    for token in sorted(tokens, key=lambda token: -scores[token])[:MASKS]:
        text = repr(target.tokenizer.convert_ids_to_tokens(token))
        found.append(with_mask(model.form, token, text[:24]))


def _locked(engine: Engine, results: Iterator[Result]) -> Iterator[Result]:
    """Yields the results, each computed while the engine is locked."""
    while True:
        with engine.lock:
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def _try_templates(
    engine: Engine, model: Drafter, found: Sequence[Template], known: Mapping[int, Walk], into: Examination
) -> Iterator[StageProgress]:
    """Put the same prompts into other templates.

    known: the walks over the texts for the given template, by prompt.
    """
    target = engine.models.target
    drafter = redrafter(target, model, into.visible)
    for number, template in enumerate(found, 1):
        pairs: list[tuple[Walk, Walk]] = []
        unusable = 0
        for begin in range(0, len(template.ids), BATCH):
            stage = f"templates, {number} of {len(found)}"
            yield StageProgress(stage, begin, len(template.ids), template.description)
            with engine.lock:
                for prompt, text in enumerate(
                    generate_texts(target, template.ids[begin : begin + BATCH], TOKENS), begin
                ):
                    unusable += is_unusable(text)
                    if text.anchors and prompt in known:
                        text = with_features(target, text, model.target_layer_ids)
                        pairs.append((walk(drafter, text), known[prompt]))
        walks, before = zip(*pairs, strict=True) if pairs else ((), ())
        change = change_of_alpha(walks, before, len(found)) if pairs else Estimate(None)
        helps = is_clear(change, alpha(before) * template.min_rise)
        into.template_trials.append(TemplateTrial(template, alpha(walks), change, len(pairs), helps, unusable))
