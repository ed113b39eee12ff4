"""The hosts that a link may open a trace from."""

from __future__ import annotations

import pytest

from app.runs.view import HOSTS_VARIABLE, trace_hosts
from d2sd import InputError


def test_the_owner_lists_hosts(monkeypatch):
    monkeypatch.delenv(HOSTS_VARIABLE, raising=False)
    assert trace_hosts() == []
    monkeypatch.setenv(HOSTS_VARIABLE, " Traces.example.org ,localhost:8000,")
    assert trace_hosts() == ["traces.example.org", "localhost:8000"]


@pytest.mark.parametrize(
    "value", ["https://a.org", "a.org/x", "*", "a..org;</script>", "a.org:1234567", "a.org:443", "a.org:80"]
)
def test_what_is_no_host_ends_in_a_sentence(monkeypatch, value):
    monkeypatch.setenv(HOSTS_VARIABLE, value)
    with pytest.raises(InputError, match="must list hosts"):
        trace_hosts()
