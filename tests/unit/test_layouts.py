"""Configs of block drafters: recognised, read into one description, or refused with the unsupported feature's name."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from d2sd import InputError
from d2sd.folders.loading import load_drafter
from d2sd.nets.layouts import read_form
from tests.drafter_folders import HEAD, SHAPE, THETA, flat, nested, speculators, write
from tests.nets import make_target


def test_read_form_spreads_default_taps():
    config = {**nested(), "num_target_layers": 36, "dflash_config": {"mask_token_id": 1}}
    layers = {5: (1, 9, 17, 25, 33), 2: (1, 33), 1: (18,)}
    for count, taps in layers.items():
        assert read_form({**config, "num_hidden_layers": count}).taps == taps


def test_read_form_takes_taps_from_every_key():
    outputs, inputs = {"target_layer_ids": [0, 2]}, {"eagle_aux_hidden_state_layer_ids": [1, 3]}
    config = {**nested(), "num_target_layers": 9}
    for inner, outer in ((outputs, {}), (outputs, inputs), ({}, inputs), (inputs, {})):
        assert read_form({**config, **outer, "dflash_config": {"mask_token_id": 1, **inner}}).taps == (0, 2)


REFUSED = [
    ({**nested(block_size=4)}, "its block_size is 6 and its dflash_config.block_size is 4; make them equal"),
    ({**nested(), "eagle_aux_hidden_state_layer_ids": [2, 3]}, "means the layers \\(0, 1\\) and its eagle_aux_hidden_state_layer_ids means the layers \\(1, 2\\); make them equal"),
    ({**nested(), "rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, "rope_theta is 10000.0 and its rope_parameters"),
    ({**nested(), "rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differ by kind of layer"),
    ({**nested(), "layer_types": ["sliding_attention"] * 2}, "its sliding_window is missing"),
    ({**nested(), "layer_types": ["linear_attention"] * 2}, "its layer_types include 'linear_attention'"),
    ({**nested(), "is_causal": 3}, "its is_causal is 3"),
    ({**nested(), "architectures": ["PEagleDraftModel"]}, "it is a P-EAGLE drafter.*run it with vLLM"),
    (nested(projector_type="domino"), "it is a Domino drafter.*run it with SGLang"),
    ({**flat(), "architectures": ["Qwen3Eagle3Model"]}, "it is an EAGLE-3 drafter in DeepSpec's form"),
    (nested(projector_type="other"), "its projector_type 'other' is not supported"),
    ({**nested(), "attention_sink_bias": True}, "its config sets attention_sink_bias to True, which is not supported here"),
    ({**nested(), "attention_value_scale": 0.5}, "sets attention_value_scale to 0.5"),
    ({**nested(), "quantization_config": {"quant_method": "gptq"}}, "sets quantization_config to .*, which is not supported here; vLLM or SGLang may run this drafter"),
    ({**flat(), "kv_lora_rank": 512}, r"latent attention \(MLA\)"),
    ({**flat(), "num_experts": 8}, r"experts \(MoE\)"),
    ({**flat(), "architectures": ["Gemma4DSparkModel"]}, "Gemma's layers"),
    ({**flat(), "norm_output": True}, "its config sets norm_output to True, which is not supported here"),
    ({**flat(), "secret_trick": True}, "its config sets secret_trick, which this version does not know"),
    (flat(target_layer_ids=[-1, 1]), r"reading the embeddings \(-1\) is not supported"),
    (flat(**{**HEAD, "markov_rank": 0}), r"a Markov head, which it does not have \(markov_rank is 0\)"),
    (flat(markov_rank=4, markov_head_type="new"), "its markov_head_type 'new' is unknown"),
    ({k: v for k, v in speculators("dflash").items() if k != "aux_hidden_state_layer_ids"}, "has no aux_hidden_state_layer_ids"),
    (speculators("dspark"), "sample_from_anchor is missing, and speculative_tokens is neither 6 nor 5"),
    (speculators("other"), "its speculators_model_type 'other' is not supported"),
    (speculators("dflash", target_hidden_size=128), "reads features of width 128"),
    (nested("DFlash2DraftModel", conv_group_size=5), "its conv_group_size 5 does not divide its hidden_size 64"),
    ({**SHAPE, **THETA}, "it is not a block drafter"),
    ({**nested(), "model_type": "llama"}, "its model_type is 'llama'; it must be qwen3"),
    ({**nested(), "block_size": "16"}, "its block_size is '16'"),
    ({**nested(), "dflash_config": []}, "its dflash_config is not a JSON object"),
    ({**nested(), "dflash_config": {"target_layer_ids": [1]}}, "has no mask_token_id"),
    (nested(target_layer_ids=1), "target_layer_ids must be a list"),
    (nested(target_layer_ids=[1, 3]), "it reads target layer 3, but its num_target_layers is 3"),
    (nested(mask_token_id=300), "mask_token_id 300 is not in its vocabulary"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "sentence"), REFUSED)
def test_load_drafter_refuses_unsupported_config(config, sentence, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=sentence) as caught:
        load_drafter(str(tmp_path), torch.float32, "cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("dflash", "layers.0.self_attn.sinks", r"layers\.0\.self_attn\.sinks \(attention sinks\), which this version does not read"),
        ("dflash", "adapter.lora_A.weight", r"an adapter that was never merged into the weights \(adapter\.lora_A\.weight\)"),
        ("deepspec", "markov_head.markov_w1.weight", "markov_head"),
    ],
)  # fmt: skip
def test_load_drafter_refuses_unread_tensors(tokenizer, tmp_path, name, tensor, sentence):
    write(name, tmp_path, make_target(tokenizer))
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), tensor: torch.zeros(3)}, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=sentence):
        load_drafter(str(tmp_path), torch.float32, "cpu")


def test_load_drafter_keeps_only_tables_unlike_target(tokenizer, tmp_path, caplog):
    target = make_target(tokenizer)
    write("deepspec", tmp_path, target)
    read = load_drafter(str(tmp_path), torch.float32, "cpu", target)
    assert read.embed_tokens is None
    assert read.lm_head is None
    read = load_drafter(str(tmp_path), torch.float32, "cpu", make_target(tokenizer, seed=9))
    assert read.embed_tokens is not None
    assert "own embed_tokens.weight is used, since it differs from the target's" in caplog.text


def test_read_form_accepts_options_without_effect():
    harmless = {
        "attention_dropout": 0.1,
        "gradient_checkpointing": True,
        "attention_value_scale": 1,
        "norm_output": False,
    }
    assert read_form({**nested(), **harmless}) == read_form(nested())
