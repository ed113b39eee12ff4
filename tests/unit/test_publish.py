"""A folder of traces as a data set of the hub, and its upload by a stand-in for the hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d2sd.__about__ import HOME
from d2sd.__main__ import main
from d2sd.trace.trace import read_traces, write_traces

NASTY = "<img src=x onerror=alert(1)> [a](javascript:b)"


@pytest.fixture
def folder(tmp_path):
    """Two runs in one file; one has a nasty prompt and a model of this machine."""
    traces = list(read_traces(HOME / "assets" / "traces" / "opening.jsonl.gz"))[:1]
    traces.append(traces[0])
    traces[0].header.update(prompt=NASTY, models={"target": "/home/me/secret/mine", "first_drafter": "org/name"})
    (tmp_path / "mine").mkdir()
    write_traces(tmp_path / "mine" / "a.jsonl.gz", traces)
    return tmp_path / "mine"


@pytest.fixture
def calls(monkeypatch):
    """What the hub is asked for."""
    asked = []

    class Api:
        def create_repo(self, name, **options):
            asked.append(("create", name, options))

        def upload_folder(self, *, folder_path, **options):
            asked.append(("upload", {p.name for p in Path(folder_path).iterdir()}, options))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    return asked


def test_a_folder_becomes_a_data_set(folder, capsys):
    assert main(["trace", "publish", str(folder)]) == 0
    out = folder.with_name("mine-hub")
    assert "2 runs, 2 of them with a page" in capsys.readouterr().out
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith('---\npretty_name: "mine"\ntags:\n- speculative-decoding\nconfigs:\n- config_name: runs\n')
    assert "![Share accepted by position of the drafted token](figures/acceptance.svg)" in card
    rows = [json.loads(line) for line in (out / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(r["file"], r["run"], r["page"]) for r in rows] == [
        ("traces/a.jsonl.gz", 1, "runs/001.html"),
        ("traces/a.jsonl.gz", 2, "runs/002.html"),
    ]
    first, _ = read_traces(out / "traces" / "a.jsonl.gz")
    assert first.steps == next(iter(read_traces(folder / "a.jsonl.gz"))).steps
    assert first.header["models"] == {"target": "mine", "first_drafter": "org/name"}
    written = [p for p in out.rglob("*") if p.suffix in (".html", ".md", ".svg")]
    assert len(written) == 7
    for path in written:
        assert "<img src=x" not in path.read_text(encoding="utf-8")
        assert "/home/me" not in path.read_text(encoding="utf-8")
    assert "javascript:" not in card
    assert main(["trace", "publish", str(folder)]) == 2
    assert "is not empty; name another one with -o" in capsys.readouterr().err


def test_a_space_is_pushed_when_asked(folder, calls, tmp_path, capsys):
    arguments = ["trace", "publish", str(folder), "-o", str(tmp_path / "out"), "--as", "space", "--push", "org/name"]
    assert main(arguments) == 0
    assert "sdk: static\napp_file: index.html" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    (_, name, made), (_, files, sent) = calls
    assert (name, made["repo_type"], made["space_sdk"], made["private"]) == ("org/name", "space", "static", True)
    assert files == {"README.md", "index.html", "report.html", "runs.jsonl", "traces", "figures", "runs"}
    assert sent["repo_type"] == "space"
    assert capsys.readouterr().out.endswith("https://huggingface.co/spaces/org/name\n")


def test_what_the_hub_refuses_is_one_sentence(folder, calls, monkeypatch, capsys, tmp_path):
    def create_repo(*_, **__):
        raise OSError("401: who are you?\nmore")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", create_repo)
    assert main(["trace", "publish", str(folder), "-o", str(tmp_path / "out"), "--push", "org/name"]) == 2
    assert "cannot upload to org/name: 401: who are you?; `hf auth login`" in capsys.readouterr().err


def test_a_folder_without_traces_is_refused(tmp_path, capsys):
    assert main(["trace", "publish", str(tmp_path)]) == 2
    assert "holds no traces" in capsys.readouterr().err
