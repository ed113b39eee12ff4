"""Where the page listens, and what to do where it cannot."""

from __future__ import annotations

import socket

import pytest

from app import visitors
from d2sd import InputError

NAMES = ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "HOST", "PORT", "FOLDERS", "SPACE_ID", "GRADIO_SHARE")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["GRADIO_SERVER_PORT", "PORT"])
def test_another_port_can_be_named_with_and_without_a_checkout(monkeypatch, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (str(taken.getsockname()[1]), "eighty"):
            monkeypatch.setenv(name, port)
            with pytest.raises(InputError, match=r"PORT=8123 python app.py, or PORT=8123 make run$"):
                visitors.listen_options()


def test_the_page_listens_where_it_is_told_to(monkeypatch):
    assert visitors.listen_options() == {"server_name": "127.0.0.1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("PORT", str(port))
    monkeypatch.setenv("HOST", "0.0.0.0")
    assert visitors.listen_options() == {"server_name": "0.0.0.0", "server_port": port}
    assert visitors.public()  # whoever can reach it may name no folder
    monkeypatch.setenv("GRADIO_SERVER_NAME", "localhost")
    monkeypatch.setenv("GRADIO_SERVER_PORT", str(port))
    monkeypatch.setenv("PORT", "1")
    assert visitors.listen_options() == {"server_name": "localhost", "server_port": port}
    assert not visitors.public()


def test_a_host_that_this_machine_is_not_is_a_sentence(monkeypatch):
    monkeypatch.setenv("HOST", "192.0.2.1")  # for documentation alone, RFC 5737
    with pytest.raises(InputError, match=r"^the page cannot listen on 192.0.2.1: .*; choose another HOST, such as"):
        visitors.listen_options()
