"""Gated delta nets (Qwen3-Next, Qwen3.5) over token trees: every row continues from its parent's state.

A row starts with its parent's matrix S and updates it (Gated Delta Networks, arXiv 2412.06464, equation 10):

    S ← exp(g) S ;  u = β (v − Sᵀ k) ;  S ← S + k uᵀ ;  o = Sᵀ q

Let S₀ be the last committed state and G the sum of g along a row's path. With a sum in which m runs over the row and its ancestors,

    S = exp(G) S₀ + Σ exp(G − G_m) k_m u_mᵀ

The updates u of all rows therefore solve one triangular system, whose entry (n, m) is zero unless row m is an ancestor of row n.
This is the chunked form (arXiv 2406.06484) with the tree mask instead of the causal mask. The rows' matrices are not computed:
``commit`` computes only the state after the last accepted row, from the stored k and u.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from d2sd.nets.caches import BatchPass, DeltaRows, LayerCache
from d2sd.nets.transformers_calls import cache_argument, refuse_unknown
from d2sd.nets.tree_attention import PassAttention, PassRows

EPSILON = 1e-6  # added to the squared norm of queries and keys, as in transformers


def tree_delta(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, matrix: Tensor, ancestors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Applies the gated delta rule to the rows of a tree.

    query, key: (B, H, R, K), normed and scaled.
    value: (B, H, R, V).
    g, beta: (B, H, R) each; g is the logarithm of the decay, and beta the strength of the update.
    matrix: (B, H, K, V), S₀.
    ancestors: (R, R) bool, True for a row's ancestors and itself. Ancestors have lower row numbers.

    Returns outputs (B, H, R, V), updates u (B, H, R, V) and the sums G (B, H, R), all float32.
    """
    total = g @ ancestors.T.to(g.dtype)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~ancestors, float("-inf")).exp()
    carried = total.exp()[..., None]
    update = beta[..., None] * (value - carried * (key @ matrix))
    if len(ancestors) > 1:
        system = beta[..., None] * (key @ key.transpose(-1, -2)) * decay
        update = torch.linalg.solve_triangular(system.tril(-1), update, upper=False, unitriangular=True)
    out = carried * (query @ matrix) + (query @ key.transpose(-1, -2) * decay) @ update
    return out, update, total


def follow_trees(net: nn.Module) -> None:
    """Replaces ``forward`` of a transformers layer, so that it can process the rows of a tree after a prefix. Other passes are
    unchanged.
    """
    net.forward = partial(_forward, net, net.forward, cache_argument(type(net).forward))


def _forward(
    net: Any,
    stock: Callable[..., Tensor],
    cache_name: str,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    rows: PassRows | None = None,
    attend: PassAttention | None = None,
    **others: Any,
) -> Tensor:
    """Returns the layer's output, (B, R, hidden). Replaces ``forward`` of a layer.

    net, stock: the layer and its original ``forward``.
    cache_name: name of the cache argument.
    rows: the rows of the pass; None: a chain.
    attend: not used; only attention layers need it.
    """
    held = others.pop(cache_name, None)
    refuse_unknown("linear layers", others)
    cache = held.cache if isinstance(held, BatchPass) else held
    if not isinstance(cache, LayerCache) or not (cache.length or isinstance(held, BatchPass)):
        return stock(hidden_states, attention_mask=attention_mask, **{cache_name: cache})
    if attention_mask is not None:  # transformers creates no mask for our attention function
        refuse_unknown("linear layers", {"attention_mask": attention_mask})
    state = cache.states[net.layer_idx]
    rows = rows or PassRows.chain(hidden_states.shape[1], hidden_states.device)
    ancestors = rows.mask.to(hidden_states.device)
    places = rows.convolved(net.conv_kernel_size, hidden_states.device)
    mixed, gate, b, a = _projected(net, hidden_states)
    inputs = torch.cat([state.inputs, mixed.transpose(1, 2)], -1)
    weight, bias = net.conv1d.weight[:, 0], net.conv1d.bias
    convolved = (inputs.to(weight.dtype)[:, :, places] * weight[:, None]).sum(-1)
    convolved = convolved if bias is None else convolved + bias[:, None]
    mixed = ACT2FN[net.activation](convolved).to(hidden_states.dtype).transpose(1, 2)
    sizes = (net.key_dim, net.key_dim, net.value_dim)
    query, key, value = (part.unflatten(-1, (-1, size)).transpose(1, 2).float() for part, size in zip(
        mixed.split(sizes, -1), (net.head_k_dim, net.head_k_dim, net.head_v_dim), strict=True))  # fmt: skip
    shared = net.num_v_heads // net.num_k_heads  # value heads per query and key head
    query, key = (_normed(x).repeat_interleave(shared, 1) for x in (query, key))
    beta = b.sigmoid().float().transpose(1, 2)
    g = (-net.A_log.float().exp() * F.softplus(a.float() + net.dt_bias)).transpose(1, 2)
    out, update, total = tree_delta(query * net.head_k_dim**-0.5, key, value, g, beta, state.matrix, ancestors)
    state.rows = DeltaRows(inputs, places, key, update, total, ancestors)
    out = net.norm(
        out.transpose(1, 2).to(hidden_states.dtype).reshape(-1, net.head_v_dim), gate.reshape(-1, net.head_v_dim)
    )
    return net.out_proj(out.reshape(*hidden_states.shape[:2], -1))


def _projected(net: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns inputs of the convolution (B, R, channels), output gates (B, R, …), and inputs of β and of g, (B, R, H) each."""
    if hasattr(net, "in_proj_qkv"):
        return net.in_proj_qkv(x), net.in_proj_z(x), net.in_proj_b(x), net.in_proj_a(x)
    query, key, value, gate, b, a = net.fix_query_key_value_ordering(net.in_proj_qkvz(x), net.in_proj_ba(x))
    return torch.cat([part.flatten(2) for part in (query, key, value)], -1), gate, b, a


def _normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPSILON)
