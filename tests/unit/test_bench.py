"""Benchmarks: rows and figures of reports, syntax of settings, prompts from data sets of the hub."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from d2sd import METHODS, DecodeConfig, InputError
from d2sd.bench import prompts as prompts_of_hub
from d2sd.bench.presets import cost_aware_table
from d2sd.bench.prompts import Prompt, read_prompts
from d2sd.bench.report import interval, page, summarise, table
from d2sd.bench.runner import BenchRun, Entry, run_bench, run_count
from d2sd.bench.settings import grid, parse_settings

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
    count = []
    field = [
        timed("autoregressive", "autoregressive", 12, 12, seconds, []),
        timed("d2sd:K=2", "d2sd", 12, 4, [s / 2 for s in seconds], []),
    ]
    prompts = [(Prompt("a", "x"), [1]), (Prompt("b", "y"), [2])]
    runs = [r for batch in run_bench(field, prompts, repeats, lambda: count.append(1)) for r in batch]
    assert len(count) == run_count(2, 2, repeats)
    return field, runs


def shown(rows):
    """The HTML report of these rows."""
    origin = {"argv": ["bench"], "date": "today", "commit": None, "versions": {"torch": "2"}, "hardware": HARDWARE}
    done = {"prompts": "heldout", "prompts_done": 2, "prompts_counted": 2, "stopped": False, "left_out": {}}
    return page({"model": "m", **done, "rows": rows, "by_domain": {}, "provenance": origin})


def data_of(written, name):
    """The data of one figure in a report."""
    (data,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', written)
    return json.loads(data)


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
    _, runs = measure(3)
    assert [r.seconds for r in runs if r.label == "autoregressive"] == [2.0, 5.0]
    assert [dict(r.stage_seconds)["verify"] for r in runs if r.label == "d2sd:K=2"] == [1.0, 2.5]


def test_summarise_pools_tokens_and_compares_with_autoregressive():
    field, runs = measure(3)
    plain, ours = summarise(runs, field)
    assert (plain["label"], ours["label"], ours["method"]) == ("autoregressive", "d2sd:K=2", "d2sd")
    assert ours["mean_acceptance_length"] == 3
    assert ours["tokens_per_second"] == pytest.approx(24 / 3.5)
    assert (plain["speedup"], ours["speedup"]) == (1, 2)
    assert ours["speedup_interval"] == [2, 2]
    assert ours["identical"] == 1
    assert ours["nodes_per_step"] == 2
    assert ours["seconds_per_step"] == {"verify": pytest.approx(3.5 / 8)}
    written = shown([plain, ours | {"label": "<script>&${x}"}])
    assert data_of(written, "panel-acceptance")["figure"]["data"][0]["x"] == [1, 3]
    assert "<td>2.00 [2.00–2.00]</td>" in written  # the table of all figures
    assert "<script>&$" not in re.sub(r"<script>.*?</script>", "", written, flags=re.DOTALL)
    assert "\\|\\<b>" in table([ours | {"label": "|<b>"}]).markdown()
    assert "${x}" not in str(data_of(written, "panel-speed")["figure"])


def test_interval_covers_mean_and_needs_two_prompts():
    values = np.random.default_rng(0).normal(3, 1, 60)
    low, high = interval(values, np.ones(60), 0)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 60**0.5, rel=0.15)
    assert interval(values[:1], np.ones(1), 0) is None


def test_bench_report_prints_rows_without_baseline():
    field, runs = measure(1)
    rows = summarise([r for r in runs if r.label == "d2sd:K=2" and r.prompt == 0], field[1:])
    assert rows[0]["speedup"] is rows[0]["identical"] is rows[0]["tokens_per_second_interval"] is None
    assert f"| d2sd:K=2 | 3.00 | {rows[0]['tokens_per_second']:.0f} |" in table(rows).markdown()
    assert data_of(shown(rows), "panel-speed")["table"]["rows"][0][0] == "d2sd:K=2"


def test_cost_aware_table_compares_with_plain_and_best_fixed():
    def rows(cost_aware, speedup, fixed, dflash):
        """Rows with these tokens per second; ``speedup`` is of the cost-aware setting."""
        settings = [("d2sd:cost_aware=true", cost_aware, speedup), ("d2sd:K=4", fixed, None), ("dflash", dflash, None)]
        return [
            {"label": label, "method": label.partition(":")[0], "config": {"cost_aware": "cost" in label},
             "tokens_per_second": rate, "speedup": of_plain, "mean_acceptance_length": 2.0}
            for label, rate, of_plain in [*settings, ("ddtree", 300, None)]
        ]  # fmt: skip

    domains = {"easy": rows(90, 1.8, 100, 60), "hard": rows(99, 0.99, 40, 90)}
    easy, hard, worst = (row[1:5] for row in cost_aware_table(domains).rows)
    assert easy == ("easy", "1.80", "0.90", "d2sd:K=4")
    assert hard == ("hard", "0.99", "1.10", "dflash")  # dflash is D²SD with K = 0
    assert worst == ("worst", "0.99", "0.90", "")


BASE = DecodeConfig("autoregressive")


def labels(methods, *sweeps):
    return [s.label for s in parse_settings(methods, sweeps, BASE)]


@pytest.mark.parametrize(
    ("methods", "sweeps", "expected"),
    [
        ("all", [], list(METHODS)),
        ("autoregressive, dflash, d2sd:K=1", ["gamma=8,16"], ["autoregressive", "dflash:gamma=8", "dflash:gamma=16", "d2sd:gamma=8:K=1", "d2sd:gamma=16:K=1"]),
        ("d2sd", ["K=1,4", "gamma=8,16"], ["d2sd:gamma=8:K=1", "d2sd:gamma=16:K=1", "d2sd:gamma=8:K=4", "d2sd:gamma=16:K=4"]),
        ("d2sd:K=2,d2sd,d2sd:num_branches=4", ["K=4,8"], ["d2sd:K=2", "d2sd:K=4", "d2sd:K=8"]),
    ],
    ids=["all methods", "methods that use the field", "two fields", "fields that are set, duplicates"],
)  # fmt: skip
def test_parse_settings_combines_methods_and_sweeps(methods, sweeps, expected):
    assert labels(methods, *sweeps) == expected


def test_setting_label_round_trips_through_parse_settings():
    (setting,) = parse_settings("d2sd:gamma=8:K=2:B=40:gamma2=12:cost_aware=true:backend=dense", [], BASE)
    c = setting.config
    assert (c.block_size, c.num_branches, c.node_budget, c.second_block_size) == (8, 2, 40, 12)
    assert (c.cost_aware, c.backend) == (True, "dense")
    assert parse_settings(setting.label, [], BASE) == [setting]


@pytest.mark.parametrize(
    ("methods", "sweep", "sentence"),
    [
        ("magic", [], "unknown method"),
        ("d2sd:seed=1", [], "'seed' is not one of"),
        ("dflash:K=2", [], "does not use K"),
        ("d2sd:K=two", [], "K must be a whole number"),
        ("d2sd:cost_aware=2", [], "cost_aware must be true or false"),
        ("d2sd", ["width=3"], "'width' is not one of"),
    ],
)
def test_parse_settings_refuses_invalid_settings(methods, sweep, sentence):
    with pytest.raises(InputError, match=sentence):
        parse_settings(methods, sweep, BASE)


def test_lossless_grid_has_every_combination_once():
    settings = grid(list(METHODS), (2, 5, 16), (1, 4, 8), BASE)
    assert len({s.config for s in settings}) == len({s.label for s in settings}) == len(settings)
    d2sd = {(s.config.block_size, s.config.num_branches) for s in settings if s.config.method == "d2sd"}
    assert d2sd == {(2, 1), (5, 1), (5, 4), (16, 1), (16, 4), (16, 8)}
    counts = Counter(s.config.method for s in settings)
    # d2sd with two backends, dflash without K
    assert (counts["d2sd"], counts["dflash"], counts["autoregressive"]) == (12, 6, 1)


ROWS = [
    {"question": "Why?", "turns": ["a", "b"], "chat": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "n": 1},
    {"question": "How?", "turns": ["c"], "chat": [{"role": "user", "content": "v"}], "n": 2},
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Calls of load_dataset."""
    calls = []

    def load_dataset(name, configuration, **options):
        calls.append((name, configuration, options))
        return iter(ROWS)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(__version__="4.1.0", load_dataset=load_dataset))
    return calls


@pytest.mark.parametrize(
    ("column", "texts"), [("question", ["Why?", "How?"]), ("turns", ["a", "c"]), ("chat", ["u", "v"])]
)
def test_hub_prompts_read_texts_turns_and_chats(asked, column, texts):
    assert read_prompts(f"org/set:test:{column}") == [Prompt(text, "all") for text in texts]
    assert asked == [("org/set", None, {"split": "test", "streaming": True})]
    assert len(read_prompts(f"org/set/main:train:{column}", 1)) == 1
    assert asked[1][:2] == ("org/set", "main")


def test_hub_prompts_refuse_unusable_columns_and_many_rows(asked, monkeypatch):
    monkeypatch.setattr(prompts_of_hub, "MAX_ROWS", 1)
    for column, sentence in (
        ("answer", "there is no column answer; the columns are question, turns"),
        ("n", "row 1: n has neither a text"),
        ("question", "more than 1 rows; set --limit"),
    ):
        with pytest.raises(InputError, match=sentence):
            read_prompts(f"org/set:test:{column}")


def no_route(*_, **__):
    raise ConnectionError("no route\nto the hub")


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        (None, "need the package datasets"),
        (SimpleNamespace(__version__="3.6.0"), r"datasets 4 or newer, not 3\.6\.0"),
        (SimpleNamespace(__version__="4.0.0", load_dataset=no_route), r"cannot read the data set org/set:test:question: no route$"),
    ],
)  # fmt: skip
def test_hub_prompts_report_missing_or_old_package_and_hub_errors(monkeypatch, package, sentence):
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(InputError, match=sentence):
        read_prompts("org/set:test:question")
