"""Training and measuring in several processes: the same commands under ``accelerate launch``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from d2sd import DecodeConfig, load
from d2sd.__main__ import main
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import regenerate_responses
from tests.train.texts import prompt_of, save_target, sums

LAUNCH = [
    "accelerate.commands.launch",
    "--multi_gpu",  # also where there is none: it is what makes the launcher start several processes
    *("--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"),
    *("--mixed_precision", "no", "--dynamo_backend", "no"),
]
BENCH = ["bench", "--methods", "autoregressive,d2sd", "--limit", "5", "--max-new-tokens", "8", "--json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder that two processes wrote. One launch runs bench and training: starting takes most of the time."""
    out = tmp_path_factory.mktemp("launched")
    texts = sums(60)
    save_target(texts, out / "target", steps=2)
    regenerate_responses(out / "target", [[prompt_of(t)] for t in texts[:12]], out / "r.jsonl", RegenerateConfig(8, 16))
    train = [
        "train", "vp", "--target", str(out / "target"), "--responses", str(out / "r.jsonl"),
        "--out", str(out / "vp"), "--layers", "2", "--block-size", "6", "--anchors", "4", "--steps", "4", "--batch-size", "3",
        "--accumulate", "2", "--warmup", "1", "--save-every", "2", "--precision", "float32",
    ]  # fmt: skip
    commands = json.dumps({"bench": BENCH, "train": train})
    command = [sys.executable, "-m", *LAUNCH, "-m", "tests.train.launched", str(out), commands]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_training_in_two_processes_gives_one_drafter(folder):
    last = json.loads((folder / "vp" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 4
    state = json.loads((folder / "vp" / "checkpoint" / "state.json").read_text())
    assert state["identity"]["processes"] == 2
    engine = load(target=str(folder / "target"), drafter=str(folder / "vp"))
    assert len(engine.generate("Question", DecodeConfig("dflash", 8)).token_ids) == 8


def test_bench_in_two_processes_merges_rows(folder, capfd):
    assert (folder / "bench-1.txt").read_text() == ""  # one process prints
    result = json.loads((folder / "bench-0.txt").read_text())
    assert result["provenance"]["hardware"]["processes"] == 2
    assert result["prompts_done"] == 5
    rows = [(r["label"], r["prompts"], r["identical"]) for r in result["rows"]]
    assert rows == [("autoregressive", 5, 1), ("d2sd", 5, 1)]
    assert main(BENCH) == 0
    for ours, theirs in zip(result["rows"], json.loads(capfd.readouterr().out)["rows"], strict=True):
        assert ours["mean_acceptance_length"] == theirs["mean_acceptance_length"]
        assert ours["mean_acceptance_length_interval"] == theirs["mean_acceptance_length_interval"]
