"""On a GPU every call of flashinfer gives what its reference computes, in a graph too."""

from __future__ import annotations

import pytest
import torch

from d2sd.nets import flashinfer
from tests.unit import reference_flashinfer

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def usable():
    if reason := flashinfer.obstacle(GPU, torch.bfloat16, 128):
        pytest.skip(reason)


def calls(rows, batch):
    """Every call as ``FlashInferKernels`` makes it: its name, its tensors, and how it is made of them."""
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


@pytest.mark.parametrize(("rows", "batch"), [(1, 1), (16, 1), (16, 4), (64, 1), (80, 1)])
@torch.inference_mode()
def test_flashinfer_call_equals_reference_also_in_graph(rows, batch, monkeypatch):
    torch.manual_seed(rows)
    cases = list(calls(rows, batch))
    with monkeypatch.context() as patch:
        patch.setattr(flashinfer, "_library", lambda: reference_flashinfer)
        wanted = [[part.clone() for part in work(*(t.clone() for t in given))] for _, given, work in cases]
    for (name, given, work), expected in zip(cases, wanted, strict=True):
        own = [t.to(GPU) for t in given]
        eager = work(*(t.clone() for t in own))
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            work(*(t.clone() for t in own))
        torch.cuda.synchronize()
        inputs = [t.clone() for t in own]
        with torch.cuda.graph(graph):
            outputs = work(*inputs)
        for kept, fresh in zip(inputs, own, strict=True):  # what the capture has not run
            kept.copy_(fresh)
        graph.replay()
        for found in (eager, outputs):
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a.cpu(), b, atol=3e-2, rtol=3e-2, msg=lambda m, name=name: f"{name}: {m}")
