"""The findings of an examination: what was measured, the changes that repair the drafter, and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from d2sd.doctor.changes import FolderEdit, Variant
from d2sd.doctor.checks import Check
from d2sd.doctor.evidence import TextFindings, WeightFindings
from d2sd.doctor.probes import TemplateTrial, Trial
from d2sd.doctor.redraft import LOW, PositionAcceptance, Shape, Walk, alpha, alpha_estimate, by_position, shape
from d2sd.doctor.reference import Reference
from d2sd.errors import InputError, error_line

LITTLE_MOVED = (1.3, 0.05)  # of ``WeightFindings.moved``, below which a drafter was hardly trained
LITTLE = 0.3  # share accepted at position 1 of a drafter that was trained a little
TIMES = 2.0  # accepted tokens of such a one, over those before the repair
LEVEL_SHARE = 0.75  # of a level that is known: a change that leads to less leaves something wrong
MIN_RISE = 0.1  # of α, by an unspecific change of a drafter


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of the examination that ended with an error: which one, and why; ``whole`` if nothing could follow it."""

    part: str
    reason: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """A sequence of changes, each the one that helps most after those before it.

    steps: the changes and their results.
    before: the unchanged drafter, over the texts.
    complete: whether no further change still gains clearly; None if it is not known.
    block: γ with all changes.
    visible: number of tokens after the anchor that the drafter is shown.
    level: α that is known to be possible; None if nobody knows any.
    """

    steps: tuple[Trial, ...]
    before: tuple[Walk, ...]
    complete: bool | None
    block: int
    visible: int = 0
    level: float | None = None

    @property
    def after(self) -> tuple[Walk, ...]:
        """The texts with all changes."""
        return self.steps[-1].walks

    @property
    def confirmed(self) -> bool:
        """Whether these changes restore a working drafter's acceptance, so that they are the cause.

        Where a level is known, α is a good share of it. Otherwise no further change gains clearly, and either position 1 is
        accepted as with a trained drafter, and acceptance decays smoothly; or it is accepted as with a drafter after little
        training, and several times as many tokens are accepted as before. Changes that often help a drafter with another fault
        must also raise α by a good share.
        """
        rise = alpha(self.after) / alpha(self.before)
        times = (alpha(self.after) - 1) / max(alpha(self.before) - 1, 1e-3)
        positions = by_position(self.after, self.block, self.visible)
        first = positions[0].share if positions else 0.0
        restored = (first >= LOW and shape(positions)[0] == "smooth") or (first >= LITTLE and times >= TIMES)
        if self.level is not None:
            restored = alpha(self.after) >= LEVEL_SHARE * self.level
        else:
            restored = restored and bool(self.complete)
        return restored and (rise >= 1 + MIN_RISE or not any(step.variant.unspecific for step in self.steps))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likely cause.

    cause: a variant's kind, or folder, tensors, target, template, weights, training, role, confidence or tokenizer. Further:
        "below" if α is below the expected one and the reason is not known, "rounding" if rounding alone is not ruled out,
        "little" if a change helps but is not shown to be the cause, "failed" if the examination could not be finished, "unknown" and "none".
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
        """Whether it names a fault."""
        return self.cause not in ("unknown", "none", "rounding", "little", "failed")


@dataclass(slots=True)
class Examination:
    """The findings about one drafter so far; ``examine`` fills in all but the first four.

    drafter, target: their names.
    checks: of the folder; empty if it was not checked.
    visible: number of tokens after the anchor that the drafter is shown; 0 for a first drafter.
    chat: whether prompts use the chat template.
    expected: the α that somebody knows it to have; None if nobody does.
    on_card: α that the model card beside the folder gives; None if there is none.
    other: name of another drafter of the same set that drafts in the same way, and its α on the same texts; None without one.
    domains: group of each prompt, and from the walks on of each text; empty if they have none.
    unusable: prompts whose text is empty or mostly repeats itself, and their number.
    walks: of each text, with the unchanged drafter.
    reference: the comparison with another drafter; None without one.
    block: γ.
    longest: number of tokens of the longest text.
    masks: number of mask tokens that were compared.
    trials: latest result of each variant.
    repair: the changes that help most, in order; None if none helps.
    template_trials: the same prompts in other templates.
    weights: findings from the weights alone.
    texts: findings from the texts.
    bits: of the target's weights; None if they are not on a grid.
    failures: parts of the examination that ended with an error.
    seconds: duration of the examination.
    diagnosis: None until it is concluded.
    """

    drafter: str
    target: str
    checks: list[Check]
    visible: int = 0
    chat: bool = False
    expected: float | None = None
    on_card: float | None = None
    other: tuple[str, float] | None = None
    domains: Sequence[str] = ()
    unusable: tuple[int, int] = (0, 0)
    walks: list[Walk] = field(default_factory=list)
    reference: Reference | None = None
    block: int = 0
    longest: int = 0
    masks: int = 0
    trials: list[Trial] = field(default_factory=list)
    repair: Repair | None = None
    template_trials: list[TemplateTrial] = field(default_factory=list)
    weights: WeightFindings = field(default_factory=WeightFindings)
    texts: TextFindings = field(default_factory=TextFindings)
    bits: int | None = None
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None

    @contextmanager
    def noting(self, part: str, whole: bool = False) -> Iterator[None]:
        """Notes an error of this part as a failure, so that the report has everything else.

        whole: whether nothing can follow where it fails.
        """
        try:
            yield
        except InputError as error:
            self.failures.append(Failure(part, str(error), whole))
        except Exception as error:  # damaged weights break calculations in ways that nobody foresees
            self.failures.append(Failure(part, error_line(error), whole))

    @property
    def failed(self) -> Failure | None:
        """The failure that ended the examination; None if it was finished."""
        return next((failure for failure in self.failures if failure.whole), None)

    @property
    def positions(self) -> list[PositionAcceptance]:
        """Acceptance by position, without tokens that the drafter is shown."""
        return by_position(self.walks, self.block, self.visible)

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """The shape of acceptance by position, and the position of a cliff."""
        return shape(self.positions)

    @property
    def works(self) -> bool:
        """Whether it is accepted as a trained drafter is, without any change, and as it is known to be."""
        return self.shape[0] == "smooth" and self.first >= LOW and self.below is None

    @property
    def little_trained(self) -> bool:
        """Whether what begins the same in every drafter has hardly been moved by training."""
        spread, norm = self.weights.moved or (inf, inf)
        return spread < LITTLE_MOVED[0] and norm < LITTLE_MOVED[1]

    @property
    def first(self) -> float:
        """Acceptance at position 1; 0 if nothing was drafted."""
        positions = self.positions
        return positions[0].share if positions else 0.0

    @property
    def below(self) -> str | None:
        """What α is significantly below, in words; None if it is not."""
        if not self.walks:
            return None
        estimate = alpha_estimate(self.walks)
        high = estimate.high if estimate.high is not None else alpha(self.walks)
        if self.expected is not None and high < self.expected:
            return f"the expected {self.expected:.2f}"
        if self.reference is not None and self.reference.change.low is not None and self.reference.change.low > 0:
            return f"the {alpha(self.reference.walks):.2f} of the reference on the same texts"
        return None

    @property
    def level(self) -> tuple[float, str] | None:
        """An α that is known to be possible, and where it is known from; None if there is none."""
        if self.expected is not None:
            return self.expected, "that are expected"
        if self.reference is not None:
            return alpha(self.reference.walks), "of the reference on the same texts"
        if self.other is not None:
            return self.other[1], f"of {self.other[0]} on the same texts"
        return None if self.on_card is None else (self.on_card, "on its model card")

    @property
    def confirmed_repair(self) -> Repair | None:
        """The changes that help most, if they are the cause."""
        return self.repair if self.repair is not None and self.repair.confirmed else None
