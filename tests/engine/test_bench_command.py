"""The bench commands: reports on disk, exit codes, Ctrl-C; without a GPU, `bench gpu` reports which figures need one."""

from __future__ import annotations

import json
import re
from itertools import count

import pytest

from d2sd.__main__ import main
from d2sd.bench.shapes import LAYERS
from d2sd.bench.timings import PROFILED, Floors, count_launches, random_engine
from d2sd.engine import Engine


def bench(capfd, arguments, *more):
    """Returns exit code, output and errors of ``bench`` with the words of ``arguments`` and ``more`` arguments."""
    code = main(["bench", *arguments.split(), *map(str, more)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_bench_report_has_tables_figures_and_provenance(capfd, tmp_path):
    arguments = "--preset table6 --baselines all --limit 2 --max-new-tokens 4 --out"
    code, out, _ = bench(capfd, arguments, tmp_path)
    assert code == 0
    result = json.loads((tmp_path / "results.json").read_text())
    labels = [r["label"] for r in result["rows"]]
    assert labels[:4] == ["autoregressive", "dflash", "dflash_twice", "d2sd"]
    assert {"transformers generate", "transformers dflash"} <= set(labels)
    assert all(r["identical"] == 1 for r in result["rows"])
    assert result["rows"][0]["speedup"] == 1
    assert set(result["by_domain"]) == {r["domain"] for r in result["runs"]}
    assert len(result["runs"]) == 2 * len(labels)
    origin = result["provenance"]
    assert origin["argv"][:3] == ["bench", "--preset", "table6"]
    assert re.fullmatch("[0-9a-f]{64}", origin["prompts"]["sha256"])
    text = (tmp_path / "report.md").read_text()
    assert "Published, speedup / α. Source: D²SD, arXiv 2606.04446" in text
    assert "Measured here, speedup / α" in out
    assert origin["prompts"]["sha256"] in (tmp_path / "report.html").read_text()


def test_check_lossless_option_passes_for_d2sd(capfd, tmp_path):
    arguments = "--check-lossless --methods d2sd --limit 2 --max-new-tokens 6 --branches 4 --gamma 5,16 --out"
    code, out, _ = bench(capfd, arguments, tmp_path)
    assert code == 0
    assert "5 of 5 settings pass on 2 of 2 prompts" in out
    assert json.loads((tmp_path / "lossless.json").read_text())["passed"] is True


def test_check_lossless_option_fails_with_exit_code_1(capfd):
    arguments = "--check-lossless --methods dflash --limit 1 --max-new-tokens 8 --gamma 5 --dtype bfloat16 --margin -1"
    code, out, _ = bench(capfd, arguments)
    assert code == 1
    assert "> margin" in out
    assert "0 of 4 settings pass" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--methods d2sd:K=99", "num_branches must be between"),
        ("--limit 0", "limit must be at least 1"),
        ("--baselines magic", "unknown baseline"),
        ("--baselines all --temperature 1", "the baselines decode greedily"),
        ("--check-lossless --temperature 1", "compares greedy texts"),
        ("--check-lossless --methods d2sd --gamma 2 --branches 4", "needs a K below γ"),
        ("--check-lossless --methods d2sd:K=8", "write d2sd and give --gamma and --branches"),
        ("--out /proc/none", "cannot write /proc/none"),
        ("cpu --context 10,20", "bench cpu takes one context"),
        ("cpu --dtype bfloat16", "needs a target and a drafter with packed layers"),
        ("gpu --device cpu --out {} --shape gigantic", "unknown shape 'gigantic'; choose one of: qwen3-8b"),
        ("gpu --device cpu --out {} --shape tiny --passes captured", "need all models on one CUDA GPU"),
    ],
)
def test_bench_bad_input_is_one_sentence(capfd, tmp_path, arguments, sentence):
    code, out, err = bench(capfd, arguments.format(tmp_path))
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert sentence in err


def test_bench_interrupt_reports_completed_prompts(capfd, tmp_path, monkeypatch):
    finish, calls = Engine.finish, count(1)

    def interrupted(*arguments):
        if next(calls) > 9:  # after two warm-ups, three prompts of two runs, and one run of the fourth
            raise KeyboardInterrupt
        return finish(*arguments)

    monkeypatch.setattr(Engine, "finish", interrupted)
    code, out, _ = bench(capfd, "--methods autoregressive,dflash --max-new-tokens 4 --json --out", tmp_path)
    assert code == 130
    result = json.loads(out)
    assert result["stopped"]
    assert result["prompts_done"] == 3 < result["prompts_asked"]
    assert [r["prompts"] for r in result["rows"]] == [3, 3]
    assert "Stopped: only" in (tmp_path / "report.md").read_text()


def test_bench_cpu_writes_tables_with_provenance(tmp_path, capsys):
    assert main(["bench", "cpu", "--repeats", "1", "--context", "40", "--out", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out" / "cpu.json").read_text())
    assert [row["pass"] for row in result["rows"]] == [
        "one-token pass", "draft of γ = 16", "tree of 4", "tree of 8", "tree of 16", "tree of 24"
    ]  # fmt: skip
    assert result["context"] == 40
    assert result["provenance"]["argv"][:2] == ["bench", "cpu"]
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["ms"] / row["floor_ms"])
        assert row["ratio"] > 0
        if not row["pass"].startswith("draft"):  # in a draft, much of the work is outside its few layers
            assert row["layers"] == 16
            assert row["operations"] <= 30 * row["layers"]
    written = (tmp_path / "out" / "cpu.md").read_text()
    assert written.strip() == capsys.readouterr().out.strip()


@pytest.mark.parametrize(("passes", "contexts"), [("eager", [64]), ("padded", [64, 300])])
def test_bench_gpu_writes_tables_with_provenance(tmp_path, capsys, passes, contexts):
    lengths = ",".join(map(str, contexts))
    command = f"bench gpu --shape tiny --context {lengths} --repeats 1 --device cpu --passes {passes} --out"
    assert main([*command.split(), str(tmp_path)]) == 0
    result = json.loads((tmp_path / "gpu-tiny-cpu.json").read_text())
    assert [(row["context"], row["layers"]) for row in result["rows"]] == [(c, n) for c in contexts for n in LAYERS]
    assert [row["context"] for row in result["ratios"]] == contexts
    fused, plain = result["rows"][:2]
    assert result["ratios"][0]["verify_ms"] == plain["verify_ms"] / fused["verify_ms"]
    stages = ("plain_eager", "first_draft", "second_draft", "tree", "verify", "commit", "cycle", "floor", "plain_floor")
    for row in result["rows"]:
        assert all(row[f"{stage}_ms"] > 0 for stage in stages)
        assert row["plain_captured_ms"] is None
        assert row["memory_gb"] is row["plain_kernels"] is row["cycle_launches"] is None
    assert "need a CUDA GPU" in result["without_capture"]
    assert result["provenance"]["argv"][:2] == ["bench", "gpu"]
    costs = {row["setting"]: row for row in result["costs"]["rows"]}
    assert {"K = 1", "K = 8", "γ = 4", "16 nodes", "128 nodes"} <= set(costs)
    assert "K = 3, recording off" in costs
    assert [(row["context"], row["backend"]) for row in result["cascade"]] == [(c, "cascade") for c in contexts]
    written = (tmp_path / "gpu-tiny-cpu.md").read_text()
    assert written.strip() == capsys.readouterr().out.strip()


def test_count_launches_separates_kernels_from_launches():
    step = [("cudaGraphLaunch", "CPU"), ("cudaLaunchKernelExC", "CPU"), ("aten::add", "CPU"), ("cudaMemcpyAsync", "CPU"),
            ("nvjet_hsh", "CUDA"), ("vectorized_elementwise_kernel", "CUDA"), ("Memcpy HtoD", "CUDA"), ("Memset", "CUDA")]  # fmt: skip
    assert count_launches(step * PROFILED) == (2, 2)


def test_floors_count_bytes_of_weights_and_caches():
    engine = random_engine("tiny", "float32", "cpu", "eager", 512)
    floors = Floors.of(engine, rate=1.0)
    parameters = sum(p.numel() for p in engine.models.target.model.parameters())
    assert floors.target + floors.head == 4 * (parameters - 300 * 64)
    assert floors.plain(10) - floors.plain(0) == 10 * 2 * 4 * 2 * 16 * 4  # keys and values, layers, heads, size, bytes
    drafts = floors.drafters + 2 * floors.head + 2 * 10 * floors.drafter_slot
    assert floors.cycle(10) == floors.plain(10) + drafts
