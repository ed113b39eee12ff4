"""Training in several processes: the same command under ``accelerate launch``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from d2sd import DecodeConfig, load
from d2sd.train.loop import LoopConfig
from d2sd.train.regenerate import RegenerateConfig
from d2sd.train.stages import regenerate_responses, train_target
from d2sd.train.target import TargetShape
from tests.train.texts import prompt_of, sums


@pytest.fixture
def folder(tmp_path):
    texts = sums(60)
    loop = LoopConfig(2, batch_size=4, warmup=1, save_every=2)
    train_target(texts, texts, tmp_path / "target", TargetShape(512, 64, 3, 2, 1, 32, 96, 256), loop, 64)
    regenerate_responses(
        tmp_path / "target", [prompt_of(t) for t in texts[:12]], tmp_path / "r.jsonl", RegenerateConfig(8, 16)
    )
    return tmp_path


def test_two_processes_train_one_drafter(folder):
    launch = [
        "accelerate.commands.launch",
        "--multi_gpu",  # also where there is none: it is what makes the launcher start several processes
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        "0",
    ]
    command = [
        "-m", "d2sd", "train", "vp", "--target", str(folder / "target"), "--responses", str(folder / "r.jsonl"),
        "--out", str(folder / "vp"), "--layers", "2", "--block-size", "6", "--anchors", "4", "--steps", "4", "--batch-size", "3",
        "--accumulate", "2", "--warmup", "1", "--save-every", "2", "--precision", "float32",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-m", *launch, *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last = json.loads((folder / "vp" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 4
    state = json.loads((folder / "vp" / "checkpoint" / "state.json").read_text())
    assert state["identity"]["processes"] == 2
    (folder / "vp").rename(folder / "dflash")
    assert len(load(str(folder)).generate("Question", DecodeConfig("dflash", 8)).token_ids) == 8
