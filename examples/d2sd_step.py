"""D²SD (arXiv 2606.04446) in one short file: greedy decoding with two block drafters, from prompt to text.

Each step drafts a block, estimates where the target will reject it, re-drafts from the K likeliest boundaries, and merges
all drafts into one token tree. It then verifies the tree in one pass of the target, and commits the accepted path and the
bonus token. ``d2sd/decoding/`` also supports other temperatures, GPUs, methods and drafters.

    python -m examples.d2sd_step [PROMPT]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from d2sd.folders.loading import load_models
from d2sd.folders.model_sets import resolve
from d2sd.nets.attention import attend_dense as attend
from d2sd.nets.caches import KeyValueCache
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.tree.block import Block, DrafterName
from d2sd.tree.boundary import boundary_posterior, open_prefixes, select_prefixes
from d2sd.tree.tree import merge_drafts
from d2sd.tree.walk import walk


class Drafter:
    """A block drafter, and its context: keys and values of the committed tokens."""

    def __init__(self, name: DrafterName, model: DFlashDraftModel, target: Target, capacity: int):
        self.name, self.model, self.target = name, model, target
        c = model.config
        heads = c.num_hidden_layers, c.num_key_value_heads, c.head_dim
        self.context = KeyValueCache.uniform(*heads, capacity, model.dtype, model.device)
        self.scale = c.head_dim**-0.5

    def read(self, rows: Tensor | slice) -> None:
        """Append rows of the target's last pass to the context. They must be committed tokens."""
        features = self.target.features(self.model.target_layer_ids, rows)  # (1, T, taps · hidden)
        positions = self.context.length + torch.arange(features.shape[1])
        for layer, (keys, values) in enumerate(self.model.project_context(features, positions[None])):
            self.context.update(keys, values, layer)
        self.context.length += len(positions)

    def draft(self, anchor: int, prefixes: Sequence[tuple[int, ...]], size: int) -> list[Block]:
        """Fill blocks of ``size`` tokens (anchor, prefix, masks) in one batched pass. Each mask gets its likeliest token, with
        the token's probability as confidence."""
        blocks = [[anchor, *p, *[self.model.mask_token_id] * (size - 1 - len(p))] for p in prefixes]
        positions = self.context.length + torch.arange(size)
        hidden = self.model(self.target.embedding(torch.tensor(blocks)), positions[None], self.attend)
        best = self.target.logits(hidden).softmax(-1).max(-1)  # (K, γ) probabilities and tokens
        return [
            Block(self.name, len(p), tuple(ids[1 + len(p) :]), tuple(confidence[1 + len(p) :]), (), ())
            for p, ids, confidence in zip(prefixes, best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """In every layer, the rows of a block attend to the whole context and to the whole block."""
        return attend(query, self.context.layer(layer), (key, value), None, self.scale)


@torch.inference_mode()
def generate(models: Models, prompt: str, max_new_tokens: int = 64, branches: int = 4) -> tuple[str, int]:
    """Continue a prompt at temperature 0. Returns the text and the number of steps. ``branches`` is K."""
    target, ends = models.target, models.target.end_ids
    assert models.first is not None
    assert models.second is not None
    size = min(models.first.block_size, models.second.block_size)  # γ
    ids = target.tokenizer(prompt)["input_ids"]
    capacity = len(ids) + max_new_tokens + (branches + 1) * size
    cache = target.new_cache(capacity)
    first = Drafter("first", models.first, target, capacity)
    second = Drafter("second", models.second, target, capacity)

    # Prefill: read the prompt; the target chooses the first token, the anchor of the first step.
    hidden = target.forward(torch.tensor(ids), torch.arange(len(ids)), cache, None, None)
    cache.commit(range(len(ids)))
    first.read(slice(None))
    second.read(slice(None))
    output, steps = [int(target.logits(hidden[-1:]).argmax())], 0

    while len(output) < max_new_tokens and output[-1] not in ends:
        steps += 1
        anchor = output[-1]
        # 1. Draft γ − 1 tokens after the anchor in one pass.
        (draft,) = first.draft(anchor, [()], size)
        # 2. Where will the target reject them? Select the K prefixes with the largest r(i) = c_1 · … · c_i · (1 − c_{i+1}).
        posterior = boundary_posterior(draft.confidence).posterior[: open_prefixes(draft.ids, ends)]
        selected = select_prefixes(posterior, branches)
        # 3. Re-draft after each selected prefix, in one batch.
        redrafts = second.draft(anchor, [draft.ids[:i] for i in selected], size)
        # 4. Merge all drafts at equal prefixes into one token tree, rooted at the anchor.
        tree = merge_drafts(anchor, [draft, *redrafts])
        # 5. Verify: one pass over the tree, where a node attends to its ancestors; then follow the target's choices.
        mask, depths = torch.from_numpy(tree.ancestor_mask()), torch.tensor(tree.depths)
        hidden = target.forward(torch.tensor(tree.tokens), cache.length + depths, cache, mask, attend)
        chosen = target.logits(hidden).argmax(-1).tolist()
        path = walk(tree, chosen, ends, max_new_tokens - len(output))
        # 6. Commit the accepted path and the bonus token; keep the keys and values of the anchor and the path.
        output += [tree.tokens[node] for node in path.accepted] + ([] if path.bonus is None else [path.bonus])
        rows = [0, *path.accepted]
        cache.commit(rows)
        first.read(torch.tensor(rows))
        second.read(torch.tensor(rows))
    return target.tokenizer.decode(output, skip_special_tokens=True), steps


if __name__ == "__main__":
    text, count = generate(load_models(resolve("tiny"), device="cpu"), " ".join(sys.argv[1:]) or "Once upon a time")
    print(f"{text}\n\n{count} steps")
