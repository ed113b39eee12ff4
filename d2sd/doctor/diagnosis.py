"""The likely cause in one sentence, from checks, shape, probes and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from d2sd.doctor.folder import Check
from d2sd.doctor.probes import Tried
from d2sd.doctor.shapes import LOW, Position, Shape
from d2sd.doctor.templates import Asked
from d2sd.doctor.variants import Kind

TRAINING = (
    "What usually helps then is more training on text that the target wrote itself: of the bundled drafters, SmolLM2's accepts "
    "about 0.4 at position 1 after 670 steps, and that of tiny about 0.8 after 25,200"
)
WORDS: dict[Kind, str] = {
    "taps": "it reads other target layers than it was trained with",
    "mask": "its mask token is another one than in training",
    "rope": "its rotary embedding is another one than in training",
    "window": "its attention window is another one than in training",
    "causal": "rows of its block see each other in another way than in training",
    "reads": "its rows are read as if about another position than in training",
    "rows": "its block has another number of rows than in training",
    "dtype": "its weights lose too much in this number format",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is likely wrong.

    cause: a variant's kind, or folder, tensors, target, template, weights, training; rounding where that alone is to be ruled
    out; unknown; none.
    said: the cause in one sentence.
    mend: the line to change, None where none is known.
    """

    cause: str
    said: str
    mend: str | None = None

    @property
    def accuses(self) -> bool:
        """Whether it names a fault."""
        return self.cause not in ("unknown", "none", "rounding")


def fault(checks: Sequence[Check]) -> Diagnosis | None:
    """What the folder alone says is wrong."""
    wrong = next((c for c in checks if c.state == "fault"), None)
    return None if wrong is None else Diagnosis(wrong.kind, f"The folder is at fault: {wrong.said}.", wrong.mend)


def best(tried: Sequence[Tried]) -> Tried | None:
    """The change that helps most, of those that surely help."""
    return max((t for t in tried if t.helps), key=lambda t: t.change.value or 0.0, default=None)


def diagnose(
    checks: Sequence[Check], found: Sequence[Position], shape: Shape, tried: Sequence[Tried], asked: Sequence[Asked],
    random: Sequence[int], fresh: Sequence[int], bits: int | None,
) -> Diagnosis:  # fmt: skip
    """One cause, the strongest evidence first: the folder, what a probe mends, weights, templates, the target's numbers."""
    if (wrong := fault(checks)) is not None:
        return wrong
    if random:
        return _damaged(random, "none of its matrices differs from random numbers of their size")
    helped = best(tried)
    if helped is not None:
        variant = helped.variant
        gain = f"α rises from {helped.before:.2f} to {helped.alpha:.2f}"
        if variant.without is not None:
            return _damaged([variant.without], f"without it {gain}")
        return Diagnosis(variant.kind, f"Most likely {WORDS[variant.kind]}: with {variant.said}, {gain}.", variant.mend)
    asks = max((a for a in asked if a.helps), key=lambda a: a.change.value or 0.0, default=None)
    if asks is not None:
        said = f"Most likely it was trained with another template: with {asks.template.said}, α is {asks.alpha:.2f} ({asks.change.value:+.2f})."
        return Diagnosis("template", said, asks.template.mend)
    if fresh:
        said = f"It was hardly trained: what it reads of layers {list(fresh)} is still as random as at the start. {TRAINING}."
        return Diagnosis("training", said)
    fine = shape == "smooth" and bool(found) and found[0].share >= LOW
    first = (
        f"position {found[0].number} is accepted {found[0].share:.0%} of the time"
        if found
        else "too little was accepted"
    )
    if shape == "unclear":
        return Diagnosis("unknown", "Unknown: too few steps were seen. Give about 30 prompts.")
    if bits is not None:
        said = (
            f"No fault of the drafter was found; {first}. To be ruled out: the target's weights were rounded to {bits} bits, which "
            "is harmless where the drafter was trained with these very weights, and else costs some acceptance."
        )
        return Diagnosis(
            "rounding", said if fine else f"{said} {TRAINING}.", "run it with the target that it was trained with"
        )
    if fine:
        return Diagnosis("none", f"No fault found: {first}, and nothing that was changed helps.")
    return Diagnosis(
        "unknown", f"Unknown: {first}, nothing that was changed helps, and the folder is in order. {TRAINING}."
    )


def _damaged(layers: Sequence[int], why: str) -> Diagnosis:
    names = ", ".join(map(str, layers))
    plural = "s" if len(layers) > 1 else ""
    said = f"Most likely the weights of layer{plural} {names} are damaged or were never trained: {why}."
    return Diagnosis("weights", said, "fetch or convert the weights again")
