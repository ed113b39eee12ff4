"""What texts that drafters were not trained on show: α, the temperature of the first drafter, and the model card.

α is measured during training, by letting the drafters draft again over the target's answers to held-out prompts.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d2sd.calibration.alternatives import GRID, fit_temperature, likelihoods
from d2sd.calibration.resampling import Resampler
from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError, require
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.replay.recorded import Replay, Text
from d2sd.train.block_drafters import DrafterObjective
from d2sd.train.features import Features
from d2sd.train.files import read_jsonl
from d2sd.train.plan import FEWEST_TEXTS, TrainingPlan
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import respond_to

HELD_OUT_TOKENS = 128  # maximum tokens of an answer
FEWEST_JUDGED = 30  # minimum number of responses to fit a temperature on, and also to judge it on
ALPHA = {"held_out_acceptance_length": "dflash", "d2sd_acceptance_length": "d2sd"}  # measured figure → method


class HeldOut:
    """The target's greedy answers to held-out prompts. During training, drafters are measured by replaying them over these answers.

    lengths: number of tokens of each answer.
    """

    def __init__(self, target: Target, texts: Iterable[tuple[Sequence[int], Sequence[int]]]):
        """texts: token ids of each prompt and of the target's answer.

        An answer is left out if it has no token to draft. It is also left out if the target would write another one without
        batching, since batched passes round differently.
        """
        self._target = target
        engine, given = Engine(Models(target), passes="eager"), [Text((*p, *answer), len(p)) for p, answer in texts]
        self._texts: list[Text] = []
        for text in given:
            with suppress(InputError):
                Replay(engine, text)
                self._texts.append(text)
        self.lengths = [len(text.ids) - text.start for text in self._texts]
        if left_out := len(given) - len(self._texts):
            print(
                f"Held-out prompts: {left_out} of {len(given)} answers cannot be used: empty, or different without batching.",
                file=sys.stderr,
            )

    @classmethod
    def read(cls, target: Target, path: Path, chat: bool) -> HeldOut:
        """Lets the target answer held-out prompts. Returns the answers.

        path: file of prompts, JSON lines with ``prompt``.
        chat: whether to put prompts into the chat template.

        Raises ``InputError`` if the file cannot be read, or if no answer can be used.
        """
        engine, config = Engine(Models(target)), DecodeConfig("autoregressive", HELD_OUT_TOKENS, chat=chat)
        prompts = [engine.encode(row["prompt"], config) for row in read_jsonl(path, "prompt")]
        answers = respond_to(target, prompts, RegenerateConfig(max_new_tokens=HELD_OUT_TOKENS))
        held_out = cls(target, zip(prompts, answers, strict=True))
        require(
            held_out.lengths,
            "none of the target's answers to the held-out prompts can be used: they are empty, or different without batching; "
            "a chat model needs --chat",
        )
        return held_out

    def measure(
        self, method: str, most: int | None = None, tokens: int | None = None, **drafters: Any
    ) -> dict[str, float]:
        """Measures drafters during training, with their weights rounded to bfloat16 as in saved drafters. Returns these figures:

        held_out_acceptance_length: α, the number of tokens written per step.
        held_out_draft_length: mean number of accepted drafted tokens per step, without the last step of each text.
        held_out_first_right: share of steps with an accepted drafted token, without the last step of each text.

        method: ``eagle3``, ``dflash`` (also for a VP-Drafter that drafts alone), or a method with two drafters.
        most: measure only the first ``most`` texts; None: all texts.
        tokens: maximum tokens of each text; None: whole texts.
        drafters: the method's drafters, under the names ``eagle3``, or ``first`` and ``second``.
        """
        saved = {
            name: copy.deepcopy(drafter).bfloat16().to(self._target.dtype).eval().requires_grad_(False)
            for name, drafter in drafters.items()
        }
        engine = Engine(Models(self._target, **saved), passes="eager")
        # not flashinfer: compiling its kernels takes a minute of the training time
        backend = "cascade" if self._target.device.type == "cuda" else "auto"
        config = DecodeConfig(method, HELD_OUT_TOKENS, inspect=False, backend=backend)
        if method == "d2sd":  # a short block has fewer prefixes to re-draft from
            config = replace(config, num_branches=min(config.num_branches, drafters["first"].block_size - 1))
        config = engine.resolve(config)
        steps = [Replay(engine, text, tokens).run(config).committed for text in self._texts[:most]]
        accepted = [count - 1 for text in steps for count in text[:-1]]
        return {
            "held_out_acceptance_length": sum(map(sum, steps)) / sum(map(len, steps)),
            "held_out_draft_length": sum(accepted) / max(1, len(accepted)),
            "held_out_first_right": sum(count > 0 for count in accepted) / max(1, len(accepted)),
        }


# Temperature of the first drafter.


@dataclass(frozen=True, slots=True)
class Temperature:
    """The temperature by which the first drafter's logits are divided.

    divisor: the temperature to apply; 1 leaves the logits unchanged.
    fitted, judged: numbers of responses used for fitting and for judging; the two sets are disjoint.
    tried: the fitted temperature; None if there were too few responses.
    """

    divisor: float
    fitted: int = 0
    judged: int = 0
    tried: float | None = None


def held_out_temperature(objective: DrafterObjective, features: Features, index: Tensor) -> Temperature:
    """Fits a temperature for the first drafter.

    It is fitted on every second response and judged on the others, by the gain in the log-likelihood of outcomes. If the bootstrap
    interval of this gain (over responses) lies above 0, ``divisor`` is the fitted temperature, else 1.

    objective: the first drafter's.
    index: indices of responses that were not trained on.
    """
    if len(index) < 2 * FEWEST_JUDGED:
        return Temperature(1.0)
    generator, outcomes = torch.Generator().manual_seed(0), list[tuple[np.ndarray, np.ndarray]]()
    for part in index.split(1):
        batch = features.batch(objective, part, generator)
        with quick_autocast(batch["ids"].device):
            sure, right = objective.outcomes(GRID, **batch)
        outcomes.append((sure.cpu().numpy(), right.cpu().numpy()))
    fit, judge = outcomes[::2], outcomes[1::2]
    tried = fit_temperature(*(np.concatenate(parts) for parts in zip(*fit, strict=True)))
    gains = np.array([(likelihoods(*text, tried) - likelihoods(*text, 1.0)).sum() for text in judge])
    gain = Resampler(len(judge)).mean(gains)
    better = gain.low is not None and gain.low > 0
    return Temperature(tried if better else 1.0, len(fit), len(judge), tried)


@torch.no_grad()
def divide_logits(drafter: DFlashDraftModel, divisor: float) -> None:
    """Divides a drafter's logits in place, by scaling the final norm (whose output the LM head reads) and the Markov head."""
    drafter.norm.weight.div_(divisor)
    if drafter.markov_head is not None:
        drafter.markov_head.markov_w2.weight.div_(divisor)


# Sentences about a result, and the model card of ``train pair``.


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
    columns = {name: f"α `{method}`" for name, method in ALPHA.items() if name in curve[-1]}
    columns["draft_length"] = "draft length in training"
    rows = [["step", *columns.values()], ["---"] * (len(columns) + 1)]
    rows += [[f"{row['step']:.0f}", *(f"{row[name]:.2f}" for name in columns)] for row in curve]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"""{text} α is the number of tokens written per step, at temperature 0, on the
first {plan.tokens_held_out} tokens of answers to prompts that were not trained on. Prompts unlike the training prompts have a lower α.

{table}"""
