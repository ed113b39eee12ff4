"""One drafter, examined: its folder, then a short run and probes, step by step so that it can be watched and stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

from d2sd.config import DecodeConfig
from d2sd.doctor.diagnosis import Diagnosis, diagnose, fault
from d2sd.doctor.folder import Check
from d2sd.doctor.probes import Tried, Walked, alpha, change_of_alpha, clear, probe, score_masks, walk
from d2sd.doctor.redraft import Redrafter
from d2sd.doctor.shapes import Position, Shape, positions, shape
from d2sd.doctor.templates import Asked, templates
from d2sd.doctor.texts import BATCH, Text, study, write
from d2sd.doctor.variants import mask_tokens, tapped, variants, with_mask
from d2sd.doctor.weights import fresh_taps, random_layers, rounded_to
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.models.drafter import DFlashDraftModel

TOKENS = 80  # of every text
VISIBLE = 2  # tokens after the anchor that a VP-Drafter is shown
MASKS = 2  # mask tokens that are tried as variants, of all that are looked at


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """What is being done, and how far it is."""

    said: str
    done: int
    total: int


@dataclass(slots=True)
class Examination:
    """Everything found so far about one drafter; ``examine`` fills in all but the first four.

    drafter, target: what they are called.
    checks: of its folder; none where it was not looked at.
    visible: tokens after the anchor that it is shown, 0 for a first drafter.
    chat: whether prompts stand in the chat template.
    walks: of each text, with the drafter as given.
    block: γ.
    longest: tokens of the longest text.
    masks: mask tokens that were looked at.
    tried: of each variant the latest.
    asked: α over texts that were asked for in other ways.
    random: layers that look like random numbers.
    fresh: taps that were hardly trained.
    bits: of the target's weights, None where they are not on a grid.
    seconds: that it took.
    diagnosis: None as long as it is not concluded.
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
    asked: list[Asked] = field(default_factory=list)
    random: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    bits: int | None = None
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None

    @property
    def positions(self) -> list[Position]:
        """Acceptance by position, tokens that it is shown left out."""
        return positions(self.walks, self.block - 1)[self.visible :]

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """Of acceptance by position."""
        return shape(self.positions)

    def conclude(self) -> None:
        """Say what is known by now."""
        found = self.positions
        self.diagnosis = diagnose(
            self.checks, found, shape(found)[0], self.tried, self.asked, self.random, self.fresh, self.bits
        )


def examine(
    engine: Engine, prompts: Sequence[str], config: DecodeConfig, into: Examination, texts: Sequence[Text] = ()
) -> Iterator[Progress]:
    """Run what is to be run of a drafter, the engine's first one (its EAGLE-3 drafter where it has no other).

    Where a check is a fault, nothing is run: it is the cause. Closing the iterator stops it.

    prompts: as people write them.
    config: of its settings ``chat`` and ``thinking`` count.
    into: where checks are, and what is found comes.
    texts: what the target wrote to the prompts, where that is known.
    """
    if fault(into.checks) is not None:
        into.conclude()
        return
    began = perf_counter()
    into.chat = config.chat
    try:
        own = DecodeConfig("autoregressive", TOKENS, chat=config.chat, thinking=config.thinking, inspect=False)
        ids = [engine.encode(p, own) for p in prompts]
        model = engine.models.first
        into.bits = rounded_to(engine.models.target)
        if model is None:
            yield from _decode(engine, ids, into)
        else:
            yield from _probe(engine, model, prompts, ids, own, into, list(texts))
        into.conclude()
    finally:
        into.seconds = perf_counter() - began


def _decode(engine: Engine, ids: Sequence[Sequence[int]], into: Examination) -> Iterator[Progress]:
    """Acceptance of an EAGLE-3 drafter, by decoding: its levels are not drafted again."""
    config = engine.resolve(DecodeConfig("eagle3", TOKENS, inspect=False))
    into.block = config.draft_depth + 2
    for done, prompt in enumerate(ids):
        yield Progress("decode", done, len(ids))
        trace = engine.generate(prompt, config)
        accepted = tuple(len(step.committed) - 1 for step in trace.steps)
        if accepted:
            into.walks.append(Walked(accepted, len(trace.token_ids) - 1))


def _probe(
    engine: Engine, model: DFlashDraftModel, prompts: Sequence[str], ids: Sequence[Sequence[int]], config: DecodeConfig,
    into: Examination, texts: list[Text],
) -> Iterator[Progress]:  # fmt: skip
    target, visible = engine.models.target, into.visible
    into.random, into.fresh, into.block = random_layers(model), fresh_taps(model), model.form.block_size
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
    wanted = tapped(variants(model, target, into.longest, True), model.form)
    base = Redrafter(target, model, visible)
    for done, text in enumerate(texts):
        yield Progress("read and draft them", done, len(texts))
        with engine.lock:
            texts[done] = study(target, text, wanted)
            into.walks.append(walk(base, texts[done]))
    whole = sum(count >= model.form.block_size - 1 for w in into.walks for count in w.accepted)
    steps = sum(len(w.accepted) for w in into.walks)
    left = variants(model, target, into.longest, 20 * whole >= steps)
    tokens = mask_tokens(model.form, target)
    into.masks = len(tokens)
    scores: dict[int, int] = {}
    for token, score in zip(tokens, _in_turn(engine, score_masks(target, model, texts, tokens, visible)), strict=True):
        scores[token] = score
        yield Progress("mask tokens", len(scores), len(tokens))
    ranked = sorted(tokens, key=lambda token: -scores[token])
    names = target.tokenizer.convert_ids_to_tokens
    left += [with_mask(model.form, n, repr(names(n))[:24]) for n in ranked[:MASKS]]
    tests = len(left) + len(tokens)
    latest: dict[str, Tried] = {}
    total = len(left)
    trials = probe(target, model, texts, into.walks, left, tests, visible)
    for done, tried in enumerate(_in_turn(engine, trials)):
        latest[tried.variant.said] = tried
        into.tried = list(latest.values())
        yield Progress("probes", min(done + 1, total), total)
    yield from _ask(engine, model, prompts, config, dict(zip(numbers, into.walks, strict=True)), into)


def _in_turn(engine: Engine, results: Iterator[Result]) -> Iterator[Result]:
    """The results, each of them computed while nobody else uses the engine."""
    while True:
        with engine.lock:
            try:
                result = next(results)
            except StopIteration:
                return
        yield result


def _ask(
    engine: Engine, model: DFlashDraftModel, prompts: Sequence[str], config: DecodeConfig, known: Mapping[int, Walked],
    into: Examination,
) -> Iterator[Progress]:  # fmt: skip
    """The same prompts, asked in other ways.

    known: the walks over the texts as they were asked for, by prompt.
    """
    target, found = engine.models.target, templates(engine, prompts, config)
    drafter = Redrafter(target, model, into.visible)
    for number, template in enumerate(found):
        pairs: list[tuple[Walked, Walked]] = []
        for begin in range(0, len(template.ids), BATCH):
            yield Progress(f"templates, {number + 1} of {len(found)}", begin, len(template.ids))
            with engine.lock:
                texts = write(target, template.ids[begin : begin + BATCH], TOKENS)
                some = ((known.get(n), text) for n, text in enumerate(texts, begin) if text.anchors)
                pairs += [(walk(drafter, study(target, t, model.form.taps)), base) for base, t in some if base]
        if pairs:
            walks, before = ([pair[side] for pair in pairs] for side in (0, 1))
            change = change_of_alpha(walks, before, len(found))
            helps = clear(change, alpha(before) * template.worth)
            into.asked.append(Asked(template, alpha(walks), change, len(pairs), helps))
