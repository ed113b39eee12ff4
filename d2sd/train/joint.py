"""Creates, trains and calibrates a first drafter and a VP-Drafter on the same batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d2sd.calibration.alternatives import GRID, fit_temperature, likelihoods
from d2sd.calibration.resampling import Resampler
from d2sd.errors import InputError
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.dtypes import quick_autocast
from d2sd.nets.layouts import default_target_layers
from d2sd.nets.target import Target
from d2sd.train.block_drafters import DrafterObjective, extended, make_second, mask_id, new_drafter
from d2sd.train.features import FeatureStore, batch_of, read_features
from d2sd.train.settings import BlockObjective, PairTraining
from d2sd.train.text import Responses

TAPS, VOCABULARY, ANCHORS, BETA = 5, 16_384, 24, 0.75
FEWEST_JUDGED = 30  # minimum number of responses to fit a temperature on, and also to judge it on


class PairObjective(nn.Module):
    """The sum of both drafters' losses on the same batch. The drafters share no weights, so their gradients are independent."""

    def __init__(self, first: DFlashDraftModel, second: DFlashDraftModel, model: Any):
        """model: the frozen target."""
        super().__init__()
        config = BlockObjective(anchors=ANCHORS, beta=BETA)
        self.first = DrafterObjective(first, model, config)
        self.second = DrafterObjective(second, model, replace(config, variable_prefix=True))
        self.draw, self.reads = self.second.draw, self.second.reads

    def forward(self, prefixes: Tensor, **batch: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Returns (loss, metrics). The second drafter's metrics have the prefix ``vp_``.

        prefixes: how many tokens after each anchor the second drafter sees, (B, A).
        batch: the other arguments of ``DrafterObjective.forward``.
        """
        loss, figures = self.first(**batch, prefixes=torch.zeros_like(prefixes))
        other, more = self.second(**batch, prefixes=prefixes)
        return loss + other, figures | {f"vp_{name}": value for name, value in more.items()}


def new_pair(settings: PairTraining, target: Target, data: Responses) -> tuple[DFlashDraftModel, DFlashDraftModel]:
    """Returns an untrained first drafter and an untrained VP-Drafter."""
    torch.manual_seed(settings.seed)
    size = target.config.vocab_size
    vocabulary = settings.draft_vocab_size or (VOCABULARY if size > VOCABULARY else None)
    mask = mask_id(target.tokenizer, target.model, set(data.ids.unique().tolist()), settings.mask_token)
    made = []
    for _ in range(2):
        plain = new_drafter(target.model, settings.layers, settings.block_size, mask, taps_of(settings, target))
        made.append(extended(plain, target.model, data, vocabulary, settings.markov_rank).train().requires_grad_(True))
    make_second(made[1])
    return made[0], made[1]


def taps_of(settings: PairTraining, target: Target) -> list[int]:
    return settings.target_layer_ids or default_target_layers(target.config.num_hidden_layers, TAPS)


def features_of(settings: PairTraining, target: Target, data: Responses) -> FeatureStore:
    """Returns the target's features that both drafters read. Raises ``InputError`` if they do not fit into memory."""
    torch.cuda.empty_cache()  # release cached memory of earlier stages, so that it counts as free
    features = read_features(target.base, taps_of(settings, target), data)
    if features is None:
        raise InputError("the target's features of the text no longer fit into memory; give fewer --minutes")
    return features


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


def held_out_temperature(
    objective: PairObjective, data: Responses, features: FeatureStore | None, index: Tensor
) -> Temperature:
    """Fits a temperature for the first drafter.

    It is fitted on every second response and judged on the others, by the gain in the log-likelihood of outcomes. If the bootstrap
    interval of this gain (over responses) lies above 0, ``divisor`` is the fitted temperature, else 1.

    index: indices of responses that were not trained on.
    """
    if len(index) < 2 * FEWEST_JUDGED:
        return Temperature(1.0)
    generator, outcomes = torch.Generator().manual_seed(0), list[tuple[np.ndarray, np.ndarray]]()
    for part in index.split(1):
        batch = {
            name: t.to(objective.first.drafter.device)
            for name, t in batch_of(objective, data, features, part, generator).items()
        }
        batch["prefixes"] = torch.zeros_like(batch["prefixes"])
        with quick_autocast(batch["ids"].device):
            sure, right = objective.first.outcomes(GRID, **batch)
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
