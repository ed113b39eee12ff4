"""Models of the page: the owner's list, facts known before loading, and downloads."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest

from app import links, machine, model_choice, models, presets
from app.jobs import Job
from app.models import FOLDER, from_form, model_set, planned, read_list
from d2sd import InputError
from d2sd.folders import store
from d2sd.folders.model_sets import ModelSet
from d2sd.folders.store import MEGABYTE, REMOTE
from tests.app.event import updates_of
from tests.unit.test_plan import PAIRS, folders

LARGE = "Qwen/Qwen3-8B"


def test_model_list_is_read_from_variable_or_file(tmp_path):
    rows = [
        {"name": "mine", "target": "a/b", "drafter": "c/d", "dtype": "float32"},
        {"target": f"{tmp_path}", "eagle3": "c/d"},
    ]
    file = tmp_path / "models.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    name = "/".join(tmp_path.parts[-2:])  # visitors do not see the whole path
    for source in (json.dumps(rows), str(file)):
        assert read_list(source) == [
            ModelSet("mine", "a/b", "c/d", dtype="float32", source="list"),
            ModelSet(name, f"{tmp_path}", eagle3="c/d", dtype="bfloat16", source="list"),
        ]
    assert read_list("") == []


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
        ('[{"name": "tiny", "target": "a/b", "drafter": "c/d"}]', "this name is already taken"),
    ],
)
def test_model_list_fault_is_one_sentence(source, sentence, monkeypatch):
    others = models.offered().keys()
    monkeypatch.setenv(models.VARIABLE, source)
    offered = models.offered()
    (added,) = offered.keys() - others
    assert sentence in offered[added].obstacle
    with pytest.raises(InputError, match=f"^{added.split('(')[0]}.*: .*; choose other models$"):
        models.engine(model_set(added))


def test_list_of_models_says_why_some_cannot_run(monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(models, "hub_answers", lambda: True)
    monkeypatch.setattr(machine, "memory", lambda: 16e9)
    monkeypatch.setattr(models, "_bandwidth", lambda *_: 2e10)
    labels = {value: label for label, value in model_choice.model_picker().choices}
    assert labels["tiny"] == "tiny (bundled)"
    assert labels[presets.DSPARK] == presets.DSPARK
    assert labels["Qwen/Qwen3-4B"] == "Qwen/Qwen3-4B (about 400 ms a token on this CPU)"
    why = "its weights take 16 GB, and this machine has no CUDA GPU and only 16 GB of free memory"
    assert labels[LARGE] == f"{LARGE} ({why})"
    with pytest.raises(InputError, match=f"^{LARGE}: {why}; choose other models$"):
        models.engine(model_set(LARGE))


def test_target_that_is_not_downloaded_is_offered_but_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    labels = {value: label for label, value in model_choice.model_picker().choices}
    assert labels["smollm2"] == "SmolLM2-135M-Instruct (not downloaded yet)"
    with pytest.raises(
        InputError, match="SmolLM2-135M-Instruct is not downloaded yet; get it first, or choose other models"
    ):
        models.engine(model_set("smollm2"))


def test_link_of_a_run_names_the_models_as_the_list_does(monkeypatch):
    monkeypatch.setattr(models, "_engines", {})
    engine = models.engine(model_set(presets.DSPARK))
    assert engine.models.second is not None
    assert links.read_link({"model": engine.models.names()["preset"]}).values["model"] == presets.DSPARK


@pytest.fixture
def unreachable(monkeypatch):
    """Makes every connection fail."""
    monkeypatch.setattr(machine, "memory", lambda: 1e12)
    monkeypatch.setattr(store, "create_connection", Mock(side_effect=OSError))
    monkeypatch.setattr(store, "getproxies", dict)
    monkeypatch.setattr(store.constants, "HF_HUB_OFFLINE", False)
    store.hub_answers.cache_clear()
    yield
    store.hub_answers.cache_clear()


def test_published_pair_is_offered_if_the_hub_or_a_proxy_may_answer(unreachable, monkeypatch):
    assert model_set(LARGE).obstacle == "not in the local hub cache, and there is no network"
    store.hub_answers.cache_clear()
    monkeypatch.setattr(store, "getproxies", lambda: {"https": "http://proxy.example:3128"})
    assert model_set(LARGE).obstacle is None
    store.hub_answers.cache_clear()
    monkeypatch.setattr(store.constants, "HF_HUB_OFFLINE", True)
    assert "there is no network" in model_set(LARGE).obstacle


def test_hub_that_never_answers_is_given_up(unreachable, monkeypatch):
    ended = Event()
    monkeypatch.setattr(store, "create_connection", lambda *_: ended.wait())
    monkeypatch.setattr(store, "SECONDS_TO_CONNECT", 0.01)
    assert not store.hub_answers()
    ended.set()


@pytest.mark.parametrize(("gpu", "memory"), [(True, "GB in bfloat16"), (False, "GB in float32")])
def test_planned_summarizes_custom_folder_in_the_dtype_that_is_loaded(tmp_path, monkeypatch, gpu, memory):
    folders(PAIRS["Qwen/Qwen3.5-4B"], tmp_path)
    (tmp_path / "drafter").rename(tmp_path / "dflash")
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: gpu)
    chosen = from_form(FOLDER, str(tmp_path), None)
    assert chosen.dtype == ("bfloat16" if gpu else None)
    assert planned(chosen).startswith("Type qwen3_5, layers: 24 linear, 8 full. It runs eagerly, also on a GPU")
    assert memory in planned(chosen)


def test_planned_names_refused_target_type(tmp_path):
    folders(PAIRS["moonshotai/Kimi-K2.5"], tmp_path)
    assert planned(model_set(str(tmp_path))).startswith("Refused: targets of type 'kimi_k25' are not supported")


def test_planned_is_empty_without_readable_config(tmp_path, monkeypatch):
    assert planned(from_form(FOLDER, "", "")) == planned(from_form(FOLDER, str(tmp_path), "")) == ""
    assert planned(model_set("Qwen/Qwen3-4B")) == ""  # its config is not stored here, and is not downloaded for this
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps({}))
    monkeypatch.setattr("app.models.public", lambda: True)
    assert planned(from_form(FOLDER, str(tmp_path), "")) == ""


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
    at_once, fail = Event(), Mock(side_effect=InputError("there is no network"))
    at_once.set()
    assert list(request_target(lambda _: Path(), at_once)[1])[-1].value == "smollm2"
    assert list(request_target(fail, at_once)[1])[-1].problem == "there is no network"
