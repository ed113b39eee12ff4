"""Checkpoints of a training folder, and a running server, drawn while they go on; neither on a public page."""

from __future__ import annotations

import json

import pytest
import torch

from app import checkpoints, serving
from app.checkpoints import said
from app.models import Chosen
from app.views.overtime import drawn
from app.work import Ticket
from d2sd.drawing.board import board_panels
from d2sd.drawing.watched import watched_panels
from tests.broken_ways import copied, each
from tests.unit.test_serving import metrics, pages

__all__ = ["pages"]


@pytest.fixture
def training(tmp_path, monkeypatch):
    """A training run that kept a worse drafter, then the bundled one."""
    monkeypatch.setattr(checkpoints, "TOKENS", 16)
    worse = each(("down_proj.weight", "o_proj.weight"), torch.zeros_like)
    copied(tmp_path / "step-100", weights=worse)
    copied(tmp_path / "step-200")
    return tmp_path


def measured(folder, limit=3, model="tiny"):
    ticket = Ticket()
    return list(checkpoints.run(ticket, ticket.request(), str(folder), limit, Chosen(model)))


def test_every_checkpoint_is_drawn_as_soon_as_it_is_done(training):
    updates = measured(training)
    news = [u.news for u in updates]
    assert [n for n in news if n.startswith("Texts")] == [f"Texts of the target: {n} of 3 …" for n in (1, 2, 3)]
    assert "step-100, 1 of 2: 3 of 3 texts …" in news
    first, last = (u.value for u in updates if u.value)
    assert [row.name for row in first[0]] == ["step-100"]
    assert (last[1], [row.name for row in last[0]]) == ([100, 200], ["step-100", "step-200"])
    assert last[0][0].whole.alpha.value < last[0][1].whole.alpha.value
    data = json.loads(drawn(said(last), board_panels(last[0], last[1])))
    assert "step-200, is the best" in data["reading"][0]
    assert data["panels"][0]["figure"]["data"][0]["x"] == [100, 200]
    again = [u.news for u in measured(training)]
    assert not [n for n in again if n.startswith("step-")]  # it is kept in the folder


def test_it_stops_between_texts_and_keeps_what_is_done(training):
    ticket = Ticket()
    running = checkpoints.run(ticket, ticket.request(), str(training), 3, Chosen("tiny"))
    assert next(u for u in running if u.news.startswith("step-200, 2 of 2: 1 of"))
    ticket.stop()
    assert not list(running)
    assert [u.news for u in measured(training) if u.news.startswith("step-100")] == []


def test_what_cannot_be_measured_is_said(tmp_path):
    assert "there is no folder" in measured(tmp_path / "none")[-1].problem
    assert "holds no step-N folders" in measured(tmp_path)[-1].problem
    assert "name a training folder" in measured("  ")[-1].problem
    assert "between 1 and" in measured(tmp_path, 0)[-1].problem


def watched(address, every=1.0, most=3):
    ticket = Ticket()
    found = []
    for update in serving.run(ticket, ticket.request(), address, every):
        found.append(update)
        if update.value and len(update.value.readings) == most:
            ticket.stop()
    return found


def test_a_server_is_read_until_it_is_stopped(pages, monkeypatch):
    monkeypatch.setattr(serving, "LEAST", 0.0)
    monkeypatch.setattr(serving, "LOOK", 0.0)
    address, left = pages
    left += [metrics(100 * n, 150 * n + n % 2) for n in range(1, 5)]
    updates = watched(address, 0.0)
    assert updates[-1].news.startswith("3 readings")
    found = updates[-1].value
    data = json.loads(drawn(found.last, watched_panels(found.times, found.readings)))
    assert [panel["id"] for panel in data["panels"]] == ["served-alpha", "served-positions"]
    assert data["panels"][0]["figure"]["data"][0]["y"] == pytest.approx([2.51, 2.49, 2.51])
    assert [line["name"] for line in data["panels"][1]["figure"]["data"]] == ["latest reading", "mean of those before"]
    assert "100 steps" in data["reading"][0]


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://127.0.0.1/", "127.0.0.1:8000", "", "http://u@127.0.0.1/"]
)
def test_what_is_no_http_address_is_refused(address):
    (update,) = watched(address)
    assert "is no server's address" in update.problem


def test_another_machine_is_not_asked():
    (update,) = watched("http://192.0.2.1:8000")
    assert "is another machine" in update.problem


@pytest.fixture(params=[{"SPACE_ID": "a/b"}, {"GRADIO_SERVER_NAME": "0.0.0.0"}], ids=["space", "host"])
def public(request, monkeypatch):
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


def test_a_public_page_reads_no_folder_and_asks_no_server(public, training, monkeypatch):
    monkeypatch.setattr(serving, "Server", lambda *_, **__: pytest.fail("a server was asked"))
    monkeypatch.setattr(checkpoints, "checkpoints", lambda *_: pytest.fail("a folder was read"))
    assert "opens no folders" in measured(training)[-1].problem
    assert "asks no servers" in watched("http://127.0.0.1:8000")[-1].problem
