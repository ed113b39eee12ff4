"""The same commands train drafters for targets with linear attention, experts, sinks or scales."""

from __future__ import annotations

import pytest
import torch

from d2sd import DecodeConfig, load
from d2sd.nets.types import final_logits, text_config
from d2sd.train.block_drafters import train_drafter
from d2sd.train.drafters import load_frozen
from d2sd.train.eagle3 import train_eagle3
from d2sd.train.settings import (
    BlockObjective,
    BlockTraining,
    Eagle3Objective,
    Eagle3Training,
    LoopConfig,
    RegenerateConfig,
)
from d2sd.train.text import regenerate_responses
from tests.target_nets import PROMPTS, make_typed

SHAPE = {"layers": 2, "block_size": 5, "target_layer_ids": [0, 2], "mask_token": "<|mask|>"}


@pytest.mark.parametrize("kind", ["granite", "gpt_oss", "qwen3_next", "gemma4_text"])
def test_training_features_equal_decoding_features(tokenizer, tmp_path, kind):
    target = make_typed(tokenizer, kind)
    ids = torch.arange(2, 22)
    target.taps.add([0, 1])
    with torch.no_grad():
        target.forward(ids, torch.arange(20), target.new_cache(24), None, None)
        decoding = target.features([0, 1], slice(0, 20))
        target.model.save_pretrained(tmp_path / "target")
        tokenizer.save_pretrained(tmp_path / "target")
        model, _ = load_frozen(tmp_path / "target")
        hidden = model.model(input_ids=ids[None], use_cache=False, output_hidden_states=True).hidden_states
    torch.testing.assert_close(torch.cat([hidden[1], hidden[2]], -1), decoding, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["granite", "gemma4_text"])
def test_final_logits_equal_target_logits(tokenizer, kind):
    """Granite divides its logits and Gemma caps them; EAGLE-3 drafters learn from the final logits."""
    model, ids = make_typed(tokenizer, kind).model, torch.arange(2, 22)[None]
    with torch.no_grad():
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(final_logits(text_config(model.config), model.lm_head(hidden)), wanted)


@pytest.mark.parametrize("kind", ["gpt_oss", "qwen3_5_text"])
def test_drafters_of_all_kinds_train_and_draft(tokenizer, tmp_path, kind):
    """Trains DFlash, VP-Drafter and EAGLE-3; each drafter loads and drafts without changing the text."""
    target = make_typed(tokenizer, kind)
    target.model.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    text, loop = tmp_path / "r.jsonl", LoopConfig(2, batch_size=2, save_every=1000, log_every=1)
    regenerate_responses(tmp_path / "target", [[p] for p in PROMPTS], text, RegenerateConfig(2, 16))
    folders = {name: str(tmp_path / name) for name in ("target", "dflash", "vp", "eagle3")}

    def settings(name, objective, **more):
        paths = {"target": tmp_path / "target", "responses": text, "out": tmp_path / name}
        return {**paths, "loop": loop, "objective": objective, **more}

    train_drafter(BlockTraining(**settings("dflash", BlockObjective(anchors=4), **SHAPE)))
    train_drafter(BlockTraining(**settings("vp", BlockObjective(True, anchors=4), start=tmp_path / "dflash")))
    train_eagle3(Eagle3Training(**settings("eagle3", Eagle3Objective(2, 0.8, 4), target_layer_ids=[0, 1, 0])))
    plain = None
    for method, drafter in (("autoregressive", "dflash"), ("d2sd", "dflash"), ("eagle3", "eagle3")):
        models = {"drafter": folders[drafter]} | ({"second_drafter": folders["vp"]} if method == "d2sd" else {})
        engine = load("tiny", target=folders["target"], **models)
        ids = engine.generate(PROMPTS[0], DecodeConfig(method, 12)).token_ids
        plain = plain or ids
        assert ids == plain
