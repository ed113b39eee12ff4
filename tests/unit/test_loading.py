"""Published folders load unchanged; folders that do not fit are refused with a reason."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import dispatch_model
from transformers import AutoModelForCausalLM, Qwen3Config

from d2sd import DecodeConfig, Engine, InputError, load
from d2sd.folders.drafters import save_eagle3
from d2sd.folders.loading import load_drafter, load_models, load_target
from d2sd.folders.model_sets import BUNDLED, resolve
from d2sd.nets.drafter import DFlashDraftModel, drafter_config
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from tests.nets import make_target, save_models


@pytest.fixture(scope="module")
def engine(engines):
    return engines("qwen3")


@pytest.fixture
def folder(engine, tmp_path):
    return save_models(tmp_path, engine.models.target, dflash=engine.models.first, vp=engine.models.second)


def test_saved_drafter_has_published_form_and_loads_without_remote_code(folder):
    path = folder / "dflash" / "config.json"
    config = json.loads(path.read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert set(config["dflash_config"]) == {"mask_token_id", "target_layer_ids"}
    config |= {"auto_map": {"AutoModel": "dflash.DFlashDraftModel"}}
    path.write_text(json.dumps(config))
    (folder / "dflash" / "dflash.py").write_text("raise SystemExit('remote code ran')")
    assert load_drafter(str(folder / "dflash"), torch.float32, "cpu").block_size == 16


def test_d2sd_method_requires_vp_drafter(folder):
    shutil.rmtree(folder / "vp")
    with pytest.raises(InputError, match=r"needs a VP-Drafter.*dflash_twice"):
        load(str(folder)).stream("the cat", DecodeConfig("d2sd", 20))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no-such-model", "unknown model"),
        ("/no/such/folder", "unknown model"),
        ("{}/empty", "has no target/ folder"),
        ("{}/half", "cannot load the target"),
    ],
)
def test_load_refuses_unknown_or_incomplete_model(tmp_path, name, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / "target").mkdir(parents=True)
    with pytest.raises(InputError, match=sentence):
        load(name.format(tmp_path))


def test_target_of_a_set_can_be_named_in_a_file(folder):
    (folder / "target").rename(folder / "elsewhere")
    for line, target in (("elsewhere", f"{folder}/elsewhere"), ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B")):
        (folder / "target").write_text(f"\ufeff{line}\n", encoding="utf-8")
        assert resolve(str(folder)).target == target
    (folder / "target").write_text("../gone/target")
    with pytest.raises(
        InputError, match=f"^{folder}/target names the target ../gone/target, but there is no such fold"
    ):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        *((name, f"device '{name}' is not supported.*; choose cpu or cuda") for name in ("mps:0", "xpu", "meta", "vulkan")),
        ("cuda:77", r"device 'cuda:77' cannot be used here .*; choose cpu or cuda|no CUDA GPU that this torch"),
    ],
)  # fmt: skip
def test_load_refuses_unsupported_devices(device, sentence):
    with pytest.raises(InputError, match=sentence):
        load("tiny", device=device)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": 32}, "reads features of width 32, but the target's hidden size is 64: they do not fit"),
        (
            {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 7]}},
            r"reads the output of target layer 7, but the target has 3 layers \(0 to 2\)",
        ),
        ({"vocab_size": 99}, "made for a vocabulary of 99 tokens, but the target has 300"),
    ],
)
def test_models_refuse_drafter_of_another_target(tokenizer, change, sentence):
    target = make_target(tokenizer)
    config = drafter_config(target.config, layers=2, block_size=16, mask_token_id=1)
    config.update({**change, "num_target_layers": 9})
    with torch.device("meta"):
        drafter = DFlashDraftModel(config)
    with pytest.raises(InputError, match=sentence):
        Models(target, drafter)


def test_drafter_format_table_matches_qwen3_8b():
    shape = {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
             "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}  # fmt: skip
    config = drafter_config(Qwen3Config(**shape), layers=5, block_size=16, mask_token_id=151669)
    with torch.device("meta"):
        parameters = DFlashDraftModel(config).state_dict()
    documented = Path("docs/drafter-format.md").read_text()
    for name, value in parameters.items():
        row = f"| `{re.sub(r'layers[.][0-9]+', 'layers.N', name)}` | {tuple(value.shape)} |"
        assert row in documented


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "deepseek_v3", "kv_lora_rank": 16}, r"'deepseek_v3' are not supported \(unsupported part: latent attention\)"),
        ({"model_type": "gemma2"}, r"'gemma2' are not supported \(unsupported part: soft caps on attention logits\)"),
        ({"model_type": "gpt2"}, r"'gpt2' are not supported; choose qwen3, llama, .* or mistral3"),
        (
            {"model_type": "qwen3", "layer_types": ["full_attention", "chunked_attention", "full_attention"]},
            "has layers of kind chunked_attention, which tree verification does not support; choose a target with",
        ),
    ],
)  # fmt: skip
def test_load_target_refuses_unsupported_types_from_config(tmp_path, config, sentence):
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 3, **config}))
    with pytest.raises(InputError, match=sentence) as caught:
        load_target(str(tmp_path), "float32", "cpu")
    assert "\n" not in str(caught.value)


def test_target_placed_by_accelerate_keeps_hooks_and_generates_same_text(engine, folder):
    model = AutoModelForCausalLM.from_pretrained(folder / "target")
    homes = dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers", "model.norm", "lm_head"), "cpu")
    target = Target(dispatch_model(model, homes, force_hooks=True), engine.models.target.tokenizer, "spread")
    assert all(hasattr(norm, "_hf_hook") for norm in (target.base.norm, target.base.layers[0].input_layernorm))
    config = DecodeConfig("autoregressive", 8)
    expected = engine.generate("the cat", config).token_ids
    assert Engine(Models(target)).generate("the cat", config).token_ids == expected
    assert load(str(folder), device="auto").generate("the cat", config).token_ids == expected


def test_load_reports_missing_package_and_low_memory(folder, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("d2sd.folders.loading.find_spec", lambda _: None)
    with pytest.raises(InputError, match="need the package bitsandbytes"):
        load(str(folder), load_in_8bit=True)
    monkeypatch.setattr("d2sd.folders.loading.AutoModelForCausalLM.from_pretrained", full)
    with pytest.raises(InputError, match="does not fit into the memory of cpu; choose a smaller target"):
        load(str(folder))


def test_models_warn_of_late_taps(tokenizer, caplog):
    target = make_target(tokenizer, layers=6)
    for taps, warned in (([1, 3], False), ([1, 5], True)):
        caplog.clear()
        config = drafter_config(target.config, layers=2, block_size=6, mask_token_id=1, target_layer_ids=taps)
        Models(target, DFlashDraftModel(config))
        assert ("reads the output of target layer 5; published drafters read no layer after 3" in caplog.text) == warned


def test_load_recognises_eagle3_folder_and_keeps_block_drafter(engine, folder):
    save_eagle3(engine.models.eagle3, folder / "other")
    models = load(str(folder), drafter=str(folder / "other")).models
    assert (models.first.block_size, models.eagle3.form.drafted) == (16, 150)
    models = load_models(replace(resolve(str(folder)), first=str(folder / "other")))  # as in an entry of D2SD_MODELS
    assert (models.first, models.eagle3.form.drafted) == (None, 150)
    assert re.search("needs a block drafter, but .* is an EAGLE-3 drafter", Engine(models).obstacle("dflash"))
    assert load(str(folder)).models.eagle3 is None
    with pytest.raises(InputError, match=r"needs an EAGLE-3 drafter, which .* does not have; .*--drafter"):
        load(str(folder)).stream("the cat", DecodeConfig("eagle3", 20))
    shutil.copytree(folder / "other", folder / "eagle3")
    config = DecodeConfig("eagle3", 20)
    assert load(str(folder)).generate("the cat", config).token_ids == engine.generate("the cat", config).token_ids


def test_load_refuses_drafters_of_the_other_kind(engine, folder):
    save_eagle3(engine.models.eagle3, folder / "other")
    with pytest.raises(
        InputError, match="is an EAGLE-3 drafter, which drafts alone; only block drafters can be the second"
    ):
        load(str(folder), second_drafter=str(folder / "other"))
    with pytest.raises(InputError, match="holds no EAGLE-3 drafter; give a block drafter with --drafter"):
        load_models(replace(resolve(str(folder)), eagle3=str(folder / "dflash")))
    with pytest.raises(InputError, match="it is not a block drafter"):
        load_drafter(str(folder / "other"), torch.float32, "cpu")


def test_drafter_token_ids_follow_device():
    drafter = load_drafter(str(BUNDLED / "smollm2" / "dflash"), torch.float32, "meta")
    assert drafter.token_ids is not None
    assert drafter.token_ids.device.type == "meta"
