"""The address where the page listens, what its visitors may open and see, and the core that is left to a browser."""

from __future__ import annotations

import socket

import pytest
import torch

from app import visitors
from app.jobs import failure_sentence
from app.jobs import sentence as notice
from app.machine import leave_a_core
from app.model_choice import model_picker
from app.models import FOLDER, model_set
from d2sd import InputError

NAMES = ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "HOST", "PORT", "FOLDERS", "SPACE_ID", "GRADIO_SHARE")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["GRADIO_SERVER_PORT", "PORT"])
def test_port_variable_taken_or_invalid_is_refused(monkeypatch, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (str(taken.getsockname()[1]), "eighty", "0", "70000", "-1", "٣"):
            monkeypatch.setenv(name, port)
            with pytest.raises(InputError, match=r"d2sd app --host localhost --port 8123, or PORT=8123 make run$"):
                visitors.listen_options()


def test_listen_options_follow_host_and_port_variables(monkeypatch):
    assert visitors.listen_options() == {"server_name": "127.0.0.1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("PORT", str(port))
    monkeypatch.setenv("HOST", "0.0.0.0")
    assert visitors.listen_options() == {"server_name": "0.0.0.0", "server_port": port}
    assert visitors.public()  # other machines reach it, so folders are refused
    monkeypatch.setenv("GRADIO_SERVER_NAME", "localhost")
    monkeypatch.setenv("GRADIO_SERVER_PORT", str(port))
    monkeypatch.setenv("PORT", "1")
    assert visitors.listen_options() == {"server_name": "localhost", "server_port": port}
    assert not visitors.public()


def test_host_variable_of_other_machine_is_refused(monkeypatch):
    monkeypatch.setenv("HOST", "192.0.2.1")  # reserved for documentation (RFC 5737)
    with pytest.raises(InputError, match=r"^the page cannot listen on 192.0.2.1: .*; choose another address: d2sd app"):
        visitors.listen_options()


@pytest.mark.parametrize(
    ("environment", "refused"),
    [
        ({}, False),
        *(({"GRADIO_SERVER_NAME": name}, False) for name in ("127.0.0.1", "localhost", "::1")),
        *(({"GRADIO_SERVER_NAME": name}, True) for name in ("0.0.0.0", "192.168.1.5", "::", "my.host")),
        ({"GRADIO_SHARE": "True"}, True),
        ({"SPACE_ID": "a/b"}, True),
        ({"SPACE_ID": "a/b", "FOLDERS": "allow"}, False),
        ({"GRADIO_SERVER_NAME": "0.0.0.0", "FOLDERS": "allow"}, False),
        ({"FOLDERS": "refuse"}, True),
    ],
)
def test_folders_are_refused_on_public_pages(monkeypatch, environment, refused, tmp_path):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert visitors.public() is refused
    assert (FOLDER in dict(model_picker().choices).values()) is not refused
    for named in ((str(tmp_path),), ("Qwen/Qwen3-0.6B",), ("tiny", str(tmp_path))):
        chosen = model_set(*named)
        assert ("this page" in (chosen.obstacle or "")) is refused
        assert bool(chosen.target) is (not refused and chosen.name == "tiny")


@pytest.mark.parametrize(
    ("sentence", "seen"),
    [
        ("cannot load /srv/models/own/target: no", "cannot load …/target: no"),
        ("[Errno 28] No space: '/tmp/gradio/ab/x.json'", "[Errno 28] No space: '…/x.json'"),
        (r"in C:\Users\me\x.bin", r"in …/x.bin"),
        ("50 tokens/s and/or https://huggingface.co/a/b of Qwen/Qwen3-8B", "50 tokens/s and/or https://huggingface.co/a/b of Qwen/Qwen3-8B"),
    ],
)  # fmt: skip
def test_server_paths_are_hidden_from_visitors(monkeypatch, sentence, seen):
    monkeypatch.setenv("SPACE_ID", "a/b")
    assert visitors.without_paths(sentence) == seen
    assert notice(problem=sentence).value == seen
    assert failure_sentence(RuntimeError(sentence)) == f"The run stopped: {seen}"
    monkeypatch.setenv("FOLDERS", "allow")
    assert visitors.without_paths(sentence) == sentence


@pytest.mark.parametrize(
    ("omp", "cores", "threads", "left"), [(None, 1, 1, [1]), (None, 8, 8, [7]), (None, 16, 8, [8]), ("3", 8, 8, [])]
)
def test_leave_a_core_keeps_one_core_free_unless_user_sets_threads(monkeypatch, omp, cores, threads, left):
    chosen = []
    monkeypatch.setattr("os.environ", {"OMP_NUM_THREADS": omp} if omp else {})
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(cores), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    leave_a_core()
    assert chosen == left
