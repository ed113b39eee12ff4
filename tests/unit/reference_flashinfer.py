"""What flashinfer's documentation says of the calls that we make, in plain torch, to hold our side of them against.

Ragged keys and values by index ranges, a packed mask (lowest bit first), grouped heads, log-sum-exp to base 2.
"""

from __future__ import annotations

import math

import numpy as np
import torch


class BatchPrefillWithRaggedKVCacheWrapper:
    """Checks its arguments as the real one does, and computes what it documents, in float32."""

    def __init__(self, workspace, layout, backend, use_cuda_graph=False, **buffers):
        assert (layout, backend) == ("NHD", "fa2")
        self.graph, self.buffers, self.plans = use_cuda_graph, buffers, 0
        self.packed = buffers.get("custom_mask_buf")

    def plan(self, rows, keys, heads, kv_heads, dim, packed_custom_mask=None, *, causal, sm_scale, q_data_type):
        assert rows.dtype == keys.dtype == torch.int32
        assert not causal
        if self.graph:
            assert len(self.buffers["qo_indptr_buf"]) == len(rows)
            assert len(self.buffers["kv_indptr_buf"]) == len(keys)
            if packed_custom_mask is not None:
                assert len(self.buffers["custom_mask_buf"]) >= len(packed_custom_mask)
                assert len(self.buffers["mask_indptr_buf"]) == len(rows)
                self.buffers["custom_mask_buf"][: len(packed_custom_mask)] = packed_custom_mask
                packed_custom_mask = self.buffers["custom_mask_buf"]  # what the kernels read
        self.rows, self.keys, self.shape = rows.tolist(), keys.tolist(), (heads, kv_heads, dim)
        if packed_custom_mask is not None:  # else it goes on using the mask that it had
            self.packed = packed_custom_mask
        self.scale, self.dtype = sm_scale, q_data_type
        self.plans += 1

    def run(self, q, k, v, return_lse):
        heads, kv_heads, dim = self.shape
        assert q.shape == (self.rows[-1], heads, dim)
        assert q.is_contiguous()
        assert q.dtype == self.dtype
        assert return_lse
        out = torch.zeros(q.shape)
        lse = torch.full(q.shape[:2], -math.inf)
        for i in range(len(self.rows) - 1):
            r, c = slice(*self.rows[i : i + 2]), slice(*self.keys[i : i + 2])
            group = heads // kv_heads
            key, value = (t[c].float().repeat_interleave(group, 1) for t in (k, v))
            scores = torch.einsum("rhd,chd->rhc", q[r].float(), key) * self.scale
            if self.packed is not None:
                assert len(self.rows) == 2, "packed masks of several requests start at bytes, which we never use"
                bits = np.unpackbits(self.packed.numpy(), bitorder="little")[: scores.shape[0] * scores.shape[2]]
                seen = torch.from_numpy(bits.astype(bool)).view(scores.shape[0], 1, scores.shape[2])
                scores = scores.masked_fill(~seen, -math.inf)
            lse[r] = scores.logsumexp(-1) / math.log(2)
            out[r] = torch.einsum("rhc,chd->rhd", scores.softmax(-1), value)
        return out.to(q.dtype), lse


def merge_state(a, a_lse, b, b_lse):
    assert a_lse.dtype == b_lse.dtype == torch.float32
    weights = torch.stack([a_lse, b_lse]).mul(math.log(2)).softmax(0).unsqueeze(-1)
    return (weights[0] * a.float() + weights[1] * b.float()).to(a.dtype), torch.logaddexp2(a_lse, b_lse)
