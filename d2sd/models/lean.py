"""Decoder layers run with few calls: on a CPU and with a small model, calling takes longer than computing.

The same numbers as the layers' own forward passes up to rounding: query, key and value are projected in one product, gate
and up in another, both in weights that the layers share from then on; rotary tables are looked up; keys and values are
written where they stay; and no module is called. For Qwen3- and Llama-type layers without biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FIXED_ROPE = ("default", "linear", "llama3")
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """Weights of one layer; head_norms: (heads + KV heads, head_dim) of queries and keys, None without QK-norm."""

    before: Tensor
    project: Tensor
    head_norms: Tensor | None
    out: Tensor
    after: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: Any, heads: int, kv_heads: int, head_dim: int) -> LeanLayer:
        """Of a transformers layer, whose projections become views of the joined weights."""
        attention, mlp = layer.self_attn, layer.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm.weight, attention.k_norm.weight
            norms = torch.cat([q.expand(heads, head_dim), k.expand(kv_heads, head_dim)])
        return cls(
            layer.input_layernorm.weight,
            _join(attention.q_proj, attention.k_proj, attention.v_proj),
            norms,
            attention.o_proj.weight,
            layer.post_attention_layernorm.weight,
            _join(mlp.gate_proj, mlp.up_proj),
            mlp.down_proj.weight,
        )


def _join(*parts: nn.Linear) -> Tensor:
    """Their weights one below the other, in one piece of memory that the parts keep using."""
    with torch.inference_mode(False):  # first asked for within a pass; the weights stay ordinary tensors all the same
        joined = torch.cat([p.weight.detach() for p in parts])
        for part, weight in zip(parts, joined.split([p.weight.shape[0] for p in parts]), strict=True):
            part.weight.data = weight
    return joined


class LeanLayers:
    """A stack of layers with its rotary tables."""

    def __init__(self, layers: Sequence[Any], rotary: Any, config: Any):
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps, self.scale = config.rms_norm_eps, self.head_dim**-0.5
        self.group = self.heads // self.kv_heads
        self.layers = [LeanLayer.of(layer, self.heads, self.kv_heads, self.head_dim) for layer in layers]
        self._rotary, self._like = rotary, self.layers[0].out
        self._cos = self._sin = torch.empty(0)

    @staticmethod
    def possible(model: nn.Module, config: Any) -> bool:
        """Whether a model's layers are of this form: frozen float32 weights on a CPU, no biases, SiLU, and a rotary table
        that does not change with the length of the text."""
        plain = all(
            p.device.type == "cpu" and p.dtype == torch.float32 and not p.requires_grad for p in model.parameters()
        )
        biased = any(name.endswith(".bias") for name, _ in model.named_parameters())
        rope = dict(getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        hooked = any(hasattr(m, "_hf_hook") for m in model.modules())
        return plain and not biased and not hooked and config.hidden_act == "silu" and rope in FIXED_ROPE

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of (R,) positions, (R, 1, head_dim) each."""
        last = int(positions.max())
        if last >= len(self._cos):
            self._tabulate(2 * last + 256)
        return self._cos[positions], self._sin[positions]

    def _tabulate(self, count: int) -> None:
        cos, sin = self._rotary(self._like, torch.arange(count)[None])
        half = self.head_dim // 2
        self._cos = cos[0, :, None].contiguous()
        self._sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)[:, None].contiguous()

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotary embedding of (…, R, heads, head_dim)."""
        return torch.addcmul(x * cos, x.roll(self.head_dim // 2, -1), sin)

    def run(self, index: int, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """One layer over (B, R, hidden). ``attend``: query (B, heads, R, D), key and value (B, KV heads, R, D) → like query."""
        w, (batch, rows, hidden) = self.layers[index], x.shape
        both = self.heads + self.kv_heads
        projected = F.linear(F.rms_norm(x, (hidden,), w.before, self.eps), w.project).view(
            batch, rows, -1, self.head_dim
        )
        qk = projected[:, :, :both]
        if w.head_norms is not None:
            qk = F.rms_norm(qk, (self.head_dim,), None, self.eps) * w.head_norms
        qk = self.rotate(qk, cos, sin).transpose(1, 2)
        out = attend(qk[:, : self.heads], qk[:, self.heads :], projected[:, :, both:].transpose(1, 2))
        x = x + F.linear(out.transpose(1, 2).reshape(batch, rows, -1), w.out)
        gate, up = F.linear(F.rms_norm(x, (hidden,), w.after, self.eps), w.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate).mul_(up), w.down)

    def keys_values(self, index: int, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """One layer's keys and values of (B, T, hidden) rows that are not queries, (B, KV heads, T, head_dim) each."""
        w, n = self.layers[index], self.kv_heads
        both = F.linear(x, w.project[self.heads * self.head_dim :]).view(*x.shape[:2], 2 * n, self.head_dim)
        key = both[:, :, :n]
        if w.head_norms is not None:
            key = F.rms_norm(key, (self.head_dim,), None, self.eps) * w.head_norms[self.heads :]
        return self.rotate(key, cos, sin).transpose(1, 2), both[:, :, n:].transpose(1, 2)

    def grouped(self, mask: Tensor) -> Tensor:
        """A mask (R, C) of rows for ``attention``: one copy for every head of a group."""
        return mask.repeat(self.group, 1)

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Scaled dot-product attention, (B, heads, R, D); heads that share keys are rows of one product.

        mask: what is added to the scores, as ``grouped`` gives it; None to see everything.
        """
        batch, heads, rows, dim = query.shape
        query = query.reshape(batch, self.kv_heads, self.group * rows, dim)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scale)
        return out.view(batch, heads, rows, dim)
