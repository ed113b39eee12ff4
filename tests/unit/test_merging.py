"""Results that machines wrote into folders, each for its part of the prompts, become one."""

from __future__ import annotations

import pytest

from d2sd.bench.merging import merge
from d2sd.bench.prompts import Prompt
from d2sd.bench.report import remarks, write_report
from d2sd.bench.runner import Entry, Run, run_bench
from d2sd.bench.summary import pooled
from d2sd.config import DecodeConfig
from d2sd.errors import InputError

CONFIG = DecodeConfig(method="d2sd", num_branches=2)


def entries():
    def run(tokens):
        def of(ids):
            steps = max(2, tokens - ids[0])
            return Run(tuple(range(13)), 12, steps, 1.0 + ids[0], 2.0 + ids[0], 30, 8, (("verify", 0.5),), (1, ids[0] + 1),
                       ids[0] + 1, (0.25,) * 10)  # fmt: skip

        return of

    return [Entry("autoregressive", "autoregressive", run=run(12)), Entry("d2sd:K=2", "d2sd", CONFIG, run=run(6))]


def measured(part, parts, **differs):
    prompts = [(n, Prompt("p", "ab"[n % 2]), [n]) for n in range(5)][part - 1 :: parts]
    runs = [r for batch in run_bench(entries(), prompts) for r in batch]
    hardware = {"device": f"card {part}", "cpu": "x", "cores": 2, "threads": 1, "processes": 1, "load_average": None, "system": "s",
                "dtype": "float32"}  # fmt: skip
    origin = {"date": "d", "argv": ["bench"], "commit": None, "versions": {}, "hardware": hardware, "models": {},
              "seeds": {"bootstrap": 0}, "prompts": {"source": "s", "sha256": "0"}, "bootstrap_resamples": 1000, "repeats": 1}  # fmt: skip
    about = {"model": "tiny", "prompts": "s", "prompts_asked": 5, "part": f"{part}/{parts}", "stopped": False, "preset": None,
             "preset_sentence": None, "left_out": {}, "calculated": None, "provenance": origin, **differs}  # fmt: skip
    return pooled(about, runs, entries(), 0), runs


def written(folder, *args, **differs):
    result, runs = measured(*args, **differs)
    write_report(folder, result, runs, None)
    return folder


def test_parts_give_the_rows_of_the_whole(tmp_path):
    result, runs = merge([written(tmp_path / str(n), n, 2) for n in (1, 2)])
    whole, _ = measured(1, 1)
    assert result["rows"] == whole["rows"]
    assert result["by_domain"] == whole["by_domain"]
    assert (result["prompts_done"], len(runs), result["part"]) == (5, 10, None)
    assert remarks(result) == ["Merged from 2 results, of card 1 (x), card 2 (x): speeds are of all of them together."]
    write_report(tmp_path / "all", result, runs, None)
    assert (tmp_path / "all" / "report.md").read_text().count("## Provenance") == 2


def test_a_part_says_that_it_is_one():
    assert remarks(measured(1, 2)[0]) == ["A part: 3 of 5 prompts."]


def test_what_does_not_belong_together_is_not_merged(tmp_path):
    first = written(tmp_path / "1", 1, 2)
    with pytest.raises(InputError, match=r"prompt 1 is in .*1 too; give every machine its own part"):
        merge([first, written(tmp_path / "again", 1, 2)])
    with pytest.raises(InputError, match="prompt 1 is in"):
        merge([first, first])
    with pytest.raises(InputError, match=r"its model is not that of .*1; merge parts of one benchmark"):
        merge([first, written(tmp_path / "other", 2, 2, model="smollm2")])
    with pytest.raises(InputError, match=r"cannot read .*none/results.json: No such file"):
        merge([first, tmp_path / "none"])
    (first / "runs.jsonl").write_text('{"token_ids":"x"}\n')
    with pytest.raises(InputError, match=r"runs\.jsonl: Expected `array`, got `str`"):
        merge([first])
    (first / "results.json").write_text("[]")
    with pytest.raises(InputError, match="this is no result of bench --out"):
        merge([first])
