"""Training on a pretended GPU: code branches, devices of tensors, and fallbacks if a fast path fails."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from d2sd.folders.loading import load_target
from d2sd.nets.passes import PassRecorder
from d2sd.train import pair, plan
from d2sd.train.block_drafters import PairObjective
from d2sd.train.eagle3 import train_eagle3
from d2sd.train.features import Features
from d2sd.train.pair import train_pair
from d2sd.train.settings import Eagle3Objective, Eagle3Training, LoopConfig, PairTraining, RegenerateConfig
from d2sd.train.text import read_responses
from d2sd.train.writer import WriterRequest, write
from tests.clocks import Ticking
from tests.pretended_gpu import OnGpu, one_gpu
from tests.train.texts import prompt_of, rows, save_run, sums


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a target and its responses, made on the CPU."""
    out = tmp_path_factory.mktemp("run")
    save_run(out)
    return out


@pytest.fixture
def gpu(run):
    with one_gpu():
        yield


@pytest.fixture
def target(gpu, run):
    """The target on the GPU."""
    return load_target(str(run / "target"), "float32", batched=True)


def texts_of(target):
    prompts = [list(target.tokenizer(prompt_of(text))["input_ids"]) for text in sums(5)]
    requests = [WriterRequest(n, ids) for n, ids in enumerate(prompts)]
    return {r.number: ids for r, ids in write(target, requests, RegenerateConfig(3, 12))}


@pytest.fixture(scope="module")
def on_cpu(run):
    return texts_of(load_target(str(run / "target"), "float32", batched=True))


def test_writer_graph_gives_texts_of_cpu(target, on_cpu):
    assert isinstance(target.model.lm_head.weight, OnGpu)
    assert texts_of(target) == on_cpu


def test_writer_continues_without_graph_if_capture_fails(target, on_cpu, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(PassRecorder, "capture", fail)
    assert texts_of(target) == on_cpu
    assert "which is slower: operation not permitted when stream is capturing\n" in capsys.readouterr().err


def test_features_move_to_host_if_gpu_memory_is_full(run, target, monkeypatch, capsys):
    data = read_responses(run / "r.jsonl", 200, target.tokenizer.eos_token_id)
    index, read = torch.arange(len(data.ids)), Features._read
    stored = Features(target, [0, 2], data)
    assert isinstance(stored.stored["features"][0], OnGpu)
    rows = stored.rows(index)["features"]

    def full(self, count):
        if count:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return read(self, count)

    monkeypatch.setattr(Features, "_read", full)
    moved = Features(target, [0, 2], data)
    assert not isinstance(moved.stored["features"][0], OnGpu)
    kept = moved.rows(index)["features"]
    for number, length in enumerate(data.lengths.tolist()):
        assert torch.equal(kept[number, :length], rows[number, :length])
    assert "the target's features are stored in host memory" in capsys.readouterr().err


def test_train_pair_runs_on_gpu(gpu, run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("d2sd.train.pair.HELD_OUT_TOKENS", 6)
    monkeypatch.setattr(plan, "FEWEST_STEPS", 2)
    monkeypatch.setattr(plan, "LARGEST", 4)
    for share in ("WRITING_HELD_OUT", "MEASURING"):  # enough time, whatever the clock
        monkeypatch.setattr(pair, share, 30.0)
    for module in (pair, plan):
        monkeypatch.setattr(module, "FEWEST_TEXTS", 1)  # a pretended GPU takes a second for one text
    prompts = tuple(prompt_of(text) for text in sums(24))
    forward = PairObjective.forward

    def limited(self, prefixes, **batch):
        if len(prefixes) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, prefixes, **batch)

    monkeypatch.setattr(PairObjective, "forward", limited)
    # flashinfer is usable but must not be used: compiling its kernels would take training time
    monkeypatch.setattr("d2sd.nets.flashinfer.obstacle", lambda *_: None)
    settings = PairTraining(
        target=run / "target", out=tmp_path, minutes=0.1, prompts=prompts, layers=1, max_new_tokens=16
    )
    train_pair(settings, Ticking(0.15))
    assert "Not enough memory for batches of more than 2 texts." in capsys.readouterr().err
    assert "| machine | pretended; " in (tmp_path / "README.md").read_text()
    curve = rows(tmp_path / "training" / "metrics.jsonl")
    assert "on 2 held-out texts" in (tmp_path / "README.md").read_text()
    assert curve[-1]["held_out_acceptance_length"] >= 1


@pytest.mark.parametrize("batch", [1, 30])  # with features that are computed once, and without
def test_train_eagle3_runs_on_gpu(gpu, run, tmp_path, batch):
    given = {"target": run / "target", "responses": run / "r.jsonl", "out": tmp_path, "target_layer_ids": [0, 0, 0]}
    train_eagle3(Eagle3Training(**given, objective=Eagle3Objective(2, rows=4), loop=LoopConfig(2, batch_size=batch)))
    assert load_file(tmp_path / "model.safetensors")
