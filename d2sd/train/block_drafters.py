"""Trains the block drafters: DFlash and the variable-prefix drafter (VP-Drafter).

In every sequence, blocks start at many random anchors. One forward pass of the drafter runs all blocks. A block sees the context
before its anchor and its own tokens, but no other block. One pass of the frozen target gives the features of the context. The
drafter uses the target's embedding and LM head. Recipes: DFlash (arXiv 2602.06036, section 4), D²SD (arXiv 2606.04446, section
3.2).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from d2sd.errors import require
from d2sd.folders.checks import drafter_config_of
from d2sd.folders.drafters import SHARD, save_speculators
from d2sd.folders.loading import load_drafter, quiet
from d2sd.nets.drafter import DFlashDraftModel, drafter_config, start_from_target
from d2sd.nets.layouts import default_target_layers
from d2sd.nets.target import Target
from d2sd.train.settings import ANCHORS, BETA, PairTraining, Role
from d2sd.train.text import Responses, frequent_tokens

TAPS, VOCABULARY = 5, 16_384  # defaults: number of target layers that a drafter reads; size of the draft vocabulary
# Loss in nats of a label outside the draft vocabulary. Such a label cannot be drafted, so its loss is constant, without a gradient.
UNKNOWN = 20.0
SMOOTHING = 0.5  # D-PACE's smoothing constant; the paper's value
PART = 1 << 22  # logits computed at a time
SMALLEST = 1e-37  # smallest probability whose logarithm is taken
PROPOSED = 3  # number of mask tokens that an error message suggests


def drafters_of(
    settings: PairTraining, target: Target, data: Responses
) -> tuple[dict[Role, DFlashDraftModel], PairObjective | DrafterObjective]:
    """Returns the drafters to train, by role, and their training loss. Raises ``InputError`` if the settings do not fit the target."""
    torch.manual_seed(settings.seed)
    made = {}
    for role in settings.roles:
        source = settings.start_of(role)
        made[role] = drafter = new_drafter(settings, target, data) if source is None else _loaded(source, target)
        drafter.train().requires_grad_(True)
        drafter.form = replace(drafter.form, second_role=role == "second", visible_prefixes=False)
        if role == "second":
            drafter.config.dflash_config["role"] = role
    same = len({(d.form.taps, d.form.rows, d.form.mask_token) for d in made.values()}) == 1
    require(same, f"the drafters in {settings.start} have different target layers, γ or mask tokens; train one of them, with --only")  # fmt: skip
    parts = [DrafterObjective(drafter, target.model) for drafter in made.values()]
    return made, PairObjective(*parts) if len(parts) == 2 else parts[0]


def _loaded(source: str, target: Target) -> DFlashDraftModel:
    """Returns a drafter in float32, from a folder. Raises ``InputError`` if it does not fit the target, or cannot be trained."""
    drafter: Any = load_drafter(source, torch.float32, str(target.device), target)
    form, own = drafter.form, (drafter.embed_tokens, drafter.lm_head) != (None, None)
    other = own or form.reads != "fill" or form.markov == "rnn" or form.masked or form.selector or form.confidence
    require(not other, f"{source} cannot be trained further: it is no DFlash drafter, also with a Markov head, with the target's embedding and LM head")  # fmt: skip
    return drafter


def new_drafter(settings: PairTraining, target: Target, data: Responses) -> DFlashDraftModel:
    """Returns a float32 drafter whose layers are copies of the target's last layers.

    Its LM head has the target's rows of the draft vocabulary. Its Markov head (DSpark, arXiv 2607.05147) adds 0 to all logits.

    data: the responses; the draft vocabulary consists of their most frequent tokens.
    """
    depth, size = target.config.num_hidden_layers, target.config.vocab_size
    taps = settings.target_layer_ids or default_target_layers(depth, TAPS)
    require(
        all(0 <= n < depth for n in taps),
        f"this target has layers 0 to {depth - 1}, but --target-layers names {' '.join(map(str, taps))}",
    )
    shape = drafter_config(
        target.config, layers=settings.layers, block_size=settings.block_size, target_layer_ids=taps,
        mask_token_id=mask_id(target, set(data.ids.unique().tolist()), settings.mask_token),
    )  # fmt: skip
    plain = DFlashDraftModel(shape).float().to(target.device)
    start_from_target(plain, target.base)
    rank = settings.markov_rank
    vocabulary = settings.draft_vocab_size or (VOCABULARY if rank and size > VOCABULARY else None)
    if not vocabulary and not rank:
        return plain
    ids = torch.tensor(frequent_tokens(data, vocabulary, size), device=target.device) if vocabulary else None
    form = replace(
        plain.form, layout="speculators", kind="dspark" if rank else "dflash", markov="vanilla" if rank else None,
        markov_rank=rank, draft_vocabulary=vocabulary,
    )  # fmt: skip
    drafter: Any = DFlashDraftModel(drafter_config_of(form), form)
    drafter.load_state_dict(plain.state_dict(), strict=False)  # new heads keep their initial weights
    drafter.to(target.device)
    drafter.token_ids = ids
    if rank:
        nn.init.zeros_(drafter.markov_head.markov_w2.weight)
        with torch.no_grad():  # similar target embeddings give similar initial rows, which helps rare tokens
            table = target.embedding.weight.float()
            _, _, main = torch.pca_lowrank(table, rank)
            entries = (table - table.mean(0)) @ main
            drafter.markov_head.markov_w1.weight.copy_(entries / entries.std(0))
    return drafter


def save_drafter(drafter: DFlashDraftModel, folder: Path) -> None:
    """Saves a drafter in shards that are small enough for repositories without large-file storage."""
    if drafter.form.layout == "speculators":
        save_speculators(drafter, folder)
    else:
        with quiet():
            drafter.save_pretrained(folder, max_shard_size=SHARD)


# Objective.


def draw_anchors(prompt_lengths: Tensor, lengths: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Returns anchor positions (B, count), drawn uniformly from the last prompt token to the second-to-last token of the text."""
    low = (prompt_lengths - 1).clamp_min(0)
    high = torch.maximum(lengths - 2, low)
    uniform = torch.rand(len(lengths), count, generator=generator)
    return low[:, None] + (uniform * (high - low + 1)[:, None]).long()


def draw_prefixes(shape: tuple[int, ...], block_size: int, beta: float, generator: torch.Generator) -> Tensor:
    """Returns random lengths l = 0 … block_size−2 of visible prefixes, with Pr(l) ∝ beta^l. l = 0 also occurs in decoding.

    shape: shape of the result.
    """
    weights = beta ** torch.arange(block_size - 1, dtype=torch.float64)
    flat = torch.multinomial(weights, shape[0] * shape[1], replacement=True, generator=generator)
    return flat.view(shape)


def block_mask(anchors: Tensor, context: int, block_size: int) -> Tensor:
    """Returns the bool attention mask (B, 1, A·γ, context + A·γ) of A blocks per sequence.

    Every row sees the context before the anchor of its block, and all rows of its block.

    anchors: positions of the blocks' anchors, (B, A).
    context: number of context rows.
    """
    blocks = anchors.shape[1]
    rows = anchors.repeat_interleave(block_size, dim=1)
    before = torch.arange(context, device=anchors.device) < rows[..., None]
    owner = torch.arange(blocks, device=anchors.device).repeat_interleave(block_size)
    same_block = (owner[:, None] == owner).expand(len(anchors), -1, -1)
    return torch.cat([before, same_block], dim=-1)[:, None]


def position_weights(nll: Tensor, scored: Tensor) -> Tensor:
    """Returns detached D-PACE loss weights (…, γ) (arXiv 2605.18810, equations 7 and 8); 0 at positions that are not scored.

    With q = SMOOTHING + (1 − SMOOTHING) · p(label), the product of q over position k and all scored positions before k is the
    smoothed probability that the draft is accepted up to and including k. The weight of a position is the sum of these products
    over this and all later scored positions.

    nll: (…, γ) negative log-likelihoods of the labels.
    scored: (…, γ) bool; whether the position has a label.
    """
    chance = torch.where(scored, SMOOTHING + (1 - SMOOTHING) * (-nll.detach()).exp(), 1.0)
    reached = chance.cumprod(-1) * scored
    return reached.flip(-1).cumsum(-1).flip(-1) * scored


class HeadLoss(torch.autograd.Function):
    """Losses of labels under the LM head, without storing logits.

    The gradient with respect to the logits is known as soon as the logits are. It is therefore computed in the forward pass, for
    about ``PART`` logits at a time.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, frozen: Tensor, trained: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the losses in nats, (N,) float32, and whether no token is likelier than the label, (N,) bool.

        rows: hidden states and inputs of the Markov head, (N, hidden + r).
        frozen, trained: the LM head, (D, hidden), and the Markov head's ``markov_w2``, (D, r).
        labels: (N,).
        """
        dtype = torch.bfloat16 if torch.is_autocast_enabled(rows.device.type) else rows.dtype
        rows, head = rows.to(dtype), torch.cat([frozen.to(dtype), trained.to(dtype)], 1)
        gradient, losses, right = torch.empty_like(rows), [], []
        slopes = rows.new_empty(len(rows) if trained.numel() else 0, len(head))
        for start in range(0, len(rows), size := max(1, PART // len(head))):
            at = slice(start, start + size)
            label = labels[at, None]
            slope = (rows[at] @ head.T).softmax(-1, dtype=torch.float32)
            likely = slope.gather(1, label)
            losses.append(-likely.clamp_min(SMALLEST).log())
            right.append(likely == slope.amax(-1, keepdim=True))  # much quicker than argmax
            slope = slope.scatter_(1, label, likely - 1).to(dtype)
            torch.mm(slope, head, out=gradient[at])
            if trained.numel():
                slopes[at] = slope
        ctx.save_for_backward(gradient, rows[:, frozen.shape[1] :], slopes)
        ctx.mark_non_differentiable(whether := torch.cat(right)[:, 0])
        return torch.cat(losses)[:, 0], whether

    @staticmethod
    def backward(ctx: Any, weights: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradient, inputs, slopes = ctx.saved_tensors
        weights = weights[:, None].to(gradient.dtype)
        return weights * gradient, None, slopes.T @ (weights * inputs) if len(slopes) else None, None


class DrafterObjective(nn.Module):
    """The training loss of a block drafter, on sequences written by the target."""

    def __init__(self, drafter: DFlashDraftModel, target: PreTrainedModel):
        super().__init__()
        self.drafter, tokens = drafter, drafter.token_ids
        weight = target.lm_head.weight.detach()
        known = torch.arange(len(weight), device=weight.device) if tokens is None else tokens
        self._head = (weight if tokens is None else weight[tokens], known)
        self._target = (target.eval().requires_grad_(False),)  # a tuple keeps the target from becoming a submodule

    def draw(self, prompt_lengths: Tensor, lengths: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Returns random ``anchors`` (B, A), and ``prefixes`` (B, A): the number of tokens after each anchor that the drafter sees.
        The latter is 0 for a first drafter.
        """
        anchors = draw_anchors(prompt_lengths, lengths, ANCHORS, generator)
        prefixes = torch.zeros_like(anchors)
        if self.drafter.form.second_role:
            prefixes = draw_prefixes(anchors.shape, self.drafter.block_size, BETA, generator)
        return {"anchors": anchors, "prefixes": prefixes}

    def forward(self, **batch: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Returns (loss, metrics).

        The metric ``draft_length`` is 1 plus the mean number of correct tokens directly after the visible prefix.

        batch: arguments of ``_predict``, such as those from ``Features.batch``.
        """
        *inputs, labels, draftable, scored, visible = self._predict(**batch)
        hard, likeliest = HeadLoss.apply(*inputs, labels)
        hard = torch.where(draftable, hard, UNKNOWN)
        nll = torch.zeros_like(scored, dtype=torch.float32).masked_scatter(scored, hard)
        right = visible.masked_scatter(scored, likeliest & draftable)
        streak = right.cumprod(-1).sum(-1).float() - visible.sum(-1)
        has_label, first_scored = scored.any(-1), scored & (scored.cumsum(-1) == 1)
        metrics = {
            "draft_length": 1 + (streak.clamp_min(0) * has_label).sum() / has_label.sum().clamp_min(1),
            "first_accuracy": (right & first_scored).sum() / first_scored.sum().clamp_min(1),
        }
        weights = position_weights(nll, scored)
        return (weights * nll).sum() / weights.sum().clamp_min(1e-6), metrics

    @torch.no_grad()
    def outcomes(self, temperatures: Sequence[float], **batch: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the probabilities of N drafted tokens at T temperatures, (N, T) float32, and whether each token is correct, (N,).

        As in decoding, positions after the first wrong token of a block are left out.

        batch: as for ``forward``.
        """
        rows, frozen, trained, labels, draftable, scored, visible = self._predict(**batch)
        logits = F.linear(rows, torch.cat([frozen.to(rows.dtype), trained.to(rows.dtype)], 1)).float()
        hit = (logits.argmax(-1) == labels) & draftable
        # the anchor, in the first position, is not scored
        reached = visible.masked_scatter(scored, hit).cumprod(-1).roll(1, -1)[scored] > 0
        sure = torch.stack([(logits[reached] / t).softmax(-1).amax(-1) for t in temperatures], -1)
        return sure, hit[reached]

    def _predict(
        self, ids: Tensor, lengths: Tensor, anchors: Tensor, prefixes: Tensor, features: Tensor
    ) -> tuple[Tensor, ...]:
        """Returns, for the N drafted positions of a batch, with D tokens in the draft vocabulary:

        * rows, LM head and Markov head, as for ``HeadLoss``; without a Markov head, r is 0;
        * labels (N,), as indices into the draft vocabulary;
        * whether the draft vocabulary contains the label, (N,) bool;
        * which positions these are, (B, A, γ) bool;
        * which positions the drafter sees, (B, A, γ) bool.

        ids: (B, S), right-padded.
        lengths: number of tokens of each text, (B,).
        anchors, prefixes: as from ``draw``, (B, A).
        features: the target's features (B, S, taps·hidden).
        """
        offsets = torch.arange(self.drafter.block_size, device=ids.device)
        places = anchors[..., None] + offsets
        tokens = ids.gather(1, places.clamp_max(ids.shape[1] - 1).flatten(1)).view_as(places)
        inside, visible = places < lengths[:, None, None], offsets <= prefixes[..., None]
        drafted = self._draft(
            torch.where(visible & inside, tokens, self.drafter.mask_token_id), places, anchors, features
        )
        scored = inside & ~visible
        flat = scored.flatten(1)
        weight, vocabulary = self._head
        rows, markov = drafted[flat], self.drafter.markov_head
        trained = weight.new_empty(len(weight), 0) if markov is None else markov.markov_w2.weight
        if markov is not None:
            before = tokens.roll(1, -1).flatten(1)[flat]
            rows = torch.cat([rows, markov.inputs(before, rows, markov.start(rows))[0]], 1)
        labels = tokens.flatten(1)[flat]
        index = torch.searchsorted(vocabulary, labels).clamp_max(len(vocabulary) - 1)
        return rows, weight, trained, index, vocabulary[index] == labels, scored, visible

    def _draft(self, shown: Tensor, places: Tensor, anchors: Tensor, features: Tensor) -> Tensor:
        """Returns hidden states (B, A·γ, hidden) of all blocks, from one pass.

        shown: input ids of the blocks, (B, A, γ).
        places: positions of these ids in the text, (B, A, γ).
        """
        (target,), context, dtype = self._target, int(anchors.max()) + 1, self.drafter.fc.weight.dtype
        with torch.no_grad():
            block = target.get_input_embeddings()(shown.flatten(1)).to(dtype)
        positions = torch.arange(context, device=anchors.device)[None]
        context_rows = self.drafter.project_context(features[:, :context].to(dtype), positions)
        mask = block_mask(anchors, context, self.drafter.block_size)
        bias = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))[:, :, None]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            context_key, context_value = context_rows[layer]
            keys, values = torch.cat([context_key, key], 2), torch.cat([context_value, value], 2)
            if query.is_cuda:
                return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
            # on a CPU, torch's fused attention is slower than products and a softmax, above all its backward pass
            grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[-1])
            scores = (grouped @ keys.mT).unflatten(2, (-1, query.shape[2])) * query.shape[-1] ** -0.5
            weights = (scores + bias.to(scores.dtype)).softmax(-1)
            return (weights.flatten(2, 3) @ values).view_as(query)

        return self.drafter(block, places.flatten(1), attend)


class PairObjective(nn.Module):
    """The sum of both drafters' losses on the same batch. The drafters share no weights, so their gradients are independent."""

    def __init__(self, first: DrafterObjective, second: DrafterObjective):
        super().__init__()
        self.first, self.second, self.draw = first, second, second.draw

    def forward(self, prefixes: Tensor, **batch: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Returns (loss, metrics). The second drafter's metrics have the prefix ``vp_``.

        prefixes: how many tokens after each anchor the second drafter sees, (B, A).
        batch: the other arguments of ``DrafterObjective.forward``.
        """
        loss, figures = self.first(**batch, prefixes=torch.zeros_like(prefixes))
        other, more = self.second(**batch, prefixes=prefixes)
        return loss + other, figures | {f"vp_{name}": value for name, value in more.items()}


# The mask token.


def mask_id(target: Target, written: Set[int], text: str | None) -> int:
    """Returns the id of the mask token, a token that no text contains.

    written: ids of the tokens in the responses.
    text: the mask token as text; None: the tokenizer's mask token. If the tokenizer has none, the first unused special token is
        chosen, or else the last unused token.

    Raises ``InputError`` if this token cannot be the mask token, or if no token is unused.
    """
    tokenizer, size = target.tokenizer, target.config.vocab_size
    closing = {*target.end_ids, tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    vocabulary, used, template = tokenizer.get_vocab(), closing | written, str(tokenizer.chat_template or "")
    # unused special tokens; and the tokenizer's mask token, even if it was written, which only poorly trained targets do
    spare = [
        t.content
        for n, t in sorted(tokenizer.added_tokens_decoder.items())
        if t.special
        and n < size
        and (t.content == tokenizer.mask_token or (n not in used and t.content not in template))
    ]
    name = tokenizer.mask_token if text is None else text
    if name is None:
        free = vocabulary[spare[0]] if spare else next((n for n in reversed(range(size)) if n not in used), size)
        require(free < size, "the responses contain every token of this target, so no token is left for the mask")
        return int(free)
    such = f", such as {' or '.join(spare[:PROPOSED])}" if spare else ""
    advice = f"choose an unused token with --mask-token{such}"
    number = vocabulary.get(name, size)
    require(number < size, f"{name!r} is not a token of this target; {advice}")
    require(number not in closing, f"{name!r} ends or pads this target's texts and cannot be the mask; {advice}")
    unused = name == tokenizer.mask_token or (name in spare if spare else number not in written)
    require(unused, f"{name!r} occurs in texts and cannot be the mask; {advice}")
    return int(number)
