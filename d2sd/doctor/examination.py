"""Examines one drafter: checks its folder, drafts in a short run, and tries changes of the drafter."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from d2sd.bench.prompts import read_prompts
from d2sd.calibration.replays import DraftingRun, TextWalk
from d2sd.config import DecodeConfig
from d2sd.doctor.asked import PROMPTS, Asked
from d2sd.doctor.changes import Variant, write_changed
from d2sd.doctor.diagnosis import diagnose, folder_fault, proved
from d2sd.doctor.evidence import is_unusable, repeated_share, surprise, weight_remarks
from d2sd.doctor.exchange import RESTORED, RUNS, compared, exchange
from d2sd.doctor.findings import Failure, Findings
from d2sd.doctor.probes import TemplateTrial, Trial, probe, templates
from d2sd.doctor.settings import settings_of
from d2sd.doctor.variants import variants
from d2sd.engine import Engine
from d2sd.errors import InputError, error_line, require
from d2sd.folders.checks import Check, check_drafter_folder
from d2sd.folders.configs import check_reachable, published_config
from d2sd.folders.fingerprint import changes_since
from d2sd.folders.loading import load_alone, with_drafter
from d2sd.folders.weights import read_weights, weight_files
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.replay.anchors import Drafter, redrafter
from d2sd.replay.recorded import Text, with_features
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import respond_to

TOKENS = 80  # generated per prompt
BATCH = 10  # prompts per batch
CLEAR_GAIN = 0.05  # if a further change gains at least this share, one change alone does not undo the fault
DRAFTS = 0.2  # acceptance at position 1 that a mended drafter must reach if its α was not measured


class Progress(NamedTuple):
    """Progress of an examination.

    findings: the findings so far.
    stage: name of the current stage.
    done, total: progress of this stage.
    tried: the change that was tried last.
    """

    findings: Findings
    stage: str
    done: int = 0
    total: int = 1
    tried: str = ""


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
    """Measures how often drafted tokens are accepted, and which changes of the drafter raise acceptance.

    This takes seconds if the folder has a fault, otherwise up to several minutes for a large model.

    target: bundled preset, name known to ``d2sd get``, folder, hub id or GGUF file.
    drafter: folder or hub id.
    prompts: texts that the target continues; None: 30 prompts of the bundled set ``heldout``.
    chat, thinking: as in ``DecodeConfig``.
    expected: α that the drafter should have on these prompts, such as a published one; a significantly lower α is a fault.
    reference: folder or hub id of a good drafter. If the examined drafter is worse, its parts are exchanged for the reference's.
    dtype, device: as for ``d2sd.load``.

    Raises ``InputError`` for invalid arguments, or if the target cannot be loaded. Faults of the drafter become findings.
    """
    texts = [p.text for p in read_prompts("heldout", PROMPTS)] if prompts is None else prompts
    asked = Asked(drafter, texts, chat, thinking, 0, expected, reference, dtype, target=target)
    check_reachable(drafter, reference)
    return Examination(asked, load_alone(target, dtype, device).target).run()


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, InputError) else error_line(error)


def drafter_of(models: Models) -> Drafter:
    """Returns the first drafter, else the EAGLE-3 drafter. Raises ``InputError`` if there is neither."""
    model = models.first or models.eagle3
    if model is None:
        raise InputError("these models have no drafter to examine")
    return model


class Examination:
    """Examines a drafter. If the folder has a fault, the drafter is not loaded.

    Damaged weights can cause an exception in any calculation. It becomes a ``Failure``, and the examination continues if possible.

    asked: the drafter and the settings.
    target: the loaded target.
    engine: an engine with this target and the drafter to examine (see ``drafter_of``); None: the drafter is loaded.
    texts: the target's texts for the prompts; empty: they are generated.
    tell: called with every ``Progress``. To stop the examination, it can raise an exception that is no subclass of ``Exception``.
    findings: the findings so far.
    """

    def __init__(
        self, asked: Asked, target: Target, engine: Engine | None = None, texts: Sequence[Text] = (),
        tell: Callable[[Progress], None] = lambda progress: None,
    ):  # fmt: skip
        self.asked, self.target, self.tell = asked, target, tell
        self.findings = Findings(asked, target.name)
        self.config = DecodeConfig("autoregressive", TOKENS, chat=asked.chat, thinking=asked.thinking, inspect=False)
        self._engine, self._loaded = engine or Engine(Models(target)), engine is not None
        self._texts, self._stage = list(texts), ""
        self._published: dict[str, Any] = {}  # the drafter's config
        self._reference: Drafter | None = None

    def run(self) -> Findings:
        """Returns the findings, with the diagnosis."""
        try:
            self._stages()
            self._stage = "the diagnosis"
            diagnose(self.findings)
        except Exception as error:  # damaged weights can break any calculation
            self._fail(error, whole=True)
        self._add(diagnosis=diagnose(self.findings))
        self._at("done", 1)
        return self.findings

    def _stages(self) -> None:
        asked = self.asked
        self._at("reading the folder")
        checks = tuple(check_drafter_folder(asked.drafter, self.target, second=bool(asked.visible)))
        self._add(checks=checks)
        if folder_fault(checks):
            return
        try:
            if not self._loaded:
                self._engine = Engine(with_drafter(Models(self.target), asked.drafter, asked.dtype))
        except Exception as error:  # damaged files can cause any exception; the report must still contain the checks
            reason = _reason(error).removeprefix(f"cannot load the drafter {asked.drafter}: ")
            self._add(checks=(*checks, Check("loading", "fault", reason)))
            return
        model = drafter_of(self._engine.models)
        self._published = published_config(asked.drafter)
        with self._part("reading the weights"):
            self._add(remarks=tuple(self._remarks(model)))
        with self._part("comparing with the training"):
            self._add(since=changes_since(asked.drafter, model, self.target, asked.target))
        self._write_texts()
        others = templates(self._engine, asked.prompts, self.config)
        numbers = [number for number, text in enumerate(self._texts) if text.anchors]
        self._add(unusable=(sum(map(is_unusable, self._texts)), len(self._texts)))
        require(numbers or others, "the target ended every text immediately")
        self._texts = [self._texts[n] for n in numbers]
        if asked.reference is not None:
            with self._part("reading the reference"), self._engine.lock:
                self._reference = drafter_of(with_drafter(Models(self.target), asked.reference, asked.dtype))
        run = self._draft(model)
        with self._part("reading the texts"), self._engine.lock:
            self._add(surprise=surprise(self.target, self._texts), repeated=repeated_share(self._texts))
        with self._part("trying other templates"):
            self._try_templates(model, run, others, numbers)
        if self._reference is not None:
            with self._part("comparing with the reference"):
                self._compare(model, run, self._reference)
        if self._texts and not (self.findings.reference and self.findings.reference.explained):
            with self._part("trying changes"):
                self._try_changes(model, run)

    def _add(self, **fields: Any) -> None:
        self.findings = replace(self.findings, **fields)

    def _at(self, stage: str, done: int = 0, total: int = 1, tried: str = "") -> None:
        self._stage = stage
        self.tell(Progress(self.findings, stage, done, total, tried))

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Context of a part of the examination. If the part fails, the following parts are still done."""
        self._at(name)
        try:
            yield
        except Exception as error:
            self._stage = name
            self._fail(error)

    def _fail(self, error: Exception, whole: bool = False) -> None:
        self._add(failures=(*self.findings.failures, Failure(self._stage, _reason(error), whole)))

    def _locked(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        while True:
            with self._engine.lock:
                trial = next(trials, None)
            if not trial:
                return
            yield trial

    def _remarks(self, model: Drafter) -> Iterator[str]:
        yield from weight_remarks(model)
        if self.asked.first is not None:
            one, other = (read_weights(weight_files(source)) for source in (self.asked.first, self.asked.drafter))
            if one.keys() == other.keys() and all(torch.equal(w, other[n]) for n, w in one.items()):
                yield "all of its weights equal the first drafter's: one is a copy of the other"

    def _write_texts(self) -> None:
        if not self._texts:
            ids = [self._engine.encode(prompt, self.config) for prompt in self.asked.prompts]
            self._texts = self._generated(ids, "generating the texts")

    def _generated(self, ids: Sequence[Sequence[int]], stage: str) -> list[Text]:
        texts: list[Text] = []
        for begin in range(0, len(ids), BATCH):
            self._at(stage, begin, len(ids))
            with self._engine.lock:
                texts += generate_texts(self.target, ids[begin : begin + BATCH], TOKENS)
        return texts

    def _variants(self, model: Drafter) -> list[Variant]:
        return variants(model, self.target, max((len(text.ids) for text in self._texts), default=0), self._published)

    def _draft(self, model: Drafter) -> DraftingRun:
        """Drafts over the texts with this model, adds the run to the findings, and returns it.

        First adds to the texts those features of the target that the model, its variants and the reference read.
        """
        taps = {*model.target_layer_ids, *(n for v in self._variants(model) for n in settings_of(v.form)["taps"])}
        taps |= set() if self._reference is None else {*self._reference.target_layer_ids}
        drafter, walks = redrafter(self.target, model, self.asked.visible), list[TextWalk]()
        for done, text in enumerate(self._texts):
            self._at("drafting over the texts", done, len(self._texts))
            with self._engine.lock:
                self._texts[done] = with_features(self.target, text, taps)
                walks.append(drafter.steps(self._texts[done]))
        run = drafter.run(walks)
        self._add(run=run)
        return run

    def _run(self, model: Drafter, texts: Sequence[Text]) -> DraftingRun:
        drafter = redrafter(self.target, model, self.asked.visible)
        with self._engine.lock:
            return drafter.run(drafter.steps(with_features(self.target, t, model.target_layer_ids)) for t in texts)

    def _compare(self, model: Drafter, run: DraftingRun, good: Drafter) -> None:
        """Compares the drafter with the reference ``good``. If the reference drafts better, exchanges parts."""
        best = self._run(good, self._texts)
        reference = compared(model, good, run, best, (self._published, published_config(self.asked.reference or "")))
        if reference.same_form and reference.better:
            runs = count(1)

            def drafted(variant: Variant, texts: int) -> DraftingRun:
                self._at("exchanging parts", next(runs), RUNS)
                return self._run(variant.apply(model), self._texts[:texts])

            reference = replace(reference, exchange=exchange(model, good, self._published, run, reference, drafted))
        self._add(reference=reference)

    def _try_changes(self, model: Drafter, run: DraftingRun) -> None:
        """Tries all changes, one at a time. If one is proved to undo the fault, tries which further change helps in addition."""
        tried = self._variants(model)
        latest: dict[str, Trial] = {}
        trials = probe(self.target, model, self._texts, run, tried)
        for trial in self._locked(trials):
            latest[trial.variant.description] = trial
            self._add(trials=tuple(latest.values()))
            self._at("trying changes", len(latest), len(tried), trial.variant.description)
        best = proved(self.findings, run)
        if not best or self.asked.expected or self.asked.reference:
            return
        changed = best.variant.apply(model)
        self._at("trying further changes")
        more = probe(self.target, changed, self._texts, best.run, self._variants(changed))
        helping = [trial for trial in self._locked(more) if trial.helps and (trial.gain.value or 0.0) >= CLEAR_GAIN]
        self._add(further=max(helping, key=lambda trial: trial.run.alpha, default=None))

    def _try_templates(
        self, model: Drafter, run: DraftingRun, others: Mapping[str, list[list[int]]], numbers: Sequence[int]
    ) -> None:
        """Drafts over the texts that the target generates for the same prompts in other templates.

        others: token ids of the prompts by template; the result of ``templates``.
        numbers: indices of the prompts whose texts are in ``run``.
        """
        trials: list[TemplateTrial] = []
        for template, ids in others.items():
            texts = self._generated(ids, f"trying {template}")
            pairs = [(texts[n], walk) for n, walk in zip(numbers, run.walks, strict=True) if texts[n].anchors]
            now = self._run(model, [text for text, _ in pairs])
            change = now.change(replace(run, walks=tuple(walk for _, walk in pairs)), len(others))
            trials.append(TemplateTrial(template, now.alpha, change, sum(map(is_unusable, texts))))
        self._add(templates=tuple(trials))

    def mend(self, out: Path) -> str:
        """Writes a copy of the drafter with the changes that remove the fault, and drafts with the copy. Returns a sentence about
        the result.

        The copy is removed if it cannot be loaded, or if its α is lower than the α measured with these changes. Raises the errors
        of ``write_changed``.

        out: folder of the copy; it must not exist.
        """
        diagnosis = self.findings.diagnosis
        if not diagnosis or not diagnosis.changes:
            return f"{out} was not written: no fault is proved that a change removes."
        write_changed(self.asked.drafter, diagnosis.changes, out)
        kept = False
        try:
            model = drafter_of(with_drafter(Models(self.target), str(out), self.asked.dtype))
            self._write_texts()
            run = self._run(model, [text for text in self._texts if text.anchors])
            kept = run.alpha >= RESTORED * diagnosis.alpha if diagnosis.alpha else run.first >= DRAFTS
            reason = f"its α is only {run.alpha:.2f}"
        except Exception as error:  # damaged weights can break any calculation
            reason = _reason(error)
        finally:
            if not kept:
                shutil.rmtree(out)
        if not kept:
            return f"{out} was not written: the changed drafter does not work ({reason})."
        before = f"{self.findings.run.alpha:.2f} → " if self.findings.run else ""
        return f"{out}: {diagnosis.changes[0].description}; α {before}{run.alpha:.2f}"


def generate_texts(target: Target, prompts: Sequence[Sequence[int]], tokens: int) -> list[Text]:
    """Returns the target's greedy texts for the prompts, in the same order, generated as one batch.

    tokens: maximum number of new tokens of each text.
    """
    responses = respond_to(target, prompts, RegenerateConfig(len(prompts), tokens))
    return [Text((*prompt, *response), len(prompt)) for prompt, response in zip(prompts, responses, strict=True)]
