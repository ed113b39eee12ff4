"""The flashinfer functions that we call, in plain torch, according to its documentation and sources.

Keys and values are ragged, by index ranges; masks are packed, lowest bit first; heads are grouped; log-sum-exp is to base 2.
The assertions check what the real functions do not: these take raw addresses and would read wrong memory.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional as F


class BatchPrefillWithRaggedKVCacheWrapper:
    """Computes the documented result in float32."""

    def __init__(self, float_workspace_buffer, kv_layout, use_cuda_graph=False, *, backend, **buffers):
        assert (kv_layout, backend) == ("NHD", "fa2")
        self.graph, self.buffers, self.plans = use_cuda_graph, buffers, 0
        self.packed = buffers.get("custom_mask_buf")

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, *, packed_custom_mask=None, causal, sm_scale,
        q_data_type,
    ):  # fmt: skip
        assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
        assert not causal
        if self.graph:
            assert len(self.buffers["qo_indptr_buf"]) == len(qo_indptr)
            assert len(self.buffers["kv_indptr_buf"]) == len(kv_indptr)
            if packed_custom_mask is not None:
                self.buffers["custom_mask_buf"][: len(packed_custom_mask)] = packed_custom_mask
                packed_custom_mask = self.buffers["custom_mask_buf"]  # the kernels read this buffer
        self.rows, self.keys = qo_indptr.tolist(), kv_indptr.tolist()
        self.shape = num_qo_heads, num_kv_heads, head_dim_qk
        if packed_custom_mask is not None:  # otherwise the previous mask stays in use
            self.packed = packed_custom_mask
        self.scale, self.dtype = sm_scale, q_data_type
        self.plans += 1

    def run(self, q, k, v, return_lse=False):
        heads, kv_heads, dim = self.shape
        assert q.shape == (self.rows[-1], heads, dim)
        assert k.shape[1:] == (kv_heads, dim)
        assert len(k) >= self.keys[-1]
        assert q.dtype == k.dtype == v.dtype == self.dtype
        for x in (q, k, v):
            aligned(x)
        out = torch.zeros(q.shape)
        lse = torch.full(q.shape[:2], -math.inf)
        for i in range(len(self.rows) - 1):
            r, c = slice(*self.rows[i : i + 2]), slice(*self.keys[i : i + 2])
            key, value = (t[c].float().repeat_interleave(heads // kv_heads, 1) for t in (k, v))
            scores = torch.einsum("rhd,chd->rhc", q[r].float(), key) * self.scale
            if self.packed is not None:
                assert len(self.rows) == 2, "packed masks of several requests start at bytes, which we never use"
                bits = np.unpackbits(self.packed.numpy(), bitorder="little")[: scores.shape[0] * scores.shape[2]]
                seen = torch.from_numpy(bits.astype(bool)).view(scores.shape[0], 1, scores.shape[2])
                scores = scores.masked_fill(~seen, -math.inf)
            lse[r] = scores.logsumexp(-1) / math.log(2)
            out[r] = torch.einsum("rhc,chd->rhd", scores.softmax(-1), value)
        return (out.to(q.dtype), lse) if return_lse else out.to(q.dtype)


def merge_state(v_a, s_a, v_b, s_b):
    weights = torch.stack([s_a, s_b]).mul(math.log(2)).softmax(0).unsqueeze(-1)
    return (weights[0] * v_a.float() + weights[1] * v_b.float()).to(v_a.dtype), torch.logaddexp2(s_a, s_b)


def aligned(x):
    """Asserts alignment: kernels read vectors of 16 bytes from one address per row and head."""
    assert x.stride(-1) == 1
    assert all(step * x.element_size() % 16 == 0 for step in x.stride()[:-1])
    assert x.storage_offset() * x.element_size() % 16 == 0


def rmsnorm(input, weight, eps=1e-6):
    assert input.dim() in (2, 3)
    assert input.dtype == weight.dtype
    normed = F.rms_norm(input.float(), weight.shape, weight.float(), eps)
    return torch.empty(input.shape, dtype=input.dtype).copy_(normed)  # contiguous


def fused_add_rmsnorm(input, residual, weight, eps=1e-6):
    assert input.dim() == residual.dim() == 2
    assert input.dtype == residual.dtype == weight.dtype
    assert input.data_ptr() != residual.data_ptr()
    whole = residual.float() + input.float()  # the norm reads the sum before rounding
    residual.copy_(whole)
    input.copy_(F.rms_norm(whole, weight.shape, weight.float(), eps))


def silu_and_mul(input):
    assert input.is_contiguous()  # the kernel ignores strides
    gate, up = input.float().chunk(2, -1)
    return (F.silu(gate) * up).to(input.dtype)


def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache):
    assert cos_sin_cache.dtype == torch.float32
    assert cos_sin_cache.is_contiguous()
    assert len(positions) == len(query) == len(key)
    half = cos_sin_cache.shape[1] // 2
    cos, sin = (part[:, None] for part in cos_sin_cache[positions].split(half, 1))
    for x in (query, key):
        aligned(x)
        heads = x.view(len(x), -1, head_size)[..., : 2 * half]
        a, b = heads.float().chunk(2, -1)
        heads.copy_(torch.cat([a * cos - b * sin, b * cos + a * sin], -1))


def append_paged_kv_cache(
    append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr, kv_last_page_len,
    kv_layout="NHD",
):  # fmt: skip
    for indices in (batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len):
        assert indices.dtype == torch.int32, "it is converted, by a kernel of its own"
    assert kv_layout == "HND"
    for new, buffer in zip((append_key, append_value), paged_kv_cache, strict=True):
        aligned(new)
        aligned(buffer)
        assert new.dtype == buffer.dtype
        for row, request, position in zip(new, batch_indices.tolist(), positions.tolist(), strict=True):
            first, last = kv_indptr[request : request + 2].tolist()
            size = buffer.shape[2]
            assert position < (last - first - 1) * size + int(kv_last_page_len[request])
            buffer[int(kv_indices[first + position // size]), :, position % size] = row
