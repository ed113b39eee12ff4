"""On a GPU every flashinfer call equals its reference, also in a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from d2sd.nets import flashinfer
from tests.flashinfer_calls import calls
from tests.unit import reference_flashinfer

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def usable():
    if reason := flashinfer.obstacle(GPU, torch.bfloat16, 128):
        pytest.skip(reason)


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
        for kept, fresh in zip(inputs, own, strict=True):  # reset the inputs before the replay
            kept.copy_(fresh)
        graph.replay()
        for found in (eager, outputs):
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a.cpu(), b, atol=3e-2, rtol=3e-2, msg=lambda m, name=name: f"{name}: {m}")
