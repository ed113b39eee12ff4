"""The findings of an examination, the changes that repair the drafter, and the cause that they point to, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from torch import Tensor

from d2sd.doctor.changes import FolderEdit, Kind, Variant
from d2sd.doctor.checks import Check
from d2sd.doctor.evidence import INVERTED, UNRELATED, VP_RATIO, TextFindings, WeightFindings
from d2sd.doctor.probes import TemplateTrial, Trial
from d2sd.doctor.redraft import LOW, PositionAcceptance, Shape, Walk, alpha, alpha_estimate, by_position, shape
from d2sd.doctor.reference import Reference

MOST_NAMED = 4  # differences from a reference in a sentence
MANY_UNUSABLE = 1 / 3  # of the texts, from which on the template is tried first
DAMAGED = 0.15  # share accepted at position 1 below which a drafter that was trained at all has damaged weights
LITTLE_MOVED = (1.3, 0.05)  # of ``WeightFindings.moved``, below which a drafter was hardly trained
COSTLESS = 0.05  # of the tokens that a draft adds: less is lost without a layer that does nothing
FEW_BITS = 3  # of a drafter's weights: too few for one that was not trained so
VP_LEVEL = (
    0.8  # share of correct next tokens of a trained VP-Drafter that is shown two: damaged drafters gain by them too
)
LITTLE = 0.3  # share accepted at position 1 of a drafter that was trained a little
TIMES = 2.0  # accepted tokens of such a one, over those before the repair
MIN_RISE = 0.1  # of α, by an unspecific change of a drafter

TRAINING = (
    "What usually helps then is more training on text that the target wrote itself: of the bundled drafters, SmolLM2's accepts "
    "about 0.4 at position 1 after 670 steps, and that of tiny about 0.8 after 25,200"
)
LONG_TRAINED = (
    "Its hidden_norm has moved far from where training begins, so too little training is not likely. Weights that are damaged a little, a "
    "shard of another checkpoint, another target, or text unlike that of its training would explain it; the folder alone cannot tell "
    "which, but an earlier checkpoint as --reference can"
)
SENTENCES: dict[Kind, str] = {
    "taps": "it reads other target layers than in training, or the columns of fc are in another order",
    "mask": "its mask token differs from that in training",
    "rope": "its rotary embedding differs from that in training",
    "window": "its attention window differs from that in training",
    "causal": "the attention mask within its block differs from that in training",
    "reads": "its rows are read as predictions of another position than in training",
    "rows": "its block has another number of rows than in training",
    "layer": "the weights of a layer are damaged or were never trained",
    "sublayer": "some weights of a layer are damaged or were never trained",
    "dtype": "its weights lose too much precision in this dtype",
    "rotary": "the rows of its queries or keys are not in the order that the rotary embedding expects",
    "swapped": "two of its weights are swapped",
    "transposed": "some of its weights are transposed",
    "norms": "the weights of its norms are off",
    "split": "stacked matrices were split in another order than they were stacked in",
    "scale": "some of its weights are out of scale",
    "order": "its layers are not in the order of training",
    "tables": "one of its tables is not the one that it was trained with",
    "map": "its draft vocabulary (d2t) maps to other tokens than in training",
    "head_dim": "its attention is split into heads of another size than in training",
    "residual": "its residual stream starts from another tensor than in training (norm_before_residual)",
    "output": "deeper levels read another hidden state than in training (norm_output)",
}
CAUSES: dict[Kind, str] = {"layer": "weights", "sublayer": "weights"}  # of the others the kind itself
FETCH = "fetch or convert the weights again"


@dataclass(frozen=True, slots=True)
class Repair:
    """A sequence of changes, each the one that helps most after those before it.

    steps: the changes and their results.
    before: the unchanged drafter, over the texts.
    complete: whether no further change helps.
    block: γ with all changes.
    visible: number of tokens after the anchor that the drafter is shown.
    """

    steps: tuple[Trial, ...]
    before: tuple[Walk, ...]
    complete: bool
    block: int
    visible: int = 0

    @property
    def after(self) -> tuple[Walk, ...]:
        """The texts with all changes."""
        return self.steps[-1].walks

    @property
    def confirmed(self) -> bool:
        """Whether these changes restore a working drafter's acceptance, so that they are the cause.

        Either position 1 is accepted as with a trained drafter, and acceptance decays smoothly; or it is accepted as with a
        drafter after little training, and several times as many tokens are accepted as before. Changes that often help a
        drafter with another fault must also raise α by a good share, and leave no further change that helps.
        """
        rise = alpha(self.after) / alpha(self.before)
        times = (alpha(self.after) - 1) / max(alpha(self.before) - 1, 1e-3)
        positions = by_position(self.after, self.block, self.visible)
        first = positions[0].share if positions else 0.0
        restored = (first >= LOW and shape(positions)[0] == "smooth") or (first >= LITTLE and times >= TIMES)
        if not any(step.variant.unspecific for step in self.steps):
            return restored
        return restored and rise >= 1 + MIN_RISE and (self.complete or times >= 2 * TIMES)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likely cause.

    cause: a variant's kind, or folder, tensors, target, template, weights, training, role, confidence or tokenizer. Further:
        "below" if α is below the expected one and the reason is not known, "rounding" if rounding alone is not ruled out,
        "little" if a change helps but does not explain it, "unknown" and "none".
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
        return self.cause not in ("unknown", "none", "rounding", "little")


@dataclass(slots=True)
class Examination:
    """The findings about one drafter so far; ``examine`` fills in all but the first four.

    drafter, target: their names.
    checks: of the folder; empty if it was not checked.
    visible: number of tokens after the anchor that the drafter is shown; 0 for a first drafter.
    chat: whether prompts use the chat template.
    expected: the α that somebody knows it to have; None if nobody does.
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
    seconds: duration of the examination.
    diagnosis: None until it is concluded.
    """

    drafter: str
    target: str
    checks: list[Check]
    visible: int = 0
    chat: bool = False
    expected: float | None = None
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
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None

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
    def confirmed_repair(self) -> Repair | None:
        """The changes that help most, if they are the cause."""
        return self.repair if self.repair is not None and self.repair.confirmed else None


def folder_fault(checks: Sequence[Check]) -> Diagnosis | None:
    """Returns the fault found in the folder alone."""
    wrong = next((c for c in checks if c.state == "fault"), None)
    if wrong is None:
        return None
    changes = () if wrong.mend is None else (wrong.mend,)
    return Diagnosis(wrong.kind, f"The folder has a fault: {wrong.finding}.", wrong.fix, changes)


def diagnose(e: Examination) -> Diagnosis:
    """Returns one cause, by the strongest evidence: folder, tokenizer, a confirmed change, weights, templates, other findings."""
    named = folder_fault(e.checks) or next(_faults(e), None)
    if named is not None:
        return named
    if e.below is not None:
        return Diagnosis("below", f"α is {alpha(e.walks):.2f}, significantly below {e.below}, and nothing that was tried explains it.{_differences(e.reference)}")  # fmt: skip
    found = _without_fault(e)
    if e.weights.constant_norms:
        also = f"{e.weights.constant_norms[0]} holds one number alone: it was lost, or training never moved it."
        return replace(found, sentence=f"{found.sentence} {also}")
    return found


def _faults(e: Examination) -> Iterator[Diagnosis]:
    """The faults that the findings point to, the strongest evidence first."""
    w, t = e.weights, e.texts
    repair = e.confirmed_repair
    yield from proved_by_texts(e)
    yield from proved_by_weights(e)
    if repair is not None and not repair.steps[0].variant.unspecific:
        yield _repaired(repair)
    if e.little_trained and e.walks and not e.works:
        spread, norm = w.moved or (1.0, 0.0)
        moved = f"most parts of fc have {spread:.2f} times the spread that they begin with, and hidden_norm is {norm:.2f} from 1"
        yield Diagnosis("training", f"It was hardly trained: {moved}. {TRAINING}.")
    if (damage := next(_damage(w, e.works), None)) is not None:
        yield Diagnosis("weights", damage, FETCH)
    if w.odd_norms and not e.works:
        others = len(w.odd_norms) - 1
        also = f", and so do {others} others" if others else ""
        sentence = f"Most likely the weights of its norms were lost: {w.odd_norms[0]} holds one number alone{also}, while others were trained."
        yield Diagnosis("norms", sentence, FETCH)
    if repair is not None:
        yield _repaired(repair)
    trials = [trial for trial in e.template_trials if trial.helps]
    if trials:
        best = max(trials, key=lambda trial: trial.change.value or 0.0)
        yield Diagnosis(
            "template",
            f"Most likely it was trained with another template: with {best.template.description}, α is {best.alpha:.2f} "
            f"({best.change.value:+.2f}).",
            best.template.fix,
        )
    if t.markov_gain is not None and t.markov_gain.high is not None and t.markov_gain.high < 0:
        yield Diagnosis(
            "swapped",
            "Most likely its Markov tables stand in each other's place: they make the pairs of tokens of these texts likelier "
            "when exchanged.",
            "exchange markov_w1 and markov_w2",
            (FolderEdit("markov_w1 and markov_w2 exchanged", _exchanged_markov),),
        )
    if t.shown_ratio is not None and t.shown_first is not None:
        own, shown = t.shown_first
        if t.shown_ratio >= VP_RATIO and shown >= max(VP_LEVEL, own):
            yield Diagnosis(
                "role",
                "Most likely it is a VP-Drafter, for the second role: with two tokens shown, it drafts the next one correctly at "
                f"{shown:.0%} of the positions instead of {own:.0%}, and given two that it drafted correctly itself, it gets "
                f"{t.shown_ratio:.2f} times as many further ones accepted.",
                "give it as --second-drafter, and a first drafter beside it",
            )
    if t.confidence_auroc is not None and t.confidence_auroc < INVERTED:
        yield Diagnosis(
            "confidence",
            "Its confidence head is inverted: of an accepted and a rejected token, it gives the accepted one the higher confidence only "
            f"{t.confidence_auroc:.0%} of the time. Drafts are unchanged, but everything that cuts them by confidence cuts the wrong ones.",
            "the sign of confidence_head.proj",
            (FolderEdit("the sign of confidence_head.proj", _inverted_confidence),),
        )
    if e.shape[0] != "unclear" and e.first < DAMAGED:
        yield Diagnosis(
            "weights",
            "Most likely its weights are damaged, stand in an order that was not tried, or were trained for another target: position "
            f"{e.positions[0].number} is accepted "
            f"{e.first:.0%} of the time, less than after a few minutes of training, and no change that was tried helps. {_where(e)}",
            FETCH,
        )


def _where(e: Examination) -> str:
    """What leaving out each layer changes, as a hint where the damage is."""
    gains = {t.variant.left_out: t.gain.value or 0.0 for t in e.trials if t.variant.left_out is not None}
    layers = {part: gain for part, gain in gains.items() if part.startswith("layer")} or gains
    if not layers:
        return ""
    each = ", ".join(f"{part} {gain:+.0%}" for part, gain in sorted(layers.items()))
    costless = [part for part, gain in layers.items() if gain > -COSTLESS]
    if len(costless) == len(layers):
        verdict = "none of them adds anything, so all are affected, or what they read: fc, hidden_norm, norm"
    elif costless:
        verdict = f"{', '.join(costless)} adds nothing, so look there first"
    else:
        verdict = "all add something, so it is not in one of them alone"
    return f"Left out, they change the tokens that a draft adds by: {each}; {verdict}."


def proved_by_weights(e: Examination) -> Iterator[Diagnosis]:
    """Yields damage that the weights prove, whatever the drafter does with them."""
    w = e.weights
    for name in w.zero_matrices:
        yield Diagnosis("weights", f"Most likely its weights were damaged: {name} holds only zeros.", FETCH)
    for one, other in w.copied_layers:
        sentence = f"Most likely its weights were damaged: layer {other} is a copy of layer {one}."
        yield Diagnosis("weights", sentence, FETCH)
    for name in w.lost_norms:
        sentence = f"Most likely the weights of {name} were lost: they are one number alone, and others were trained."
        yield Diagnosis("norms", sentence, FETCH)
    if w.bits is not None and w.bits <= FEW_BITS:
        sentence = f"Most likely its weights were rounded too coarsely: most matrices of its layers lie on a grid of {w.bits} bits."
        yield Diagnosis("weights", sentence, "the weights before they were rounded")
    for name in w.clipped_matrices:
        sentence = f"Most likely its weights were damaged: {name} was clipped: many of its entries are as large as the largest one."
        yield Diagnosis("weights", sentence, FETCH)


def _exchanged_markov(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    other = {"markov_w1": "markov_w2", "markov_w2": "markov_w1"}
    return {re.sub("markov_w[12]", lambda m: other[m[0]], name): w for name, w in tensors.items()}


def _inverted_confidence(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: -w if "confidence_head.proj." in name else w for name, w in tensors.items()}


def proved_by_texts(e: Examination) -> Iterator[Diagnosis]:
    """Yields causes that the target's texts prove, whatever the drafter does with them."""
    surprise = e.texts.surprise
    if surprise is not None and surprise >= UNRELATED:
        yield Diagnosis(
            "tokenizer",
            f"Most likely the tokenizer, or the table of tokens, is not the target's: the surprise of the prompts is {surprise:.0%} of "
            "that of tokens drawn at random.",
            "the tokenizer files and the weights that came with the target",
        )
    bad, count = e.unusable
    trials = [trial for trial in e.template_trials if 2 * trial.unusable <= bad]
    if bad and bad >= MANY_UNUSABLE * count and trials and not e.chat:
        best = min(trials, key=lambda trial: trial.unusable)
        yield Diagnosis(
            "template",
            f"Most likely the prompts lack the template: without it, the texts of {bad} of {count} prompts are empty or repeat themselves, "
            f"and with {best.template.description} those of {best.unusable}; α is then {best.alpha:.2f}.",
            best.template.fix,
        )


def _repaired(repair: Repair) -> Diagnosis:
    variants = [step.variant for step in repair.steps]
    first = variants[0]
    if first.left_out is not None:
        words = f"the weights of {first.left_out} are damaged or were never trained"
    else:
        words = SENTENCES[first.kind]
    if len(variants) > 1:
        words += f", and {SENTENCES[variants[1].kind]}"
    changes = ", then ".join(v.description for v in variants)
    rise = f"α rises from {alpha(repair.before):.2f} to {alpha(repair.after):.2f}"
    fixes = dict.fromkeys(v.fix or FETCH for v in variants)
    cause, sentence = CAUSES.get(first.kind, first.kind), f"Most likely {words}: with {changes}, {rise}."
    return Diagnosis(cause, sentence, "; ".join(fixes), tuple(variants) if all(v.writable for v in variants) else ())


def _damage(w: WeightFindings, works: bool) -> Iterator[str]:
    """Sentences about damage of the weights that no change can undo.

    works: whether it is accepted as a trained drafter is, so that what may also come of training is no damage.
    """
    if w.random_layers:
        names, plural = ", ".join(map(str, w.random_layers)), "s" if len(w.random_layers) > 1 else ""
        yield f"Most likely the weights of layer{plural} {names} are damaged or were never trained: none of its matrices differs from random numbers of their size."
    for name in () if works else w.random_matrices:
        yield f"Most likely some weights are damaged or were never trained: {name} does not differ from random numbers of its size, and that of every other layer does."


def _differences(reference: Reference | None) -> str:
    """What differs from a reference, in sentences; empty without one."""
    if reference is None:
        return " Give --reference a drafter that is known to be good, to see what differs."
    keys = ", ".join(f"{key} ({own}, there {theirs})" for key, own, theirs in reference.keys[:MOST_NAMED])
    tensors, count = reference.tensors, len(reference.tensors) + reference.equal
    shares = [(t.name, "in one of the two only" if t.share is None else f"by {t.share:.0%}") for t in tensors]
    most = ", ".join(f"{name} ({share})" for name, share in shares[:MOST_NAMED])
    differ = f" {len(tensors)} of {count} tensors differ from the reference's{f', most of all {most}' if most else ''}."
    return (f" Its config differs in {keys}." if keys else "") + differ


def _without_fault(e: Examination) -> Diagnosis:
    first = (
        f"position {e.positions[0].number} is accepted {e.positions[0].share:.0%} of the time"
        if e.positions
        else "too little was accepted"
    )
    training = "" if e.works else f" {TRAINING}."
    if not e.works and e.weights.moved is not None and e.weights.moved[1] > 2 * LITTLE_MOVED[1]:
        training = f" {LONG_TRAINED}."
    both = (("The target's", e.bits), ("Its own", e.weights.bits))
    grids = [f"{whose} weights lie on a grid of {bits} bits. " for whose, bits in both if bits]
    if e.repair is not None:
        step = e.repair.steps[0]
        helps = f"{step.variant.description} helps a little (α {step.before or 0:.2f} → {step.alpha or 0:.2f}) and does not explain it"
        return Diagnosis("little", f"{'No fault was proved' if e.works else 'Unknown'}: {first}; {helps}.{training}")
    if e.shape[0] == "unclear":
        return Diagnosis("unknown", "Unknown: too few steps were seen. Give about 30 prompts.")
    if grids:
        harmless = (
            "That is harmless if the drafter was trained with these weights, and otherwise costs some acceptance."
        )
        sentence = f"No fault of the drafter was found; {first}. {''.join(grids)}{harmless}{training}"
        return Diagnosis("rounding", sentence)
    if e.works:
        return Diagnosis("none", f"No fault found: {first}, and nothing that was changed helps.")
    return Diagnosis(
        "unknown", f"Unknown: {first}, nothing that was changed helps, and the folder is in order.{training}"
    )
