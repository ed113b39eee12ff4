"""Training of DSpark's heads on a block drafter: a Markov head that corrects its rows, and one that says whether they hold.

DSpark (arXiv 2607.05147): rows are corrected by the token before them, which in training is the text's own. The loss is 0.1
cross-entropy, 0.9 the distance between drafter's and target's distributions, and the binary cross-entropy of the confidence
head; its label is the chance that a draw of the drafter is accepted, 1 − ½ Σ |p − q|. Later rows weigh exp(−j/4). Rows stay about
their own position, as in the block drafter that it starts from: speculators' form of DSpark with ``sample_from_anchor`` false.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from d2sd.errors import InputError
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.drafter_folder import reshaped, save_speculators
from d2sd.models.form import MarkovKind
from d2sd.models.layouts import HEADS
from d2sd.models.loading import load_drafter
from d2sd.models.taps import LayerTaps
from d2sd.models.types import final_logits, text_config
from d2sd.train.data import read_responses
from d2sd.train.drafters import cut_blocks, draft_blocks, draw_anchors
from d2sd.train.identity import digest
from d2sd.train.loop import LoopConfig, train
from d2sd.train.stages import cached, load_frozen


@dataclass(frozen=True, slots=True)
class DSparkConfig:
    """markov, rank: kind and rank of the Markov head; with_markov: the confidence head also reads its entry of the token before;
    anchors: blocks a sequence; decay: rows after which a row weighs 1/e."""

    markov: str = "vanilla"
    rank: int = 64
    with_markov: bool = True
    anchors: int = 12
    decay: float = 4.0
    cross_entropy: float = 0.1
    distance: float = 0.9
    confidence: float = 1.0

    def __post_init__(self) -> None:
        if self.markov not in HEADS:
            raise InputError(f"unknown Markov head {self.markov!r}; choose one of: {', '.join(HEADS)}")
        if self.rank < 1 or self.anchors < 1 or self.decay <= 0:
            raise InputError("rank, anchors and decay must be above 0")


def with_heads(drafter: DFlashDraftModel, config: DSparkConfig) -> DFlashDraftModel:
    """A copy of a block drafter with new heads; the Markov head begins at no correction."""
    base = drafter.form
    if base.kind != "dflash" or base.reads != "fill" or base.draft_vocabulary is not None:
        raise InputError(
            "DSpark's heads are trained on a DFlash drafter of the whole vocabulary; give one with --start"
        )
    form = replace(
        base, layout="speculators", kind="dspark", markov=cast(MarkovKind, config.markov), markov_rank=config.rank,
        confidence="markov" if config.with_markov else "hidden",
    )  # fmt: skip
    made = reshaped(drafter, form)
    assert made.markov_head is not None
    nn.init.zeros_(made.markov_head.markov_w2.weight)
    return made


class DSparkObjective(nn.Module):
    """Loss of a drafter with heads on sequences written by the target."""

    def __init__(self, drafter: DFlashDraftModel, target: PreTrainedModel, config: DSparkConfig):
        super().__init__()
        self.drafter, self.config = drafter, config
        self._target = (target.eval().requires_grad_(False),)  # a tuple hides it from this module's parameters
        self._taps = LayerTaps(cast(Any, target).model.layers)
        self._taps.add(drafter.target_layer_ids)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor,
        anchors: Tensor,
        features: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """ids: (B, S) right-padded; anchors: (B, A); features, hidden: as for ``DrafterObjective``. Returns (loss, metrics)."""
        target: Any = self._target[0]
        drafter, config = self.drafter, self.config
        if features is None or hidden is None:
            with torch.no_grad():
                hidden = target.model(input_ids=ids, use_cache=False).last_hidden_state
                features = self._taps.features(drafter.target_layer_ids, ids.device)
        blocks = cut_blocks(ids, lengths, anchors, torch.zeros_like(anchors), drafter.block_size)
        rows = draft_blocks(drafter, target, blocks, anchors, features).view(*blocks.places.shape, -1)
        before, tokens, inside = blocks.tokens[..., :-1], blocks.tokens[..., 1:], blocks.inside[..., 1:]
        logits = F.linear(rows[:, :, 1:], target.lm_head.weight).float() + self._bias(rows, before).float()
        with torch.no_grad():
            places = (blocks.places[..., 1:] - 1).clamp_max(hidden.shape[1] - 1).flatten(1)
            known = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1])).to(target.lm_head.weight.dtype)
            said = F.linear(known, target.lm_head.weight).float()
            wanted = final_logits(text_config(target.config), said).softmax(-1).view_as(logits)
        distance = (logits.softmax(-1) - wanted).abs().sum(-1)
        label = (1 - 0.5 * distance.detach()).clamp(0, 1)
        head, markov = drafter.confidence_head, drafter.markov_head
        assert head is not None
        assert markov is not None
        said = head(rows[:, :, 1:], markov.markov_w1(before) if config.with_markov else None)
        weights = torch.exp(-torch.arange(tokens.shape[-1], device=ids.device) / config.decay) * inside
        entropy = F.cross_entropy(logits.flatten(0, 2), tokens.flatten(), reduction="none").view_as(label)
        doubt = F.binary_cross_entropy_with_logits(said, label, reduction="none")
        losses = config.cross_entropy * entropy + config.distance * distance + config.confidence * doubt
        right = (logits.argmax(-1) == tokens) & inside
        count = inside.any(-1).sum().clamp_min(1)
        metrics = {
            "draft_length": 1 + right.cumprod(-1).sum() / count,
            "first_accuracy": right[..., 0].sum() / count,
            "confidence_error": ((said.detach().sigmoid() - label).abs() * inside).sum() / inside.sum().clamp_min(1),
        }
        return (losses * weights).sum() / weights.sum().clamp_min(1e-6), metrics

    def _bias(self, rows: Tensor, before: Tensor) -> Tensor:
        """The Markov head's corrections of all rows but the anchor's, (B, A, γ − 1, V), after the text's own tokens."""
        head = self.drafter.markov_head
        assert head is not None
        state = head.start(rows[:, :, 0])
        if self.config.markov != "rnn":
            return head(before, rows[:, :, 1:], state)[0]
        state, found = head(before[..., 0], rows[:, :, 0], state)[1], []
        for at in range(before.shape[-1]):
            bias, state = head(before[..., at], rows[:, :, at + 1], state)
            found.append(bias)
        return torch.stack(found, 2)


def train_dspark(
    target: str | Path,
    responses: Path,
    out: Path,
    start: Path,
    *,
    objective: DSparkConfig,
    config: LoopConfig,
    max_length: int = 1024,
    cache: Path | None = None,
) -> None:
    """A DSpark drafter for ``target`` from its own responses, saved in speculators' form in bfloat16.

    start: the folder of the block drafter that the heads are put on, which learns on with them; cache: as for
    ``train_drafter``.
    """
    model, tokenizer = load_frozen(target)
    torch.manual_seed(config.seed)
    drafter = (
        with_heads(load_drafter(str(start), torch.float32, str(model.device)), objective).train().requires_grad_(True)
    )
    data = read_responses(responses, max_length, tokenizer.eos_token_id)
    known = cached(cache, model, drafter.target_layer_ids, data)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        lengths = data.lengths[index]
        anchors = draw_anchors(data.prompt_lengths[index], lengths, objective.anchors, generator)
        batch = {"ids": data.ids[index, : int(lengths.max())].long(), "lengths": lengths, "anchors": anchors}
        return batch if known is None else {**batch, **known.rows(index, int(lengths.max()))}

    identity = {"objective": asdict(objective), "start": digest(drafter.fc.weight.detach()), "data": digest(data.ids)}
    if train(DSparkObjective(drafter, model, objective), len(data.ids), sample, out, config, None, "dspark", identity):
        save_speculators(drafter.bfloat16(), out)
