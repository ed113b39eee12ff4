"""GGUF files that are refused as targets, with a sentence."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from d2sd import InputError
from d2sd.folders.loading import load_target


def write(path, architecture="llama"):
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


def refused(path):
    with pytest.raises(InputError, match="cannot load the target") as error:
        load_target(str(path), torch.float32, "cpu")
    return str(error.value)


@pytest.mark.parametrize("architecture", ["phi3", "starcoder2"])
def test_load_target_refuses_other_gguf_types(tmp_path, architecture):
    said = refused(write(tmp_path / "model.gguf", architecture))
    assert f"GGUF files of type '{architecture}' are not supported; choose llama, qwen2, qwen3, gemma3" in said


def test_load_target_refuses_truncated_or_damaged_gguf(tmp_path):
    path = write(tmp_path / "model.gguf")
    whole = path.read_bytes()
    cut = [whole[:size] for size in (6, 20, 40, 100, 200, len(whole) - 100)]
    for content in (*cut, b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16, b"PK\x03\x04"):
        path.write_bytes(content)
        assert "the GGUF file is truncated, damaged or of an unknown kind" in refused(path)


def test_load_target_refuses_missing_gguf(tmp_path):
    assert "there is no such file" in refused(tmp_path / "model.gguf")
