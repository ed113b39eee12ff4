"""Decoder layers run with few calls, by two sets of kernels: one for small models on a CPU, one for passes of fixed shape.

On a CPU calling takes longer than computing a small model; on a GPU kernels that are not products take as long as half of
the products. One product gives query, key and value, another gate and up. Rotary tables are looked up, and no module is called.
The results equal those of the layers' own forward passes up to rounding.

* ``LeanLayers.packed``: copies of the weights, laid out for a CPU's kernels, with the weights of the norms in them.
* ``LeanLayers.merged``: the layers' own weights, which become slices of merged ones: memory does not grow, and passes that
  call the modules go on as before. ``Kernels`` are torch's own, or flashinfer's (``d2sd.nets.flashinfer``).

For layers without biases whose norms come before the blocks (``TargetType.lean``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.jit._script import RecursiveScriptClass
from torch.nn import functional as F

from d2sd.nets.types import layer_kinds, target_type

FIXED_ROPE = ("default", "linear", "llama3")
MAX_BYTES = 1 << 30  # of a model whose weights exist twice
SMALL = 1 << 18  # weights of a matrix
_PACKED_FOR = 16  # rows; a layout that suits one row and many
# layer and what ``Kernels.heads`` returns → (B, R, heads · D)
Attend = Callable[..., Tensor]
Product = Callable[[Tensor], Tensor]
Write = Callable[[Tensor, Tensor, Tensor, Tensor], object]  # buffers of keys and values, new keys and values


# Products.


class _Halved(RecursiveScriptClass):  # type: ignore[misc]
    """A matrix as FBGEMM lays it out, in the form that torch's operators recognise soonest: they look for an attribute that the bare
    object lacks, and its exception takes 10 µs, as long as many a product."""

    def __init__(self, weight: Tensor):
        self.__dict__["_c"] = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def product(weight: Tensor, half: bool = False) -> Product:
    """x → x · weightᵀ in float32, from a copy of the weight.

    Large matrices are in oneDNN's own layout; small ones, which take less time than a call of oneDNN, and all where torch comes
    without oneDNN, are in torch's.

    half: the copy is in float16, laid out for FBGEMM, which widens it again while it multiplies (``d2sd.nets.dtypes.can_mix``).
    """
    if half:
        halved = _Halved(weight)
        multiply = torch.ops.quantized.linear_dynamic_fp16.default._op  # the operator itself looks through its arguments first
        return partial(multiply, W_prepack=halved)
    try:
        if weight.numel() > SMALL:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR)
            run = torch.ops.mkldnn._linear_pointwise.default
            return partial(run, W=packed, B=None, attr="none", scalars=[], algorithm="")
    except (AttributeError, RuntimeError):
        pass
    columns = weight.T.contiguous().T  # a row is multiplied sooner by columns
    return partial(F.linear, weight=columns)


_one_at_a_time = threading.Lock()  # several generations may begin at once


@torch.inference_mode(False)
@torch.no_grad()
def merge_linears(linears: Sequence[nn.Linear]) -> Tensor:
    """Returns the weights of linear layers below each other, (sum of outputs, inputs), of which their own become slices.

    Where they are that already, nothing is copied.
    """
    with _one_at_a_time:
        return _merge(linears)


def _merge(linears: Sequence[nn.Linear]) -> Tensor:
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


# What layers compute between their products.


class Kernels:
    """torch's own operations. Nothing is written in place, but for keys and values."""

    in_place = False  # whether ``add_norm`` writes its results over its inputs

    def begin(self, layers: LeanLayers, x: Tensor) -> tuple[Kernels, Tensor]:
        """Returns the kernels of one pass over rows (B, R, hidden), and the rows where these find them."""
        return self, x

    def norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """RMSNorm of the last dimension; without a weight where it is None."""
        return F.rms_norm(x, x.shape[-1:], weight, eps)

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
        """Returns residual + x and its norm, (B, R, hidden) each."""
        residual = residual + x
        return residual, self.norm(residual, weight, eps)

    def gated(self, gate_up: Tensor) -> Tensor:
        """SiLU(gate) · up of (B, R, 2·intermediate)."""
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    def table(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """What ``rotation`` reads, of cosines and sines (N, head_dim) float32 by position."""
        half = cos.shape[1] // 2
        signed = torch.cat([-sin[:, :half], sin[:, half:]], 1)
        return cos[:, None].to(dtype), signed[:, None].to(dtype)

    def rotation(self, table: tuple[Tensor, ...], positions: Tensor, branches: int) -> tuple[Tensor, ...]:
        """What ``heads`` reads for rows at these positions (R,), the same in every branch."""
        return tuple(part[positions] for part in table)

    def heads(
        self, projected: Tensor, heads: int, kv_heads: int, norms: Tensor | None, rotation: tuple[Tensor, ...] | None,
        eps: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Query, key and value, (B, heads or KV heads, R, head_dim), from (B, R, (heads + 2·KV heads) · head_dim): normed by
        ``norms`` (heads + KV heads, head_dim) and rotated, unless these are None."""
        qk, value = projected.unflatten(2, (heads + 2 * kv_heads, -1)).split([heads + kv_heads, kv_heads], 2)
        if norms is not None:
            qk = self.norm(qk, None, eps).mul_(norms)
        if rotation is not None:
            qk = rotated(qk, *rotation)
        query, key = qk.split([heads, kv_heads], 2)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def writer(self, slots: Tensor, capacity: int) -> Write:
        """Returns how rows of a layer, (1, KV heads, R, head_dim), are written into the slots (R,) of its buffers."""

        def write(keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
            keys.index_copy_(2, slots, key)
            values.index_copy_(2, slots, value)

        return write


TORCH = Kernels()


class PackedKernels(Kernels):
    """For packed weights. A norm is one number a row, by which the output of the product that follows is divided: its weight and a
    factor √size are in the packed matrix.

    What a pass writes into is made once, with all views of it: on a CPU making a view takes as long as computing with a small one.
    """

    in_place = True

    def begin(self, layers: LeanLayers, x: Tensor) -> tuple[Kernels, Tensor]:
        kernels = _PackedRows(layers, x)
        return kernels, kernels.rows

    def table(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        return cos[:, None].to(dtype), sin[:, None, : sin.shape[1] // 2].to(dtype)


PACKED = PackedKernels()


class _PackedRows(PackedKernels):
    """Of one pass. ``rows`` (B, R, hidden) are followed by the square root of hidden · ε, so that an RMSNorm divides by their
    length, and packed matrices have a column of zeros for it."""

    def __init__(self, layers: LeanLayers, x: Tensor):
        (batch, rows, hidden), heads, kv_heads = x.shape, layers.heads, layers.kv_heads
        qk, every, dim, half = heads + kv_heads, heads + 2 * kv_heads, layers.head_dim, layers.head_dim // 2
        self._whole = F.pad(x, (0, 1), value=(hidden * layers.eps) ** 0.5)
        self.rows = self._whole[..., :hidden]
        self._head_floor = layers.head_floor
        self._projected = torch.empty(batch, rows, every * dim)
        self._parts = self._projected.view(batch, rows, every, dim)
        self._qk = self._parts[:, :, :qk]
        turned = torch.empty(batch, every, rows, dim)
        self._turned = turned.transpose(1, 2)
        self._low, self._high = self._qk.chunk(2, -1)
        self._turned_low, self._turned_high = self._turned[:, :, :qk].chunk(2, -1)
        self._heads = (
            turned[:, :heads].view(batch, kv_heads, -1, dim),
            turned[:, heads:].view(batch, 2, kv_heads, rows, dim).transpose(0, 1),
        )
        self._gate_up = torch.empty(batch, rows, 2 * layers.intermediate)
        self._gate, self._up = self._gate_up.chunk(2, -1)

    def norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        self._length = vector_norm(self._whole, 2, -1, True)
        return self._whole if weight is None else (x / self._length).mul_(weight * x.shape[-1] ** 0.5)

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
        residual.add_(x)
        if weight is not None:
            return residual, self.norm(residual, weight, eps)
        self._length = vector_norm(self._whole, 2, -1, True)
        return residual, self._whole

    def gated(self, gate_up: Tensor) -> Tensor:
        torch.div(gate_up, self._length, out=self._gate_up)
        return torch._C._nn.silu_(self._gate) * self._up

    def rotation(self, table: tuple[Tensor, ...], positions: Tensor, branches: int) -> tuple[Tensor, ...]:
        cos, sin = super().rotation(table, positions, branches)
        all_cos = cos.new_ones(len(cos), self._parts.shape[2], cos.shape[2])
        all_cos[:, : self._qk.shape[2]] = cos
        return all_cos, sin

    def heads(
        self, projected: Tensor, heads: int, kv_heads: int, norms: Tensor | None, rotation: tuple[Tensor, ...] | None,
        eps: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Query (B, KV heads, heads / KV heads · R, head_dim), key and value in one, (2, B, KV heads, R, head_dim); the next
        layer overwrites them."""
        torch.div(projected, self._length, out=self._projected)
        if norms is not None:
            self._qk.div_(vector_norm(self._qk, 2, -1, True).hypot_(self._head_floor)).mul_(norms)
        if rotation is None:
            self._turned.copy_(self._parts)
        else:
            cos, sin = rotation
            torch.mul(self._parts, cos, out=self._turned)
            self._turned_low.addcmul_(self._high, sin, value=-1)
            self._turned_high.addcmul_(self._low, sin)
        return self._heads


def rotated(x: Tensor, cos: Tensor, signed: Tensor) -> Tensor:
    """Rotary embedding of (…, R, heads, head_dim) by cosines and sines (R, 1, head_dim), these negative in the first half."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), signed)


# Layers.


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """Products and norms of one layer.

    norm, mlp_norm: weights of the norms before attention and MLP, (hidden,); None where the products include them.
    head_norms: (heads + KV heads, head_dim) of queries and keys, None without QK-norm.
    rotary: whether it has a rotary embedding.
    """

    norm: Tensor | None
    project: Product
    head_norms: Tensor | None
    out: Product
    mlp_norm: Tensor | None
    gate_up: Product
    down: Product
    rotary: bool


class LeanLayers:
    """A stack of layers and the norm after them. Made by ``packed`` or ``merged``, where ``possible`` or ``mergeable``."""

    def __init__(self, layers: Sequence[Any], rotary: Any, config: Any, norm: nn.Module, kernels: Kernels):
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.scale = getattr(layers[0].self_attn, "scaling", self.head_dim**-0.5)
        self.group = self.heads // self.kv_heads
        self.kernels, self.eps = kernels, config.rms_norm_eps
        self.residual_scale = getattr(config, "residual_multiplier", 1.0)
        self.intermediate: int = layers[0].mlp.gate_proj.out_features
        self.head_floor = torch.tensor((self.head_dim * self.eps) ** 0.5, dtype=torch.float32)
        self.layers: list[LeanLayer] = []
        self.half = False
        self._final: Any = norm
        self._own, self._rotary = layers, rotary
        self._merged: list[Tensor] = []  # weights of query, key and value by layer
        self._tables: dict[tuple[Kernels, int], tuple[Tensor, ...]] = {}

    @classmethod
    def packed(cls, layers: Sequence[Any], rotary: Any, config: Any, norm: nn.Module, half: bool = False) -> LeanLayers:
        """Returns layers with copies of the weights for a CPU. ``half``: the copies are kept in float16."""
        lean = cls(layers, rotary, config, norm, PACKED)
        lean.half, scale = half, config.hidden_size**0.5
        for layer in layers:
            a, mlp = layer.self_attn, layer.mlp
            norm_1, norm_2 = (n.weight * scale for n in (layer.input_layernorm, layer.post_attention_layernorm))
            qkv = torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]) * norm_1
            gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * norm_2
            qkv, gate_up = F.pad(qkv, (0, 1)), F.pad(gate_up, (0, 1))
            lean._add(layer, qkv, gate_up, partial(product, half=half), lean.head_dim**0.5)
        return lean

    @classmethod
    def merged(
        cls, layers: Sequence[Any], rotary: Any, config: Any, norm: nn.Module, kernels: Kernels, contexts: bool = False
    ) -> LeanLayers:
        """Returns layers with the layers' own weights, which become slices of merged ones.

        contexts: whether ``contexts`` will be called, for which query, key and value of all layers lie side by side.
        """
        lean = cls(layers, rotary, config, norm, kernels)
        attentions = [layer.self_attn for layer in layers]
        for group in [attentions] if contexts else [[a] for a in attentions]:
            whole = merge_linears([part for a in group for part in (a.q_proj, a.k_proj, a.v_proj)])
            lean._merged += whole.view(len(group), -1, whole.shape[1]).unbind()
        for layer, qkv in zip(layers, lean._merged, strict=True):
            gate_up = merge_linears((layer.mlp.gate_proj, layer.mlp.up_proj))
            lean._add(layer, qkv, gate_up, lambda weight: partial(F.linear, weight=weight))
        if lean._merged[0].is_cuda:
            torch.cuda.empty_cache()  # the separate weights were as large as the merged ones
        return lean

    def _add(
        self, layer: Any, qkv: Tensor, gate_up: Tensor, make: Callable[[Tensor], Product], included: float | None = None
    ) -> None:
        """Add a layer. ``included``: √head_dim, if the first products include the norms, factors √size as well."""
        attention, norms = layer.self_attn, None
        if hasattr(attention, "q_norm"):
            parts = (attention.q_norm, self.heads), (attention.k_norm, self.kv_heads)
            norms = torch.cat([norm.weight.detach().expand(count, -1) for norm, count in parts]) * (included or 1.0)
        self.layers.append(
            LeanLayer(
                None if included else layer.input_layernorm.weight,
                make(qkv),
                norms,
                make(attention.o_proj.weight),
                None if included else layer.post_attention_layernorm.weight,
                make(gate_up),
                make(layer.mlp.down_proj.weight),
                bool(getattr(attention, "use_rope", True)),
            )
        )

    @cached_property
    def _weights(self) -> list[Tensor]:
        return [p for layer in self._own for p in layer.parameters()]

    @property
    def frozen(self) -> bool:
        return not any(p.requires_grad for p in self._weights)

    @property
    def current(self) -> bool:
        """Whether merged weights still are the layers' own, frozen ones."""
        own = [layer.self_attn.q_proj.weight for layer in self._own]
        same = all(
            (a.device, a.dtype, a.data_ptr()) == (b.device, b.dtype, b.data_ptr())
            for a, b in zip(self._merged, own, strict=True)
        )
        return same and self.frozen

    @cached_property
    def _contexts(self) -> tuple[Product, Tensor | None]:
        """One product for keys and values of all layers, (B, T, hidden) → (layers, B, T, 2·KV heads, head_dim), and the weights of
        the keys' norms, (layers, 1, 1, 1, head_dim). Created at the first use: only block drafters have rows that are keys and
        values but never queries."""
        own = [layer.self_attn for layer in self._own]
        norms = None
        if hasattr(own[0], "k_norm"):
            norms = torch.stack([a.k_norm.weight.detach() for a in own])[:, None, None, None]
        shape = (len(own), 2 * self.kv_heads, self.head_dim)
        if self._merged:
            first = self._merged[0]  # those of the other layers follow it
            strides = first.numel(), *first.stride()
            whole = first.as_strided((len(own), *first.shape), strides, first.storage_offset())
            weight = whole[:, self.heads * self.head_dim :].mT
            return lambda x: torch.bmm(x.expand(len(own), -1, -1), weight).view(shape[0], 1, -1, *shape[1:]), norms
        run = product(torch.cat([w for a in own for w in (a.k_proj.weight, a.v_proj.weight)]), self.half)
        return lambda x: run(x).view(*x.shape[:2], *shape).permute(2, 0, 1, 3, 4), norms

    @staticmethod
    def _plain(model: nn.Module, config: Any) -> bool:
        """Whether layers are frozen and of this form: no biases, SiLU, a rotary table that does not change with the length of
        the text."""
        rope = dict(getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        biased = any(name.endswith(".bias") for name, _ in model.named_parameters())
        hooked = any(hasattr(m, "_hf_hook") for m in model.modules())
        frozen = not any(p.requires_grad for p in model.parameters())
        plain = target_type(config).lean and config.hidden_act == "silu" and rope in FIXED_ROPE
        return bool(plain and frozen and not biased and not hooked)

    @staticmethod
    def possible(model: nn.Module, config: Any) -> bool:
        """Whether a model's layers can be ``packed``: few float32 weights on a CPU, no windows."""
        own = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
        small = sum(p.numel() * p.element_size() for p in model.parameters()) <= MAX_BYTES
        return small and own and set(layer_kinds(config)) == {"full"} and LeanLayers._plain(model, config)

    @staticmethod
    def mergeable(model: nn.Module, config: Any) -> bool:
        """Whether a model's layers can be ``merged``: weights of one type on one device, none of them quantised."""
        kinds = {(p.device, p.dtype) for p in model.parameters()}
        linear = all(type(m) is nn.Linear for m in model.modules() if hasattr(m, "in_features"))
        one = len(kinds) == 1 and all(dtype.is_floating_point for _, dtype in kinds)
        return one and linear and LeanLayers._plain(model, config)

    def _table(self, kernels: Kernels, count: int) -> tuple[Tensor, ...]:
        """Rotary table of the first ``count`` positions or more, kept for good: captured passes read it where it lies."""
        key = kernels, 1 << (count - 1).bit_length()
        if key not in self._tables:
            reference = torch.empty(0, dtype=torch.float32, device=self._weights[0].device)
            cos, sin = self._rotary(reference, torch.arange(key[1], device=reference.device)[None])
            self._tables[key] = kernels.table(cos[0], sin[0], self._weights[0].dtype)
        return self._tables[key]

    def run(
        self, x: Tensor, positions: Tensor, room: int, attend: Attend, tapped: Collection[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Run all layers and the final norm over rows (B, R, hidden), which may be overwritten, at positions (R,) below ``room``.

        Returns the hidden states and the outputs of the ``tapped`` layers, ascending, all (B, R, hidden).

        On a CPU a call of a Python function takes as long as some of what is computed here, so that there are few.
        """
        eps, scale, (kernels, x) = self.eps, self.residual_scale, self.kernels.begin(self, x)
        rotation = kernels.rotation(self._table(self.kernels, room), positions, len(x))
        norms = [*(w.norm for w in self.layers), self._final.weight]
        outputs: list[Tensor] = []
        residual, normed = x, kernels.norm(x, norms[0], eps)
        for index, w in enumerate(self.layers):
            turn = rotation if w.rotary else None
            heads = kernels.heads(w.project(normed), self.heads, self.kv_heads, w.head_norms, turn, eps)
            out = w.out(attend(index, *heads))
            residual, normed = kernels.add_norm(out if scale == 1 else out.mul_(scale), residual, w.mlp_norm, eps)
            out = w.down(kernels.gated(w.gate_up(normed)))
            residual, normed = kernels.add_norm(out if scale == 1 else out.mul_(scale), residual, norms[index + 1], eps)
            if index in tapped:
                outputs.append(residual.clone() if kernels.in_place else residual)
        return normed, outputs

    def contexts(self, x: Tensor, positions: Tensor, room: int) -> tuple[Tensor, Tensor]:
        """All layers' keys and values of (B, T, hidden) rows that are not queries, at positions (T,) below ``room``: (layers, B, KV
        heads, T, head_dim) each. B is 1 with merged weights."""
        run, norms = self._contexts
        keys, values = run(x).split(self.kv_heads, 3)
        if norms is not None:
            keys = TORCH.norm(keys, None, self.eps).mul_(norms)
        keys = rotated(keys, *TORCH.rotation(self._table(TORCH, room), positions, 1))
        return keys.transpose(2, 3), values.transpose(2, 3)

    def after(self, views: Sequence[tuple[Tensor, ...]], mask: Tensor | None) -> Attend:
        """Attention of packed rows over the committed ones of a cache and themselves, which are written behind these.

        views: of the cache (``d2sd.nets.caches.KeyValueCache.views``).
        mask: as for ``attention``.
        """
        def attend(layer: int, query: Tensor, own: Tensor) -> Tensor:
            place, keys, values = views[layer]
            place.copy_(own)
            return self.attention(query, keys, values, mask)

        return attend

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Scaled dot-product attention, (B, R, heads · D), of queries (B, KV heads, heads / KV heads · R, D): heads that share keys
        are rows of one product.

        mask: (heads / KV heads · R, C), what is added to the scores; None to see everything.
        """
        out = F.scaled_dot_product_attention(query, key, value, mask, scale=self.scale)
        batch, _, rows, dim = query.shape
        if rows > self.group:
            out = out.reshape(batch, self.heads, -1, dim).transpose(1, 2)
        return out.reshape(batch, -1, self.heads * dim)
