"""Derives the likely cause from the findings of an examination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from d2sd.doctor.changes import Kind
from d2sd.doctor.checks import Check
from d2sd.doctor.evidence import FETCH, UNRELATED, WeightFault
from d2sd.doctor.findings import Diagnosis, DraftingRun, Findings, Repair

MANY_UNUSABLE = 1 / 3  # share of unusable texts from which a missing template is the diagnosis
DAMAGED = 0.15  # acceptance at position 1 that even little training exceeds

TRAINING = (
    "More training on text that the target generated usually helps. For comparison: acceptance at position 1 is about 0.4 for the "
    "bundled SmolLM2 drafter after 670 training steps, and about 0.8 for the bundled tiny drafter after 25,200 steps"
)
SENTENCES: dict[Kind, str] = {
    "taps": "it reads other target layers than in training, or the columns of fc are in another order",
    "mask": "its mask token is not the one from training",
    "rope": "its rotary embedding is not the one from training",
    "window": "its attention window is not the one from training",
    "causal": "the attention mask within its block is not the one from training",
    "reads": "its rows predict another position than in training (fill or next)",
    "rows": "its block has another number of rows than in training",
    "layer": "the weights of a layer are damaged or were never trained",
    "sublayer": "some weights of a layer are damaged or were never trained",
    "rotary": "the rows of its q or k projections are not in the order that the rotary embedding expects",
    "swapped": "two of its weights are swapped",
    "transposed": "some of its weights are transposed",
    "norms": "the weights of its norms are off by 1",
    "scale": "some of its weights have the wrong scale",
    "order": "its layers are not in the order from training",
    "tables": "one of its tables (embedding, LM head, Markov head) is not the one from training",
    "eps": "its rms_norm_eps is not the one from training",
    "map": "its draft vocabulary map (d2t) leads to other tokens than in training",
    "head_dim": "its attention heads have another size than in training (head_dim)",
    "residual": "its residual stream starts from another tensor than in training (norm_before_residual)",
    "output": "deeper levels read another hidden state than in training (norm_output)",
}
CAUSES: dict[Kind, str] = {"layer": "weights", "sublayer": "weights"}  # for other kinds, the cause is the kind itself


def folder_fault(checks: Sequence[Check]) -> Diagnosis | None:
    wrong = next((c for c in checks if c.state == "fault"), None)
    if wrong is None:
        return None
    changes = () if wrong.mend is None else (wrong.mend,)
    return Diagnosis(wrong.kind, f"The folder has a fault: {wrong.finding}.", wrong.fix, changes)


def not_finished(e: Findings) -> Diagnosis:
    failure = e.failed
    assert failure is not None
    return Diagnosis("failed", f"The examination ended early: {failure.part} failed ({failure.reason}).")


def diagnose(e: Findings) -> Diagnosis:
    """Returns the cause with the strongest evidence.

    Order of the causes: faults of the folder, the target's texts (tokenizer, missing template), certain damage of the weights, a
    confirmed specific change, little training, uncertain damage, a confirmed unspecific change, another template, low acceptance.
    """
    if (fault := folder_fault(e.checks)) is not None:
        return fault
    if e.failed is not None or e.run is None:  # without a complete run, acceptance is not known to be low
        return proved_by_weights(e) or not_finished(e)
    if (fault := next(_faults(e, e.run), None)) is not None:
        return fault
    if e.below is not None:
        advice = "" if e.reference else " To see what differs, pass a known good drafter as --reference."
        return Diagnosis("below", f"α is {e.run.alpha:.2f}, significantly below {e.below}, and no change that was tried explains the difference.{_best_change(e)}{advice}")  # fmt: skip
    return _without_fault(e, e.run)


def _best_change(e: Findings) -> str:
    """Returns sentences about the best changes, which do not fully explain low acceptance; empty if no change helps."""
    if e.repair is None:
        return ""
    changes = ", then ".join(step.variant.description for step in e.repair.steps)
    said = f" The best change found is {changes}: {_rise(e.repair)}"
    if e.works:
        return f"{said}. This gain does not prove the cause."
    others = "" if e.repair.complete is not False else ", and other changes still help"
    return f"{said}{others}. Something else is wrong too, so the cause is still unknown."


def _rise(repair: Repair) -> str:
    known = "" if repair.level is None else f" (known to be possible: {repair.level:.2f})"
    return f"α rises from {repair.before.alpha:.2f} to {repair.after.alpha:.2f}{known}"


def _faults(e: Findings, run: DraftingRun) -> Iterator[Diagnosis]:
    """Yields the faults that the findings point to, strongest evidence first."""
    repair = e.repair if e.repair is not None and e.repair.confirmed else None
    yield from filter(None, (proved_by_texts(e), proved_by_weights(e)))
    if repair is not None and not repair.steps[0].variant.unspecific:
        yield _repaired(repair)
    if e.little_trained and not e.works:
        spread, norm = e.moved or (1.0, 0.0)
        moved = (
            f"the standard deviation of fc is only {spread:.2f} times its initial value (median over taps), and the weights of "
            f"hidden_norm differ from 1 by only {norm:.2f} (median)"
        )
        yield Diagnosis("training", f"It was hardly trained: {moved}. {TRAINING}.")
    if not e.works:
        yield from map(_of_weights, e.weights)
    if repair is not None:
        yield _repaired(repair)
    trials = [trial for trial in e.templates if trial.helps]
    if trials:
        best = max(trials, key=lambda trial: trial.change.value or 0.0)
        yield Diagnosis(
            "template",
            f"Most likely it was trained with another template: with {best.template.description}, α is {best.alpha:.2f} "
            f"(a change of {best.change.value:+.2f}).",
            best.template.fix,
        )
    if run.shape[0] != "unclear" and run.first < DAMAGED:
        yield Diagnosis(
            "weights",
            "Most likely its weights are damaged, are in an order that was not tried, or were trained for another target. Position "
            f"{run.positions[0].number} is accepted {run.first:.0%} of the time, less than after a few minutes of training, and no "
            f"change that was tried helps enough.{_best_change(e)}",
            FETCH,
        )


def proved_by_weights(e: Findings) -> Diagnosis | None:
    """Returns damage that the weights alone prove, regardless of acceptance."""
    return next((_of_weights(fault) for fault in e.weights if fault.certain), None)


def _of_weights(fault: WeightFault) -> Diagnosis:
    return Diagnosis(fault.cause, fault.sentence, fault.fix)


def proved_by_texts(e: Findings) -> Diagnosis | None:
    """Returns the cause that the target's texts alone prove, regardless of acceptance."""
    surprise = e.surprise
    if surprise is not None and surprise >= UNRELATED:
        return Diagnosis(
            "tokenizer",
            "Most likely the tokenizer does not belong to the target's weights: the target's mean loss on the prompts is "
            f"{surprise:.0%} of log V, the loss of a uniform guess.",
            "use the tokenizer files and the weights that were published with the target",
        )
    bad, count = e.unusable
    trials = [trial for trial in e.templates if 2 * trial.unusable <= bad]
    if bad and bad >= MANY_UNUSABLE * count and trials and not e.asked.chat:
        best = min(trials, key=lambda trial: trial.unusable)
        return Diagnosis(
            "template",
            f"Most likely the prompts lack the template: without it, the texts of {bad} of {count} prompts are empty or repeat themselves. "
            f"With {best.template.description}, this happens to {best.unusable} of {count} prompts, and α is {best.alpha:.2f}.",
            best.template.fix,
        )
    return None


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
    fixes = dict.fromkeys(v.fix or FETCH for v in variants)
    cause, sentence = CAUSES.get(first.kind, first.kind), f"Most likely {words}: with {changes}, {_rise(repair)}."
    return Diagnosis(cause, sentence, "; ".join(fixes), tuple(variants) if all(v.writable for v in variants) else ())


def _without_fault(e: Findings, run: DraftingRun) -> Diagnosis:
    positions = run.positions
    first = (
        f"position {positions[0].number} is accepted {positions[0].share:.0%} of the time"
        if positions
        else "too little was accepted"
    )
    training = "" if e.works else f" {TRAINING}."
    if e.repair is not None:
        sentence = f"{'No fault was proved' if e.works else 'Unknown'}: {first}.{_best_change(e)}{training}"
        return Diagnosis("little", sentence)
    if run.shape[0] == "unclear":
        return Diagnosis("unknown", "Unknown: the run has too few steps. Use about 30 prompts.")
    if e.bits is not None:
        harmless = "which is harmless if the drafter was trained with these weights; otherwise acceptance is lower"
        sentence = f"No fault of the drafter was found: {first}. The target is quantised to {e.bits} bits, {harmless}.{training}"
        return Diagnosis("rounding", sentence)
    if e.works:
        return Diagnosis("none", f"No fault found: {first}, and no change that was tried helps.")
    return Diagnosis(
        "unknown", f"Unknown: {first}, no change that was tried helps, and the folder has no fault.{training}"
    )
