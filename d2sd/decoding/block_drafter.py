"""A block drafter during one generation: its context cache, its batched draft pass, and samples from its last draft."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.decoding.inspection import rows_of, tempered
from d2sd.decoding.verifier import Sampler
from d2sd.nets.attention import attend_dense
from d2sd.nets.caches import KeyValueCache
from d2sd.nets.drafter import DFlashDraftModel, attention_mask
from d2sd.nets.lean import LeanLayers
from d2sd.nets.models import check_confidence
from d2sd.nets.packed import PackedLayers, mask_after
from d2sd.nets.passes import Passes, row_shape
from d2sd.nets.target import Target
from d2sd.tree.block import Block, DrafterName

MAX_COMMITTED = 64  # largest number of committed tokens in a fixed-shape pass; only prompts have more


class BlockDrafter:
    """A block drafter and its context. Between steps, only keys and values of committed tokens are cached."""

    def __init__(
        self,
        name: DrafterName,
        model: DFlashDraftModel,
        target: Target,
        passes: Passes,
        sampler: Sampler,
        inspect: bool = False,
    ):
        """sampler: chooses the tokens of a block, if they depend on each other.
        inspect: whether drafts with an empty prefix include the result of ``tempered``.
        """
        self.name, self.model, self.target, self.passes = name, model, target, passes
        self.sampler, self.inspect, self.vocabulary = sampler, inspect, target.config.vocab_size
        config = model.config
        # read only once, because these properties search the model's parameters or config
        self.dtype, self.device, self.mask_token = model.dtype, model.device, model.mask_token_id
        self.taps, self.layers = model.target_layer_ids, range(config.num_hidden_layers)
        self.form, self.shift = model.form, model.form.shift
        self.token_ids = None if model.token_ids is None else model.token_ids.to(self.device)
        shape = (config.num_hidden_layers, config.num_key_value_heads, config.head_dim)
        make = partial(KeyValueCache.uniform, *shape, dtype=model.dtype, device=self.device)
        self.cache = passes.cache(name, make)
        self.merged = model.merged(passes.kernels) if passes.merged else None
        self.scale = config.head_dim**-0.5
        self._later: list[Tensor] = []
        self.drafted = False  # whether it has drafted since the last commit
        self.keeps = False  # whether blocks keep the distributions of all tokens (``Block.whole``)
        self._first_rows: tuple[Tensor, Block] | None = None

    def extend(self, features: Tensor, positions: Tensor) -> None:
        """Adds committed tokens to the context.

        features: the target's features of the tokens, (1, T, taps·hidden).
        positions: positions of the tokens in the text, (T,).
        """
        features, count = features.to(self.dtype), len(positions)
        if self.passes.fixed and count <= MAX_COMMITTED:
            rows = row_shape(count)
            _, slots = self.passes.window(self.cache, rows)  # a token's slot is its position
            padded = F.pad(features, (0, 0, 0, rows - count))
            self.passes.run(("extend", self.name, self.merged, rows), self.project, padded, slots)
        else:
            lean = self.merged if self.passes.fixed else self.model.packed()
            if lean is not None:
                self.cache.write(*self._contexts(lean, features, positions))
            else:
                for layer, pair in enumerate(self.model.project_context(features, positions[None])):
                    self.cache.update(*pair, layer)
        self.cache.length += count
        self.drafted = False

    def later(self, features: Tensor) -> None:
        """Keeps features of committed tokens, which directly follow the context. The next draft adds them to the context
        (``extend``) before it drafts.

        """
        self._later.append(features)

    def catch_up(self) -> None:
        if self._later:
            features = self._later[0] if len(self._later) == 1 else torch.cat(self._later, 1)
            self._later.clear()
            start = self.cache.length
            self.extend(features, torch.arange(start, start + features.shape[1], device=self.model.device))

    def project(self, features: Tensor, slots: Tensor) -> tuple[Tensor, ...]:
        """Writes the keys and values of features (1, T, taps·hidden) to the context slots (T,). The slot of a token is its
        position.
        """
        if self.merged is not None:
            self.cache.scatter(slots, self._contexts(self.merged, features, slots))
            return ()
        for layer, pair in enumerate(self.model.project_context(features, slots[None])):
            for buffer, new in zip(self.cache.buffers(layer), pair, strict=True):
                buffer.index_copy_(2, slots, new)
        return ()

    def _contexts(self, lean: LeanLayers, features: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Returns keys and values of features (1, T, taps·hidden) for all layers, (layers, 1, KV heads, T, head_dim)."""
        context = self.model.hidden_norm(self.model.fc(features))
        return lean.contexts(context, positions, self.cache.capacity)

    def draft(self, anchor: int, prefixes: Sequence[Sequence[int]], block_size: int, top: int) -> list[Block]:
        """Drafts one block per prefix in a batched pass. Returns the blocks, with greedy tokens at the mask positions.

        A block consists of the anchor, a prefix and mask tokens. The anchor follows the context directly; all blocks share the keys
        and values of the context.

        prefixes: for each block, the tokens after the anchor that are given.
        block_size: γ, including the anchor.
        top: number of likeliest tokens to return per position.
        """
        # with a shift of 1, a row predicts the token of the next position
        starts = [b * (block_size - self.shift) - self.shift for b in range(len(prefixes))]
        masked = [start + k for start, p in zip(starts, prefixes, strict=True) for k in range(1 + len(p), block_size)]
        count = len(masked)
        if self.passes.fixed:
            masked += [0] * (len(prefixes) * (block_size - 1) - count)
        rows = torch.tensor(masked, device=self.device)
        best, logits = self.run(("draft",), self.forward, anchor, prefixes, block_size, top, rows)
        drafted, begin = best[:count].tolist(), 0  # one copy from the device
        blocks = []
        for prefix in prefixes:
            end = begin + block_size - 1 - len(prefix)
            blocks.append(replace(self.block(len(prefix), drafted[begin:end]), whole=self.whole(logits[begin:end])))
            begin = end
        if not prefixes[0]:
            logits = logits[: block_size - 1]
            if self.inspect:
                blocks[0] = replace(blocks[0], tempered=rows_of(tempered(logits, logits.argmax(-1))))
            self._first_rows = logits, blocks[0]
        return blocks

    def run(
        self,
        name: tuple[Hashable, ...],
        work: Callable[..., tuple[Tensor, ...]],
        anchor: int,
        prefixes: Sequence[Sequence[int]],
        block_size: int,
        top: int,
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        """Runs a pass over blocks of anchor, prefix and mask tokens, after the context.

        name: name of the pass, and all settings that change its computation.
        work: function that computes the pass from the blocks' token ids (B, R), their positions (R,), and ``inputs``. Its
            parameters ``read`` and ``top`` are those of ``forward``.
        anchor, prefixes, block_size, top: as for ``draft``.
        inputs: further tensors for ``work``.
        """
        self.catch_up()
        self.drafted = True
        passes, size, start = self.passes, block_size - self.shift, self.cache.length
        rows = [[anchor, *p, *[self.mask_token] * (size - 1 - len(p))] for p in prefixes]
        ids = torch.tensor(rows, device=self.device)
        if not passes.fixed:
            return work(ids, torch.arange(start, start + size, device=self.device), *inputs, read=None, top=top)
        read, slots = passes.window(self.cache, size)
        self.plan(len(prefixes), size)
        key = (*name, self.name, self.merged, ids.shape, read, top)
        return passes.run(key, partial(work, read=read, top=top), ids, slots, *inputs)

    def plan(self, branches: int, rows: int) -> None:
        """Plans the attention of a fixed-shape pass over ``branches`` blocks of ``rows`` rows each."""
        c = self.model.config
        shape = (branches, c.num_attention_heads, rows, c.head_dim)
        self.passes.plan(shape, self.model.dtype, c.num_key_value_heads, self.cache.length, False, self.scale)

    def block(self, prefix: int, drafted: Sequence[Sequence[float]]) -> Block:
        """Returns the block that ``forward`` has drafted, with ids and probabilities as Python numbers.

        prefix: number of tokens after the anchor that the drafter was given instead of drafting them.
        drafted: for each drafted token, its row in the first output of ``forward``.
        """
        ranked = len(drafted[0]) // 3 if drafted else 0
        tokens = [[int(t) for t in row[ranked : 2 * ranked]] for row in drafted]
        probabilities = [row[:ranked] for row in drafted]
        ids, confidence = tuple(t[0] for t in tokens), tuple(p[0] for p in probabilities)
        logs = [row[2 * ranked :] for row in drafted]
        check_confidence(confidence, self.model.config.name_or_path, self.target)
        return Block(self.name, prefix, ids, confidence, tokens, probabilities, logs=logs)

    def forward(
        self, ids: Tensor, positions: Tensor, masked: Tensor, read: int | None, top: int
    ) -> tuple[Tensor, Tensor]:
        """Runs the drafter over blocks (B, R) at positions (R,) after the context.

        masked: (M,) indices, in the flattened blocks, of the rows whose outputs are returned.
        read: number of context slots that a fixed-shape pass reads; None: all filled slots.
        top: number of likeliest tokens to return per row.

        Returns two tensors. The first, (M, 3·top) float64, has the ``top`` largest probabilities of each row, then their tokens,
        then the logarithms of these probabilities. The second has the logits, (M, D).
        """
        logits = self.logits(self.hidden(ids, positions, read).flatten(0, 1)[masked])
        count = min(top, logits.shape[-1])
        best = logits.topk(count, -1).indices if count > 1 else logits.argmax(-1, keepdim=True)
        logs = logits.log_softmax(-1, dtype=torch.float32).gather(-1, best).clamp_max(0.0)
        return torch.cat([part.double() for part in (logs.exp(), self.target_ids(best), logs)], -1), logits

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits (…, D) over the draft vocabulary for hidden states (…, hidden), in the dtype of the LM head."""
        if (head := self.model.lm_head) is not None:
            return head(hidden)
        if self.token_ids is not None:
            return self.model.rows_of_head(self.target.head.weight)(hidden.to(self.target.dtype))
        return self.target.borrowed_scores(hidden.to(self.target.dtype))

    def target_ids(self, indices: Tensor) -> Tensor:
        return indices if self.token_ids is None else self.token_ids[indices]

    def whole(self, scores: Tensor) -> Callable[[int], Tensor] | None:
        """Returns the function ``Block.whole`` of a block; None unless ``keeps``.

        scores: logits or log probabilities of the block, (M, D).
        """
        return partial(self._whole, scores) if self.keeps else None

    def _whole(self, scores: Tensor, position: int) -> Tensor:
        drafted = scores[position].softmax(-1, dtype=torch.float32)
        if self.token_ids is None:
            return drafted
        return drafted.new_zeros(self.vocabulary).index_copy_(0, self.token_ids, drafted)

    def embed(self, ids: Tensor) -> Tensor:
        """Returns the drafter's input embeddings (…, hidden) of token ids (…)."""
        table = self.target.embedding if self.model.embed_tokens is None else self.model.embed_tokens
        block = table(ids).to(self.dtype)
        return block if self.form.embedding_scale == 1 else block * self.form.embedding_scale

    def hidden(self, ids: Tensor, positions: Tensor, read: int | None) -> Tensor:
        """Returns the hidden states (B, R, hidden) of blocks ``ids`` (B, R), after the final norm.

        positions, read: as for ``forward``.
        """
        block, layers, seen, backend = self.embed(ids), self.layers, None, self.passes.backend
        if read is None and backend is attend_dense and (packed := self.model.packed()) is not None:
            return self._run_packed(packed, block, positions)
        if read is None:
            context = [self.cache.layer(i) for i in layers]
        else:
            context = [(k[:, :, :read], v[:, :, :read]) for k, v in map(self.cache.buffers, layers)]
            seen = torch.arange(read, device=positions.device) < positions[0]

        masks = []
        if self.form.masked:
            shape = (positions[0], context[0][0].shape[2], len(positions), self.device)
            masks = [attention_mask(self.form, layer, *shape) for layer in layers]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            if masks:
                return attend_masked(self.scale, masks[layer], query, *context[layer], key, value)
            return backend(query, context[layer], (key, value), None, self.scale, None, seen)

        if read is not None and self.merged is not None:
            return self.merged.run(block, positions, self.cache.capacity, attend)
        return self.model(block, positions[None], attend)

    def _run_packed(self, packed: PackedLayers, x: Tensor, positions: Tensor) -> Tensor:
        """Runs embedded blocks ``x`` (B, R, hidden) as rows of one pass. Returns their hidden states. Blocks do not attend to each
        other.

        Keys and values of the blocks are written after the committed context, where the next draft or commit overwrites them.
        """
        batch, rows, _ = x.shape
        mask = None
        if batch > 1:
            block = torch.arange(batch).repeat_interleave(rows)
            mask = mask_after(self.cache.length, block[:, None] == block)
        views = self.cache.views(batch * rows)
        return packed.run(x.flatten(0, 1), positions.repeat(batch), self.cache.capacity, views, mask)[0].view_as(x)

    def sample(self, count: int, seed: int) -> list[Block]:
        """Returns ``count`` blocks, sampled at temperature 1 from the distributions of the latest draft that had an empty prefix.

        All positions of all blocks are sampled independently.
        """
        assert self._first_rows is not None, "draft first"
        logits, block = self._first_rows
        probabilities = logits.softmax(-1, dtype=torch.float32)
        generator = torch.Generator(logits.device).manual_seed(seed)
        ids = torch.multinomial(probabilities, count, replacement=True, generator=generator)
        confidence = probabilities.gather(1, ids).T.tolist()
        return [
            replace(block, ids=tuple(i), confidence=tuple(c), tempered=())
            for i, c in zip(ids.T.tolist(), confidence, strict=True)
        ]


def best_tokens(ranked: Tensor) -> Tensor:
    """Returns the likeliest token of each row, int64.

    ranked: first output of ``BlockDrafter.forward``.
    """
    return ranked[..., ranked.shape[-1] // 3].long()


def attend_masked(
    scale: float, mask: Tensor, query: Tensor, context_key: Tensor, context_value: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Returns the attention of R rows to C context rows and to each other.

    mask: which rows each row attends to, (R, C + R) or (B, 1, R, C + R) bool.
    """
    pairs, batch = ((context_key, key), (context_value, value)), len(query)
    keys, values = (torch.cat([context.expand(batch, -1, -1, -1), rows], 2) for context, rows in pairs)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale, enable_gqa=True)
