"""Rows, tables and figures of benchmark runs."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

from d2sd.bench.presets import cost_aware_table
from d2sd.bench.prompts import Prompt
from d2sd.bench.report import interval, page, remarks, summarise, table
from d2sd.bench.runner import BenchRun, Entry, run_bench, run_count
from d2sd.calibration.text import Table
from d2sd.config import DecodeConfig

HARDWARE = {"device": "cpu", "dtype": "float32", "cpu": "a", "cores": 2, "threads": 2, "load_average": 0, "system": "b"}  # fmt: skip


def timed(label, method, tokens, steps, seconds, calls):
    """An entry with known times: every call takes the next of ``seconds``."""
    times = iter(seconds)

    def run(_):
        calls.append(label)
        now = next(times)
        return BenchRun(tuple(range(tokens + 1)), tokens, steps, now, 2 * steps, stage_seconds=(("verify", now),))

    return Entry(label, run, None if method is None else DecodeConfig(method))


def measure(repeats, seconds=(9.0, 1.0, 3.0, 2.0, 4.0, 6.0, 5.0)):
    calls, count = [], []
    field = [
        timed("autoregressive", "autoregressive", 12, 12, seconds, calls),
        timed("d2sd:K=2", "d2sd", 12, 4, [s / 2 for s in seconds], calls),
    ]
    prompts = [(Prompt("a", "x"), [1]), (Prompt("b", "y"), [2])]
    runs = [r for batch in run_bench(field, prompts, repeats, lambda: count.append(1)) for r in batch]
    assert len(count) == run_count(2, 2, repeats)
    return field, runs, calls


def shown(rows):
    """The HTML report of these rows."""
    origin = {"argv": ["bench"], "date": "today", "commit": None, "versions": {"torch": "2"}, "hardware": HARDWARE}
    done = {"prompts": "heldout", "prompts_done": 2, "prompts_counted": 2, "stopped": False, "left_out": {}}
    found = {"model": "m", **done, "rows": rows, "by_domain": {}, "provenance": origin}
    return page(found)


def data_of(written, name):
    """The data of one figure in a report."""
    (found,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', written)
    return json.loads(found)


def test_run_bench_order_is_reproducible_and_covers_permutations():
    def order():
        calls = []
        field = [timed(label, None, 12, 4, [1.0] * 99, calls) for label in "abc"]
        list(run_bench(field, [(Prompt("p", "x"), [1])] * 20, 2))
        return calls

    calls = order()
    passes = list(zip(*[iter(calls)] * 3, strict=True))
    assert calls == order()
    assert passes[0] == tuple("abc")
    assert set(passes) == set(itertools.permutations("abc"))


def test_run_bench_times_are_medians_without_warm_up():
    _, runs, _ = measure(3)
    assert [r.seconds for r in runs if r.label == "autoregressive"] == [2.0, 5.0]
    assert [dict(r.stage_seconds)["verify"] for r in runs if r.label == "d2sd:K=2"] == [1.0, 2.5]


def test_summarise_pools_tokens_and_compares_with_autoregressive():
    field, runs, _ = measure(3)
    plain, ours = summarise(runs, field)
    assert (plain["label"], ours["label"], ours["method"]) == ("autoregressive", "d2sd:K=2", "d2sd")
    assert ours["mean_acceptance_length"] == 3
    assert ours["tokens_per_second"] == pytest.approx(24 / 3.5)
    assert (plain["speedup"], ours["speedup"]) == (1, 2)
    assert ours["speedup_interval"] == [2, 2]
    assert ours["identical"] == 1
    assert ours["nodes_per_step"] == 2
    assert ours["seconds_per_step"] == {"verify": pytest.approx(3.5 / 8)}
    written = shown([plain, ours])
    dots = data_of(written, "panel-acceptance")["figure"]["data"][0]
    assert dots["x"] == [1, 3]
    assert dots["hovertext"][1].startswith("d2sd:K=2<br>tokens per step: 3.00 (3.00 to 3.00)")
    assert "<td>2.00 [2.00–2.00]</td>" in written  # the table of all figures


def test_interval_covers_mean_and_needs_two_prompts():
    values = np.random.default_rng(0).normal(3, 1, 60)
    low, high = interval(values, np.ones(60), 0)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 60**0.5, rel=0.15)
    assert interval(values[:1], np.ones(1), 0) is None


def test_bench_report_prints_rows_without_baseline():
    field, runs, _ = measure(1)
    rows = summarise([r for r in runs if r.label == "d2sd:K=2" and r.prompt == 0], field[1:])
    assert rows[0]["speedup"] is rows[0]["identical"] is rows[0]["tokens_per_second_interval"] is None
    assert f"| d2sd:K=2 | 3.00 | {rows[0]['tokens_per_second']:.0f} |" in table(rows).markdown()
    speed = data_of(shown(rows), "panel-speed")
    assert speed["table"]["rows"] == [["d2sd:K=2", f"{rows[0]['tokens_per_second']:.2f}"]]


def test_bench_remarks_list_missing_results_once():
    result = {"left_out": {"a": "no net", "b": "no net"}, "stopped": True, "prompts_done": 3, "prompts_asked": 9}
    assert remarks(result | {"prompts_counted": 1}) == [
        "Left out: a, b: no net.",
        "Not counted: 2 of 3 prompts, for which at least one text ended with prefill.",
        "Stopped: only 3 of 9 prompts are counted.",
    ]


def test_bench_report_escapes_labels():
    assert Table(("a",), (("c|d\n<b>",),)).markdown().splitlines()[2] == "| c\\|d \\<b> |"
    field, runs, _ = measure(2)
    rows = summarise(runs, field)
    rows[1]["label"] = "<script>&${x}"
    written = shown(rows)
    assert "<script>&$" not in re.sub(r"<script>.*?</script>", "", written, flags=re.DOTALL)
    (tick,) = data_of(written, "panel-speed")["figure"]["layout"]["yaxis"]["ticktext"][1:]
    assert tick == "&lt;script&gt;&amp;&#36;{x}"


def test_cost_aware_table_compares_with_plain_and_best_fixed():
    def row(label, method, rate, cost_aware=False, speedup=None):
        config = {"cost_aware": cost_aware}
        return {"label": label, "method": method, "config": config, "tokens_per_second": rate, "speedup": speedup,
                "mean_acceptance_length": 2.0}  # fmt: skip

    domains = {
        "easy": [row("d2sd:cost_aware=true", "d2sd", 90, True, 1.8), row("d2sd:K=4", "d2sd", 100),
                 row("dflash", "dflash", 60), row("ddtree", "ddtree", 300)],
        "hard": [row("d2sd:cost_aware=true", "d2sd", 99, True, 0.99), row("d2sd:K=4", "d2sd", 40),
                 row("dflash", "dflash", 90), row("ddtree", "ddtree", 300)],
    }  # fmt: skip
    easy, hard, worst = (row[1:5] for row in cost_aware_table(domains).rows)
    assert easy == ("easy", "1.80", "0.90", "d2sd:K=4")
    assert hard == ("hard", "0.99", "1.10", "dflash")  # dflash is D²SD with K = 0
    assert worst == ("worst", "0.99", "0.90", "")
