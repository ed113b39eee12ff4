"""``bench cpu``: times of packed passes, their matrix products alone, and numbers of operations."""

from __future__ import annotations

import json

import pytest
import torch

from d2sd.__main__ import main
from d2sd.bench.timings import median_times, operations

MOST_PER_LAYER = 30


def test_bench_cpu_writes_tables_with_provenance(tmp_path, capsys):
    assert main(["bench", "cpu", "--repeats", "1", "--context", "40", "--out", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out" / "cpu.json").read_text())
    assert [row["pass"] for row in result["rows"]] == [
        "plain step", "draft of γ = 16", "tree of 4", "tree of 8", "tree of 16", "tree of 24"
    ]  # fmt: skip
    assert result["context"] == 40
    assert result["provenance"]["argv"][:2] == ["bench", "cpu"]
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["ms"] / row["floor_ms"])
        assert row["ratio"] > 0
        if not row["pass"].startswith("draft"):  # in a draft, much of the work is outside its few layers
            assert row["layers"] == 16
            assert row["operations"] <= MOST_PER_LAYER * row["layers"]
    written = (tmp_path / "out" / "cpu.md").read_text()
    assert written.strip() == capsys.readouterr().out.strip()
    assert "floor: time of the matrix products alone" in written


def test_median_times_interleave_functions():
    turns = []
    times = median_times([lambda: turns.append("a"), lambda: turns.append("b")], 2, torch.device("cpu"))
    assert turns == ["a", "b"] * (len(turns) // 2)
    assert len(times) == 2


def test_operations_counts_outer_operations_only():
    x = torch.ones(1, 4)
    assert operations({"two": lambda: torch.nn.functional.linear(x, x).add_(1), "none": list}) == {"two": 2, "none": 0}
