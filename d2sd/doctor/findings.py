"""The findings of an examination: what was measured, the changes that repair the drafter, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from d2sd.calibration.resampling import Estimate
from d2sd.doctor.changes import FolderEdit, Variant
from d2sd.doctor.checks import Check
from d2sd.doctor.evidence import WeightFault
from d2sd.doctor.probes import TemplateTrial, Trial
from d2sd.doctor.redraft import LOW, DraftPosition, Shape, TextWalk, alpha, alpha_estimate, by_position, shape
from d2sd.doctor.reference import Reference
from d2sd.errors import InputError
from d2sd.trace.text import all_encodable

LITTLE_MOVED = (1.3, 0.05)  # of ``moved_by_training``, below which a drafter was hardly trained
LITTLE = 0.3  # share accepted at position 1 of a drafter that was trained a little
TIMES = 2.0  # accepted tokens of such a one, over those before the repair
LEVEL_SHARE = 0.75  # of a level that is known: a change that leads to less leaves something wrong
MIN_RISE = 0.1  # of α, by an unspecific change of a drafter


@dataclass(frozen=True, slots=True)
class Asked:
    """Which drafter is examined, and with what. Raises ``InputError``.

    drafter: its folder or hub id.
    prompts: without a chat template.
    chat, thinking: as in ``DecodeConfig``.
    visible: number of tokens after the anchor that the drafter is shown; 0 for a first drafter.
    expected: the α that somebody knows it to have; None if nobody does.
    reference: folder or hub id of a drafter that is known to be good; None without one.
    dtype: in which drafters are loaded; as of ``with_drafter``.
    name: of the drafter, in the report; None if that is ``drafter``.
    """

    drafter: str
    prompts: Sequence[str] = ()
    chat: bool = False
    thinking: bool = False
    visible: int = 0
    expected: float | None = None
    reference: str | None = None
    dtype: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.prompts, str):
            raise InputError("prompts is a text; give a list of texts")
        if self.expected is not None and not self.expected >= 1:
            raise InputError(f"the expected α is {self.expected:g}; α counts the bonus token, so it is at least 1")


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of the examination that ended with an error: which one, and why; ``whole`` if nothing could follow it."""

    part: str
    reason: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class DraftingRun:
    """What a drafter drafted over the target's texts.

    walks: of each text.
    block: γ.
    visible: number of tokens after the anchor that the drafter is shown.
    longest: number of tokens of the longest text.
    """

    walks: tuple[TextWalk, ...]
    block: int
    visible: int = 0
    longest: int = 0

    @property
    def alpha(self) -> float:
        """Committed tokens per step, including the bonus token."""
        return alpha(self.walks)

    @property
    def estimate(self) -> Estimate:
        return alpha_estimate(self.walks)

    @property
    def positions(self) -> list[DraftPosition]:
        """Acceptance by position, without tokens that the drafter is shown."""
        return by_position(self.walks, self.block, self.visible)

    @property
    def first(self) -> float:
        """Acceptance at the first position; 0 if nothing was drafted."""
        return next((p.share for p in self.positions), 0.0)

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """The shape of acceptance by position, and the position of a cliff."""
        return shape(self.positions)


@dataclass(frozen=True, slots=True)
class Repair:
    """A sequence of changes, each the one that helps most after those before it.

    steps: the changes and their results.
    before, after: without them and with all of them.
    complete: whether no further change still gains clearly; None if it is not known.
    level: α that is known to be possible; None if nobody knows any.
    """

    steps: tuple[Trial, ...]
    before: DraftingRun
    after: DraftingRun
    complete: bool | None = None
    level: float | None = None

    @property
    def confirmed(self) -> bool:
        """Whether these changes restore a working drafter's acceptance, so that they are the cause.

        Where a level is known, α is a good share of it. Otherwise no further change gains clearly, and either position 1 is
        accepted as with a trained drafter, and acceptance decays smoothly; or it is accepted as with a drafter after little
        training, and several times as many tokens are accepted as before. Changes that often help a drafter with another fault
        must also raise α by a good share.
        """
        if self.level is not None:
            restored = self.after.alpha >= LEVEL_SHARE * self.level
        else:
            times = (self.after.alpha - 1) / max(self.before.alpha - 1, 1e-3)
            trained = self.after.first >= LOW and self.after.shape[0] == "smooth"
            restored = bool(self.complete) and (trained or (self.after.first >= LITTLE and times >= TIMES))
        rises = self.after.alpha >= (1 + MIN_RISE) * self.before.alpha
        return restored and (rises or not any(step.variant.unspecific for step in self.steps))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likely cause.

    cause: a variant's kind, or folder, tensors, target, template, weights, training, role or tokenizer. Further:
        "below" if α is below the expected one and the reason is not known, "little" if a change helps but is not shown to be the
        cause, "rounding" if nothing is wrong but the target is quantised, "failed" if the examination could not be finished, "unknown"
        and "none".
    sentence: the cause in one sentence.
    fix: the line to change; None if unknown.
    changes: of the folder, which undo it, so that nothing else is written as a repair; empty if no change does.
    """

    cause: str
    sentence: str
    fix: str | None = None
    changes: tuple[Variant | FolderEdit, ...] = ()

    @property
    def names_fault(self) -> bool:
        return self.cause not in ("unknown", "none", "rounding", "little", "failed")


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about one drafter, as far as it was examined.

    asked: which drafter was examined, and with what.
    target: name of the target.
    checks: checks of the folder; empty if it was not checked.
    weights: damage seen in the weights, strongest evidence first.
    moved: how far training moved ``fc`` and ``hidden_norm`` from their initialization; None if that is not known.
    bits: number of bits to which the target's weights are quantised, whatever their dtype; None if they are not.
    surprise: how surprising the prompts are to the target, relative to random tokens; None if it was not computed.
    repeated: share of the generated 4-token sequences that occur earlier in their text.
    unusable: number of prompts whose text is empty or mostly repeats itself, and number of prompts.
    run: what the unchanged drafter drafted over the texts; None before that.
    reference: the comparison with another drafter; None without one.
    trials: latest result of each change that was tried.
    repair: the changes that help most, in order; None if none helps.
    templates: results of the same prompts in other templates.
    failures: parts of the examination that ended with an error.
    diagnosis: the likely cause; None if the examination was stopped before its end.
    """

    asked: Asked
    target: str
    checks: tuple[Check, ...] = ()
    weights: tuple[WeightFault, ...] = ()
    moved: tuple[float, float] | None = None
    bits: int | None = None
    surprise: float | None = None
    repeated: float | None = None
    unusable: tuple[int, int] = (0, 0)
    run: DraftingRun | None = None
    reference: Reference | None = None
    trials: tuple[Trial, ...] = ()
    repair: Repair | None = None
    templates: tuple[TemplateTrial, ...] = ()
    failures: tuple[Failure, ...] = ()
    diagnosis: Diagnosis | None = None

    @property
    def names_fault(self) -> bool:
        """Whether a fault of the drafter is named as the cause."""
        return self.diagnosis is not None and self.diagnosis.names_fault

    @property
    def helping(self) -> list[Trial]:
        """The changes that help, the best one first."""
        return sorted((t for t in self.trials if t.helps), key=lambda t: -(t.gain.value or 0.0))

    @property
    def failed(self) -> Failure | None:
        """The failure that ended the examination; None if it was finished."""
        return next((failure for failure in self.failures if failure.whole), None)

    @property
    def works(self) -> bool:
        """Whether the unchanged drafter is accepted as a trained one is, and not less than it is known to be."""
        run = self.run
        return run is not None and run.shape[0] == "smooth" and run.first >= LOW and self.below is None

    @property
    def little_trained(self) -> bool:
        """Whether training has hardly moved the weights that every drafter begins with."""
        spread, norm = self.moved or (inf, inf)
        return spread < LITTLE_MOVED[0] and norm < LITTLE_MOVED[1]

    @property
    def below(self) -> str | None:
        """What α is significantly below, in words; None if it is not."""
        if self.run is None:
            return None
        estimate, expected = self.run.estimate, self.asked.expected
        high = estimate.high if estimate.high is not None else self.run.alpha
        if expected is not None and high < expected:
            return f"the expected {expected:.2f}"
        if self.reference is not None and self.reference.change.low is not None and self.reference.change.low > 0:
            return f"the {alpha(self.reference.walks):.2f} of the reference on the same texts"
        return None

    @property
    def level(self) -> float | None:
        """An α that is known to be possible: the expected one, else the reference's; None if there is none."""
        if self.asked.expected is not None or self.reference is None:
            return self.asked.expected
        return alpha(self.reference.walks)

    def to_dict(self) -> dict[str, Any]:
        """Returns the findings as JSON-ready data.

        drafter, target: their names.
        diagnosis, cause, fix: the likely cause as a sentence and as a word (``Diagnosis.cause``), and the line to change;
            None if the examination was stopped before its end, ``fix`` also if it is not known.
        names_fault: whether a fault is named.
        alpha: committed tokens per step, a dictionary with value, low and high (95% interval); None if nothing was drafted.
        prompts, acceptance: number of texts, and by position: share accepted, among steps that accepted all earlier ones.
        checks: of the folder, with name, state ("good", "note" or "fault") and finding.
        changes: those that help, with description, α, and gain of the tokens that a draft adds.
        other_changes: number of changes that do not help.
        repair: the changes that undo the cause, which ``d2sd doctor --mend`` writes; empty if none do.
        repaired_alpha: α after them; None if it was not measured.
        templates, reference: α with the same prompts in other templates, and of the reference on the same texts.
        failures: parts of the examination that ended with an error.
        """
        run, diagnosis, repair, reference = self.run, self.diagnosis, self.repair, self.reference
        changes = diagnosis.changes if diagnosis else ()
        tried = repair is not None and changes == tuple(t.variant for t in repair.steps)
        return all_encodable({
            "drafter": self.asked.name or self.asked.drafter,
            "target": self.target,
            "diagnosis": diagnosis and diagnosis.sentence,
            "cause": diagnosis and diagnosis.cause,
            "fix": diagnosis and diagnosis.fix,
            "names_fault": self.names_fault,
            "alpha": run and asdict(run.estimate),
            "prompts": len(run.walks) if run else 0,
            "acceptance": [{"position": p.number, "accepted": p.share, "steps": p.steps} for p in run.positions] if run else [],
            "checks": [{name: getattr(check, name) for name in ("name", "state", "finding")} for check in self.checks],
            "changes": [
                {"description": t.variant.description, "alpha": alpha(t.walks), "gain": asdict(t.gain)} for t in self.helping
            ],
            "other_changes": len(self.trials) - len(self.helping),
            "repair": [change.description for change in changes],
            "repaired_alpha": repair.after.alpha if repair and tried else None,
            "templates": [{"description": t.template.description, "alpha": t.alpha, "change": asdict(t.change)} for t in self.templates],
            "reference": reference and {"drafter": reference.name, "alpha": alpha(reference.walks), "change": asdict(reference.change)},
            "failures": [asdict(failure) for failure in self.failures],
        })  # fmt: skip
