"""The target model: a causal LM from transformers (supported types: ``d2sd.nets.types``), run over token trees.

Its layers run transformers' code, but call an attention function of this package, registered with transformers. In this function,
rows see the committed prefix and their own ancestors. ``forward`` of linear layers is replaced (``d2sd.nets.linear_attention``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from d2sd.errors import InputError, first_line
from d2sd.nets.attention import Backend, attend_dense
from d2sd.nets.caches import BatchPass, CacheWindow, KeyValueCache, LayerCache, LinearState
from d2sd.nets.config_checks import require_template
from d2sd.nets.dtypes import product
from d2sd.nets.lean import Kernels, MergedLayers, merged_layers
from d2sd.nets.linear_attention import follow_trees
from d2sd.nets.packed import PackedLayers, mask_after
from d2sd.nets.transformers_calls import cache_argument
from d2sd.nets.tree_attention import ATTENTION, LayerOptions, PassRows, TreeAttention, attend_chain
from d2sd.nets.types import (
    check_supported,
    eager_reason,
    final_logits,
    head_shape,
    layer_kinds,
    target_type,
    text_config,
    window,
)

# Target features: outputs of selected decoder layers, stored by forward hooks.


class LayerTaps:
    """Stores the latest output of each tapped layer. Index n means the output of decoder layer n, counted from 0."""

    def __init__(self, layers: nn.ModuleList):
        self._layers = layers
        self._outputs: dict[int, Tensor] = {}
        self._hooks: dict[int, RemovableHandle] = {}

    def add(self, indices: Iterable[int]) -> None:
        """Taps layers: from now on, their outputs are stored."""
        for index in set(indices) - self._hooks.keys():

            def keep(_: nn.Module, __: Any, output: Any, index: int = index) -> None:
                self._outputs[index] = output[0] if isinstance(output, tuple) else output

            self._hooks[index] = self._layers[index].register_forward_hook(keep)

    def keep(self, index: int, output: Tensor, copy: bool = False) -> None:
        """Stores the output of a layer that ran without its hooks, if the layer is tapped.

        copy: whether to store a copy of the output.
        """
        if index in self._hooks:
            self._outputs[index] = output.clone() if copy else output

    @property
    def layers(self) -> Collection[int]:
        return self._hooks.keys()

    @contextmanager
    def only(self, indices: Iterable[int]) -> Iterator[LayerTaps]:
        """Context in which the outputs of these layers are stored. On exit, no layer is tapped any more."""
        self.add(indices)
        try:
            yield self
        finally:
            for hook in self._hooks.values():
                hook.remove()
            self._hooks.clear()

    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self._outputs[i] for i in sorted(self._hooks))

    def restore(self, outputs: Iterable[Tensor]) -> None:
        """Sets the outputs of the last pass, in ascending order of layers. Needed if no hooks ran (replays, packed layers)."""
        self._outputs = dict(zip(sorted(self._hooks), outputs, strict=True))

    def features(self, indices: Iterable[int], device: torch.device) -> Tensor:
        """Returns the outputs of tapped layers in the last pass, concatenated, (B, rows, taps·hidden).

        indices: the layers, in the order of concatenation.
        """
        return torch.cat([self._outputs[i].to(device) for i in indices], dim=-1)


def _fuse_norms(model: nn.Module, name: str | None) -> None:
    """Replaces RMSNorm modules whose class has this name by torch's RMSNorm: one kernel instead of seven operations.

    Norms with hooks of accelerate are kept, since the hooks move inputs between GPUs.
    """
    for parent in list(model.modules()):
        for child, module in parent.named_children():
            if type(module).__name__ == name and not hasattr(module, "_hf_hook"):
                norm: Any = module
                fused = nn.RMSNorm(norm.weight.shape[0], eps=norm.variance_epsilon, device="meta")
                fused.weight = norm.weight
                setattr(parent, child, fused)


class Target:
    """A frozen causal LM with its tokenizer. Its attribute ``taps`` stores outputs of decoder layers."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, name: str):
        check_supported(model.config, name)
        config = text_config(model.config)
        model.set_attn_implementation(ATTENTION)
        _fuse_norms(model, target_type(config).norm)
        self.model: Any = model.eval().requires_grad_(False)
        self.tokenizer, self.name = tokenizer, name
        self.base: Any = model.model
        self._cache_argument = cache_argument(type(self.base).forward)
        self.embedding: Any = model.get_input_embeddings()
        self.taps = LayerTaps(self.base.layers)
        self.kinds = layer_kinds(config)
        for layer, kind in zip(self.base.layers, self.kinds, strict=True):
            if kind == "linear":
                follow_trees(layer.linear_attn)
        self.head: Any = model.lm_head
        self.config, self._window = config, window(config)
        self._merged: dict[Kernels, MergedLayers] = {}
        self.mixed = False  # whether packed layers keep their weights in float16

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype

    @property
    def numbers(self) -> str:
        """Name of the number format, one of ``d2sd.nets.dtypes.DTYPES``."""
        return "mixed" if self.mixed else str(self.dtype).removeprefix("torch.")

    @property
    def capturable(self) -> bool:
        """Whether passes can be captured as CUDA graphs.

        This requires that ``d2sd.nets.types.eager_reason`` is None, and that all layers are on one device and not quantised
        (quantised layers read values on the host).
        """
        whole = len({p.device for p in self.model.parameters()}) == 1
        plain = eager_reason(self.config) is None
        return whole and plain and getattr(self.model, "hf_quantizer", None) is None

    @property
    def fixable(self) -> bool:
        """Whether passes can have fixed shapes.

        This is False with linear layers (padding rows would change their states) and with layers that use another layer's keys and
        values (these would lack the new rows).
        """
        return "linear" not in self.kinds and len(self._kept) == len(self._attentions)

    @property
    def plain_attention(self) -> bool:
        """Whether the attention layers have neither sliding windows nor sinks."""
        return "sliding" not in self.kinds and not any(hasattr(a, "sinks") for a in self._attentions.values())

    @cached_property
    def _attentions(self) -> dict[int, Any]:
        return {n: layer.self_attn for n, layer in enumerate(self.base.layers) if self.kinds[n] != "linear"}

    @cached_property
    def _kept(self) -> dict[int, Any]:
        return {n: a for n, a in self._attentions.items() if not getattr(a, "is_kv_shared_layer", False)}

    @property
    def scale(self) -> float:
        return next(iter(self._attentions.values())).scaling

    @property
    def max_positions(self) -> int:
        return self.config.max_position_embeddings

    @property
    def end_ids(self) -> frozenset[int]:
        for holder in (self.model.generation_config, self.config, self.tokenizer):
            if (ids := holder.eos_token_id) is not None:
                return frozenset([ids] if isinstance(ids, int) else ids)
        return frozenset()

    def chat_ids(self, message: str, thinking: bool) -> list[int]:
        return chat_ids(self.tokenizer, self.name, [{"role": "user", "content": message}], thinking)

    def new_cache(self, capacity: int, batch: int = 1, dtype: torch.dtype | None = None) -> KeyValueCache:
        """Returns an empty cache. dtype: of keys and values; None: the target's."""
        homes = {n: a.k_proj.weight.device for n, a in self._kept.items()}
        shapes = {n: (a.k_proj.out_features // a.head_dim, a.head_dim) for n, a in self._kept.items()}
        arguments = shapes, capacity, dtype or self.dtype, homes, batch
        states = {n: self._state(n, batch) for n, kind in enumerate(self.kinds) if kind == "linear"}
        return LayerCache(states, *arguments) if states else KeyValueCache(*arguments)

    def _state(self, layer: int, batch: int) -> LinearState:
        net = self.base.layers[layer].linear_attn
        weight = net.conv1d.weight
        inputs = weight.new_zeros(batch, len(weight), net.conv_kernel_size - 1)
        shape = (batch, net.num_v_heads, net.head_k_dim, net.head_v_dim)
        return LinearState(inputs, torch.zeros(shape, dtype=torch.float32, device=weight.device))

    @cached_property
    def head_shape(self) -> tuple[int, int, int]:
        return head_shape(self.config)

    @cached_property
    def packed(self) -> PackedLayers | None:
        """Packed copies of the layers, created at first use from the current weights; None if packing is not possible."""
        return PackedLayers(self.base, self.mixed) if PackedLayers.possible(self.base, self.config) else None

    def merged(self, kernels: Kernels) -> MergedLayers | None:
        """Returns the layers with merged weights, for fixed-shape passes; None if merging is not possible."""
        return merged_layers(self._merged, kernels, self.base, self.base)

    @cached_property
    def _head(self) -> Callable[[Tensor], Tensor]:
        return self.head if self.packed is None else product(self.head.weight, self.mixed)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits, (…, V) float32, of hidden states (…, hidden) after the final norm."""
        return self.scores(hidden).float()

    def scores(self, hidden: Tensor) -> Tensor:
        """Returns the same logits as ``logits``, but in the target's dtype unless a scale or cap needs float32."""
        return final_logits(self.config, self._head(hidden))

    def borrowed_scores(self, hidden: Tensor) -> Tensor:
        """Returns the LM head's output for a drafter's hidden states, without the target's scale or cap, in the target's dtype."""
        return self._head(hidden)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: KeyValueCache | CacheWindow,
        tree_mask: Tensor | None,
        backend: Backend | None,
        merged: MergedLayers | None = None,
    ) -> Tensor:
        """Returns the hidden states of the rows after the final norm, (R, hidden). Writes the rows' keys and values to the cache.

        ids, positions: token ids and positions of the rows, (R,) int64.
        tree_mask: (R, R) bool; None for a prompt on an empty cache, or for one row. A ``CacheWindow`` needs a mask and a backend.
        merged: the result of the method ``merged``; only with a ``CacheWindow``.
        """
        window = cache if isinstance(cache, CacheWindow) else None
        small = len(ids) == 1 or (backend is attend_dense and tree_mask is not None)
        if small and isinstance(cache, KeyValueCache) and (packed := self.packed) is not None:
            mask = None if tree_mask is None or len(ids) == 1 else mask_after(cache.length, tree_mask)
            views = cache.views(len(ids))
            hidden, outputs = packed.run(self._embed(ids), positions, cache.capacity, views, mask, self.taps.layers)
            self.taps.restore(outputs)
            return hidden
        rows = None if tree_mask is None else PassRows(positions, tree_mask)
        attend = attend_chain if rows is None or backend is None else TreeAttention(backend, rows, window)
        if merged is not None and window is not None:

            def attend_in_layer(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                size = self._window if self.kinds[layer] == "sliding" else None
                return attend(query, *window.store(key, value, layer), LayerOptions(merged.scale, size))

            keep = partial(self.taps.keep, copy=merged.kernels.in_place)
            return merged.run(self._embed(ids)[None], positions, window.capacity, attend_in_layer, keep)[0]
        return self.read(ids[None], cache, positions[None], attend=attend, rows=rows)[0]

    def read(
        self,
        ids: Tensor,
        cache: KeyValueCache | CacheWindow | BatchPass,
        positions: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Returns the hidden states of a batch after the final norm, (B, R, hidden). Writes keys and values to the cache.

        ids: (B, R) int64.
        positions: (B or 1, R) int64; None for the positions after the cache's text.
        others: further arguments for the layers' attention function.
        """
        return self.base(
            input_ids=ids, position_ids=positions, use_cache=True, **{self._cache_argument: cache}, **others
        ).last_hidden_state

    def _embed(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.embedding.weight)
        factor = getattr(self.config, "embedding_multiplier", 1.0)
        return x if factor == 1 else x * factor

    def features(self, layers: list[int], rows: Tensor | slice) -> Tensor:
        """Returns the target's features for rows of the last pass: outputs of ``layers``, concatenated, (1, rows, taps·hidden)."""
        return self.taps.features(layers, self.device)[:, rows]


def chat_ids(tokenizer: Any, name: str, messages: Sequence[Mapping[str, str]], thinking: bool) -> list[int]:
    """Returns the token ids of a chat in the tokenizer's template, up to the start of the answer to the last message.

    name: the model's name, for error messages.
    messages: each with ``role`` and ``content``.
    thinking: passed to templates that support it, as enable_thinking (Qwen3) or as a high or low reasoning_effort (gpt-oss); other
        templates ignore it.

    Raises ``InputError`` if the tokenizer has no template, its template refuses the messages, or the last message begins with a
    special token, so that the template seems to be applied already.
    """
    template = tokenizer.chat_template
    require_template(template, name)
    special = (t.content for t in tokenizer.added_tokens_decoder.values() if t.special)
    if begun := next((t for t in special if messages[-1]["content"].lstrip().startswith(t)), None):
        raise InputError(
            f"the prompt begins with {begun}, so it already has a chat template; leave out --chat, or give only the message"
        )
    options: dict[str, Any] = {"enable_thinking": thinking}
    if "reasoning_effort" in str(template) and "enable_thinking" not in str(template):
        options["reasoning_effort"] = "high" if thinking else "low"
    try:
        ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False, **options)
    except Exception as error:  # templates are third-party code and may raise anything
        raise InputError(f"the chat template of {name} failed: {first_line(error)}") from error
    return list(ids)
