"""Examination of one drafter: its folder, a short run and probes, as a generator with progress that can be stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar

from d2sd.config import DecodeConfig
from d2sd.doctor.changes import Variant, mask_tokens, with_mask
from d2sd.doctor.diagnosis import Diagnosis, Findings, diagnose, fault
from d2sd.doctor.folder_checks import Check
from d2sd.doctor.probes import (
    MOST,
    Cure,
    Position,
    Shape,
    Tried,
    Walked,
    alpha,
    change_of_alpha,
    clear,
    positions,
    probe,
    score_masks,
    shape,
    walk,
)
from d2sd.doctor.signs import Signs, signs
from d2sd.doctor.subject import Subject, taps_of, taps_wanted
from d2sd.doctor.texts import BATCH, Asked, Text, study, templates, write
from d2sd.doctor.weights import Weighed, rounded_to, weigh
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.nets.drafter import DFlashDraftModel

TOKENS = 80  # of every text
VISIBLE = 2  # tokens after the anchor that a VP-Drafter is shown
MASKS = 2  # mask tokens that are tried as variants, of all that are looked at


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """The current task and its progress."""

    said: str
    done: int
    total: int


@dataclass(slots=True)
class Examination:
    """The findings about one drafter so far; ``examine`` fills in all but the first four.

    drafter, target: their names.
    checks: of the folder; empty if it was not checked.
    visible: number of tokens after the anchor that the drafter is given; 0 for a first drafter.
    chat: whether prompts use the chat template.
    walks: of each text, with the drafter as given.
    block: γ.
    longest: number of tokens of the longest text.
    masks: number of mask tokens that were tried.
    tried: latest result of each variant.
    cure: the changes that help most, in order; None if none helps.
    asked: α over texts for the same prompts in other templates.
    weighed: findings from the weights alone.
    signs: other findings.
    bits: of the target's weights; None if they are not on a grid.
    seconds: duration of the examination.
    diagnosis: None until it is concluded.
    """

    drafter: str
    target: str
    checks: list[Check]
    visible: int = 0
    chat: bool = False
    walks: list[Walked] = field(default_factory=list)
    block: int = 0
    longest: int = 0
    masks: int = 0
    tried: list[Tried] = field(default_factory=list)
    cure: Cure | None = None
    asked: list[Asked] = field(default_factory=list)
    weighed: Weighed = field(default_factory=Weighed)
    signs: Signs = field(default_factory=Signs)
    bits: int | None = None
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None

    @property
    def positions(self) -> list[Position]:
        """Acceptance by position, without tokens that the drafter is shown."""
        return positions(self.walks, self.block - 1)[self.visible :]

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """The shape of acceptance by position."""
        return shape(self.positions)

    def conclude(self) -> None:
        """Returns the diagnosis from the findings so far."""
        found = Findings(
            self.checks, self.positions, self.shape[0], self.cure, self.asked, self.weighed, self.signs, self.bits
        )
        self.diagnosis = diagnose(found)


def examine(
    engine: Engine, prompts: Sequence[str], config: DecodeConfig, into: Examination, texts: Sequence[Text] = ()
) -> Iterator[Progress]:
    """Examine the engine's first drafter (its EAGLE-3 drafter if it has no other).

    If a check finds a fault, it is the cause, and nothing is run. Closing the iterator stops the examination.

    prompts: without a chat template.
    config: only ``chat`` and ``thinking`` are used.
    into: holds the checks, and receives the findings.
    texts: the target's texts for the prompts, if they are known.
    """
    if fault(into.checks) is not None:
        into.conclude()
        return
    began = perf_counter()
    into.chat = config.chat
    try:
        own = DecodeConfig("autoregressive", TOKENS, chat=config.chat, thinking=config.thinking, inspect=False)
        ids = [engine.encode(p, own) for p in prompts]
        into.bits = rounded_to(engine.models.target)
        model = engine.models.first or engine.models.eagle3
        if model is None:
            raise InputError("these models have no drafter to examine")
        yield from _probe(engine, model, prompts, ids, own, into, list(texts))
        into.conclude()
    finally:
        into.seconds = perf_counter() - began


def _probe(
    engine: Engine, model: Any, prompts: Sequence[str], ids: Sequence[Sequence[int]], config: DecodeConfig,
    into: Examination, texts: list[Text],
) -> Iterator[Progress]:  # fmt: skip
    target = engine.models.target
    subject = Subject(target, into.visible)
    into.weighed, into.block = weigh(model), subject.block(model)
    if not texts:
        yield Progress("write the texts", 0, len(ids))
        for begin in range(0, len(ids), BATCH):
            with engine.lock:
                texts += write(target, ids[begin : begin + BATCH], TOKENS)
            yield Progress("write the texts", len(texts), len(ids))
    numbers = [number for number, text in enumerate(texts) if text.anchors]
    texts = [texts[number] for number in numbers]
    if not texts:
        raise InputError("the target ended every text at once; a chat model needs --chat")
    into.longest = max(len(t.ids) for t in texts)
    everything = subject.variants(model, into.longest, True)
    wanted = {*taps_of(model), *(n for v in everything for n in taps_wanted(v))}
    base = subject.draft(model)
    for done, text in enumerate(texts):
        yield Progress("read and draft them", done, len(texts))
        with engine.lock:
            texts[done] = study(target, text, wanted)
            into.walks.append(walk(base, texts[done]))
    with engine.lock:
        into.signs = signs(target, model, texts, into.walks, into.visible)
    yield from _cure(engine, subject, model, texts, wanted, into)
    yield from _ask(engine, subject, model, prompts, config, dict(zip(numbers, into.walks, strict=True)), into)


def _cure(
    engine: Engine, subject: Subject, model: Any, texts: Sequence[Text], studied: set[int], into: Examination
) -> Iterator[Progress]:
    """Try everything; make the change that helps most, and try everything again, until nothing helps."""
    steps: list[Tried] = []
    base = into.walks
    for _ in range(MOST + 1):
        if len(steps) == MOST and into.cure is not None and not replace(into.cure, clean=True).proved:
            return  # they are not the cause, whatever else would help
        whole = sum(count >= subject.block(model) - 1 for w in base for count in w.accepted)
        some = 20 * whole >= sum(len(w.accepted) for w in base)
        left = [v for v in subject.variants(model, into.longest, some) if studied.issuperset(taps_wanted(v))]
        looked = 0
        if steps and into.cure is not None and into.cure.proved:  # more of the same, such as a second tap
            left = [v for v in left if v.kind == steps[0].variant.kind]
        else:
            for progress in _masks(engine, subject, model, texts, left):
                looked = progress.total
                yield progress
        into.masks = into.masks or looked
        latest: dict[str, Tried] = {}
        trials = probe(subject.draft, model, texts, base, left, len(left) + looked)
        for done, tried in enumerate(_in_turn(engine, trials)):
            latest[tried.variant.said] = tried
            if not steps:
                into.tried = list(latest.values())
            yield Progress("probes of what is left" if steps else "probes", min(done + 1, len(left)), len(left))
        best = max((t for t in latest.values() if t.helps), key=lambda t: t.change.value or 0.0, default=None)
        if into.cure is not None:
            into.cure = replace(into.cure, clean=best is None)
        if best is None or len(steps) == MOST:
            return
        steps.append(best)
        model, base = best.variant.of(model), list(best.walks)
        into.cure = Cure(tuple(steps), tuple(into.walks), False, subject.block(model), into.visible)


def _masks(
    engine: Engine, subject: Subject, model: Any, texts: Sequence[Text], into: list[Variant]
) -> Iterator[Progress]:
    """Try other mask tokens, and add the best of them to the variants."""
    if not isinstance(model, DFlashDraftModel):
        return
    target, scores = subject.target, dict[int, int]()
    tokens = mask_tokens(model.form, target)
    found = _in_turn(engine, score_masks(target, model, texts, tokens, subject.visible))
    for token, score in zip(tokens, found, strict=True):
        scores[token] = score
        yield Progress("mask tokens", len(scores), len(tokens))
    names = target.tokenizer.convert_ids_to_tokens
    ranked = sorted(tokens, key=lambda token: -scores[token])
    into += [with_mask(model.form, n, repr(names(n))[:24]) for n in ranked[:MASKS]]


def _in_turn(engine: Engine, results: Iterator[Result]) -> Iterator[Result]:
    """Yields the results, each computed while the engine is locked."""
    while True:
        with engine.lock:
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def _ask(
    engine: Engine, subject: Subject, model: Any, prompts: Sequence[str], config: DecodeConfig, known: Mapping[int, Walked],
    into: Examination,
) -> Iterator[Progress]:  # fmt: skip
    """Ask the same prompts in other ways.

    known: the walks over the texts as they were asked for, by prompt.
    """
    target, found = engine.models.target, templates(engine, prompts, config)
    drafter = subject.draft(model)
    for number, template in enumerate(found):
        pairs: list[tuple[Walked, Walked]] = []
        for begin in range(0, len(template.ids), BATCH):
            yield Progress(f"templates, {number + 1} of {len(found)}", begin, len(template.ids))
            with engine.lock:
                texts = write(target, template.ids[begin : begin + BATCH], TOKENS)
                some = ((known.get(n), text) for n, text in enumerate(texts, begin) if text.anchors)
                pairs += [(walk(drafter, study(target, t, taps_of(model))), base) for base, t in some if base]
        if pairs:
            walks, before = ([pair[side] for pair in pairs] for side in (0, 1))
            change = change_of_alpha(walks, before, len(found))
            helps = clear(change, alpha(before) * template.worth)
            into.asked.append(Asked(template, alpha(walks), change, len(pairs), helps))
