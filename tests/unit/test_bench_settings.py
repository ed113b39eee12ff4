"""Settings of benchmarks: syntax, unique labels, and the papers' tables as presets."""

from __future__ import annotations

import pytest

from d2sd import METHODS, DecodeConfig, InputError
from d2sd.bench.lossless import grid
from d2sd.bench.presets import PRESETS
from d2sd.bench.settings import parse_settings

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


@pytest.mark.parametrize("name", PRESETS)
def test_bench_presets_parse_and_cite_published_figures(name):
    preset = PRESETS[name]
    settings = labels(",".join(preset.methods))
    assert settings[0] == "autoregressive"
    assert len(settings) == len(preset.methods)
    if preset.published:
        assert "arXiv" in preset.source
        assert all(len(row) == len(preset.published.head) for row in preset.published.rows)


def test_lossless_grid_has_every_combination_once():
    settings = grid(list(METHODS), (2, 5, 16), (1, 4, 8), BASE)
    assert len({s.config for s in settings}) == len({s.label for s in settings}) == len(settings)
    d2sd = {(s.config.block_size, s.config.num_branches) for s in settings if s.config.method == "d2sd"}
    assert d2sd == {(2, 1), (5, 1), (5, 4), (16, 1), (16, 4), (16, 8)}
    assert sum(s.config.method == "d2sd" for s in settings) == 12  # with both backends
    assert sum(s.config.method == "dflash" for s in settings) == 6  # K is not used
    assert sum(s.config.method == "autoregressive" for s in settings) == 1
    assert {s.config.method for s in grid(list(METHODS), (2,), (4,), BASE)} >= {"dflash", "ddtree"}
