"""The target model: any Qwen3- or Llama-type causal LM of transformers, run over token trees.

Its layers stay as they are; ours is only the attention function that they call, registered with transformers'
attention interface, which lets rows see the committed prefix plus their own ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedModel

from d2sd.attention import Backend
from d2sd.attention.dense import attend as dense
from d2sd.errors import InputError, first_line
from d2sd.models.lean import LeanLayers, product
from d2sd.models.numbers import can_mix
from d2sd.models.taps import LayerTaps
from d2sd.passes.cache import CacheWindow, KeyValueCache

ATTENTION = "token_tree"
SUPPORTED = ("qwen3", "llama")


def check_supported(config: Any, name: str) -> None:
    """Raise ``InputError`` where a target of this transformers config cannot be verified exactly as a token tree."""
    windows = any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ())
    # older configs, and those of other families, name only the width of the window
    windows = windows or bool(getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))
    if config.model_type not in SUPPORTED:
        reason = " (its attention sinks and sliding windows are not)" if config.model_type == "gpt_oss" else ""
        reason = reason or (" (its sliding windows are not)" if windows else "")
        raise InputError(
            f"targets of type {config.model_type!r} are not supported{reason}; choose {' or '.join(SUPPORTED)}"
        )
    if windows:
        raise InputError(
            f"{name} uses sliding-window layers, which tree verification does not support; choose a target whose "
            "layers all see the whole text"
        )


def _tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    backend: Backend | None = None,
    tree_mask: Tensor | None = None,
    window: CacheWindow | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of R new rows over C cached and R own keys; without ``tree_mask`` the rows are a causal chain."""
    rows = query.shape[2]
    context = key.shape[2] - rows
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if window is not None and backend is not None:
        out = backend(query, (key, value), window.fresh, tree_mask, scale, None, window.seen)
    elif rows == 1:  # heads that share keys become rows of one product: keys and values are not repeated for each
        grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
        out = F.scaled_dot_product_attention(grouped, key, value, scale=scale).reshape(query.shape)
    elif backend is None or tree_mask is None:  # a prompt read from an empty cache
        out = F.scaled_dot_product_attention(query, key, value, is_causal=rows > 1, scale=scale, enable_gqa=True)
    else:
        prefix = key[:, :, :context], value[:, :, :context]
        block = key[:, :, context:], value[:, :, context:]
        out = backend(query, prefix, block, tree_mask.to(query.device), scale, (key, value))
    return out.transpose(1, 2), None


AttentionInterface.register(ATTENTION, _tree_attention)


def _fuse_norms(model: nn.Module) -> None:
    """Let torch's one-kernel RMSNorm take the place of the model's own, which is written out in seven operations.

    Where accelerate spreads a model over GPUs, norms stay: it has hooked them to move their inputs.
    """
    for parent in list(model.modules()):
        for name, module in parent.named_children():
            if type(module).__name__ in ("Qwen3RMSNorm", "LlamaRMSNorm") and not hasattr(module, "_hf_hook"):
                norm: Any = module
                fused = nn.RMSNorm(norm.weight.shape[0], eps=norm.variance_epsilon, device="meta")
                fused.weight = norm.weight
                setattr(parent, name, fused)


class Target:
    """A frozen causal LM with its tokenizer; ``taps`` are the decoder layers whose outputs are kept."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, name: str):
        config = model.config
        check_supported(config, name)
        model.set_attn_implementation(ATTENTION)
        _fuse_norms(model)
        self.model: Any = model.eval().requires_grad_(False)
        self.tokenizer, self.name = tokenizer, name
        self.base: Any = model.model
        self.embedding: Any = model.get_input_embeddings()
        self._taps = LayerTaps(self.base.layers)
        self.head: Any = model.lm_head
        self.mixed = False  # whether lean layers keep their weights in float16

    @property
    def config(self) -> Any:
        """The transformers config."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the embedding table lies."""
        return torch.device(self.embedding.weight.device)

    @property
    def dtype(self) -> torch.dtype:
        """Parameter type."""
        dtype: torch.dtype = self.embedding.weight.dtype
        return dtype

    @property
    def numbers(self) -> str:
        """Name of its number format, one of ``d2sd.models.numbers.DTYPES``."""
        return "mixed" if self.mixed else str(self.dtype).removeprefix("torch.")

    @property
    def mixable(self) -> bool:
        """Whether it can run in mixed numbers here."""
        return can_mix() and LeanLayers.possible(self.base, self.config)

    @property
    def capturable(self) -> bool:
        """Whether its passes can be CUDA graphs: all layers on one device, and none quantised, since such layers look at
        values on the way."""
        whole = len({p.device for p in self.model.parameters()}) == 1
        return whole and getattr(self.model, "hf_quantizer", None) is None

    @property
    def max_positions(self) -> int:
        """Longest sequence that the model was made for, in tokens."""
        return int(self.config.max_position_embeddings)

    @property
    def end_ids(self) -> frozenset[int]:
        """Token ids that end a text."""
        ids = self.model.generation_config.eos_token_id
        ids = self.config.eos_token_id if ids is None else ids
        ids = self.tokenizer.eos_token_id if ids is None else ids
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else ids)

    def chat_ids(self, message: str, thinking: bool) -> list[int]:
        """Ids of one user message in the chat template, up to where the answer begins.

        ``thinking`` reaches templates that know it (Qwen3) and changes nothing in others. Raises ``InputError`` where
        the tokenizer has no template, its template refuses the message, or the message already stands in it.
        """
        if not self.tokenizer.chat_template:
            raise InputError(f"{self.name} has no chat template; give the prompt as it is")
        special = (t.content for t in self.tokenizer.added_tokens_decoder.values() if t.special)
        if begun := next((t for t in special if message.lstrip().startswith(t)), None):
            raise InputError(
                f"the prompt begins with {begun}, as a chat template does; leave out --chat, or give the message alone"
            )
        try:
            ids = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": message}],
                add_generation_prompt=True,
                enable_thinking=thinking,
                return_dict=False,
            )
        except Exception as error:  # templates are programs of the model's makers and may raise anything
            raise InputError(f"the chat template of {self.name} failed: {first_line(error)}") from error
        return list(ids)

    def tap(self, layers: list[int]) -> None:
        """Keep the outputs of these decoder layers from now on."""
        self._taps.add(layers)

    def new_cache(self, capacity: int, batch: int = 1) -> KeyValueCache:
        """An empty cache with room for ``capacity`` tokens of each of ``batch`` sequences."""
        _, kv_heads, head_dim = self.head_shape
        homes = [next(layer.self_attn.k_proj.parameters()).device for layer in self.base.layers]
        return KeyValueCache(len(homes), kv_heads, head_dim, capacity, self.dtype, homes, batch)

    @property
    def head_shape(self) -> tuple[int, int, int]:
        """Attention heads, key-value heads, and the size of a head."""
        c = self.config
        size = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        return c.num_attention_heads, c.num_key_value_heads, size

    @cached_property
    def _lean(self) -> LeanLayers | None:
        """Its layers with few calls, where that can be; made when first needed, from the weights as they are then."""
        possible = LeanLayers.possible(self.base, self.config)
        return LeanLayers(self.base.layers, self.base.rotary_emb, self.config, self.mixed) if possible else None

    @cached_property
    def _head(self) -> Callable[[Tensor], Tensor]:
        return self.head if self._lean is None else product(self.head.weight, self.mixed)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits, (…, V) float32, of hidden states (…, hidden) after the final norm."""
        return self._head(hidden).float()

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: KeyValueCache | CacheWindow,
        tree_mask: Tensor | None,
        backend: Backend | None,
    ) -> Tensor:
        """Last hidden states of the rows, (R, hidden), after the final norm; writes their keys and values.

        ids, positions: (R,) int64; tree_mask: (R, R) bool or None for a causal chain on an empty cache; a window
        needs both a mask and a backend.
        """
        tree = backend is dense and tree_mask is not None
        if self._lean is not None and isinstance(cache, KeyValueCache) and (tree or len(ids) == 1):
            return self._run_lean(self._lean, ids, positions, cache, tree_mask)
        return self.base(
            input_ids=ids[None],
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            backend=backend,
            tree_mask=tree_mask,
            window=cache if isinstance(cache, CacheWindow) else None,
        ).last_hidden_state[0]

    def _run_lean(
        self, lean: LeanLayers, ids: Tensor, positions: Tensor, cache: KeyValueCache, tree_mask: Tensor | None
    ) -> Tensor:
        """``forward`` for rows after a prefix that all of them see."""
        rows, mask = len(ids), None
        if rows > 1 and tree_mask is not None:
            mask = torch.zeros(rows, cache.length + rows)
            mask[:, cache.length :].masked_fill_(~tree_mask, float("-inf"))
            mask = lean.grouped(mask)
        cos, sin = lean.rotation(positions)
        x = self.embedding.weight[ids][None]
        for index in range(len(lean.layers)):

            def attend(query: Tensor, key: Tensor, value: Tensor, index: int = index) -> Tensor:
                return lean.attention(query, *cache.update(key, value, index), mask)

            x = lean.run(index, x, cos, sin, attend)
            self._taps.keep(index, x)
        return self.base.norm(x)[0]

    def tapped(self) -> tuple[Tensor, ...]:
        """The outputs that were kept of the last pass, by layer."""
        return self._taps.outputs()

    def restore_taps(self, outputs: Sequence[Tensor]) -> None:
        """Let ``features`` read these outputs of an earlier pass."""
        self._taps.restore(outputs)

    def features(self, layers: list[int], rows: Tensor | slice) -> Tensor:
        """Target features of rows of the last pass: tapped outputs side by side, (1, rows, taps·hidden)."""
        return self._taps.features(layers, self.device)[:, rows]
