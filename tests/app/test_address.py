"""Where the page listens, and what to do where it cannot."""

from __future__ import annotations

import socket

import pytest

from app import address
from d2sd import InputError


def test_another_port_can_be_named_with_and_without_a_checkout(monkeypatch):
    monkeypatch.delenv("GRADIO_SERVER_NAME", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (str(taken.getsockname()[1]), "eighty"):
            monkeypatch.setenv("GRADIO_SERVER_PORT", port)
            with pytest.raises(InputError, match=r"GRADIO_SERVER_PORT=8123 d2sd app, or PORT=8123 make run$"):
                address.wanted()
