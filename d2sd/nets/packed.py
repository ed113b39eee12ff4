"""Runs decoder layers of small models on a CPU, with copies of their weights and as few operations as possible.

Calling an operation takes microseconds, about as long as a small product. The loop over the layers is therefore written out without
helper functions, and reuses buffers and views that are created once per pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn import functional as F

from d2sd.nets.dtypes import product
from d2sd.nets.lean import TORCH, LeanLayers, Product
from d2sd.nets.types import layer_kinds

MAX_BYTES = 1 << 30  # bytes of weights; larger models are not copied


def weight_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def mask_after(length: int, seen: Tensor) -> Tensor:
    """Returns an additive attention mask, (R, length + R) float32, for R rows that all attend to the ``length`` committed slots.

    seen: (R, R) bool; seen[n, m] is True if row n attends to row m.
    """
    mask = torch.zeros(len(seen), length + len(seen), dtype=torch.float32)
    mask[:, length:].masked_fill_(~seen, float("-inf"))
    return mask


class PackedLayers(LeanLayers):
    """The layers of a small network on a CPU, with copies of their weights. Requires that ``possible`` is True.

    The copies do not follow later changes of the network's weights.

    half: whether the copies are in float16.
    """

    def __init__(self, net: Any, half: bool = False):
        super().__init__(net)
        self.half, self.hidden = half, net.config.hidden_size
        self.intermediate = net.layers[0].mlp.gate_proj.out_features
        self._head_floor = torch.tensor((self.head_dim * self.eps) ** 0.5, dtype=torch.float32)
        for layer in net.layers:
            a, mlp = layer.self_attn, layer.mlp
            parts = (a.q_proj, a.k_proj, a.v_proj), (mlp.gate_proj, mlp.up_proj)
            norms = layer.input_layernorm, layer.post_attention_layernorm
            # RMSNorm(x) = x · √hidden · weight / ‖(x, √(hidden · ε))‖; ``run`` appends √(hidden · ε) to x, here with weights 0
            qkv, gate_up = (
                F.pad(torch.cat([part.weight for part in group]) * (norm.weight * self.hidden**0.5), (0, 1))
                for group, norm in zip(parts, norms, strict=True)
            )
            self._add(layer, qkv, gate_up, partial(product, half=half), packed=True)

    @staticmethod
    def possible(model: nn.Module, config: Any) -> bool:
        """Whether a model is small, is in float32 on a CPU, and has only ``plain`` layers without windows."""
        float32 = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
        small = weight_bytes(model) <= MAX_BYTES
        return small and float32 and set(layer_kinds(config)) == {"full"} and LeanLayers.plain(model, config)

    def _context_product(self) -> Product:
        attentions = [layer.self_attn for layer in self._modules]
        shape = len(attentions), 2 * self.kv_heads, self.head_dim
        run = product(torch.cat([w for a in attentions for w in (a.k_proj.weight, a.v_proj.weight)]), self.half)
        return lambda x: run(x).view(*x.shape[:2], *shape).permute(2, 0, 1, 3, 4)

    def products(self, rows: int, head: Callable[[], object]) -> Callable[[], object]:
        """Returns a function that computes the products of all layers over ``rows`` rows, calls ``head``, and does nothing else, for
        timing.
        """
        x, attended, gated = (
            torch.zeros(rows, n, dtype=torch.float32)
            for n in (self.hidden + 1, self.heads * self.head_dim, self.intermediate)
        )

        def work() -> None:
            for w in self.layers:
                for run, given in ((w.project, x), (w.out, attended), (w.gate_up, x), (w.down, gated)):
                    run(given)
            head()

        return work

    def run(
        self, x: Tensor, positions: Tensor, room: int, views: Sequence[Sequence[Tensor]], mask: Tensor | None,
        tapped: Collection[int] = (),
    ) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
        """Runs all layers and the final norm. Keys and values of the rows are written to a cache, after its committed slots.

        x: (R, hidden).
        positions: (R,), less than ``room`` (size of the rotary table).
        views: the cache's views for R rows (``d2sd.nets.caches.KeyValueCache.views``).
        mask: additive attention mask, (R, C + R) with C committed slots; None if every row attends to all slots and rows.
        tapped: numbers of the layers whose outputs are returned.

        Returns the hidden states, (R, hidden), and the outputs of the tapped layers in ascending order, (1, R, hidden) each.
        """
        rows, heads, kv_heads, dim = len(x), self.heads, self.kv_heads, self.head_dim
        scale, alpha = self.scale, self.residual_scale
        turning, every = heads + kv_heads, heads + 2 * kv_heads
        cos, sin = TORCH.rotation(self._table(TORCH, room), positions, 1)
        cos, sin = torch.cat([cos.expand(-1, turning, -1), cos.new_ones(rows, kv_heads, dim)], 1), sin[..., dim // 2 :]
        if mask is not None:
            mask = mask.repeat(heads // kv_heads, 1)  # heads with the same keys are rows of one product
        # with √(hidden · ε) appended, a row's norm is √hidden times RMSNorm's divisor
        whole = F.pad(x, (0, 1), value=(self.hidden * self.eps) ** 0.5)
        x = whole[:, : self.hidden]
        projected, rotated = whole.new_empty(rows, every * dim), whole.new_empty(every, rows, dim)
        parts, by_row = projected.view(rows, every, dim), rotated.transpose(0, 1)
        qk = parts[:, :turning]
        (low, high), (rotated_low, rotated_high) = qk.chunk(2, -1), by_row[:, :turning].chunk(2, -1)
        query, keys_values = rotated[:heads].view(1, kv_heads, -1, dim), rotated[heads:].view(2, 1, kv_heads, rows, dim)
        gate_up = whole.new_empty(rows, 2 * self.intermediate)
        gate, up = gate_up.chunk(2, -1)
        silu_, outputs = torch._C._nn.silu_, []
        for index, (w, (place, keys, values)) in enumerate(zip(self.layers, views, strict=True)):
            torch.div(w.project(whole), vector_norm(whole, 2, -1, True), out=projected)
            if w.head_norms is not None:
                qk.div_(vector_norm(qk, 2, -1, True).hypot_(self._head_floor)).mul_(w.head_norms)
            if w.rotary:
                torch.mul(parts, cos, out=by_row)
                rotated_low.addcmul_(high, sin, value=-1)
                rotated_high.addcmul_(low, sin)
            else:
                by_row.copy_(parts)
            place.copy_(keys_values)
            seen = F.scaled_dot_product_attention(query, keys, values, mask, scale=scale)
            if rows > 1:
                seen = seen.reshape(heads, rows, dim).transpose(0, 1)
            x.add_(w.out(seen.reshape(rows, -1)), alpha=alpha)
            torch.div(w.gate_up(whole), vector_norm(whole, 2, -1, True), out=gate_up)
            x.add_(w.down(silu_(gate) * up), alpha=alpha)
            if index in tapped:
                outputs.append(x[None].clone())
        return (x / vector_norm(whole, 2, -1, True)).mul_(self._final.weight * self.hidden**0.5), outputs
