"""The script for a machine with a GPU: order of its parts, time limits, and result files."""

from __future__ import annotations

import json
import tarfile

import pytest

from tools import gpu_day
from tools.gpu_day import Part, run


@pytest.fixture
def folders(tmp_path):
    """Folders for work and results."""
    found = tmp_path / "work", tmp_path / "out"
    for folder in found:
        folder.mkdir()
    return found


def prints(text, name="part", limit=600, **more):
    return Part(name, (("-c", f"print({text!r})"),), limit, **more)


def results(out):
    with tarfile.open(out / "results.tar.gz") as file:
        return {name: file.extractfile(name).read().decode() for name in file.getnames()}


def test_parts_run_in_order_and_end_at_their_limits(folders):
    work, out = folders
    endless = Part("check", (("-c", "while True: pass"),), 0)
    wrong = Part("recipe", (("-c", "raise SystemExit(3)"), ("-c", "pass")), 600)
    built, measured = prints("built", "compile", beside=True), prints("measured", "bench")
    assert not run([built, endless, wrong, measured], 6e9, work, out)
    files = results(out)
    codes = [(name, part["codes"]) for name, part in json.loads(files["summary.json"]).items()]
    # compilation ends before anything is measured
    assert codes == [("check", [None]), ("recipe", [3, 0]), ("compile", [0]), ("bench", [0])]
    assert (files["compile.log"], files["bench.log"]) == ("built\n", "measured\n")


def test_total_time_limit_ends_running_part(folders):
    assert run([prints("in time")], 6e9, *folders)
    assert not run([Part("late", (("-c", "while True: pass"),), 6e9)], 0, *folders)


def test_trained_drafters_are_packed_in_pieces(folders, monkeypatch):
    work, out = folders
    monkeypatch.setattr(gpu_day, "PIECE", 4000)
    for name in ("dflash", "training"):
        (work / "smollm2" / name).mkdir(parents=True)
        (work / "smollm2" / name / "model.safetensors").write_bytes(bytes(range(250)) * 40)
    (work / "smollm2" / "responses.jsonl").write_text("long")
    (work / "smollm2" / "training" / "metrics.jsonl").write_text("{}")
    assert run([prints("trained", "recipe")], 6e9, work, out)
    pieces = sorted(out.glob("weights.tar.*"))
    assert len(pieces) == 6
    joined = out / "joined"
    joined.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    with tarfile.open(joined) as file:
        assert file.getnames() == ["dflash/model.safetensors"]
        assert file.extractfile("dflash/model.safetensors").read() == bytes(range(250)) * 40
    assert sorted(results(out)) == ["recipe.log", "smollm2/training/metrics.jsonl", "summary.json"]
