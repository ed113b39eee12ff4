"""Training chooses a number format that the processor multiplies quickly, and reports it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from d2sd import DecodeConfig, load
from d2sd.folders.loading import load_target
from d2sd.folders.weights import weights_digest
from d2sd.nets.dtypes import HalfLinear, can_mix, halve, halved
from d2sd.train import block_drafters, loop, writer
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
    target = load_target("assets/models/tiny/target", "mixed", batched=True)
    layer = target.base.layers[0].mlp.gate_proj
    assert isinstance(layer, HalfLinear)
    x = torch.randn(5, tiny.config.hidden_size)
    expected = x @ tiny.base.layers[0].mlp.gate_proj.weight.half().float().T
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    assert target.numbers == "mixed"
    (written,) = respond_to(target, [[0, 5, 6]], RegenerateConfig(max_new_tokens=4))
    assert len(written) == 4 or written[-1] in target.end_ids


@pytest.mark.skipif(not can_mix(), reason="this machine has no products of float32 rows with float16 weights")
def test_texts_to_train_on_are_written_in_bfloat16_where_quick_and_exact_ones_never(monkeypatch):
    """Exact texts equal those of plain decoding in mixed precision, also where bfloat16 is quick."""
    prompts, config = [[0, 5, 6], [0, 9, 8, 7], [0, 30]], RegenerateConfig(2, 12)
    target = load_target("assets/models/tiny/target", "mixed", batched=True)
    kinds = {}
    for quick in (False, True):
        monkeypatch.setattr(writer, "quick_bfloat16", lambda quick=quick: quick)
        rows = [writer.Rows(target, 2, 16, config, exact) for exact in (False, True)]
        kinds[quick] = [row.cache.parts[0].dtype for row in rows]
        assert respond_to(target, prompts, config) == plainly_decoded(prompts, 12)
        requests = [writer.WriterRequest(n, prompt) for n, prompt in enumerate(prompts)]
        written = [text for _, text in writer.write(target, requests, config)]
        assert len(written) == len(prompts)
        assert all(0 < len(text) <= 12 for text in written)
    assert kinds == {False: [torch.float32] * 2, True: [torch.bfloat16, torch.float32]}


def plainly_decoded(prompts, tokens):
    engine = load("tiny", dtype="mixed")
    config = DecodeConfig("autoregressive", tokens)
    return [engine.generate(prompt, config).token_ids for prompt in prompts]


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("part", [1, 50, 1 << 20])
def test_head_loss_has_value_and_gradient_of_cross_entropy(rank, part, monkeypatch):
    """For any number of logits at a time, with and without a Markov head."""
    monkeypatch.setattr(block_drafters, "PART", part)
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 5 + rank, generator=random, requires_grad=True)
    frozen, trained = torch.randn(11, 5, generator=random), torch.randn(11, rank, generator=random, requires_grad=True)
    labels, weights = torch.randint(11, (7,), generator=random), torch.rand(7, generator=random)
    found, right = block_drafters.HeadLoss.apply(rows, frozen, trained, labels)
    logits = rows @ torch.cat([frozen, trained], 1).T
    expected = nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(found, expected)
    assert torch.equal(right, logits.argmax(-1) == labels)
    inputs = (rows, trained) if rank else (rows,)
    for ours, theirs in zip(
        *(torch.autograd.grad((x * weights).sum(), inputs) for x in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


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
