"""The bench command: reports on disk, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import re
from itertools import count

import pytest

from d2sd.__main__ import main
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
    assert {"tokens_per_second", "nodes_per_step", "seconds_per_step"} <= set(result["rows"][0])
    assert set(result["by_domain"]) == {r["domain"] for r in result["runs"]}
    assert len(result["runs"]) == 2 * len(labels)
    origin = result["provenance"]
    assert origin["argv"][:3] == ["bench", "--preset", "table6"]
    assert re.fullmatch("[0-9a-f]{64}", origin["prompts"]["sha256"])
    assert {"torch", "transformers", "python"} <= set(origin["versions"])
    assert {"cpu", "cores", "threads", "device"} <= set(origin["hardware"])
    text = (tmp_path / "report.md").read_text()
    assert "Published, speedup / α. Source: D²SD, arXiv 2606.04446" in text
    assert "Measured here, speedup / α" in out
    page = (tmp_path / "report.html").read_text()
    for name in ("acceptance", "speed"):
        (data,) = re.findall(rf'<script type="application/json" id="panel-{name}">(.*?)</script>', page)
        assert labels[3] in str(json.loads(data)["table"]["rows"])
    assert origin["prompts"]["sha256"] in page


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
        ("--repeats 0", "repeats must be at least 1, not 0"),
        ("--baselines magic", "unknown baseline"),
        ("--baselines all --temperature 1", "the baselines decode greedily"),
        ("--check-lossless --temperature 1", "compares greedy texts"),
        ("--check-lossless --sweep K=1,2", "chooses its own settings"),
        ("--check-lossless --methods d2sd --gamma 2 --branches 4", "needs a K below γ"),
        ("--check-lossless --methods d2sd:K=8", "write d2sd and give --gamma and --branches"),
        ("--out /proc/none", "cannot write into the folder"),
        ("cpu --context 10,20", "bench cpu takes one context"),
        ("cpu --context 0", "bench cpu takes one context of at least 1 token"),
        ("cpu --dtype bfloat16", "needs a target and a drafter with packed layers"),
        ("gpu --device cpu --out {} --shape gigantic", "unknown shape 'gigantic'; choose one of: qwen3-8b"),
        ("gpu --device cpu --out {} --shape tiny --context 0", "contexts must be at least 1"),
        ("gpu --device cpu --out {} --shape tiny --dtype int3", "unknown dtype"),
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
