"""The findings of an examination: measurements, changes that repair the drafter, and failures."""

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

LITTLE_MOVED = (1.3, 0.05)  # figures of ``moved_by_training`` below which a drafter was hardly trained
LITTLE = 0.3  # acceptance at position 1 after a little training
TIMES = 2.0  # factor by which accepted tokens must rise if acceptance at position 1 reaches only ``LITTLE``
LEVEL_SHARE = 0.75  # share of the known α that a repair must reach
MIN_RISE = 0.1  # relative rise of α that an unspecific change needs


@dataclass(frozen=True, slots=True)
class Asked:
    """The drafter to examine, and the settings. Raises ``InputError`` for invalid settings.

    drafter: folder or hub id.
    prompts: texts without a chat template.
    chat, thinking: as in ``DecodeConfig``.
    visible: number of tokens after the anchor that the drafter is shown; 0 for a first drafter.
    expected: known α of the drafter; None if unknown.
    reference: folder or hub id of a known good drafter; None: no comparison.
    dtype: dtype of the drafters, as for ``with_drafter``.
    name: the drafter's name in the report; None: the value of ``drafter``.
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
            raise InputError("prompts must be a list of texts, not a single text")
        if self.expected is not None and not self.expected >= 1:
            raise InputError(f"the expected α is {self.expected:g}; α counts the bonus token, so it is at least 1")


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of the examination that failed, the reason, and whether this ended the examination (``whole``)."""

    part: str
    reason: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class DraftingRun:
    """A drafter's steps over the target's texts.

    walks: the steps over each text.
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
        """Acceptance by position, without the positions of tokens that the drafter is shown."""
        return by_position(self.walks, self.block, self.visible)

    @property
    def first(self) -> float:
        """Acceptance at the first drafted position; 0 if nothing was drafted."""
        return next((p.share for p in self.positions), 0.0)

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """The shape of acceptance by position, and the position of the cliff if there is one."""
        return shape(self.positions)


@dataclass(frozen=True, slots=True)
class Repair:
    """A sequence of changes. Each is the most helpful one after all earlier changes are applied.

    steps: the changes and their results.
    before, after: the runs without the changes and with all of them.
    complete: whether no further change has a clear gain; None if unknown.
    level: an α that is known to be possible; None if unknown.
    """

    steps: tuple[Trial, ...]
    before: DraftingRun
    after: DraftingRun
    complete: bool | None = None
    level: float | None = None

    @property
    def confirmed(self) -> bool:
        """Whether acceptance is normal after these changes, so that they must have undone the cause.

        If ``level`` is known, α must reach ``LEVEL_SHARE`` of it. Otherwise, ``complete`` must be true, and acceptance at position 1
        must reach ``LOW`` and decay smoothly, or reach ``LITTLE`` while ``TIMES`` as many tokens per step are accepted as before.
        If any change is unspecific, α must also rise by the share ``MIN_RISE``.
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

    cause: kind of a variant, or folder, tensors, layers, target, template, weights, training, role or tokenizer. Other values:
        "below": α is below the expected one, for an unknown reason. "little": a change helps but is not proven to be the cause.
        "rounding": no fault, but a quantised target. "failed": the examination ended early. "unknown": no cause. "none": no fault.
    sentence: the cause, in words.
    fix: what to change; None if unknown.
    changes: changes that undo the cause; only these are written as a repair.
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
    """The findings about one drafter up to now.

    asked: the drafter and the settings.
    target: name of the target.
    checks: checks of the folder; empty if it was not checked.
    weights: damage in the weights, strongest evidence first.
    moved: see ``moved_by_training``; None if unknown.
    bits: number of bits to which the target's weights are quantised, whatever their dtype; None if they are not quantised.
    surprise: the target's mean loss on the prompts ÷ log V, the loss of a uniform guess; None if not computed.
    repeated: share of the generated 4-token sequences that occur earlier in their text.
    unusable: number of prompts whose text is empty or mostly repeats itself, and number of all prompts.
    run: the unchanged drafter's steps over the texts; None before the run.
    reference: the comparison with another drafter; None without one.
    trials: latest result of each change, applied alone.
    repair: the changes that help most, in order; None if no change helps.
    templates: results of the same prompts in other templates.
    failures: parts of the examination that failed.
    diagnosis: the likely cause; None if the examination was stopped.
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
        """Whether the diagnosis names a fault."""
        return self.diagnosis is not None and self.diagnosis.names_fault

    @property
    def helping(self) -> list[Trial]:
        """The changes that help, the best one first."""
        return sorted((t for t in self.trials if t.helps), key=lambda t: -(t.gain.value or 0.0))

    @property
    def failed(self) -> Failure | None:
        """The failure that ended the examination; None if there was none."""
        return next((failure for failure in self.failures if failure.whole), None)

    @property
    def works(self) -> bool:
        """Whether acceptance without changes is like a trained drafter's, and α not significantly below the known α."""
        run = self.run
        return run is not None and run.shape[0] == "smooth" and run.first >= LOW and self.below is None

    @property
    def little_trained(self) -> bool:
        """Whether training hardly moved the weights from their initial values."""
        spread, norm = self.moved or (inf, inf)
        return spread < LITTLE_MOVED[0] and norm < LITTLE_MOVED[1]

    @property
    def below(self) -> str | None:
        """The known α, in words; None if it is unknown, or the measured α is not significantly lower."""
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
        """The α that is known to be possible: the expected α, else the reference's; None if both are unknown."""
        if self.asked.expected is not None or self.reference is None:
            return self.asked.expected
        return alpha(self.reference.walks)

    def to_dict(self) -> dict[str, Any]:
        """Returns the findings as JSON-ready data.

        drafter, target: names.
        diagnosis, cause, fix: the sentence, cause and fix of the ``Diagnosis``; None if the examination was stopped.
        names_fault: whether the diagnosis names a fault.
        alpha: committed tokens per step, as value, low and high (95% interval); None without a run.
        prompts: number of texts in the run.
        acceptance: accepted share by position, among the steps that accepted all earlier tokens.
        checks: checks of the folder: name, state ("good", "note" or "fault") and finding.
        changes: changes that help: description, α, and relative gain of the committed tokens per draft.
        other_changes: number of changes that do not help.
        repair: changes that undo the cause, which ``d2sd doctor --mend`` writes.
        repaired_alpha: α after the changes in ``repair``; None if not measured.
        templates: α with the same prompts in other templates.
        reference: α of the reference on the same texts.
        failures: parts of the examination that failed.
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
