"""Every call of flashinfer's kernels as the engine makes it, with example tensors."""

from __future__ import annotations

import torch

from d2sd.nets import flashinfer


def calls(rows, batch):
    """Yields each call as ``FlashInferKernels`` makes it: name, tensors, and a function of these tensors."""
    heads, kv_heads, size, capacity, eps = 32, 8, 128, 512, 1e-6
    kernels = flashinfer.KERNELS

    def random(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, dtype=dtype)

    angles = torch.rand(capacity, size // 2) * 3
    cos, sin = (torch.cat([part, part], 1) for part in (angles.cos(), angles.sin()))
    (table,) = kernels.table(cos, sin, torch.bfloat16)
    positions = torch.randint(0, capacity, (rows,))
    projected = random(batch, rows, heads + 2 * kv_heads, size)

    def turned(projected, positions, table, *norms):
        rotation = kernels.rotation((table,), positions, batch)
        return kernels.heads(projected, heads, kv_heads, norms[0] if norms else None, rotation, eps)

    def written(keys, values, key, value, slots):
        kernels.writer(slots, capacity)(keys, values, key.transpose(1, 2), value.transpose(1, 2))
        return keys, values

    cache = [random(1, kv_heads, capacity, size) for _ in range(2)]
    x, weight = random(batch, rows, 4096), random(4096)
    yield "norm", (x, weight), lambda x, w: (kernels.norm(x, w, eps),)
    yield "add and norm", (x, random(batch, rows, 4096), weight), lambda x, r, w: kernels.add_norm(x, r, w, eps)
    yield "gated", (random(batch, rows, 2 * 12288),), lambda x: (kernels.gated(x),)
    yield "rotary", (projected, positions, table), turned
    yield "head norms and rotary", (projected, positions, table, random(heads + kv_heads, size)), turned
    new = [random(1, rows, kv_heads, size) for _ in range(2)]
    yield "written", (*cache, *new, 100 + torch.arange(rows)), written
