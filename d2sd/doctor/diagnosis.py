"""The cause that the findings of an examination point to, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from d2sd.doctor.changes import FolderEdit, Kind
from d2sd.doctor.checks import Check
from d2sd.doctor.evidence import INVERTED, MANY_EMPTY, UNRELATED, VP_RATIO, WeightFindings
from d2sd.doctor.findings import LITTLE_MOVED, Diagnosis, Examination, Repair
from d2sd.doctor.redraft import alpha
from d2sd.doctor.reference import Reference

MOST_NAMED = 4  # differences from a reference in a sentence
MANY_UNUSABLE = 1 / 3  # of the texts, from which on the template is tried first
DAMAGED = 0.15  # share accepted at position 1 below which a drafter that was trained at all has damaged weights
COSTLESS = 0.05  # of the tokens that a draft adds: less is lost without a layer that does nothing
FEW_BITS = 3  # of a drafter's weights: too few for one that was not trained so
VP_LEVEL = (
    0.8  # share of correct next tokens of a trained VP-Drafter that is shown two: damaged drafters gain by them too
)

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
    "eps": "its norms add another number to the variance than in training (rms_norm_eps)",
    "map": "its draft vocabulary (d2t) maps to other tokens than in training",
    "head_dim": "its attention is split into heads of another size than in training",
    "residual": "its residual stream starts from another tensor than in training (norm_before_residual)",
    "output": "deeper levels read another hidden state than in training (norm_output)",
}
CAUSES: dict[Kind, str] = {"layer": "weights", "sublayer": "weights"}  # of the others the kind itself
FETCH = "fetch or convert the weights again"


def folder_fault(checks: Sequence[Check]) -> Diagnosis | None:
    """Returns the fault found in the folder alone."""
    wrong = next((c for c in checks if c.state == "fault"), None)
    if wrong is None:
        return None
    changes = () if wrong.mend is None else (wrong.mend,)
    return Diagnosis(wrong.kind, f"The folder has a fault: {wrong.finding}.", wrong.fix, changes)


def not_finished(e: Examination) -> Diagnosis:
    """Returns what is said of an examination that an error ended."""
    failure = e.failed
    assert failure is not None
    return Diagnosis("failed", f"Not examined to the end: {failure.part} failed ({failure.reason}).")


def diagnose(e: Examination) -> Diagnosis:
    """Returns one cause, by the strongest evidence: folder, tokenizer, a confirmed change, weights, templates, other findings."""
    faults = _faults(e) if e.failed is None else proved_by_weights(e)  # what was not run is not known to be low
    named = folder_fault(e.checks) or next(faults, None)
    if named is not None:
        return named
    if e.failed is not None:
        return not_finished(e)
    if e.below is not None:
        return Diagnosis("below", f"α is {alpha(e.walks):.2f}, significantly below {e.below}, and nothing that was tried explains it.{_best_change(e)}{_differences(e.reference)}")  # fmt: skip
    found = _without_fault(e)
    if e.weights.constant_norms:
        also = f"{e.weights.constant_norms[0]} holds one number alone: it was lost, or training never moved it."
        sentence = found.sentence.replace("No fault found", "No fault was proved")
        return replace(found, sentence=f"{sentence} {also}")
    return found


def _best_change(e: Examination) -> str:
    """What the best changes that were found brought, as a sentence; empty if nothing helps.

    They are not the cause, or not the only one.
    """
    if e.repair is None:
        return ""
    changes = ", then ".join(step.variant.description for step in e.repair.steps)
    of = "" if e.level is None else f" of the {e.level[0]:.2f} {e.level[1]}"
    rise = f"α rises from {alpha(e.repair.before):.2f} to {alpha(e.repair.after):.2f}{of}"
    if e.works:
        return f" The best change found is {changes}: {rise}, which does not show that it is the cause."
    others = "" if e.repair.complete is not False else ", and other changes still help"
    return f" The best change found is {changes}: {rise}{others}. More is wrong, so it is not taken for the cause."


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
    if w.empty_parts and not e.works:
        yield Diagnosis("weights", _empty(w.empty_parts), FETCH)
    if repair is not None:
        yield _repaired(repair)
    if w.borrowed_head == "head" and not e.works:
        yield Diagnosis("tables", f"Most likely its lm_head was lost or never trained: it is the target's own, which is its embedding too, {HEAD}.", FETCH)  # fmt: skip
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
            f"{e.first:.0%} of the time, less than after a few minutes of training, and no change that was tried helps enough.{_best_change(e)} {_where(e)}",
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
    if w.unscaled:
        sentence = f"Most likely its weights are numbers of 8 bits whose scales were dropped: the largest entry of {w.unscaled[0]} and {len(w.unscaled) - 1} other matrices of its layers is the largest number of such a format."
        yield Diagnosis(
            "weights", sentence, "the weights times their scales, which lie beside them where they were quantised"
        )
    for name, largest in w.huge_matrices:
        yield Diagnosis("weights", f"Most likely its weights were damaged: {name} has an entry of {largest:.3g}, far larger than all others, as after a flipped bit.", FETCH)  # fmt: skip
    many = [part for part in w.empty_parts if part[2] >= MANY_EMPTY]
    if many:
        yield Diagnosis("weights", _empty(many), FETCH)
    if w.borrowed_head == "embedding":
        yield Diagnosis("tables", f"Most likely its lm_head was replaced: it is the target's embedding, {HEAD}.", FETCH)
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


HEAD = "and not a head that was trained"


def _empty(parts: Sequence[tuple[str, str, float]]) -> str:
    name, words, share = max(parts, key=lambda part: part[2])
    also = f", and so do rows or columns of {len(parts) - 1} other matrices" if len(parts) > 1 else ""
    return f"Most likely its weights were damaged: {share:.0%} {words} of {name} hold only zeros{also}."


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
    of = "" if repair.level is None else f", of the {repair.level:.2f} that are known to be possible"
    rise = f"α rises from {alpha(repair.before):.2f} to {alpha(repair.after):.2f}{of}"
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
        sentence = f"{'No fault was proved' if e.works else 'Unknown'}: {first}.{_best_change(e)}{training}"
        return Diagnosis("little", sentence)
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
