"""Command-line interface: JSON keys, exit codes, and one sentence for bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from d2sd.__main__ import main
from d2sd.trace.trace import load_trace

KEYS = {
    "method", "model", "text", "prompt_token_ids", "token_ids", "stop_reason", "steps", "mean_acceptance_length",
    "nodes_per_step", "boundary_hit_rate", "repaired_rate", "tokens_per_redraft", "tokens_per_second", "seconds", "stage_seconds", "config", "versions",
}  # fmt: skip


def test_generate_json_prints_one_object(capfd):
    assert main(["generate", "--prompt", "One day, a cat", "--max-new-tokens", "24", "--json"]) == 0
    out = json.loads(capfd.readouterr().out)
    assert set(out) == KEYS
    assert len(out["token_ids"]) == 24
    assert out["config"]["block_size"] == 16
    assert sum(v for k, v in out["stage_seconds"].items() if k != "prefill") <= out["seconds"]


def test_generate_stdout_is_plain_text(capfd, tmp_path):
    (tmp_path / "p.txt").write_text("One day, a cat")
    files = ["--prompt-file", str(tmp_path / "p.txt"), "--trace", str(tmp_path / "t.jsonl")]
    assert main(["generate", *files, "--max-new-tokens", "24"]) == 0
    out = capfd.readouterr().out
    assert out.rstrip("\n") == load_trace(tmp_path / "t.jsonl").finished.text.rstrip("\n")
    assert "\033" not in out  # no colour codes in a pipe


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "a " * 3000], "the prompt has"),
        (["--prompt-file", "/no/file"], "cannot read the prompt file"),
        (["--prompt", "a", "--block-size", "1"], "block_size must be between 2 and"),
        (["--prompt", "a", "--block-size", "4", "--num-branches", "4"], "more than the 3 prefixes"),
        (["--prompt", "a", "--dtype", "int4"], "unknown dtype"),
    ],
)
def test_generate_bad_input_exits_2_with_one_sentence(capfd, arguments, sentence):
    assert main(["generate", *arguments, "--json"]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert sentence in captured.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no prompts"),
        ("{", "line 1: not JSON"),
        ('{"prompt": "a"}\n{"turns": ["b", "c"]}\n{"x": 1}', "line 3: needs a text"),
        ('{"prompt": "a"}\n{"prompt": "caf\xe9"}', "line 2: not UTF-8"),
    ],
)
def test_bench_prompt_file_error_names_line(capfd, tmp_path, text, sentence):
    (tmp_path / "p.jsonl").write_text(text, encoding="latin-1")
    assert main(["bench", "--prompts", str(tmp_path / "p.jsonl")]) == 2
    assert sentence in capfd.readouterr().err


def test_generate_stderr_holds_only_its_summary_on_a_terminal():
    read, write = os.openpty()
    command = [sys.executable, "-m", "d2sd", "generate", "--prompt", "the", "--max-new-tokens", "6"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=write, check=True)
    said = os.read(read, 1 << 16).decode().replace("\r", "")
    os.close(read)
    os.close(write)
    assert done.stdout.strip()
    assert re.fullmatch(
        r"\n*6 tokens in \d steps?, mean acceptance length [\d.]+, \d+ tokens/s(; on a CPU --cost-aware may be quicker)?\n",
        said,
    ), said


def test_generate_reports_out_of_memory_in_one_sentence(capsys, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate …")

    monkeypatch.setattr("d2sd.engine.Engine.run", full)
    assert main(["generate", "--prompt", "x", "--method", "dflash"]) == 1
    assert capsys.readouterr().err == (
        "error: there was not enough memory; use fewer tokens, a shorter prompt, a smaller model or a smaller dtype\n"
    )
