"""The owner's list of models: what is right is offered, what is wrong says so in one sentence, and the page starts anyway."""

from __future__ import annotations

import json

import pytest

from app import machine, models
from app import models as pairs
from app.models import Pair, listed


def test_a_list_in_the_variable_or_in_a_file(tmp_path):
    rows = [
        {"name": "mine", "target": "Qwen/Qwen3-4B", "drafter": "a/b", "dtype": "float32"},
        {"target": "c/d", "drafter": "e/f"},
    ]
    file = tmp_path / "models.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    for source in (json.dumps(rows), str(file)):
        mine, other = listed(source)
        assert mine == Pair("mine", "Qwen/Qwen3-4B", "a/b", dtype="float32")
        assert (other.name, other.dtype, other.fault) == ("c/d", "bfloat16", "")
    assert listed("") == []
    assert listed('[{"name": "e", "target": "a/b", "eagle3": "c/d"}]') == [Pair("e", "a/b", eagle3="c/d")]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("[{", "line 1 of the list of models is not JSON"),
        ("/nowhere/models.json", "cannot be read: No such file"),
        ("{}", "must be a JSON list"),
        ("[3]", "must be an object with target and drafter"),
        ('[{"target": "a/b"}]', "it needs a drafter or an eagle3: a hub id or a folder"),
        ('[{"target": "a/b", "drafer": "c/d"}]', "'drafer' is not known; an entry has name, target"),
        ('[{"target": 3, "drafter": "c/d"}]', "target must be a text"),
        ('[{"target": "a/b", "drafter": "c/d", "dtype": "int8"}]', "dtype must be one of float32"),
        ('[{"target": "/nowhere/x", "drafter": "c/d"}]', "the folder of its target, /nowhere/x, is not there"),
    ],
)
def test_what_is_wrong_is_one_sentence(source, sentence):
    (pair,) = listed(source)
    assert sentence in pair.fault
    assert models.obstacle(pair) == pair.fault


def test_a_name_that_is_taken_does_not_hide_the_other(monkeypatch):
    monkeypatch.setenv(pairs.VARIABLE, json.dumps([{"name": "tiny", "target": "a/b", "drafter": "c/d"}]))
    pairs.pairs.cache_clear()
    try:
        assert "taken" in pairs.pairs()["tiny (again)"].fault
        assert [offer.id for offer in models.offers()].count("tiny") == 1
    finally:
        pairs.pairs.cache_clear()


def test_a_pair_that_fits_runs_on_a_cpu_and_says_how_slow(monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(models, "_cached", lambda source: True)
    monkeypatch.setattr(machine, "memory", lambda: 16e9)
    monkeypatch.setattr(machine, "seconds_per_weight", lambda dtype: 5e-10)
    offers = {offer.id: offer for offer in models.offers()}
    small, large = offers["Qwen/Qwen3-4B"], offers["Qwen/Qwen3-8B"]
    assert small.obstacle is None
    assert small.note == "on the CPU: about 2 s a token here"
    assert "its weights take 16 GB, and this machine has no CUDA GPU and 16 GB of memory free" in large.obstacle


def test_rough_times_and_memory_are_plausible():
    assert [machine.about(s) for s in (0.01, 0.42, 2.3, 9.7, 34)] == ["0.1 s", "0.4 s", "2 s", "10 s", "30 s"]
    assert 1e6 < machine.memory() < 1e15
    assert machine._available() > 1e6
