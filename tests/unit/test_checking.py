"""Checks of model folders, field by field, and of computed numbers; each error is one sentence."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from d2sd import DecodeConfig, Engine, InputError, load
from d2sd.folders.loading import load_drafter, load_target
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_target, save_models


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory) -> Path:
    """A random target and a drafter for it, as folders."""
    target = make_target(tokenizer)
    return save_models(tmp_path_factory.mktemp("models"), target, dflash=make_drafter(target))


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "own"))


def change(folder: Path, changes: dict[str, object], name: str = "config.json") -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


ANY_NET = [
    ({"model_type": "gpt2x"}, "gpt2x"),
    ({"hidden_size": 0}, r"its hidden_size is 0; it must be a whole number from 1 to 4194304"),
    ({"hidden_size": 10**30}, "its hidden_size is a number of many digits"),
    ({"hidden_size": None}, "its hidden_size is missing"),
    ({"num_key_value_heads": 3}, "its 4 attention heads cannot share 3 key-value heads"),
    ({"num_hidden_layers": True}, "its num_hidden_layers is True"),
    ({"head_dim": 15}, "its head_dim 15 is odd"),
    ({"max_position_embeddings": 10**12}, "its max_position_embeddings is 1000000000000"),
    ({"rms_norm_eps": "small"}, "its rms_norm_eps is 'small'"),
    ({"rope_theta": 0}, "its rope_theta is 0; it must be a number above 0"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}, "its rope_parameters.rope_theta is 'x'"),
    ({"rope_scaling": {"type": "nosuch", "factor": 2.0}}, "its rope_scaling has the unknown type 'nosuch'; known types:"),
    ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, "its rope_scaling.factor is -2"),
    ({"rope_scaling": "linear"}, "its rope_scaling is not a JSON object"),
    ({"eos_token_id": 300}, r"its eos_token_id 300 is not in its vocabulary of 300 \(0 to 299\)"),
    ({"hidden_act": "nosuch"}, "its hidden_act 'nosuch' is unknown"),
    ({"attention_bias": "yes"}, "its attention_bias is 'yes'"),
    ({"quantization_config": {"quant_method": "nosuch"}}, "its quantization_config names the unknown method 'nosuch'"),
    ({"intermediate_size": 2**20}, r"its weights do not match its config \(.*mlp"),
    ({"num_hidden_layers": 1000}, "its layer_types must be a list with one entry for each of its 1000 layers"),
    ({"num_hidden_layers": 200, "layer_types": None}, "its weights do not match its config|the files hold the layers 0, 1, but num_hidden_layers is 200"),
]  # fmt: skip


READERS = {
    "target": partial(load_target, dtype="float32", device="cpu"),
    "dflash": partial(load_drafter, dtype=torch.float32, device="cpu"),
}


@pytest.mark.parametrize(("changes", "sentence"), ANY_NET)
@pytest.mark.parametrize("part", ["target", "dflash"])
def test_config_fields_checked_before_weights_are_read(folder, part, changes, sentence, monkeypatch):
    read = []
    readers = {"target": "loading.AutoModelForCausalLM.from_pretrained", "dflash": "loading.read_weights"}
    monkeypatch.setattr(f"d2sd.folders.{readers[part]}", lambda *_, **__: read.append(1))
    change(folder / part, changes)
    with pytest.raises(InputError, match=sentence) as caught:
        READERS[part](str(folder / part))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert not read


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '"x"', "{}", '{"model_type": "qwen3", "hidden_size": 1e999}']
)
def test_config_json_refused_when_malformed(folder, text):
    for part, read in READERS.items():
        (folder / part / "config.json").write_text(text)
        with pytest.raises(InputError, match="cannot load the") as caught:
            read(str(folder / part))
        assert "\n" not in str(caught.value)


def test_load_target_refuses_token_ids_outside_vocabulary(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "target")
    change(folder / "target", {"eos_token_id": 5000}, "generation_config.json")
    with pytest.raises(InputError, match="its eos_token_id 5000 is not in its vocabulary of 300"):
        load_target(str(folder / "target"), "float32", "cpu")
    change(folder / "target", {"eos_token_id": 0}, "generation_config.json")
    tokenizer.add_tokens([f"<far {n}>" for n in range(300)])
    tokenizer.save_pretrained(folder / "target")
    with pytest.raises(InputError, match=r"its tokenizer's id \d+ is not in its vocabulary of 300"):
        load_target(str(folder / "target"), "float32", "cpu")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("part", ["target", "dflash"])
def test_load_names_weight_with_nan_or_infinity(folder, part, value):
    path = folder / part / "model.safetensors"
    weights = load_file(path)
    name = sorted(weights)[3]
    weights[name].flatten()[7] = value
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=rf"cannot load the .*its weight {name} holds NaN or infinity"):
        load(str(folder))


def test_load_refuses_truncated_or_pickled_weights(folder):
    path = folder / "dflash" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot load the drafter"):
        load(str(folder))
    path = folder / "target" / "model.safetensors"
    torch.save(load_file(path), folder / "target" / "pytorch_model.bin")
    path.unlink()
    with pytest.raises(InputError, match="cannot load the target"):
        load_target(str(folder / "target"), "float32", "cpu")


def test_load_target_refuses_remote_code_without_asking(folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a prompt was shown"))
    change(folder / "target", {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}})
    (folder / "target" / "own.py").write_text("raise SystemExit('remote code ran')")
    with pytest.raises(InputError, match="cannot load the target"):
        load_target(str(folder / "target"), "float32", "cpu")


@pytest.mark.parametrize(("passes", "inspect", "temperature"), [("eager", True, 0.0), ("padded", False, 0.8)])
@pytest.mark.parametrize(
    ("part", "method", "net"),
    [
        ("target", "autoregressive", "target random-qwen3"),
        ("target", "d2sd", "target random-qwen3"),
        ("first", "d2sd", "drafter one"),
        ("first", "ddtree", "drafter one"),
        ("first", "specdiff2_select", "drafter one"),
        ("second", "d2sd", "drafter two"),
        ("draft_model", "draft_model", "draft model random-qwen3"),
    ],
)
def test_engine_stops_on_nan_and_names_network(tokenizer, part, method, net, inspect, temperature, passes):
    target = make_target(tokenizer)
    first, second = make_drafter(target), make_drafter(target, seed=2)
    first.config.name_or_path, second.config.name_or_path = "one", "two"
    models = Models(target, first, second, make_target(tokenizer, seed=5))
    broken = getattr(models, part)
    norm = broken.norm if part in ("first", "second") else broken.base.norm
    norm.weight = torch.nn.Parameter(torch.full_like(norm.weight, float("nan")), requires_grad=False)
    engine = Engine(models, passes)
    config = DecodeConfig(method, 8, inspect=inspect, temperature=temperature, top_p=0.9 if temperature else 1.0)
    with pytest.raises(InputError, match=f"the {net} computed NaN or infinity"):
        engine.generate("the cat sat", config)


def write_gguf(path: Path, architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ü"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("token_embd.weight", np.ones((64, 64), np.float32))
    writer.add_tensor("output.weight", np.ones((4, 18), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_load_target_refuses_missing_unsupported_or_damaged_gguf(tmp_path):
    path = tmp_path / "model.gguf"

    def refused(sentence):
        with pytest.raises(InputError, match=f"cannot load the target .*{sentence}"):
            load_target(str(path), "float32", "cpu")

    refused("there is no such file")
    write_gguf(path, "phi3")
    refused("GGUF files of type 'phi3' are not supported; choose llama, qwen2, qwen3, gemma3")
    whole = write_gguf(path).read_bytes()
    cut = [whole[:size] for size in (6, 20, 40, 100, 200, len(whole) - 100)]
    for content in (*cut, b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16, b"PK\x03\x04"):
        path.write_bytes(content)
        refused("the GGUF file is truncated, damaged or of an unknown kind")
