"""Examines one drafter: its folder, its steps in a short run, and the changes that help. The examination can be stopped."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log1p
from typing import Any, TypeVar

from d2sd.bench.prompts import read_prompts
from d2sd.calibration.resampling import Estimate
from d2sd.config import DecodeConfig
from d2sd.decoding.replay import Text, with_features
from d2sd.doctor.changes import Variant
from d2sd.doctor.checks import Check, check_drafter_folder
from d2sd.doctor.diagnosis import diagnose, folder_fault, not_finished, proved_by_texts, proved_by_weights
from d2sd.doctor.evidence import is_unusable, moved_by_training, quantised_bits, repeated_share, surprise, weight_faults
from d2sd.doctor.findings import Asked, DraftingRun, Failure, Findings, Repair
from d2sd.doctor.probes import Template, TemplateTrial, Trial, change_of_alpha, is_clear, probe, score_masks, templates
from d2sd.doctor.redraft import Drafter, TextWalk, alpha, block_size, generate_texts, redrafter, walk_text
from d2sd.doctor.reference import compared
from d2sd.doctor.variants import mask_tokens, readings, variants, with_mask
from d2sd.engine import Engine
from d2sd.errors import InputError, error_line
from d2sd.folders.drafters import published_config
from d2sd.folders.loading import load_models, presets, with_drafter
from d2sd.folders.store import check_place
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.models import Models
from d2sd.nets.target import Target

PROMPTS = 30  # default number of prompts
TOKENS = 80  # generated per prompt
BATCH = 10  # prompts per batch
VISIBLE = 2  # tokens after the anchor that a VP-Drafter is shown
MOST_CHANGES = 2  # largest number of changes that are applied together
CLEAR_GAIN = 0.05  # a repair is complete if every further change gains less
MIN_ADVANTAGE = 1.5  # log gain of a change ÷ log gain of leaving a part out, below which the part counts as damaged
MASKS = 2  # number of best mask tokens that become variants
WHOLE_IN = 20  # longer blocks are tried if at least 1 in 20 drafts is accepted completely

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """The findings so far, the current stage, the progress of this stage, and the latest change that was tried."""

    found: Findings
    stage: str
    done: int = 0
    total: int = 1
    tried: str = ""


Stage = Generator[Progress, None, Findings]  # returns the findings, extended by the stage


@dataclass(frozen=True, slots=True)
class _Drafting:
    """A drafter with its target.

    config: settings for generating the target's texts.
    """

    engine: Engine
    target: Target
    model: Any
    config: DecodeConfig
    visible: int

    def walk_text(self, model: Drafter, texts: Sequence[Text]) -> tuple[TextWalk, ...]:
        """Returns the steps of ``model`` over texts, which must contain the features for this model."""
        drafter = redrafter(self.target, model, self.visible)
        return tuple(walk_text(drafter, text) for text in texts)


def examine(
    target: str,
    drafter: str,
    prompts: Sequence[str] | None = None,
    *,
    chat: bool = False,
    thinking: bool = False,
    expected: float | None = None,
    reference: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
) -> Findings:
    """Finds out why drafted tokens are rejected: checks the drafter's folder, then tries changes of the drafter one at a time.

    This takes seconds if the folder has a fault, otherwise up to several minutes for a large model.

    target: bundled preset, name known to ``d2sd get``, folder, hub id or GGUF file.
    drafter: folder or hub id.
    prompts: texts that the target continues; None: 30 prompts of the bundled set ``heldout``.
    chat, thinking: as in ``DecodeConfig``.
    expected: known α of the drafter; a significantly lower α is a fault.
    reference: folder or hub id of a known good drafter to compare with.
    dtype, device: as for ``d2sd.load``.

    Raises ``InputError`` for invalid arguments, or if the target cannot be loaded. Faults of the drafter become findings.
    """
    texts = [p.text for p in read_prompts("heldout", PROMPTS)] if prompts is None else prompts
    asked = Asked(drafter, texts, chat, thinking, 0, expected, reference, dtype)
    *_, last = stream_findings(asked, load_target_alone(target, (drafter, reference), dtype, device))
    return last.found


def load_target_alone(
    name: str, drafters: Iterable[str | None], dtype: str | None = None, device: str | None = None
) -> Models:
    """Returns a target without drafters. Raises ``InputError`` if loading fails, or a drafter is neither a folder nor a hub id."""
    for drafter in filter(None, drafters):
        try:
            check_place(drafter)
        except InputError as error:
            raise InputError(f"cannot load the drafter {drafter}: {error}") from None
    bundled = name in presets()
    models = load_models(name if bundled else "tiny", target=None if bundled else name, dtype=dtype, device=device)
    return Models(models.target, name=models.name)


def stream_findings(
    asked: Asked, models: Models, engine: Engine | None = None, texts: Sequence[Text] = ()
) -> Iterator[Progress]:
    """Yields the findings about a drafter after every part of the examination; the last findings include the diagnosis.

    If the folder has a fault, the drafter is not loaded. Damaged weights can cause an exception in any calculation. It becomes a
    ``Failure``, and the examination continues if possible. Closing the iterator stops the examination.

    models: only the target is used.
    engine: an engine with this target and the drafter to examine (see ``drafter_of``); None: the drafter is loaded.
    texts: the target's texts for the prompts; empty: they are generated.
    """
    found, stage = Findings(asked, models.target.name), "reading the folder"
    steps = _examine(found, models, engine, list(texts))
    try:
        while True:
            progress = next(steps)
            found, stage = progress.found, progress.stage
            yield progress
    except StopIteration as end:
        found = end.value
    except Exception as error:  # damaged weights can break any calculation
        found = _with_failure(found, stage, error, whole=True)
    try:
        diagnosis = diagnose(found)
    except Exception as error:
        found = _with_failure(found, "the diagnosis", error, whole=True)
        diagnosis = not_finished(found)
    yield Progress(replace(found, diagnosis=diagnosis), "done", 1)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, InputError) else error_line(error)


def _with_failure(found: Findings, part: str, error: Exception, whole: bool = False) -> Findings:
    return replace(found, failures=(*found.failures, Failure(part, _reason(error), whole)))


def _noting(part: str, stage: Stage, found: Findings) -> Stage:
    """Runs a stage. If the stage fails, returns ``found`` extended by the failure, so that later stages still run."""
    try:
        return (yield from stage)
    except Exception as error:
        return _with_failure(found, part, error)


def drafter_of(models: Models) -> Drafter:
    """Returns the first drafter, else the EAGLE-3 drafter. Raises ``InputError`` if there is neither."""
    model = models.first or models.eagle3
    if model is None:
        raise InputError("these models have no drafter to examine")
    return model


def _examine(found: Findings, models: Models, engine: Engine | None, texts: list[Text]) -> Stage:
    asked, target = found.asked, models.target
    yield Progress(found, "reading the folder")
    found = replace(found, checks=tuple(check_drafter_folder(asked.drafter, target, second=bool(asked.visible))))
    if folder_fault(found.checks) is not None:
        return found
    try:
        engine = engine or Engine(with_drafter(models, asked.drafter, asked.dtype))
    except Exception as error:  # damaged files can cause any exception; the report must still contain the checks
        failed = Check("loading", "fault", _reason(error).removeprefix(f"cannot load the drafter {asked.drafter}: "))
        return replace(found, checks=(*found.checks, failed))
    config = DecodeConfig("autoregressive", TOKENS, chat=asked.chat, thinking=asked.thinking, inspect=False)
    on = _Drafting(engine, target, drafter_of(engine.models), config, asked.visible)
    found = yield from _noting("the statistics of the weights", _read_weights(on, found), found)
    if proved_by_weights(found) is not None:
        return found
    texts = texts or (yield from _write_texts(on, found))
    found = replace(found, unusable=(sum(map(is_unusable, texts)), len(texts)))
    others = templates(engine, asked.prompts, config)
    numbers = [number for number, text in enumerate(texts) if text.anchors]
    if not numbers and not others:
        raise InputError("the target ended every text immediately")
    longest = max((len(texts[n].ids) for n in numbers), default=0)
    taps = {*on.model.target_layer_ids, *(n for v in readings(on.model, target, longest, True) for n in v.taps)}
    texts, found = yield from _draft(on, [texts[n] for n in numbers], taps, found)
    if asked.reference is not None:
        found = yield from _noting("the comparison with the reference", _compare(on, texts, found), found)
    found = yield from _noting("the statistics of the texts", _read_texts(on, texts, found), found)
    found = yield from _noting("other templates", _try_templates(on, others, numbers, found), found)
    if texts and proved_by_texts(found) is None:  # if the texts prove another cause, no change of the drafter helps
        found = yield from _noting("changes of the drafter", _search_repair(on, texts, taps, found), found)
    return found


def _read_weights(on: _Drafting, found: Findings) -> Stage:
    yield Progress(found, "reading the weights")
    moved = moved_by_training(on.model) if isinstance(on.model, DFlashDraftModel) else None
    faults = tuple(weight_faults(on.model, on.target))
    return replace(found, weights=faults, moved=moved, bits=quantised_bits(on.target))


def _write_texts(on: _Drafting, found: Findings) -> Generator[Progress, None, list[Text]]:
    ids = [on.engine.encode(prompt, on.config) for prompt in found.asked.prompts]
    texts: list[Text] = []
    yield Progress(found, "generating the texts", 0, len(ids))
    for begin in range(0, len(ids), BATCH):
        with on.engine.lock:
            texts += generate_texts(on.target, ids[begin : begin + BATCH], TOKENS)
        yield Progress(found, "generating the texts", len(texts), len(ids))
    return texts


def _draft(
    on: _Drafting, texts: list[Text], taps: set[int], found: Findings
) -> Generator[Progress, None, tuple[list[Text], Findings]]:
    """Returns the texts with the features of the layers ``taps``, and the findings with the drafter's steps over the texts."""
    walks: list[TextWalk] = []
    for done, text in enumerate(texts):
        yield Progress(found, "drafting over the texts", done, len(texts))
        with on.engine.lock:
            texts[done] = with_features(on.target, text, taps)
            walks += on.walk_text(on.model, texts[done : done + 1])
    longest = max((len(text.ids) for text in texts), default=0)
    run = DraftingRun(tuple(walks), block_size(on.model), on.visible, longest)
    return texts, replace(found, run=run)


def _compare(on: _Drafting, texts: Sequence[Text], found: Findings) -> Stage:
    asked, run = found.asked, found.run
    assert asked.reference is not None
    assert run is not None
    yield Progress(found, "drafting with the reference")
    with on.engine.lock:
        other = drafter_of(with_drafter(Models(on.target), asked.reference, asked.dtype))
        walks = on.walk_text(other, [with_features(on.target, text, other.target_layer_ids) for text in texts])
    configs = published_config(asked.drafter), published_config(asked.reference)
    return replace(found, reference=compared(asked.reference, on.model, other, run.walks, walks, configs))


def _read_texts(on: _Drafting, texts: Sequence[Text], found: Findings) -> Stage:
    yield Progress(found, "reading the texts")
    with on.engine.lock:
        return replace(found, surprise=surprise(on.target, texts), repeated=repeated_share(texts))


def _search_repair(on: _Drafting, texts: Sequence[Text], taps: set[int], found: Findings) -> Stage:
    """Tries all changes and applies the most helpful one. Repeats this until no change helps, or ``MOST_CHANGES`` are applied.

    taps: target layers whose features the texts hold.
    """
    assert found.run is not None
    own, steps = found.run, list[Trial]()
    now = own
    for _ in range(MOST_CHANGES + 1):
        accepted = [count for w in now.walks for count in w.accepted]
        whole = sum(count >= block_size(on.model) - 1 for count in accepted)
        tried = variants(on.model, on.target, own.longest, WHOLE_IN * whole >= len(accepted))
        left = [v for v in tried if taps.issuperset(v.taps)]
        masks = yield from _compare_masks(on, texts, left, found)
        latest: dict[str, Trial] = {}
        trials = probe(on.target, on.model, on.visible, texts, now.walks, left, len(left) + masks)
        for done, trial in enumerate(_locked(on.engine, trials), 1):
            latest[trial.variant.description] = trial
            if not steps:
                found = replace(found, trials=tuple(latest.values()))
            stage = f"after {steps[-1].variant.description}" if steps else "probes"
            yield Progress(found, stage, min(done, len(left)), len(left), trial.variant.description)
        best = best_of([t for t in latest.values() if t.helps])
        if found.repair is not None:
            further = 0.0 if best is None else best.gain.value or 0.0
            found = replace(found, repair=replace(found.repair, complete=further < CLEAR_GAIN))
        if best is None or len(steps) == MOST_CHANGES:
            break
        steps.append(best)
        on = replace(on, model=best.variant.apply(on.model))
        now = replace(own, walks=best.walks, block=block_size(on.model))
        repair = Repair(tuple(steps), own, now, None, found.level)
        found = replace(found, repair=repair)
        if len(steps) == MOST_CHANGES and not replace(repair, complete=True).confirmed:
            break  # not confirmed, even if no further change helps
    return found


def best_of(helping: Sequence[Trial]) -> Trial | None:
    """Returns the most helpful change; or the removal of a part, if it helps about as much, since the part is then damaged."""
    best = max(helping, key=_log_gain, default=None)
    removal = max((t for t in helping if t.variant.left_out is not None), key=_log_gain, default=None)
    if best is None or removal is None:
        return best
    return removal if _log_gain(best) < MIN_ADVANTAGE * _log_gain(removal) else best


def _log_gain(trial: Trial) -> float:
    return log1p(trial.gain.value or 0.0)


def _compare_masks(
    on: _Drafting, texts: Sequence[Text], left: list[Variant], found: Findings
) -> Generator[Progress, None, int]:
    """Tries other mask tokens of a block drafter and adds the best ones to ``left``. Returns the number of tried tokens."""
    if not isinstance(on.model, DFlashDraftModel):
        return 0
    tokens = mask_tokens(on.model.form, on.target)
    scores: dict[int, int] = {}
    results = _locked(on.engine, score_masks(on.target, on.model, on.visible, texts, tokens))
    for token, score in zip(tokens, results, strict=True):
        scores[token] = score
        yield Progress(found, "mask tokens", len(scores), len(tokens), str(token))
    for token in sorted(tokens, key=lambda token: -scores[token])[:MASKS]:
        text = repr(on.target.tokenizer.convert_ids_to_tokens(token))
        left.append(with_mask(on.model.form, token, text[:24]))
    return len(tokens)


def _locked(engine: Engine, results: Iterator[Result]) -> Iterator[Result]:
    """Yields the results, each computed while the engine is locked."""
    while True:
        with engine.lock:
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def _try_templates(on: _Drafting, others: Sequence[Template], numbers: Sequence[int], found: Findings) -> Stage:
    """Drafts over the texts that the target generates for the same prompts in other templates.

    numbers: indices of the prompts whose texts are in the run.
    """
    assert found.run is not None
    known = dict(zip(numbers, found.run.walks, strict=True))
    for number, template in enumerate(others, 1):
        pairs: list[tuple[TextWalk, TextWalk]] = []
        unusable = 0
        for begin in range(0, len(template.ids), BATCH):
            stage = f"templates, {number} of {len(others)}"
            yield Progress(found, stage, begin, len(template.ids), template.description)
            with on.engine.lock:
                texts = generate_texts(on.target, template.ids[begin : begin + BATCH], TOKENS)
                for prompt, text in enumerate(texts, begin):
                    unusable += is_unusable(text)
                    if text.anchors and prompt in known:
                        text = with_features(on.target, text, on.model.target_layer_ids)
                        pairs.append((on.walk_text(on.model, [text])[0], known[prompt]))
        walks, before = zip(*pairs, strict=True) if pairs else ((), ())
        change = change_of_alpha(walks, before, len(others)) if pairs else Estimate(None)
        helps = is_clear(change, alpha(before) * template.min_rise)
        trial = TemplateTrial(template, alpha(walks), change, len(pairs), helps, unusable)
        found = replace(found, templates=(*found.templates, trial))
    return found
