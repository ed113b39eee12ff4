"""Runs decoder layers with few calls of torch operations: the base class, and layers for fixed-shape passes.

On a CPU, calling a small model's operations takes longer than computing them. On a GPU, the kernels other than matrix products
together take half as long as these products. Therefore one product computes query, key and value, and another gate and up. Rotary
tables are precomputed, and no module is called. The results equal the layers' own forward passes up to rounding.

* ``d2sd.nets.packed.PackedLayers`` uses copies of the weights in the layout of a CPU's kernels, multiplied by the norms' weights.
* ``MergedLayers`` uses the layers' own weights, which become slices of merged tensors. Memory does not grow, and the modules still
  work. Its ``Kernels`` are torch's or flashinfer's (``d2sd.nets.flashinfer``).

Only layers without biases and with norms before attention and MLP are supported (``TargetType.lean``).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2sd.nets.types import target_type

KeyValue = tuple[Tensor, Tensor]  # keys and values
FIXED_ROPE = ("default", "linear", "llama3")
# query (B, heads, R, D), key and value (B, KV heads, R, D) of a layer's rows → output, shaped like query
LayerAttention = Callable[[Tensor, Tensor, Tensor], Tensor]
# number of the layer, then the arguments of ``LayerAttention`` → output, shaped like query
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
Keep = Callable[[int, Tensor], None]  # layer, its output (B, R, hidden), which the next layer may overwrite
Product = Callable[[Tensor], Tensor]
Write = Callable[[Tensor, Tensor, Tensor, Tensor], object]  # buffer of keys, buffer of values, new keys, new values


# Merged weights.


_one_at_a_time = threading.Lock()  # several generations may start at the same time


@torch.inference_mode(False)
@torch.no_grad()
def merge_linears(linears: Sequence[nn.Linear]) -> Tensor:
    """Returns the concatenated weights of linear layers, (sum of outputs, inputs). The layers' weights become slices of this
    tensor.

    If they are consecutive slices of one tensor already, nothing is copied.
    """
    with _one_at_a_time:
        weights = [linear.weight for linear in linears]
        rows = [len(weight) for weight in weights]
        side_by_side = all(
            a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.data_ptr() + a.nbytes == b.data_ptr()
            for a, b in pairwise(weights)
        )
        if side_by_side and not weights[0].is_meta:
            first = weights[0].detach()
            return first.as_strided((sum(rows), first.shape[1]), first.stride(), first.storage_offset())
        whole = torch.cat(weights)
        for linear, part in zip(linears, whole.split(rows), strict=True):
            linear.weight = nn.Parameter(part, requires_grad=False)
        return whole


# Layer operations other than matrix products.


class Kernels:
    """Operations of a layer other than matrix products, computed by torch. They modify no inputs, except that ``writer`` fills the
    cache's buffers.
    """

    in_place = False  # whether ``add_norm`` writes its results over its inputs

    def norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """Returns the RMSNorm of ``x`` over the last dimension.

        weight: None: the result is not multiplied by a weight.
        """
        return F.rms_norm(x, x.shape[-1:], weight, eps)

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
        """Returns the sum residual + x, and the norm of this sum, (B, R, hidden) each."""
        residual = residual + x
        return residual, self.norm(residual, weight, eps)

    def gated(self, gate_up: Tensor) -> Tensor:
        """Returns SiLU(gate) · up, (B, R, intermediate).

        gate_up: gate and up concatenated, (B, R, 2·intermediate).
        """
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    def table(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Returns the table that ``rotation`` reads, given cosines and sines by position, (N, head_dim) float32."""
        half = cos.shape[1] // 2
        signed = torch.cat([-sin[:, :half], sin[:, half:]], 1)
        return cos[:, None].to(dtype), signed[:, None].to(dtype)

    def rotation(self, table: tuple[Tensor, ...], positions: Tensor, branches: int) -> tuple[Tensor, ...]:
        """Returns the argument ``rotation`` of ``heads`` for rows at ``positions`` (R,), which are the same in every branch."""
        return tuple(part.index_select(0, positions) for part in table)

    def heads(
        self, projected: Tensor, heads: int, kv_heads: int, norms: Tensor | None, rotation: tuple[Tensor, ...] | None,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Returns query, key and value.

        projected: (B, R, heads + 2·KV heads, head_dim).
        norms: weights with which queries and keys are normed, (heads + KV heads, head_dim); None: they are not normed.
        rotation: RoPE of queries and keys, after the norm; None: they are not rotated.
        """
        qk, value = projected.split([heads + kv_heads, kv_heads], 2)
        if norms is not None:
            qk = self.norm(qk, None, eps).mul_(norms)
        if rotation is not None:
            qk = apply_signed_rope(qk, *rotation)
        query, key = qk.split([heads, kv_heads], 2)
        return query, key, value

    def writer(self, slots: Tensor, capacity: int) -> Write:
        """Returns a function that writes a layer's rows, (1, KV heads, R, head_dim), into the slots (R,) of its buffers."""

        def write(keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
            keys.index_copy_(2, slots, key)
            values.index_copy_(2, slots, value)

        return write


TORCH = Kernels()


def apply_signed_rope(x: Tensor, cos: Tensor, signed: Tensor) -> Tensor:
    """Returns x (…, R, heads, head_dim) after RoPE. ``cos``: (R, 1, head_dim). ``signed``: sines, negated in the first half."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), signed)


# Layers.


class LeanLayer(NamedTuple):
    """Products and norms of one layer.

    norm, mlp_norm: weights of the norms before attention and MLP, (hidden,) each; None if the products include these weights.
    head_norms: (heads + KV heads, head_dim), weights of the norms of queries and keys; None without QK-norm.
    rotary: whether the layer has a rotary embedding.
    """

    norm: Tensor | None
    project: Product
    head_norms: Tensor | None
    out: Product
    mlp_norm: Tensor | None
    gate_up: Product
    down: Product
    rotary: bool


class LeanLayers(ABC):
    """The frozen layers of a network and the norm after them.

    net: a network with ``layers``, ``norm``, ``rotary_emb`` and ``config``.
    """

    def __init__(self, net: Any):
        config = net.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.scale = getattr(net.layers[0].self_attn, "scaling", self.head_dim**-0.5)
        self.eps = config.rms_norm_eps
        self.residual_scale = getattr(config, "residual_multiplier", 1.0)
        self.layers: list[LeanLayer] = []
        self._modules, self._final, self._rotary = net.layers, net.norm, net.rotary_emb
        self._tables: dict[tuple[Kernels, int], tuple[Tensor, ...]] = {}

    def _add(self, layer: Any, qkv: Tensor, gate_up: Tensor, make: Callable[[Tensor], Product], packed: bool) -> None:
        """Adds a layer.

        make: function that makes a product from a weight matrix.
        packed: whether ``qkv`` and ``gate_up`` include the weights of the norms before them, times √hidden.
        """
        attention, norms = layer.self_attn, None
        if hasattr(attention, "q_norm"):
            parts = (attention.q_norm, self.heads), (attention.k_norm, self.kv_heads)
            norms = torch.cat([norm.weight.detach().expand(count, -1) for norm, count in parts])
            norms = norms * self.head_dim**0.5 if packed else norms
        self.layers.append(
            LeanLayer(
                None if packed else layer.input_layernorm.weight,
                make(qkv),
                norms,
                make(attention.o_proj.weight),
                None if packed else layer.post_attention_layernorm.weight,
                make(gate_up),
                make(layer.mlp.down_proj.weight),
                bool(getattr(attention, "use_rope", True)),
            )
        )

    @cached_property
    def _weights(self) -> list[Tensor]:
        return [p for layer in self._modules for p in layer.parameters()]

    @property
    def frozen(self) -> bool:
        return not any(p.requires_grad for p in self._weights)

    @staticmethod
    def plain(model: nn.Module, config: Any) -> bool:
        """Whether a model's layers are frozen and supported: no biases, no hooks of accelerate, SiLU, and a RoPE of type
        ``FIXED_ROPE``.
        """
        rope = dict(getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        biased = any(name.endswith(".bias") for name, _ in model.named_parameters())
        hooked = any(hasattr(m, "_hf_hook") for m in model.modules())
        frozen = not any(p.requires_grad for p in model.parameters())
        plain = target_type(config).lean and config.hidden_act == "silu" and rope in FIXED_ROPE
        return plain and frozen and not biased and not hooked

    def _table(self, kernels: Kernels, count: int) -> tuple[Tensor, ...]:
        """Returns the rotary table for at least ``count`` positions. It is never freed, since captured passes read its memory."""
        key = kernels, 1 << (count - 1).bit_length()
        if key not in self._tables:
            reference = torch.empty(0, dtype=torch.float32, device=self._weights[0].device)
            cos, sin = self._rotary(reference, torch.arange(key[1], device=reference.device)[None])
            self._tables[key] = kernels.table(cos[0], sin[0], self._weights[0].dtype)
        return self._tables[key]

    @abstractmethod
    def _context_product(self) -> Product:
        """Returns a function that computes the keys and values of all layers, (layers, B, T, 2·KV heads, head_dim), from context
        rows (B, T, hidden).
        """

    @cached_property
    def _contexts(self) -> tuple[Product, Tensor | None]:
        """The result of ``_context_product``, and the weights of the keys' norms, (layers, 1, 1, 1, head_dim).

        They are created at first use, since only block drafters call ``contexts``.
        """
        norms = None
        if hasattr(self._modules[0].self_attn, "k_norm"):
            weights = [layer.self_attn.k_norm.weight.detach() for layer in self._modules]
            norms = torch.stack(weights)[:, None, None, None]
        return self._context_product(), norms

    def contexts(self, x: Tensor, positions: Tensor, room: int) -> KeyValue:
        """Returns all layers' keys and values of context rows (without queries), (layers, B, KV heads, T, head_dim) each.

        x: (B, T, hidden); B is 1 in ``MergedLayers``.
        positions: (T,), less than ``room`` (size of the rotary table).
        """
        run, norms = self._contexts
        keys, values = run(x).split(self.kv_heads, 3)
        if norms is not None:
            keys = TORCH.norm(keys, None, self.eps).mul_(norms)
        keys = apply_signed_rope(keys, *TORCH.rotation(self._table(TORCH, room), positions, 1))
        return keys.transpose(2, 3), values.transpose(2, 3)


class MergedLayers(LeanLayers):
    """Layers that run with the modules' own weights, which become slices of merged tensors. Requires that ``possible`` is True.

    contexts: whether the method ``contexts`` will be called, which needs all layers' query, key and value weights in one tensor.
    """

    def __init__(self, net: Any, kernels: Kernels, contexts: bool = False):
        super().__init__(net)
        self.kernels = kernels
        self._merged: list[Tensor] = []  # weights of query, key and value by layer
        attentions = [layer.self_attn for layer in net.layers]
        for group in [attentions] if contexts else [[a] for a in attentions]:
            whole = merge_linears([part for a in group for part in (a.q_proj, a.k_proj, a.v_proj)])
            self._merged += whole.view(len(group), -1, whole.shape[1]).unbind()
        for layer, qkv in zip(net.layers, self._merged, strict=True):
            gate_up = merge_linears((layer.mlp.gate_proj, layer.mlp.up_proj))
            self._add(layer, qkv, gate_up, lambda weight: partial(F.linear, weight=weight), packed=False)
        if self._merged[0].is_cuda:
            torch.cuda.empty_cache()  # free the separate weights, which were as large as the merged ones

    @staticmethod
    def possible(model: nn.Module, config: Any) -> bool:
        """Whether a model's weights have one dtype and one device and are not quantised, and its layers are ``plain``."""
        kinds = {(p.device, p.dtype) for p in model.parameters()}
        linear = all(type(m) is nn.Linear for m in model.modules() if hasattr(m, "in_features"))
        one = len(kinds) == 1 and all(dtype.is_floating_point for _, dtype in kinds)
        return one and linear and LeanLayers.plain(model, config)

    @property
    def current(self) -> bool:
        """Whether the modules still use the merged weights, and all weights are frozen."""
        queries = [layer.self_attn.q_proj.weight for layer in self._modules]
        merged, used = ([(w.device, w.dtype, w.data_ptr()) for w in part] for part in (self._merged, queries))
        return merged == used and self.frozen

    def _context_product(self) -> Product:
        count, first = (
            len(self._merged),
            self._merged[0],
        )  # the other layers' weights follow the first layer's in memory
        whole = first.as_strided((count, *first.shape), (first.numel(), *first.stride()), first.storage_offset())
        weight = whole[:, self.heads * self.head_dim :].mT
        shape = 2 * self.kv_heads, self.head_dim
        return lambda x: torch.bmm(x.expand(count, -1, -1), weight).view(count, 1, -1, *shape)

    def run(self, x: Tensor, positions: Tensor, room: int, attend: Attend, keep: Keep | None = None) -> Tensor:
        """Returns the rows after all layers and the final norm, (B, R, hidden).

        x: (B, R, hidden); may be overwritten.
        positions: (R,), less than ``room`` (size of the rotary table).
        attend: function that computes a layer's attention.
        keep: function that is called with the output of every layer; None: outputs are not kept.
        """
        kernels, eps, (batch, rows, _) = self.kernels, self.eps, x.shape
        rotation = kernels.rotation(self._table(kernels, room), positions, batch)
        norms = [*(w.norm for w in self.layers), self._final.weight]
        residual, normed = x, kernels.norm(x, norms[0], eps)
        for index, w in enumerate(self.layers):
            projected = w.project(normed).view(batch, rows, -1, self.head_dim)
            turn = rotation if w.rotary else None
            heads = kernels.heads(projected, self.heads, self.kv_heads, w.head_norms, turn, eps)
            out = attend(index, *(part.transpose(1, 2) for part in heads))
            out = self._scaled(w.out(out.transpose(1, 2).reshape(batch, rows, -1)))
            residual, normed = kernels.add_norm(out, residual, w.mlp_norm, eps)
            out = self._scaled(w.down(kernels.gated(w.gate_up(normed))))
            residual, normed = kernels.add_norm(out, residual, norms[index + 1], eps)
            if keep is not None:
                keep(index, residual)
        return normed

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.residual_scale == 1 else x.mul_(self.residual_scale)


def merged_layers(
    merged: dict[Kernels, MergedLayers], kernels: Kernels, net: Any, weights: nn.Module, contexts: bool = False
) -> MergedLayers | None:
    """Returns the merged layers of a network for these kernels; None if its weights cannot be merged.

    merged: merged layers by kernels, from earlier calls. They are created anew if the network no longer uses their weights.
    weights: the part of the network whose weights are merged.
    contexts: as for ``MergedLayers``.
    """
    if kernels not in merged or not merged[kernels].current:
        merged.pop(kernels, None)
        if not MergedLayers.possible(weights, net.config):
            return None
        merged[kernels] = MergedLayers(net, kernels, contexts)
    return merged[kernels]
