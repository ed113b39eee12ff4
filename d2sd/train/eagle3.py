"""Trains the EAGLE-3 drafter by training-time test, with the target's distribution as labels.

As in drafting, the network is unrolled on its own hidden states (EAGLE-3, arXiv 2503.01840, section 3.2). A chain starts at row t
of a text. Step i of the chain is at position t + i. The inputs of step i are the text's token at t + i + 1 and the hidden state of
step i − 1. Step i attends to the text's rows before t and to steps 0 to i of its chain, but not to other chains. Chains start at a
few random rows of each sequence. One pass of the target gives the labels of all their steps.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from d2sd.errors import InputError
from d2sd.folders.drafters import save_eagle3
from d2sd.nets.eagle3 import Chains, Eagle3DraftModel, new_eagle3
from d2sd.nets.layouts import default_eagle3_layers
from d2sd.nets.target import LayerTaps
from d2sd.nets.types import final_logits, text_config
from d2sd.train.drafters import Material, fit
from d2sd.train.settings import Eagle3Objective, Eagle3Training
from d2sd.train.text import frequent_tokens


def train_eagle3(settings: Eagle3Training) -> None:
    """Trains an EAGLE-3 drafter on the target's responses, and saves it in bfloat16, in SpecForge's format.

    Raises ``InputError`` if the settings do not fit the target.
    """
    objective = settings.objective
    material = Material.load(settings)
    target, vocabulary = material.target, material.target.config.vocab_size
    layers = _checked_layers(settings.target_layer_ids, target.config.num_hidden_layers)
    tokens = frequent_tokens(material.data, settings.draft_vocab_size or vocabulary, vocabulary)
    drafter = new_eagle3(target, tokens, layers)
    identity = {
        "objective": asdict(objective),
        "target_layer_ids": layers,
        "draft_vocab_size": drafter.form.drafted,
    }
    fit(settings, material, Unrolled(drafter, target, objective), save_eagle3, "eagle3", identity)


def _checked_layers(layers: list[int] | None, depth: int) -> list[int]:
    """Returns the target layers that the drafter reads. Raises ``InputError`` if they are not usable.

    layers: the requested layers; None: EAGLE-3's default layers.
    depth: number of layers of the target.
    """
    layers = layers or list(default_eagle3_layers(depth))
    if not all(0 <= n <= depth - 3 for n in layers):
        raise InputError(
            f"tapped layers must be between 0 and {depth - 3}, not {layers}: other engines may normalise the outputs of later layers"
        )
    return layers


class Unrolled(nn.Module):
    """The training loss of an EAGLE-3 drafter, on sequences written by the target."""

    reads = ("features", "hidden")

    def __init__(self, drafter: Eagle3DraftModel, target: PreTrainedModel, config: Eagle3Objective):
        super().__init__()
        self.drafter, self.config = drafter, config
        self._target = (target.eval().requires_grad_(False),)  # a tuple keeps the target from becoming a submodule
        self._taps = LayerTaps(target.model.layers)
        self._taps.add(drafter.target_layer_ids)

    def draw(self, prompt_lengths: Tensor, lengths: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Returns ``rows`` (B, A), the rows at which chains start. They are drawn uniformly from the last prompt token to the
        third-to-last token of the text.

        Row t drafts the token at t + 2. All tokens of the response can be drafted, except the first one, which comes from prefill.
        """
        low = (prompt_lengths - 1).clamp_min(0)
        high = torch.maximum(lengths - 3, low)
        uniform = torch.rand(len(lengths), self.config.rows, generator=generator)
        return {"rows": low[:, None] + (uniform * (high - low + 1)[:, None]).long()}

    def forward(
        self, ids: Tensor, lengths: Tensor, rows: Tensor, features: Tensor | None = None, hidden: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Returns (loss, metrics).

        The metric ``draft_length`` is 1 plus the mean number of steps of a chain before the first step whose likeliest token
        differs from the text. It estimates α of decoding with such chains at temperature 0, if the texts are greedy.

        ids: (B, S), right-padded.
        lengths: number of tokens of each text, (B,).
        rows: (B, A), the rows at which chains start.
        features: the target's features (B, S, taps·hidden).
        hidden: the target's last hidden states (B, S, hidden). If ``features`` or ``hidden`` is None, both are computed with a pass
            of the target.
        """
        (target,), drafter, config = self._target, self.drafter, self.config
        head = target.lm_head.weight[drafter.token_ids]  # only the draft vocabulary
        width = ids.shape[1]
        with torch.no_grad():
            if features is None or hidden is None:
                hidden = target.model(input_ids=ids, use_cache=False).last_hidden_state
                features = self._taps.features(drafter.target_layer_ids, ids.device)
            embedded = target.get_input_embeddings()(ids)
            features, hidden = features.to(embedded.dtype), hidden.to(embedded.dtype)
        positions = torch.arange(width - 1, device=ids.device)
        feature = drafter.project(features[:, :-1])
        chains = Chains(rows, positions, drafter.keys_values(embedded[:, 1:], feature, positions[None]))
        state = _take(feature, rows)
        losses, right, alive = [], [], []
        for step in range(config.unrolled):
            place = rows + step  # position of this step, which reads token place + 1 and predicts token place + 2
            shown = _take(embedded, (place + 1).clamp_max(width - 1))
            out = drafter(shown, state, place, chains)
            logits = drafter.logits(out)
            with torch.no_grad():
                wanted = F.linear(_take(hidden, (place + 1).clamp_max(width - 1)), head).float()
                right.append(drafter.token_ids[logits.argmax(-1)] == ids.gather(1, (place + 2).clamp_max(width - 1)))
                labels = final_logits(text_config(target.config), wanted).softmax(-1)
            inside = place + 2 < lengths[:, None]
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1), reduction="none").view_as(inside)
            losses.append(config.decay**step * (loss * inside).sum() / inside.sum().clamp_min(1))
            alive.append(inside)
            state = drafter.following(out)
        begun = alive[0]
        streak = (torch.stack(right) & torch.stack(alive)).cumprod(0).sum(0)
        count = begun.sum().clamp_min(1)
        metrics = {
            "draft_length": 1 + (streak * begun).sum() / count,
            "first_accuracy": (right[0] & begun).sum() / count,
        }
        return torch.stack(losses).sum() / sum(config.decay**i for i in range(config.unrolled)), metrics


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Returns x[b, rows[b]] for every sequence b, (B, A, H), given x (B, S, H) and rows (B, A)."""
    return x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1]))
