"""Decoder layers run with few calls: on a CPU and with a small model, calling takes longer than computing.

The results equal those of the layers' own forward passes up to rounding. One product gives query, key and value, another gate
and up. Their weights include those of the norms and are laid out once for the CPU's kernels. Rotary tables are looked up, keys
and values are written directly into the cache, and no module is called. For Qwen3- and Llama-type layers without biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2sd.nets.types import layer_kinds, target_type

FIXED_ROPE = ("default", "linear", "llama3")
MAX_BYTES = 1 << 30  # of a model: its weights exist twice
_PACKED_FOR = 16  # rows; a layout that suits one row and many
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Product = Callable[[Tensor], Tensor]


def product(weight: Tensor, half: bool = False) -> Product:
    """x → x · weightᵀ in float32, from a copy of the weight in oneDNN's own layout; plain where torch comes without oneDNN.

    half: the copy is in float16, laid out for FBGEMM, which widens it again while it multiplies (``d2sd.nets.dtypes.can_mix``).
    """
    if half:
        halved = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)
        multiply = torch.ops.quantized.linear_dynamic_fp16.default
        return lambda x: multiply(x, halved)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR)
        run = torch.ops.mkldnn._linear_pointwise.default
    except (AttributeError, RuntimeError):
        weight = weight.clone()
        return lambda x: F.linear(x, weight)
    return lambda x: run(x, packed, None, "none", [], "")


class Norm:
    """Division by the root mean square of the last ``size`` numbers, without the weight, times 1/√size."""

    def __init__(self, size: int, eps: float):
        self._floor = torch.tensor((size * eps) ** 0.5, dtype=torch.float32)

    def __call__(self, x: Tensor) -> Tensor:
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._floor)


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """Products of one layer; head_norms: (heads + KV heads, head_dim) of queries and keys, None without QK-norm."""

    project: Product
    head_norms: Tensor | None
    out: Product
    gate_up: Product
    down: Product

    @classmethod
    def of(cls, layer: Any, heads: int, kv_heads: int, head_dim: int, half: bool) -> LeanLayer:
        """Of a transformers layer, whose own weights stay as they are."""
        attention, mlp = layer.self_attn, layer.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm.weight, attention.k_norm.weight
            norms = torch.cat([q.expand(heads, head_dim), k.expand(kv_heads, head_dim)]) * head_dim**0.5
        qkv = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        scale = len(layer.input_layernorm.weight) ** 0.5
        return cls(
            product(qkv * (layer.input_layernorm.weight * scale), half),
            norms,
            product(attention.o_proj.weight, half),
            product(
                torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * (layer.post_attention_layernorm.weight * scale),
                half,
            ),
            product(mlp.down_proj.weight, half),
        )


class LeanLayers:
    """A stack of layers with its rotary tables. ``half``: its weights are kept in float16."""

    def __init__(self, layers: Sequence[Any], rotary: Any, config: Any, half: bool = False):
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.scale = self.head_dim**-0.5
        self.group = self.heads // self.kv_heads
        self.half = half
        self.layers = [LeanLayer.of(layer, self.heads, self.kv_heads, self.head_dim, half) for layer in layers]
        self._norm, self._head_norm = (Norm(n, config.rms_norm_eps) for n in (config.hidden_size, self.head_dim))
        self._own, self._rotary = layers, rotary
        self._weights = [p for layer in layers for p in layer.parameters()]
        self._tables = torch.empty(0, dtype=torch.float32), torch.empty(0, dtype=torch.float32)

    @property
    def frozen(self) -> bool:
        """Whether the layers' own weights are still frozen."""
        return not any(p.requires_grad for p in self._weights)

    @cached_property
    def _contexts(self) -> tuple[Product, Tensor | None]:
        """One product for the keys of all layers and then their values, and the weights of the keys' norms, (layers · KV heads,
        head_dim). Created at the first use: only block drafters have rows that are keys and values but never queries."""
        own = [layer.self_attn for layer in self._own]
        norms = None
        if hasattr(own[0], "k_norm"):
            norms = torch.cat([a.k_norm.weight.expand(self.kv_heads, self.head_dim) for a in own]) * self.head_dim**0.5
        weights = [a.k_proj.weight for a in own] + [a.v_proj.weight for a in own]
        return product(torch.cat(weights), self.half), norms

    @staticmethod
    def possible(model: nn.Module, config: Any) -> bool:
        """Whether a model's layers are of this form: few frozen float32 weights on a CPU, no biases, SiLU, and a rotary
        table that does not change with the length of the text."""
        plain = all(
            p.device.type == "cpu" and p.dtype == torch.float32 and not p.requires_grad for p in model.parameters()
        )
        biased = any(name.endswith(".bias") for name, _ in model.named_parameters())
        rope = dict(getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        hooked = any(hasattr(m, "_hf_hook") for m in model.modules())
        plain = plain and target_type(config).lean and set(layer_kinds(config)) == {"full"}
        small = sum(p.numel() * p.element_size() for p in model.parameters()) <= MAX_BYTES
        return small and plain and not biased and not hooked and config.hidden_act == "silu" and rope in FIXED_ROPE

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of (R,) positions, (R, 1, head_dim) each."""
        last = int(positions.max())
        tables = self._tables  # both from one look: another thread may put longer or shorter ones there
        if last >= len(tables[0]):
            self._tables = tables = self._tabulate(2 * last + 256)
        cos, sin = tables
        return cos[positions], sin[positions]

    def _tabulate(self, count: int) -> tuple[Tensor, Tensor]:
        cos, sin = self._rotary(torch.empty(0, dtype=torch.float32), torch.arange(count)[None])
        half = self.head_dim // 2
        signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
        return cos[0, :, None].contiguous(), signed[:, None].contiguous()

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotary embedding of (…, R, heads, head_dim)."""
        return torch.addcmul(x * cos, x.roll(self.head_dim // 2, -1), sin)

    def run(self, index: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """One layer over (B, R, hidden). ``attend``: query (B, heads, R, D), key and value (B, KV heads, R, D) → like query."""
        w, (batch, rows, _) = self.layers[index], x.shape
        both = self.heads + self.kv_heads
        projected = w.project(self._norm(x)).view(batch, rows, -1, self.head_dim)
        qk = self.rotate(self._normed_heads(projected[:, :, :both], w.head_norms), cos, sin).transpose(1, 2)
        out = attend(qk[:, : self.heads], qk[:, self.heads :], projected[:, :, both:].transpose(1, 2))
        x = x + w.out(out.transpose(1, 2).reshape(batch, rows, -1))
        gate, up = w.gate_up(self._norm(x)).chunk(2, -1)
        return x + w.down(F.silu(gate).mul_(up))

    def contexts(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """All layers' keys and values of (B, T, hidden) rows that are not queries, (layers, B, KV heads, T, head_dim) each."""
        run, norms = self._contexts
        keys, values = run(x).view(*x.shape[:2], 2, -1, self.head_dim).unbind(2)
        return self._by_layer(self.rotate(self._normed_heads(keys, norms), cos, sin)), self._by_layer(values)

    def _by_layer(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.kv_heads)).permute(2, 0, 3, 1, 4)

    def _normed_heads(self, x: Tensor, norms: Tensor | None) -> Tensor:
        return x if norms is None else self._head_norm(x).mul_(norms)

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Scaled dot-product attention, (B, heads, R, D); heads that share keys are rows of one product.

        mask: (R, C), what is added to the scores, repeated for every head of a group; None to see everything.
        """
        batch, heads, rows, dim = query.shape
        query = query.reshape(batch, self.kv_heads, self.group * rows, dim)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scale)
        return out.view(batch, heads, rows, dim)
