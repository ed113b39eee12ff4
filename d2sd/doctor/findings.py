"""The findings of an examination: measurements, comparisons, failures, and the diagnosis."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from d2sd.calibration.replays import DraftingRun, DraftPosition
from d2sd.calibration.text import Columns, Table, count, decimal, first_page, percent, with_interval
from d2sd.doctor.asked import Asked
from d2sd.doctor.changes import Variant
from d2sd.doctor.exchange import Reference
from d2sd.doctor.probes import TemplateTrial, Trial
from d2sd.folders.checks import Check
from d2sd.trace.text import all_encodable


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of the examination that failed.

    part: name of the part.
    reason: why it failed.
    whole: whether the failure ended the whole examination.
    """

    part: str
    reason: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the findings prove.

    cause: what is proved to be at fault: name of a ``Check``, kind of a ``Variant``, or "exchange" for parts that differ from the
        reference's. If nothing is proved: "below" if α is significantly too low (``Findings.below``), "failed" if the examination
        ended early, "unknown" if the run has too few steps to judge, else "none".
    sentence: the main finding.
    fix: what to change; None if unknown.
    changes: changes that remove the fault; only these are written as a repair.
    alpha: α with these changes; None if it was not measured.
    """

    cause: str
    sentence: str
    fix: str | None = None
    changes: tuple[Variant | Check, ...] = ()
    alpha: float | None = None

    @property
    def names_fault(self) -> bool:
        return self.cause not in ("unknown", "none", "failed")


@dataclass(frozen=True, slots=True, repr=False)
class Findings:
    """What an examination has shown about one drafter so far.

    asked: the drafter and the settings.
    target: name of the target.
    checks: checks of the folder; empty if it was not checked.
    remarks: a sentence about each unusual property of the weights.
    since: what changed since the drafter was trained (``d2sd.folders.fingerprint``), one clause each; None if the drafter's folder
        has no fingerprint of the target.
    surprise: the target's mean loss on the prompts ÷ log V, the loss of a uniform guess; None if not computed.
    repeated: share of the generated 4-token sequences that occur earlier in their text; None if not computed.
    unusable: number of prompts whose text is empty or mostly repeats itself, and number of all prompts.
    run: the unchanged drafter's steps over the texts; None before the run.
    reference: the comparison with another drafter; None without one.
    trials: one result for each change that was tried, over all texts. Changes that did badly in the screening have only its result.
    further: the change that helps most in addition to the best of ``trials``; None if none does, or none was tried.
    templates: results of the same prompts in other templates.
    failures: parts of the examination that failed.
    diagnosis: what the findings prove; None before the end, and if the examination was stopped.
    """

    asked: Asked
    target: str
    checks: tuple[Check, ...] = ()
    remarks: tuple[str, ...] = ()
    since: tuple[str, ...] | None = None
    surprise: float | None = None
    repeated: float | None = None
    unusable: tuple[int, int] = (0, 0)
    run: DraftingRun | None = None
    reference: Reference | None = None
    trials: tuple[Trial, ...] = ()
    further: Trial | None = None
    templates: tuple[TemplateTrial, ...] = ()
    failures: tuple[Failure, ...] = ()
    diagnosis: Diagnosis | None = None

    def __repr__(self) -> str:
        return f"<Findings on {self.asked.name or self.asked.drafter}: {self._sentences()[0]}>"

    def _repr_html_(self) -> str:
        columns: Columns[DraftPosition] = {
            "position": lambda p: str(p.number),
            "steps": lambda p: str(p.steps),
            "accepted": lambda p: percent(p.share),
            "expected by the drafter": lambda p: percent(p.belief),
        }
        return first_page(self._sentences(), Table.of(columns, self.run.positions if self.run else ()))

    def _sentences(self) -> list[str]:
        """Returns the diagnosis, the fix, α, faults of the folder, and the changes that help."""
        run, diagnosis = self.run, self.diagnosis
        return [
            diagnosis.sentence if diagnosis else "Stopped before the end.",
            *([f"To fix: {diagnosis.fix}"] if diagnosis and diagnosis.fix else []),
            *([f"α {with_interval(run.estimate, decimal)} on {count(len(run.walks), 'prompt')}."] if run else []),
            *(f"{check.name}: {check.finding}." for check in self.checks if check.state == "fault"),
            *(f"{trial.variant.description}: α {trial.run.alpha:.2f}." for trial in self.helping[:5]),
            *(f"Not done: {failure.part} failed ({failure.reason})." for failure in self.failures),
        ]

    @property
    def names_fault(self) -> bool:
        """Whether the diagnosis names a fault."""
        return bool(self.diagnosis and self.diagnosis.names_fault)

    @property
    def helping(self) -> list[Trial]:
        """The changes that help, in descending order of α."""
        return sorted((t for t in self.trials if t.helps), key=lambda t: -t.run.alpha)

    @property
    def failed(self) -> Failure | None:
        """The failure that ended the examination; None if there was none."""
        return next((failure for failure in self.failures if failure.whole), None)

    @property
    def below(self) -> bool:
        """Whether α is significantly below what it should be: the reference's α or ``Asked.expected``. False if neither is given."""
        if not self.run:
            return False
        worse = bool(self.reference and self.reference.better)
        return worse or (self.asked.expected is not None and self.run.below(self.asked.expected))

    def to_dict(self) -> dict[str, Any]:
        """Returns the findings as JSON-ready data.

        drafter, target: names.
        diagnosis, cause, fix: the sentence, cause and fix of the ``Diagnosis``; None if the examination was stopped.
        names_fault: whether the diagnosis names a fault.
        alpha: tokens written per step, as value, low and high (95% interval); None without a run.
        prompts: number of texts in the run.
        acceptance: by position: accepted share among the steps that accepted all earlier tokens, number of these steps, and the mean
            probabilities that the drafter and its confidence head gave to the drafted tokens.
        checks: checks of the folder: name, state ("good", "note" or "fault") and finding.
        remarks: what is unusual about the weights.
        since_training: what changed since the drafter was trained; None if the drafter's folder has no fingerprint of the
            target.
        changes: changes that help: description, α, and relative gain of the tokens written per draft.
        other_changes: number of changes that do not help.
        repair: changes that remove the fault, which ``d2sd doctor --mend`` writes.
        repaired_alpha: α after the changes in ``repair``; None if not measured.
        templates: α with the same prompts in other templates.
        reference: name and α of the reference, its α minus the drafter's, the tensors that differ, the parts that must come from the
            reference, and α with these parts; None without a reference.
        failures: parts of the examination that failed.
        """
        run, diagnosis, reference = self.run, self.diagnosis, self.reference
        swap = reference and reference.exchange
        return all_encodable({
            "drafter": self.asked.name or self.asked.drafter,
            "target": self.target,
            "diagnosis": diagnosis and diagnosis.sentence,
            "cause": diagnosis and diagnosis.cause,
            "fix": diagnosis and diagnosis.fix,
            "names_fault": self.names_fault,
            "alpha": run and asdict(run.estimate),
            "prompts": len(run.walks) if run else 0,
            "acceptance": [
                {"position": p.number, "accepted": p.share, "steps": p.steps, "believed": p.belief, "confidence_head": p.head}
                for p in (run.positions if run else ())
            ],
            "checks": [{"name": c.name, "state": c.state, "finding": c.finding} for c in self.checks],
            "remarks": list(self.remarks),
            "since_training": None if self.since is None else list(self.since),
            "changes": [{"description": t.variant.description, "alpha": t.run.alpha, "gain": asdict(t.gain)} for t in self.helping],
            "other_changes": len(self.trials) - len(self.helping),
            "repair": [change.description for change in (diagnosis.changes if diagnosis else ())],
            "repaired_alpha": diagnosis and diagnosis.alpha,
            "templates": [{"description": t.template, "alpha": t.alpha, "change": asdict(t.change)} for t in self.templates],
            "reference": reference and {
                "drafter": self.asked.reference,
                "alpha": reference.run.alpha,
                "change": asdict(reference.change),
                "tensors": reference.tensors,
                "parts": [t for part in swap.parts for t in (*part.tensors, *part.settings)] if swap else [],
                "alpha_with_parts": swap.run.alpha if swap else None,
            },
            "failures": [asdict(failure) for failure in self.failures],
        })  # fmt: skip
