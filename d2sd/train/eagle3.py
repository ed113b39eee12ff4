"""Trains the EAGLE-3 drafter by training-time test, with the target's distribution as labels.

As in drafting, the network is unrolled on its own hidden states (EAGLE-3, arXiv 2503.01840, section 3.2). A chain starts at row t
of a text. Step i of the chain is at position t + i. The inputs of step i are the text's token at t + i + 1 and the hidden state of
step i − 1. Step i attends to the text's rows before t and to steps 0 to i of its chain, but not to other chains. Chains start at a
few random rows of each sequence. One pass of the target gives the labels of all their steps.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from d2sd.errors import require
from d2sd.folders.drafters import save_eagle3
from d2sd.folders.fingerprint import fingerprint
from d2sd.folders.loading import load_target
from d2sd.nets.eagle3 import Chains, Eagle3DraftModel, new_eagle3
from d2sd.nets.layouts import default_eagle3_layers
from d2sd.nets.types import final_logits, text_config
from d2sd.train.acceptance import HeldOut
from d2sd.train.block_drafters import draw_anchors
from d2sd.train.features import Features
from d2sd.train.loop import Loop, save_marked
from d2sd.train.settings import Eagle3Objective, Eagle3Training
from d2sd.train.text import frequent_tokens, read_responses


def train_eagle3(settings: Eagle3Training) -> None:
    """Trains an EAGLE-3 drafter on the target's responses, and saves it in bfloat16, in SpecForge's format. If an earlier run was
    interrupted, resumes it.

    Raises ``InputError`` if the settings do not fit the target.
    """
    loop, out, target = settings.loop, settings.out, load_target(str(settings.target), "float32", batched=True)
    data = read_responses(settings.responses, settings.max_length, target.tokenizer.eos_token_id)
    torch.manual_seed(loop.seed)
    vocabulary, depth = target.config.vocab_size, target.config.num_hidden_layers
    layers = settings.target_layer_ids or [*default_eagle3_layers(depth)]
    require(
        all(0 <= n <= depth - 3 for n in layers),
        f"tapped layers must be between 0 and {depth - 3}, not {layers}: other engines may normalise the outputs of later layers",
    )
    tokens = frequent_tokens(data, settings.draft_vocab_size or vocabulary, vocabulary)
    drafter = new_eagle3(target.model, tokens, layers)
    objective = Unrolled(drafter, target.model, settings.objective)
    # if every response is used, all features are computed first
    features = Features(target, layers, data, hidden=True, store=loop.steps * loop.batch_size >= len(data.ids))
    measure = None
    if settings.held_out is not None:
        held_out = HeldOut.read(target, settings.held_out, settings.chat)
        measure = lambda _: held_out.measure("eagle3", eagle3=drafter)  # noqa: E731
    mark = fingerprint(str(settings.target), target, drafter)
    save = partial(save_marked, save_eagle3, drafter, mark=mark)
    identity = {
        "objective": asdict(settings.objective), "target_layer_ids": layers, "draft_vocab_size": drafter.form.drafted, "data": data.digest
    }  # fmt: skip
    training = Loop(objective, len(data.ids), partial(features.batch, objective), out, loop, identity)
    training.run(measure, lambda step: save(out / f"step-{step}"))
    save(out)


class Unrolled(nn.Module):
    """The training loss of an EAGLE-3 drafter, on sequences written by the target."""

    def __init__(self, drafter: Eagle3DraftModel, target: PreTrainedModel, config: Eagle3Objective):
        super().__init__()
        self.drafter, self.config = drafter, config
        self._target = (target.eval().requires_grad_(False),)  # a tuple keeps the target from becoming a submodule

    def draw(self, prompt_lengths: Tensor, lengths: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Returns ``rows`` (B, A), the rows at which chains start. They are drawn uniformly from the last prompt token to the
        third-to-last token of the text.

        Row t drafts the token at t + 2. All tokens of the response can be drafted, except the first one, which comes from prefill.
        """
        return {"rows": draw_anchors(prompt_lengths, lengths - 1, self.config.rows, generator)}

    def forward(
        self, ids: Tensor, lengths: Tensor, rows: Tensor, features: Tensor, hidden: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """Returns (loss, metrics).

        The metric ``draft_length`` is 1 plus the mean number of steps of a chain before the first step whose likeliest token
        differs from the text. It estimates α of decoding with such chains at temperature 0, if the texts are greedy.

        ids: (B, S), right-padded.
        lengths: number of tokens of each text, (B,).
        rows: (B, A), the rows at which chains start.
        features: the target's features (B, S, taps·hidden).
        hidden: the target's last hidden states (B, S, hidden).
        """
        (target,), drafter, config = self._target, self.drafter, self.config
        head = target.lm_head.weight[drafter.token_ids]  # only the draft vocabulary
        width = ids.shape[1]
        with torch.no_grad():
            embedded = target.get_input_embeddings()(ids)
            features, hidden = features.to(embedded.dtype), hidden.to(embedded.dtype)
        positions = torch.arange(width - 1, device=ids.device)
        feature = drafter.project(features[:, :-1])
        chains = Chains(rows, positions, drafter.keys_values(embedded[:, 1:], feature, positions[None]))
        state = _take(feature, rows)
        losses, right, alive = [], [], []
        for step in range(config.unrolled):
            place = rows + step  # position of this step, which reads token place + 1 and predicts token place + 2
            after, predicted = (place + 1).clamp_max(width - 1), (place + 2).clamp_max(width - 1)
            out = drafter(_take(embedded, after), state, place, chains)
            logits = drafter.logits(out)
            with torch.no_grad():
                wanted = F.linear(_take(hidden, after), head).float()
                right.append(drafter.token_ids[logits.argmax(-1)] == ids.gather(1, predicted))
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
