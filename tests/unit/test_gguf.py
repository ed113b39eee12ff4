"""GGUF files as targets: what is read, and what is refused with a sentence."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from d2sd import InputError
from d2sd.folders.loading import load_target
from d2sd.folders.weights import check_gguf


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


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_check_gguf_accepts_supported_architectures(tmp_path, architecture):
    check_gguf(write(tmp_path / "model.gguf", architecture))


def test_check_gguf_refuses_other_architectures(tmp_path):
    with pytest.raises(
        InputError, match="GGUF files of type 'phi3' are not supported; choose llama, qwen2, qwen3 or gemma3"
    ):
        check_gguf(write(tmp_path / "model.gguf", "phi3"))


def test_check_gguf_refuses_truncated_or_damaged_files(tmp_path):
    path = write(tmp_path / "model.gguf")
    whole = path.read_bytes()
    cut = [whole[:size] for size in (6, 20, 40, 100, 200, len(whole) - 100)]
    for content in (*cut, b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16):
        path.write_bytes(content)
        with pytest.raises(InputError, match="cut short or damaged"):
            check_gguf(path)


@pytest.mark.parametrize(("content", "said"), [(None, "there is no such file"), (b"PK\x03\x04", "it is no GGUF file")])
def test_load_target_refuses_missing_or_foreign_gguf(tmp_path, content, said):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"cannot load the target .*{said}"):
        load_target(str(path), torch.float32, "cpu")
