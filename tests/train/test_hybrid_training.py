"""Drafters learn to draft for a target with linear attention, experts, sinks or scales by the same commands."""

from __future__ import annotations

import pytest
import torch

from d2sd import DecodeConfig, Engine
from d2sd.models.eagle3_folder import save_eagle3
from d2sd.models.loading import load_drafter, load_target
from d2sd.models.models import Models
from d2sd.train.drafters import DrafterConfig
from d2sd.train.loop import LoopConfig
from d2sd.train.regenerate import RegenerateConfig
from d2sd.train.stages import load_frozen, regenerate_responses, train_drafter
from tests.nets import make_eagle3
from tests.target_nets import PROMPTS, make_typed

SHAPE = {"layers": 2, "block_size": 5, "target_layer_ids": [0, 2], "mask_token": "<|mask|>"}


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A hybrid target and what it writes."""
    out = tmp_path_factory.mktemp("hybrid")
    target = make_typed(tokenizer, "qwen3_5_text")
    target.model.save_pretrained(out / "target")
    tokenizer.save_pretrained(out / "target")
    regenerate_responses(out / "target", PROMPTS, out / "r.jsonl", RegenerateConfig(2, 32, 1.0))
    return out


def trained(folder, out, steps):
    loop = LoopConfig(steps, batch_size=2, learning_rate=6e-3, min_rate=6e-3, warmup=2, save_every=1000, log_every=1000)
    objective = DrafterConfig(anchors=24, objective="survival")
    train_drafter(
        folder / "target",
        folder / "r.jsonl",
        out,
        objective=objective,
        config=loop,
        cache=folder / "kept.safetensors",
        **SHAPE,
    )
    return load_drafter(str(out), torch.float32, "cpu")


def test_a_few_dozen_steps_raise_alpha(folder, tmp_path):
    target, alphas = load_target(str(folder / "target"), torch.float32, "cpu"), []
    for steps in (1, 90):
        engine = Engine(Models(target, trained(folder, tmp_path / str(steps), steps)))
        runs = [engine.generate(prompt, DecodeConfig("dflash", 20)) for prompt in PROMPTS]
        alphas.append(sum(len(s.committed) for run in runs for s in run.steps) / sum(len(run.steps) for run in runs))
    assert alphas[0] < 1.5
    assert alphas[1] > 2


@pytest.mark.parametrize("kind", ["granite", "gpt_oss", "qwen3_next", "gemma4_text"])
def test_training_sees_the_features_that_decoding_sees_and_drafters_begin(tokenizer, tmp_path, kind):
    target = make_typed(tokenizer, kind)
    ids = torch.arange(2, 22)
    target.tap([0, 1])
    with torch.no_grad():
        target.forward(ids, torch.arange(20), target.new_cache(24), None, None)
        decoding = target.features([0, 1], slice(0, 20))
        target.model.save_pretrained(tmp_path / "target")
        tokenizer.save_pretrained(tmp_path / "target")
        model, _ = load_frozen(tmp_path / "target")
        hidden = model.model(input_ids=ids[None], use_cache=False, output_hidden_states=True).hidden_states
    torch.testing.assert_close(torch.cat([hidden[1], hidden[2]], -1), decoding, atol=1e-4, rtol=1e-4)
    save_eagle3(make_eagle3(target), tmp_path / "eagle3")
