"""Trains a first drafter and a VP-Drafter on the same batches, and calibrates the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d2sd.calibration.alternatives import GRID, fit_temperature, likelihoods
from d2sd.calibration.resampling import Resampler
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.dtypes import quick_autocast
from d2sd.train.block_drafters import DrafterObjective
from d2sd.train.features import batch_of
from d2sd.train.settings import BlockObjective, Role
from d2sd.train.text import Responses

FEWEST_JUDGED = 30  # minimum number of responses to fit a temperature on, and also to judge it on


class PairObjective(nn.Module):
    """The sum of both drafters' losses on the same batch. The drafters share no weights, so their gradients are independent."""

    def __init__(self, first: DFlashDraftModel, second: DFlashDraftModel, model: Any):
        """model: the frozen target."""
        super().__init__()
        self.first = DrafterObjective(first, model, BlockObjective())
        self.second = DrafterObjective(second, model, BlockObjective(variable_prefix=True))
        self.draw, self.reads = self.second.draw, self.second.reads

    def forward(self, prefixes: Tensor, **batch: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Returns (loss, metrics). The second drafter's metrics have the prefix ``vp_``.

        prefixes: how many tokens after each anchor the second drafter sees, (B, A).
        batch: the other arguments of ``DrafterObjective.forward``.
        """
        loss, figures = self.first(**batch, prefixes=torch.zeros_like(prefixes))
        other, more = self.second(**batch, prefixes=prefixes)
        return loss + other, figures | {f"vp_{name}": value for name, value in more.items()}


def objective_of(drafters: Mapping[Role, DFlashDraftModel], model: Any) -> PairObjective | DrafterObjective:
    """Returns the training loss of one drafter or of both, given by role. model: the frozen target."""
    if len(drafters) == 2:
        return PairObjective(drafters["first"], drafters["second"], model)
    ((role, drafter),) = drafters.items()
    return DrafterObjective(drafter, model, BlockObjective(variable_prefix=role == "second"))


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


def held_out_temperature(objective: DrafterObjective, data: Responses, features: Any, index: Tensor) -> Temperature:
    """Fits a temperature for the first drafter.

    It is fitted on every second response and judged on the others, by the gain in the log-likelihood of outcomes. If the bootstrap
    interval of this gain (over responses) lies above 0, ``divisor`` is the fitted temperature, else 1.

    objective: the first drafter's.
    features: as for ``batch_of``.
    index: indices of responses that were not trained on.
    """
    if len(index) < 2 * FEWEST_JUDGED:
        return Temperature(1.0)
    generator, outcomes = torch.Generator().manual_seed(0), list[tuple[np.ndarray, np.ndarray]]()
    for part in index.split(1):
        batch = batch_of(objective, data, features, part, generator)
        batch = {name: t.to(objective.drafter.device) for name, t in batch.items()}
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
