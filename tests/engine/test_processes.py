"""Measuring in several processes: the same command under ``accelerate launch``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from d2sd.__main__ import main

LAUNCH = [
    "accelerate.commands.launch",
    "--multi_gpu",  # also where there is none: it is what makes the launcher start several processes
    *("--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"),
    *("--mixed_precision", "no", "--dynamo_backend", "no"),
]
BENCH = ["bench", "--methods", "autoregressive,d2sd", "--limit", "5", "--max-new-tokens", "8", "--json"]


def test_bench_in_two_processes_merges_rows(tmp_path, capfd):
    command = [sys.executable, "-m", *LAUNCH, "-m", "tests.engine.launched", str(tmp_path), json.dumps(BENCH)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    capfd.readouterr()
    assert (tmp_path / "1.txt").read_text() == ""  # one process prints
    result = json.loads((tmp_path / "0.txt").read_text())
    assert result["provenance"]["hardware"]["processes"] == 2
    assert result["prompts_done"] == 5
    rows = [(r["label"], r["prompts"], r["identical"]) for r in result["rows"]]
    assert rows == [("autoregressive", 5, 1), ("d2sd", 5, 1)]
    assert main(BENCH) == 0
    for ours, theirs in zip(result["rows"], json.loads(capfd.readouterr().out)["rows"], strict=True):
        assert ours["mean_acceptance_length"] == theirs["mean_acceptance_length"]
        assert ours["mean_acceptance_length_interval"] == theirs["mean_acceptance_length_interval"]
