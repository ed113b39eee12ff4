"""Training chooses a number format that the processor multiplies quickly, and reports it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from d2sd import load
from d2sd.folders.loading import load_target
from d2sd.folders.weights import weights_digest
from d2sd.nets.dtypes import HalfLinear, can_mix, halve, halved
from d2sd.train import loop
from d2sd.train.loop import Float32Muon, make_optimizers
from d2sd.train.settings import LoopConfig, RegenerateConfig
from d2sd.train.text import respond_to


def test_float32_muon_matches_torch_muon():
    torch.manual_seed(0)
    shapes = [(24, 40), (40, 24), (32, 32)]
    ours, theirs = ([nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    optimizers = (Float32Muon(ours, 0.02, 0.1), torch.optim.Muon(theirs, 0.02, 0.1, adjust_lr_fn="match_rms_adamw"))
    for _ in range(3):
        gradients = [torch.randn(shape) for shape in shapes]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            for p, g in zip(parameters, gradients, strict=True):
                p.grad = g.clone()
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        moved = (a - 1).norm()
        assert moved > 0.1
        assert (a - b).norm() < 0.02 * moved


@pytest.mark.parametrize("quick", [True, False])
def test_precision_and_optimizer_follow_quick_bfloat16(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(loop, "quick_bfloat16", lambda: quick)
    kinds = [type(o) for o in make_optimizers({"fc": nn.Parameter(torch.ones(4, 4))}, LoopConfig(1))]
    assert kinds == [torch.optim.Muon if quick else Float32Muon]
    seen = []

    class Objective(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            found = self.fc(x)
            seen.append(found.dtype)
            return found.square().mean(), {}

    sample = lambda index, _: {"x": torch.ones(len(index), 4)}  # noqa: E731
    loop.Loop(Objective(), 4, sample, tmp_path, LoopConfig(1, batch_size=2)).run()
    assert seen == [torch.bfloat16 if quick else torch.float32]
    name = "bfloat16; optimizers: Muon" if quick else "float32; optimizers: Float32Muon"
    assert f"Training in {name}." in capsys.readouterr().err


@pytest.mark.skipif(not can_mix(), reason="this machine has no products of float32 rows with float16 weights")
def test_batched_target_in_mixed_uses_half_precision_weights():
    tiny = load("tiny").models.target
    plain = load_target("assets/models/tiny/target", batched=True)
    assert not halved(plain.base.layers)  # small weights are read quickly in any case
    writer = load_target("assets/models/tiny/target", "mixed", batched=True)
    layer = writer.base.layers[0].mlp.gate_proj
    assert isinstance(layer, HalfLinear)
    x = torch.randn(5, tiny.config.hidden_size)
    expected = x @ tiny.base.layers[0].mlp.gate_proj.weight.half().float().T
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    assert writer.numbers == "mixed"
    (written,) = respond_to(writer, [[0, 5, 6]], RegenerateConfig(max_new_tokens=4))
    assert len(written) == 4 or written[-1] in writer.end_ids


@pytest.mark.skipif(not can_mix(), reason="this machine has no products of float32 rows with float16 weights")
def test_halve_skips_layers_with_bias():
    layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, bias=False))])
    halve(layers)
    assert [type(m) for m in layers[0]] == [nn.Linear, HalfLinear]


def test_weights_digest_depends_on_weights_only():
    net, threads = torch.nn.Linear(500, 700), torch.get_num_threads()
    twin = copy.deepcopy(net)
    try:
        torch.set_num_threads(1)
        digest = weights_digest(net)
        torch.set_num_threads(2)
        assert weights_digest(twin) == digest
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        twin.bias[3] += 1e-3
    assert weights_digest(twin) != digest
    assert weights_digest(net.bfloat16().float()) != digest
