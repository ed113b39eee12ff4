"""Models of the page: the owner's list, facts known before loading, and downloads."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from app import machine, model_choice, models
from app.jobs import Job
from app.layout import build
from app.models import Pair, listed, planned
from d2sd import InputError
from d2sd.folders import store
from d2sd.folders.store import MEGABYTE, REMOTE
from tests.app.event import updates_of
from tests.unit.test_plan import PAIRS, folders


def test_model_list_is_read_from_variable_or_file(tmp_path):
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
        ('[{"target": "a/b", "drafer": "c/d"}]', "unknown field 'drafer'; an entry has name, target"),
        ('[{"target": 3, "drafter": "c/d"}]', "target must be a string"),
        ('[{"target": "a/b", "drafter": "c/d", "dtype": "int8"}]', "dtype must be one of float32"),
        ('[{"target": "/nowhere/x", "drafter": "c/d"}]', "the folder of its target, /nowhere/x, does not exist"),
    ],
)
def test_model_list_fault_is_one_sentence(source, sentence):
    (pair,) = listed(source)
    assert sentence in pair.fault
    assert models.obstacle(pair) == pair.fault


def test_model_list_keeps_bundled_model_of_equal_name(monkeypatch):
    monkeypatch.setenv(models.VARIABLE, json.dumps([{"name": "tiny", "target": "a/b", "drafter": "c/d"}]))
    models.pairs.cache_clear()
    try:
        assert "taken" in models.pairs()["tiny (again)"].fault
        assert [offer.id for offer in models.offers()].count("tiny") == 1
    finally:
        models.pairs.cache_clear()


def test_offer_states_slow_cpu_or_memory_obstacle(monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(models, "_complete", lambda source: True)
    monkeypatch.setattr(machine, "memory", lambda: 16e9)
    offers = {offer.id: offer for offer in models.offers()}
    small, large = offers["Qwen/Qwen3-4B"], offers["Qwen/Qwen3-8B"]
    assert small.obstacle is None
    assert small.note == "on the CPU: slow"
    assert "its weights take 16 GB, and this machine has no CUDA GPU and only 16 GB of free memory" in large.obstacle


@pytest.fixture
def unreachable(monkeypatch):
    """Makes every connection fail."""

    def connect(*_, **options):
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(store, "create_connection", connect)
    monkeypatch.setattr(store, "getproxies", dict)
    monkeypatch.setattr(store.constants, "HF_HUB_OFFLINE", False)
    store.hub_answers.cache_clear()
    yield
    store.hub_answers.cache_clear()


def test_published_pair_is_offered_behind_proxy(unreachable, monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: 1e12)
    pair = models.pairs()["Qwen/Qwen3-4B"]
    assert models.obstacle(pair) == "not in the local hub cache, and there is no network"
    store.hub_answers.cache_clear()
    monkeypatch.setattr(store, "getproxies", lambda: {"https": "http://proxy.example:3128"})
    assert models.obstacle(pair) is None


def test_published_pair_is_not_offered_offline(unreachable, monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: 1e12)
    monkeypatch.setattr(store, "getproxies", lambda: {"https": "http://proxy.example:3128"})
    monkeypatch.setattr(store.constants, "HF_HUB_OFFLINE", True)
    assert "there is no network" in models.obstacle(models.pairs()["Qwen/Qwen3-4B"])


def test_hub_that_never_answers_is_given_up(unreachable, monkeypatch):
    found = Event()
    monkeypatch.setattr(store, "create_connection", lambda *_: found.wait())
    monkeypatch.setattr(store, "SECONDS_TO_CONNECT", 0.01)
    assert not store.hub_answers()
    found.set()


def test_planned_summarizes_custom_folder(tmp_path):
    folders(PAIRS["Qwen/Qwen3.5-4B"], tmp_path)
    (tmp_path / "drafter").rename(tmp_path / "dflash")
    summary = planned(models.FOLDER, str(tmp_path))
    assert summary.startswith(
        "Type qwen3_5, layers: 24 linear, 8 full. It runs eagerly, also on a GPU: its linear layers"
    )


@pytest.mark.parametrize(("gpu", "memory"), [(True, "GB in bfloat16"), (False, "GB in float32")])
def test_planned_states_memory_for_dtype_that_is_loaded(tmp_path, monkeypatch, gpu, memory):
    folders(PAIRS["Qwen/Qwen3.5-4B"], tmp_path)
    (tmp_path / "drafter").rename(tmp_path / "dflash")
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(models, "load_models", lambda *_, dtype, **parts: SimpleNamespace(second=dtype or "float32"))
    monkeypatch.setattr(models.d2sd, "Engine", lambda loaded: loaded.second)
    assert models._load(models.Chosen(str(tmp_path))) in memory
    assert memory in planned(models.FOLDER, str(tmp_path))


def test_planned_names_refused_target_type(tmp_path):
    folders(PAIRS["moonshotai/Kimi-K2.5"], tmp_path)
    summary = planned(models.FOLDER, str(tmp_path))
    assert summary.startswith(
        "Refused: targets of type 'kimi_k25' are not supported (unsupported part: latent attention)"
    )


def test_planned_is_empty_without_readable_config(tmp_path, monkeypatch):
    assert planned("tiny", "") == planned(models.FOLDER, "") == planned(models.FOLDER, str(tmp_path)) == ""
    assert planned("Qwen/Qwen3-4B", "") == ""  # its config is not stored here, and is not downloaded for this
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps({}))
    monkeypatch.setattr("app.models.public", lambda: True)
    assert planned(models.FOLDER, str(tmp_path)) == ""


def test_models_are_not_loaded_before_the_first_run(monkeypatch):
    monkeypatch.setattr(models, "_engines", {})
    build()
    assert not models.loaded(models.Chosen("tiny"))


def test_list_of_models_says_why_some_cannot_run(monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine, "memory", lambda: 4e9)
    labels = {id: label for label, id in model_choice.model_picker().choices}
    why = "its weights take 16 GB, and this machine has no CUDA GPU and only 4 GB of free memory"
    assert labels["Qwen/Qwen3-8B"] == f"Qwen/Qwen3-8B ({why})"
    assert labels["tiny"] == "tiny (bundled)"
    with pytest.raises(InputError, match="choose other models"):
        models.check(models.Chosen("Qwen/Qwen3-8B"))


@pytest.fixture
def request_target(monkeypatch):
    """Requests a target whose source sends 5 MB once ``connected`` is set, and then calls ``end``."""
    monkeypatch.setattr(model_choice, "SECONDS_BETWEEN_NEWS", 0.02)

    def begin(end, connected):
        def get(_, report):
            connected.wait()
            report(5 * MEGABYTE, 93 * MEGABYTE)
            return end(report)

        monkeypatch.setattr(model_choice, "get_target", get)
        job = Job()
        return job, updates_of(job, model_choice.download(job, REMOTE["smollm2"]))

    return begin


def test_model_download_reports_progress_and_stop(request_target):
    connected, stopped = Event(), Event()

    def until_stopped(report):
        stopped.wait()
        report(6 * MEGABYTE, 93 * MEGABYTE)
        pytest.fail("the download continues")

    job, updates = request_target(until_stopped, connected)
    assert next(updates).news == "Downloading SmolLM2-135M-Instruct: connecting …"
    connected.set()
    assert any("5 of 93 MB" in update.news for update in updates)
    job.stopped = True
    stopped.set()
    assert list(updates)[-1].note == "Stopped at 6 of 93 MB; a download from the hub resumes from there."


def test_model_download_ends_with_model_or_problem(request_target):
    def fail(_):
        raise InputError("there is no network")

    at_once = Event()
    at_once.set()
    assert list(request_target(lambda _: Path(), at_once)[1])[-1].value == "smollm2"
    assert list(request_target(fail, at_once)[1])[-1].problem == "there is no network"
