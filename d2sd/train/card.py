"""The model card that ``train pair`` writes, and its sentences about a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2sd.train.joint import FEWEST_JUDGED, Temperature
from d2sd.train.plan import FEWEST_TEXTS, TrainingPlan

ALPHA = {"held_out_acceptance_length": "dflash", "d2sd_acceptance_length": "d2sd"}  # measured figure → method


def acceptance(curve: Sequence[Mapping[str, float]], texts: int) -> str:
    """Returns a sentence with the newest α of each method, or with the reason why α was not measured.

    curve: the logged rows of training with a measured α.
    texts: number of measured held-out texts; if ``curve`` is empty, the number of held-out texts for which there would be time.
    """
    number = f"{texts} held-out text{'' if texts == 1 else 's'}"
    if not curve:
        return f"α was not measured: it needs a trained DFlash drafter and {FEWEST_TEXTS} held-out texts, but {number} could be used"
    alphas = (f"{curve[-1][name]:.2f} with {method}" for name, method in ALPHA.items() if name in curve[-1])
    return f"α {' and '.join(alphas)} on {number}"


def calibrated(temperature: Temperature) -> str:
    """Returns a sentence about the temperature of the first drafter."""
    if temperature.tried is None:
        return f"1: fitting and judging it needs {2 * FEWEST_JUDGED} responses that were not trained on"
    better = (
        "the logits of `dflash` are divided by it, since it was"
        if temperature.divisor != 1
        else "not used, since it was not"
    )
    return f"{temperature.tried:.2f}, fitted on {temperature.fitted} responses that were not trained on; {better} clearly better on {temperature.judged} others"


def card(target: object, facts: Mapping[str, str], curve: Sequence[Mapping[str, float]], plan: TrainingPlan) -> str:
    """Returns the model card.

    facts: rows of its table.
    curve: the logged rows of training with a measured α.
    """
    table = "".join(f"| {name} | {fact} |\n" for name, fact in facts.items())
    text = f"""# Drafters for {target}

Trained by `d2sd train pair`.

| | |
| --- | --- |
{table}
{acceptance(curve, plan.held_out).replace("dflash", "`dflash`").replace("d2sd", "`d2sd`")}."""
    if not curve:
        return f"{text}\n"
    measured = [name for name in ALPHA if name in curve[-1]]
    rows = [
        ["step", *(f"α `{ALPHA[name]}`" for name in measured), "draft length in training"],
        ["---"] * (len(measured) + 2),
    ]
    rows += [[f"{row['step']:.0f}", *(f"{row[name]:.2f}" for name in (*measured, "draft_length"))] for row in curve]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"""{text} α is the number of committed tokens per step, at temperature 0, on the
first {plan.tokens_held_out} tokens of answers to prompts that were not trained on. Prompts unlike the training prompts have a lower α.

{table}"""
