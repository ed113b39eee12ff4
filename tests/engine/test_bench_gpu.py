"""``bench gpu`` runs end to end without a GPU, and reports which figures need one."""

from __future__ import annotations

import json

import pytest

from d2sd.__main__ import main
from d2sd.bench.timings import LAYERS, PROFILED, Floors, count_launches, random_engine

STAGES = ("plain_eager_ms", "first_draft_ms", "second_draft_ms", "tree_ms", "verify_ms", "commit_ms", "cycle_ms")


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
    assert "plain_floor_ms" not in result["ratios"][0]
    for row in result["rows"]:
        assert all(row[name] > 0 for name in ("cycle_ms", *STAGES, "floor_ms", "plain_floor_ms"))
        assert row["plain_captured_ms"] is None
        assert row["memory_gb"] is row["plain_kernels"] is row["cycle_launches"] is None
    assert "need a CUDA GPU" in result["without_capture"]
    assert result["provenance"]["device"] == "cpu"
    assert result["provenance"]["argv"][:2] == ["bench", "gpu"]
    costs = {row["setting"]: row for row in result["costs"]["rows"]}
    assert {"K = 1", "K = 8", "γ = 4", "16 nodes", "128 nodes"} <= set(costs)
    assert {f"K = {k}{off}" for k in (3, 4) for off in ("", ", recording off")} <= set(costs)
    assert {row["backend"] for row in result["cascade"]} == {"cascade"}
    assert [row["context"] for row in result["cascade"]] == contexts
    written = (tmp_path / "gpu-tiny-cpu.md").read_text()
    assert written.strip() == capsys.readouterr().out.strip()
    assert "floor = bytes ÷ bandwidth" in written
    assert "No captured figures" in written


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
