"""Block drafters whose tokens depend on earlier tokens of the block: one pass over the block, then a loop over its rows.

DSpark (arXiv 2607.05147) adds to the logits of a row a correction that depends on the previous token. DFlash 2 selects among the
likeliest tokens of a row, given the previous token. At temperature 0, the likeliest token is taken. Above 0, a token is sampled
with the noise that the target uses at this position, as in the authors' engines. A drafted token is then an exact sample of the
drafter's distribution, and often equals the target's sample. The committed tokens do not depend on the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.inspection import rows_of, tempered
from d2sd.decoding.verifier import COLDEST, gumbel
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.tree.block import Block, Ranked

OWN = 3  # columns of ``walk`` before the columns of ``BlockDrafter.forward``


class WalkedDrafter(BlockDrafter):
    """A block drafter whose tokens depend on earlier tokens of the block, or that has a confidence head (``DrafterForm.walked``)."""

    _last: tuple[int, Tensor, Tensor, Block] | None = None

    def draft(self, anchor: int, prefixes: Sequence[Sequence[int]], block_size: int, top: int) -> list[Block]:
        """Drafts one block per prefix. Parameters and result are those of ``BlockDrafter.draft``."""
        given_tokens = torch.tensor(
            [[anchor, *p, *[-1] * (block_size - 1 - len(p))] for p in prefixes], device=self.device
        )
        self.catch_up()
        noise = self.sampler.noise(self.cache.length, block_size - 1, self.vocabulary, self.device)
        name = ("walk", self.sampler.temperature, self.inspect)
        walked = self.run(name, self.walk, anchor, prefixes, block_size, top, given_tokens, noise)
        ranked, hidden, logits, others, logs, *pairs = walked
        rows = ranked.tolist()  # one copy from the device
        blocks = [self._block(len(p), row[len(p) :]) for p, row in zip(prefixes, rows, strict=True)]
        if self.model.candidate_selector is None:
            blocks = [replace(b, whole=self.whole(rows[b.prefix :])) for b, rows in zip(blocks, logs, strict=True)]
        if not prefixes[0]:
            if self.inspect:
                blocks[0] = replace(blocks[0], tempered=rows_of(others))
            self._last = anchor, hidden[:1], logits[:1], blocks[0]
            if pairs:
                blocks[0] = replace(blocks[0], after=_Candidates(*(part[0].cpu() for part in pairs)))
        return blocks

    def _block(self, prefix: int, rows: list[list[float]]) -> Block:
        """Returns a block from the rows of its drafted tokens in the first output of ``walk``.

        The columns are the token, its probability and its trained confidence, followed by the columns of ``BlockDrafter.block``.
        """
        block = self.block(prefix, [row[OWN:] for row in rows])
        trained = tuple(row[2] for row in rows) if self.model.confidence_head is not None else ()
        return replace(
            block, ids=tuple(int(row[0]) for row in rows), confidence=tuple(row[1] for row in rows), trained=trained
        )

    def walk(
        self, ids: Tensor, positions: Tensor, given_tokens: Tensor, noise: Tensor, read: int | None, top: int
    ) -> tuple[Tensor, ...]:
        """Drafts blocks (B, R) at positions (R,).

        given_tokens: (B, γ) tokens by position; −1 where a token is to be drafted.
        noise: (γ − 1, V), or empty at temperature 0.
        read, top: as for ``forward``.

        Returns, in this order:

        * the drafts, (B, γ − 1, 3 + 3·top) float64, with the columns that ``_block`` reads;
        * the hidden states and the logits of the rows, for ``sample``;
        * the result of ``tempered`` for the first block, or no rows without inspection;
        * the log probabilities that ``chain`` returns;
        * with a candidate selector: the candidates, and their log probabilities after each candidate of the previous row.
        """
        hidden = self.hidden(ids, positions, read)
        rows = hidden[:, 1 - self.shift :]
        logits = self.logits(rows)
        tokens, logs, picks, ids_of = self.chain(hidden, logits, given_tokens, self.sampler.temperature, noise[:, None])
        best = logs.topk(min(top, logs.shape[-1]), -1)
        trained = self.trained(hidden, given_tokens, tokens)
        trained = torch.zeros_like(best.values[..., :1]) if trained is None else trained[..., None]
        chosen = logs.gather(-1, picks)
        columns = [tokens[..., None], chosen.exp(), trained, best.values.exp(), ids_of(best.indices), best.values]
        ranked = torch.cat([column.double() for column in columns], -1)
        pairs = self._pairs(rows, logits, given_tokens) if self.model.candidate_selector is not None and top > 1 else ()
        others = tempered(logs[0], picks[0, :, 0]) if self.inspect else ranked[:0]
        return ranked, hidden, logits, others, logs, *pairs

    def chain(
        self, hidden: Tensor, logits: Tensor, given_tokens: Tensor, temperature: float, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Chooses the drafted tokens from left to right.

        hidden, logits: hidden states and logits of the rows.
        given_tokens: as for ``walk``.
        noise: (γ − 1, B or 1, V).

        Returns, in this order:

        * the tokens, (B, γ − 1);
        * the log probabilities at each position given the previous tokens, at temperature 1, (B, γ − 1, D): for the D tokens of the
          draft vocabulary or, with a candidate selector, only for its D candidates;
        * the index of each token in the last dimension, (B, γ − 1, 1), undefined for a given token;
        * a function that maps such indices, (B, γ − 1, n), to the target's ids.
        """
        selector, head = self.model.candidate_selector, self.model.markov_head
        before, rows, steps, candidates = given_tokens[:, 0], hidden[:, 1 - self.shift :], [], []
        state = hidden.new_empty(0) if head is None else head.start(rows[:, 0])
        # if rows predict their own position, the anchor's row is the first input to an rnn head's state
        if head is not None and head.kind == "rnn" and not self.shift:
            state = head(before, hidden[:, 0], state)[1]
        options = self.target_ids(torch.arange(logits.shape[-1], device=self.device)).expand(len(rows), -1)
        for position in range(rows.shape[1]):
            scores = logits[:, position].float()
            if selector is not None:
                best_scores, indices = selector.candidates(scores)
                options = self.target_ids(indices)
                candidates.append(options)
                scores = selector(best_scores, options, rows[:, position], before[:, None])[:, 0]
            elif head is not None:
                bias, state = head(before, rows[:, position], state)
                scores = scores + bias.float()
            keys = scores
            if temperature > 0:
                keys = scores / max(temperature, COLDEST) + noise[position].expand(len(rows), -1).gather(1, options)
            pick = keys.argmax(-1, keepdim=True)
            drafted = options.gather(1, pick)[:, 0]
            before = torch.where(given_tokens[:, position + 1] < 0, drafted, given_tokens[:, position + 1])
            steps.append((before, scores, pick))
        tokens, scores, picks = (torch.stack(part, 1) for part in zip(*steps, strict=True))
        ids_of = self.target_ids if selector is None else partial(torch.stack(candidates, 1).gather, -1)
        return tokens, scores.log_softmax(-1).clamp_max(0.0), picks, ids_of

    def trained(self, hidden: Tensor, given_tokens: Tensor, tokens: Tensor) -> Tensor | None:
        """Returns the probabilities that the confidence head gives to the drafted ``tokens``, (B, γ − 1); None without such a head."""
        head, markov = self.model.confidence_head, self.model.markov_head
        if head is None:
            return None
        before = torch.cat([given_tokens[:, :1], tokens[:, :-1]], 1)
        read = markov.markov_w1(before) if markov is not None and self.form.confidence == "markov" else None
        return torch.sigmoid(head(hidden[:, 1 - self.shift :], read))

    def _pairs(self, rows: Tensor, logits: Tensor, given_tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the candidates of every row, (B, γ − 1, C), and their log probabilities after each candidate of the previous row,
        (B, γ − 1, C, C).

        Only the anchor precedes the first row, so the C distributions of this row are equal.
        """
        selector = self.model.candidate_selector
        assert selector is not None
        best_scores, indices = selector.candidates(logits)
        tokens = self.target_ids(indices)
        anchors = given_tokens[:, :1, None].expand(-1, -1, tokens.shape[-1])
        scores = selector(best_scores, tokens, rows, torch.cat([anchors, tokens[:, :-1]], 1))
        return tokens, scores.log_softmax(-1).clamp_max(0.0)

    def sample(self, count: int, seed: int) -> list[Block]:
        """Returns ``count`` blocks, sampled at temperature 1 from the latest draft that had an empty prefix.

        Blocks are independent of each other. Within a block, tokens are sampled from left to right.
        """
        assert self._last is not None, "draft first"
        anchor, hidden, logits, block = self._last
        size = logits.shape[1]
        generator = torch.Generator(self.device).manual_seed(seed)
        noise = gumbel(generator, size, count, self.vocabulary)
        given_tokens = torch.full((count, size + 1), -1, device=self.device)
        given_tokens[:, 0] = anchor
        hidden, logits = (part.expand(count, -1, -1) for part in (hidden, logits))
        tokens, logs, picks, _ = self.chain(hidden, logits, given_tokens, 1.0, noise)
        confidence = logs.gather(-1, picks)[..., 0].exp().tolist()
        return [
            replace(block, ids=tuple(i), confidence=tuple(c), trained=(), tempered=(), after=None, whole=None)
            for i, c in zip(tokens.tolist(), confidence, strict=True)
        ]


class _Candidates:
    """Distributions of a candidate selector. They are sorted only when they are requested.

    tokens: (positions, C) candidates.
    logs: (positions, C, C) log probabilities of the candidates after each candidate of the previous position.
    """

    def __init__(self, tokens: Tensor, logs: Tensor):
        self._tokens, self._logs = tokens.tolist(), logs

    def __call__(self, position: int, before: int) -> Ranked:
        """Returns the candidates at a position after a previous token, best first: tokens, probabilities and their logarithms.

        position: drafted position, from 0.
        before: the previous token.
        """
        row = self._tokens[position - 1].index(before) if position else 0
        logs, order = self._logs[position, row].double().sort(descending=True)
        tokens = self._tokens[position]
        return [tokens[index] for index in order.tolist()], logs.exp().tolist(), logs.tolist()


def drafter_class(model: DFlashDraftModel) -> type[BlockDrafter]:
    """Returns the class that drafts with a model."""
    return WalkedDrafter if model.form.walked else BlockDrafter
