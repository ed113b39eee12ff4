"""The cause in one sentence, from checks, shape, probes and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from d2sd.doctor.checks import Check
from d2sd.doctor.evidence import Weighed
from d2sd.doctor.probes import LOW, Cure, Position, Shape, alpha
from d2sd.doctor.signs import Signs
from d2sd.doctor.texts import Asked
from d2sd.doctor.variants import Kind

TRAINING = (
    "What usually helps then is more training on text that the target wrote itself: of the bundled drafters, SmolLM2's accepts "
    "about 0.4 at position 1 after 670 steps, and that of tiny about 0.8 after 25,200"
)
WORDS: dict[Kind, str] = {
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
class Findings:
    """All results of an examination; see ``Examination``."""

    checks: Sequence[Check]
    found: Sequence[Position]
    shape: Shape
    cure: Cure | None = None
    asked: Sequence[Asked] = ()
    weighed: Weighed = field(default_factory=Weighed)
    signs: Signs = field(default_factory=Signs)
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likely cause.

    cause: a variant's kind, or folder, tensors, target, template, weights, training, role, confidence, tokenizer; "rounding" if
        only that remains to be ruled out; "little" if a change helps but does not explain it; "unknown"; "none".
    said: the cause in one sentence.
    mend: the line to change; None if unknown.
    """

    cause: str
    said: str
    mend: str | None = None

    @property
    def accuses(self) -> bool:
        """Returns whether it names a fault."""
        return self.cause not in ("unknown", "none", "rounding", "little")


def fault(checks: Sequence[Check]) -> Diagnosis | None:
    """Returns the fault found in the folder alone."""
    wrong = next((c for c in checks if c.state == "fault"), None)
    return None if wrong is None else Diagnosis(wrong.kind, f"The folder has a fault: {wrong.said}.", wrong.mend)


def diagnose(f: Findings) -> Diagnosis:
    """Returns one cause, by the strongest evidence: folder, tokenizer, a proved change, weights, templates, other signs."""
    if (wrong := fault(f.checks)) is not None:
        return wrong
    if f.signs.garbled:
        return Diagnosis(
            "tokenizer",
            f"Most likely the tokenizer is not the target's: the surprise of the prompts is {f.signs.surprise:.0%} of that of tokens "
            "drawn at random.", "the tokenizer files that came with the target",
        )  # fmt: skip
    cured = f.cure if f.cure is not None and f.cure.proved else None
    if cured is not None and not all(step.variant.soft for step in cured.steps[:1]):
        return _cured(cured)
    if f.weighed.fresh:
        said = f"It was hardly trained: what it reads of layers {list(f.weighed.fresh)} is still as random as at the start. {TRAINING}."
        return Diagnosis("training", said)
    if (damaged := _damaged(f.weighed, works(f))) is not None:
        return damaged
    if cured is not None:
        return _cured(cured)
    asks = max((a for a in f.asked if a.helps), key=lambda a: a.change.value or 0.0, default=None)
    if asks is not None:
        said = f"Most likely it was trained with another template: with {asks.template.said}, α is {asks.alpha:.2f} ({asks.change.value:+.2f})."
        return Diagnosis("template", said, asks.template.mend)
    if f.signs.backwards:
        return Diagnosis(
            "swapped",
            "Most likely its Markov tables stand in each other's place: they make the pairs of tokens of these texts likelier "
            "when exchanged.",
            "exchange markov_w1 and markov_w2",
        )  # fmt: skip
    if f.signs.second:
        return Diagnosis(
            "role",
            "Most likely it is a VP-Drafter, for the second role: given two tokens that it drafted correctly, it gets "
            f"{f.signs.further or 0:.2f} times as many further tokens accepted. A drafter trained on masks alone gains nothing by that.",
            "give it as --second-drafter, and a first drafter beside it",
        )  # fmt: skip
    if f.signs.upside_down:
        return Diagnosis(
            "confidence",
            "Its confidence head is inverted: of an accepted and a rejected token, it gives the accepted one the higher confidence only "
            f"{f.signs.ranks:.0%} of the time. Drafts are unchanged, but everything that cuts them by confidence cuts the wrong ones.",
            "the sign of confidence_head.proj",
        )  # fmt: skip
    found = _open(f)
    if f.weighed.constant:
        also = f"{f.weighed.constant[0]} holds one number alone: it was lost, or training never moved it."
        return replace(found, said=f"{found.said} {also}")
    return found


def _open(f: Findings) -> Diagnosis:
    """Returns the diagnosis if no cause is named."""
    fine = works(f)
    first = (
        f"position {f.found[0].number} is accepted {f.found[0].share:.0%} of the time"
        if f.found
        else "too little was accepted"
    )
    if f.cure is not None:
        step = f.cure.steps[0]
        helps = f"{step.variant.said} helps a little (α {step.before or 0:.2f} → {step.alpha or 0:.2f}) and does not explain it"
        said = f"{'No fault was proved' if fine else 'Unknown'}: {first}; {helps}."
        return Diagnosis("little", said if fine else f"{said} {TRAINING}.")
    if f.shape == "unclear":
        return Diagnosis("unknown", "Unknown: too few steps were seen. Give about 30 prompts.")
    if f.bits is not None:
        said = (
            f"No fault of the drafter was found; {first}. To be ruled out: the target's weights were rounded to {f.bits} bits, which "
            "is harmless if the drafter was trained with the same weights, and otherwise costs some acceptance."
        )
        return Diagnosis(
            "rounding", said if fine else f"{said} {TRAINING}.", "run it with the target that it was trained with"
        )
    if fine:
        return Diagnosis("none", f"No fault found: {first}, and nothing that was changed helps.")
    return Diagnosis(
        "unknown", f"Unknown: {first}, nothing that was changed helps, and the folder is in order. {TRAINING}."
    )


def _cured(cure: Cure) -> Diagnosis:
    steps, kind = cure.steps, cure.steps[0].variant.kind
    words = WORDS[kind]
    if (part := steps[0].variant.without) is not None:
        words = f"the weights of {part} are damaged or were never trained"
    if len(steps) > 1:
        words += f", and {WORDS[steps[1].variant.kind]}"
    done = ", then ".join(step.variant.said for step in steps)
    gain = f"α rises from {alpha(cure.before):.2f} to {alpha(cure.after):.2f}"
    mends = [step.variant.mend or FETCH for step in steps]
    return Diagnosis(
        CAUSES.get(kind, kind), f"Most likely {words}: with {done}, {gain}.", "; ".join(dict.fromkeys(mends))
    )


def works(f: Findings) -> bool:
    """Returns whether it is accepted as by a trained drafter, without any change."""
    return f.shape == "smooth" and bool(f.found) and f.found[0].share >= LOW


def _damaged(w: Weighed, works: bool) -> Diagnosis | None:
    """Returns damage of the weights that no change can undo.

    works: whether it is accepted as by a trained drafter, so that what may also come of training is none.
    """
    if w.random:
        names = ", ".join(map(str, w.random))
        plural = "s" if len(w.random) > 1 else ""
        return Diagnosis("weights", f"Most likely the weights of layer{plural} {names} are damaged or were never trained: none of its matrices differs from random numbers of their size.", FETCH)  # fmt: skip
    for damaged, what in ((w.empty, "holds only zeros"), (w.clipped, "was clipped: many of its entries are as large as the largest one")):  # fmt: skip
        if damaged:
            return Diagnosis("weights", f"Most likely its weights were damaged: {damaged[0]} {what}.", FETCH)
    if w.copies:
        one, other = w.copies[0]
        return Diagnosis(
            "weights", f"Most likely its weights were damaged: layer {other} is a copy of layer {one}.", FETCH
        )
    if w.odd and not works:
        name = w.odd[0]
        said = f"Most likely some weights are damaged or were never trained: {name} does not differ from random numbers of its size, and that of every other layer does."
        return Diagnosis("weights", said, FETCH)
    if w.constant and not works:
        said = f"Most likely the weights of its norms were lost, or training never moved them: {w.constant[0]} holds one number alone"
        others = len(w.constant) - 1
        return Diagnosis("norms", f"{said}{f', and so do {others} others' if others else ''}. Training in bfloat16 alone rounds small updates of a 1 away.", FETCH)  # fmt: skip
    return None
