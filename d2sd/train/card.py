"""The model card that ``train pair`` writes, and its sentences about a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2sd.train.joint import FEWEST_JUDGED, Temperature
from d2sd.train.plan import FEWEST_TEXTS, TrainingPlan

ALPHA = {"held_out_acceptance_length": "dflash", "d2sd_acceptance_length": "d2sd"}  # measured figure → method
NAMES = {"first": "a DFlash drafter (`dflash/`)", "second": "a VP-Drafter for D²SD (`vp/`)"}
OPTIONS = {"first": "--method dflash ", "second": "--drafter FIRST "}  # options to run a drafter that was trained alone


def try_it(roles: Sequence[str], folder: object) -> str:
    """Returns a command that runs the trained drafters."""
    return f"d2sd generate --model {folder} {OPTIONS[roles[0]] if len(roles) == 1 else ''}--prompt …"


def acceptance(curve: Sequence[Mapping[str, float]], texts: int | None) -> str:
    """Returns a sentence with the newest α of each method, or with the reason why α was not measured.

    curve: the logged rows of training with a measured α.
    texts: number of measured held-out texts; if ``curve`` is empty, the number of held-out texts for which there would be time. None:
        there is no first drafter to measure with.
    """
    if texts is None:
        return "α was not measured: a VP-Drafter drafts after a first drafter, such as dflash/ in a folder given with --start"
    number = f"{texts} held-out text{'' if texts == 1 else 's'}"
    if not curve:
        return f"α was not measured: {number} could be used, but at least {FEWEST_TEXTS} are needed; give more with --held-out"
    alphas = (f"{curve[-1][name]:.2f} with {method}" for name, method in ALPHA.items() if name in curve[-1])
    return f"α {' and '.join(alphas)} on {number}"


def calibrated(temperature: Temperature) -> str:
    """Returns a sentence about the temperature of the first drafter."""
    if temperature.tried is None:
        return f"the logits of `dflash` are unchanged: fitting and judging a temperature needs {2 * FEWEST_JUDGED} responses that were not trained on"
    fitted = f"{temperature.tried:.2f}, fitted on {temperature.fitted} responses that were not trained on"
    if temperature.divisor == 1:
        return f"the logits of `dflash` are unchanged: a temperature of {fitted}, was not clearly better on {temperature.judged} others"
    return f"the logits of `dflash` are divided by a temperature of {fitted}; it was clearly better on {temperature.judged} others"


def card(
    target: str, roles: Sequence[str], facts: Mapping[str, str], curve: Sequence[Mapping[str, float]], plan: TrainingPlan, alpha: str
) -> str:  # fmt: skip
    """Returns the model card.

    roles: the trained drafters.
    facts: rows of its table.
    curve: the logged rows of training with a measured α.
    alpha: sentence about α, as from ``acceptance``.
    """
    table = "".join(f"| {name} | {fact} |\n" for name, fact in facts.items())
    names = " and ".join(NAMES[role] for role in roles)
    text = f"""# Drafters for {target}

{names[0].upper()}{names[1:]}, trained by `d2sd train pair`. Run with `{try_it(roles, "FOLDER")}`.

| | |
| --- | --- |
{table}
{alpha.replace("dflash", "`dflash`").replace("d2sd", "`d2sd`")}."""
    if not curve:
        return f"{text}\n"
    measured = [name for name in ALPHA if name in curve[-1]]
    heads = ["step", *(f"α `{ALPHA[name]}`" for name in measured), "draft length in training"]
    lines = [heads, ["---"] * len(heads)]
    lines += [[str(int(row["step"])), *(f"{row[name]:.2f}" for name in (*measured, "draft_length"))] for row in curve]
    steps = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"""{text} α is the number of committed tokens per step, at temperature 0, on the
first {plan.tokens_held_out} tokens of answers to prompts that were not trained on. Unless held-out prompts were given, these prompts resemble the
training prompts: expect a lower α on other kinds of text.

{steps}"""
