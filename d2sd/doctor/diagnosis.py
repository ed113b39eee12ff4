"""Says what the findings of an examination prove. A cause is named only if undoing it, by a change or by an exchange of parts,
restores acceptance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from d2sd.calibration.replays import LOW, DraftingRun
from d2sd.calibration.text import count, decimal, with_interval
from d2sd.doctor.evidence import UNRELATED
from d2sd.doctor.exchange import RESTORED, Exchange, Reference, is_restored
from d2sd.doctor.findings import Diagnosis, Findings
from d2sd.doctor.probes import Trial
from d2sd.folders.checks import Check

MANY_UNUSABLE = 1 / 3  # share of unusable texts that the main finding mentions
# Limits for proving a change if neither a reference nor an expected α is given:
TIMES = 2.0  # factor by which accepted tokens must rise
RIVAL = 0.9  # share of the best change's α that no change of another kind may reach
SURE = 0.2  # expected − actual acceptance, from which a drafter counts as sure and wrong
MOST_NAMES = 4  # largest number of tensors or keys that a sentence lists
MOST_PARTS = 0.5  # if more than this share of the parts must be exchanged, the reference counts as another training
ASK = "What it should reach is not known: give d2sd doctor --expect or --reference"


def folder_fault(checks: Sequence[Check]) -> Diagnosis | None:
    wrong = next((c for c in checks if c.state == "fault"), None)
    if wrong is None:
        return None
    changes = () if wrong.mend is None else (wrong,)
    return Diagnosis(wrong.name, f"The folder has a fault: {wrong.finding}.", wrong.fix, changes)


def diagnose(findings: Findings) -> Diagnosis:
    """Returns the main finding, and the cause if one is proved.

    A cause is a fault of the folder, parts that differ from the reference, or a change that undoes the fault.
    """
    if fault := folder_fault(findings.checks):
        return fault
    run, failed = findings.run, findings.failed
    if failed or not run:
        reason = f": {failed.part} failed ({failed.reason})" if failed else ""
        return Diagnosis("failed", f"The examination ended early{reason}.")
    swap = findings.reference and findings.reference.exchange
    if swap and swap.restored and swap.share <= MOST_PARTS and findings.below:
        return _exchanged(findings, run, swap)
    if trial := proved(findings, run):
        variant = trial.variant
        now = f"α is {trial.run.alpha:.2f} instead of {run.alpha:.2f}"
        sentence = f"With {variant.description}, {now}.{_compared_with_expectation(findings, run)}"
        return Diagnosis(variant.kind, sentence, variant.fix, (variant,) * variant.writable, trial.run.alpha)
    cause = "below" if findings.below else "unknown" if run.shape[0] == "unclear" else "none"
    sentence = f"α is {with_interval(run.estimate, decimal)}{_shape(run)}.{_texts(findings)}{_believed(run)}{_best(findings)}{_compared_with_expectation(findings, run)}"
    return Diagnosis(cause, sentence)


def proved(findings: Findings, run: DraftingRun) -> Trial | None:
    """Returns the change that is proved to undo the fault; None if there is none.

    If it is known what α should be (``Asked.expected`` or a reference), α must be below it, and must reach it with the change.

    Otherwise, all of the following must be true:

    * The change undoes a common mistake.
    * With it, position 1 is accepted as often as in trained drafters, and acceptance decays smoothly.
    * It at least doubles the accepted tokens.
    * No change of another kind comes near, and no further change helps in addition.
    """
    best = next(iter(findings.helping), None)
    if not best:
        return None
    if findings.reference or findings.asked.expected:
        return best if findings.below and _reaches(findings, best) else None
    after = best.run
    trained = after.first >= LOW and after.shape[0] == "smooth"
    others = (t.run.alpha for t in findings.trials if t.variant.kind != best.variant.kind)
    alone = max(others, default=0.0) < RIVAL * after.alpha
    doubled = after.alpha - 1 >= TIMES * (run.alpha - 1)
    return best if best.variant.common and trained and doubled and alone and not findings.further else None


def _reaches(findings: Findings, trial: Trial) -> bool:
    if findings.reference:
        return is_restored(trial.run, findings.reference.run)
    level = findings.asked.expected or 0.0
    return trial.run.alpha >= RESTORED * level and not trial.run.below(level)


def _exchanged(findings: Findings, run: DraftingRun, swap: Exchange) -> Diagnosis:
    assert findings.reference
    held = {tensor for part in swap.parts for tensor in part.tensors}
    outside = [name for name in findings.reference.tensors if name not in held]
    how = {relation for name, relation in findings.reference.tensors.items() if name in held}
    said = f" ({how.pop()})" if len(how) == 1 else ""
    others = f" {_listed(outside)} too, with little effect on α." if outside else ""
    sentence = (
        f"What lowers α is {swap.words}{said}: with these parts of the reference, α is {swap.run.alpha:.2f} instead of "
        f"{run.alpha:.2f}; the reference reaches {findings.reference.run.alpha:.2f}.{others}"
    )
    return Diagnosis("exchange", sentence, swap.variant.fix, (swap.variant,), swap.run.alpha)


def _listed(tensors: Sequence[str]) -> str:
    names = ", ".join(tensors) if len(tensors) <= MOST_NAMES else f"{len(tensors)} tensors"
    return f"{names} {'differs' if len(tensors) == 1 else 'differ'}"


def _shape(run: DraftingRun) -> str:
    kind, cliff = run.shape
    if kind == "unclear":
        return ": the run has too few steps to judge; use about 30 prompts"
    first = f"position {run.positions[0].number} is accepted {run.first:.0%} of the time"
    if kind == "low":
        return f": low from the start on ({first})"
    return f": {first}, but acceptance drops at position {cliff}" if cliff else f": {first}, with a smooth decay"


def _texts(findings: Findings) -> str:
    bad, total = findings.unusable
    if (findings.surprise or 0.0) >= UNRELATED:
        return f" The target's own loss on the prompts is {findings.surprise:.0%} of a uniform guess's: look at its tokenizer and weights first."
    others = "".join(f" With {t.template}, α is {t.alpha:.2f}, on other texts, {t.unusable} of them like this." for t in findings.templates)  # fmt: skip
    if total and bad >= MANY_UNUSABLE * total:
        return f" The texts of {bad} of {total} prompts are empty or repeat themselves: look at the template first.{others}"
    return (
        others.replace(" like this", " empty or repetitive")
        if any((t.change.low or 0.0) > 0 for t in findings.templates)
        else ""
    )


def _believed(run: DraftingRun) -> str:
    """Returns a sentence about the acceptance that the drafter itself expected; "" unless acceptance is low."""
    if not run.belief or run.shape[0] != "low":
        return ""
    expected, accepted = run.belief
    means = "; it is unsure itself, like a weak or badly damaged drafter" if expected < LOW else ""
    if expected - accepted >= SURE:
        means = "; it is sure and wrong, as if something differs from its training"
    return f" The drafter expected {expected:.0%} of its tokens to be accepted, {accepted:.0%} were{means}."


def _best(findings: Findings) -> str:
    if not findings.trials:
        return ""
    tried = f" Of {count(len(findings.trials), 'change')} tried,"
    if not findings.helping:
        return f"{tried} none raises α clearly."
    best, more = findings.helping[0], findings.further
    further = f"; with {more.variant.description} too, {more.run.alpha:.2f}" if more else ""
    return f"{tried} {best.variant.description} is the best: {best.run.alpha:.2f}{further}."


def _compared_with_expectation(findings: Findings, run: DraftingRun) -> str:
    expected, below = findings.asked.expected, "" if findings.below else "not "
    if findings.reference:
        return _compared_with_reference(run, findings.reference)
    if expected:
        return f" It is {below}significantly below the expected {expected:.2f}."
    return f" {ASK}."


def _compared_with_reference(run: DraftingRun, reference: Reference) -> str:
    theirs, swap = reference.run.alpha, reference.exchange
    if not reference.better:
        although = f", although {_listed(list(reference.tensors))}" if reference.tensors else ""
        low = "; as both are low, look at the target, its tokenizer and the template"
        return f" The reference drafts no better ({theirs:.2f}){although}{low * (run.shape[0] == 'low')}."
    said = f" The reference reaches {theirs:.2f} on the same texts"
    if not reference.same_form:
        keys = ", ".join(
            f"{key} ({value[:40]}; reference: {good[:40]})" for key, value, good in reference.keys[:MOST_NAMES]
        )
        return f"{said}; it is of another kind or size, and their configs differ in {keys or 'nothing'}."
    if not swap or not swap.parts:
        return f"{said}; no exchange of its parts explains the difference."
    if swap.share <= MOST_PARTS:
        return f"{said}; with its {swap.words}, α is {swap.run.alpha:.2f}."
    (how, same), total = Counter(reference.tensors.values()).most_common(1)[0], len(reference.tensors)
    alike = f" {same} of the {total} tensors that differ: {how}." if 2 * same > total else ""
    return f"{said}; more than half of all parts must come from it ({swap.words}): another training, or a fault of all of them.{alike}"
