"""Links: query strings are untrusted input."""

from __future__ import annotations

import json

import pytest

from app import links, models, presets
from app.runs.tab import ELSEWHERE, NOT_KEPT, NOT_YET, PRESS_RUN, STAYS, open_link, tab_of
from app.runs.view import HOSTS_VARIABLE, trace_hosts
from app.session import Session
from app.settings import SETTINGS
from d2sd import InputError


def test_link_round_trips_every_setting():
    asked = {
        "prompt": "Ünï — “code” 🙂\n", "model": "tiny", "method": "d2sd_tree", "block_size": 8, "second_block_size": 12,
        "num_branches": 3, "node_budget": 20, "temperature": 0.75, "top_p": 0.9, "seed": 2**62, "max_new_tokens": 99,
        "cost_aware": True, "chat": True, "draft_depth": 4, "draft_top_k": 6, "confidence": "head",
    }  # fmt: skip
    assert set(asked) == {"prompt", "model", "method", *(s.name for s in SETTINGS)}
    query = {name: str(value).lower() if value is True else str(value) for name, value in asked.items()}
    link = links.read_link({**query, "step": "4", "node": "bonus"})
    assert link.values == asked
    assert link.selection == {"step": 3, "node": "bonus", "text": ""}
    assert (link.ignored, link.sentence) == ((), "")
    assert links.read_link({"node": "3"}).selection is None  # without its step
    assert "node" in links.read_link({"step": "2", "node": "-1"}).sentence


NOT_WHOLE = ("", "1e1", " 4", "+4", "4_0", "１６", "4.0", "nan", "9" * 20)
MISFITS = {
    "prompt": ("   ", "a" * 20_001),
    "model": ("/etc/passwd", "folder", "Qwen/Qwen3-8B"),
    "method": ("D2SD", ""),
    "block_size": (*NOT_WHOLE, "1"),
    "seed": NOT_WHOLE,
    "confidence": ("both",),
    "node_budget": ("100000",),
    "temperature": ("nan", "inf", "5.5"),
    "top_p": ("0",),
    "max_new_tokens": ("0",),
    "cost_aware": ("yes",),
    "step": ("0", "1.5", "1000000000"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in MISFITS.items() for value in values])
def test_link_leaves_out_and_names_invalid_values(name, value, monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    link = links.read_link({"num_branches": "2", name: value})
    assert link.values == {"num_branches": 2}
    assert link.selection is None
    assert link.sentence.startswith(f"Some values of this link could not be used: {name} (")


def test_link_chat_default_follows_model():
    assert [links.read_link({"model": name}).values["chat"] for name in ("tiny", "smollm2")] == [False, True]
    assert links.read_link({"model": "smollm2", "chat": "false"}).values["chat"] is False


def test_query_fields_fit_only_their_run():
    header = presets.opening().header
    query = links.query_fields(header)
    assert links.read_link(query).ignored == ()
    assert links.read_link(query).fits(header)
    for other in (query | {"seed": "5"}, query | {"prompt": "another"}, {}):
        assert not links.read_link(other).fits(header)
    assert not links.read_link(query).fits({})


OPENING = links.query_fields(presets.opening().header)


@pytest.mark.parametrize(
    ("query", "notice", "wanted", "starts"),
    [
        ({}, None, None, False),
        ({"run": "KEY", "step": "2"}, None, 1, False),
        ({"run": "1", "step": "2", "seed": "x"}, "Some values of this link", 1, False),
        ({"step": "3"}, None, 2, False),  # selects a step of the shown run
        ({"step": "3", "play": "1", "__theme": "dark"}, None, 2, False),
        (OPENING | {"step": "3"}, None, 2, False),
        (OPENING | {"step": "3", "text": "00000000"}, None, 2, False),  # the page compares the texts
        ({"prompt": "A cat", "seed": "x"}, STAYS, None, False),
        ({"prompt": "A cat", "step": "3"}, NOT_YET, None, True),
        ({"prompt": "A cat", "run": "gone"}, ELSEWHERE, None, True),
        ({"prompt": "A cat", "model": "tiny with DSpark"}, PRESS_RUN, None, False),  # its models are not loaded
        ({"prompt": "A cat", "temperature": "0.5"}, "sampled at temperature 0.5", None, True),
        ({"prompt": "A cat", "tab": "race"}, None, None, False),
        ({"prompt": "A cat", "methods": "d2sd"}, None, None, False),
        ({"run": "gone"}, NOT_KEPT, None, False),
    ],
)
def test_open_link_shows_or_starts_run_with_notice(monkeypatch, query, notice, wanted, starts):
    monkeypatch.setattr(models, "loaded", lambda chosen: chosen.name == "tiny")
    session = Session()
    run = session.shown = session.history.keep(presets.opening(), "Recorded")
    query = query | {"run": run.key} if query.get("run") == "KEY" else query
    opened = open_link(session, links.read_link(query), query, "tiny")
    notice_shown = getattr(opened.notice, "value", "")
    assert notice_shown == "" if notice is None else notice in notice_shown
    assert opened.starts == starts
    assert opened.stored == (query.get("run") in (run.key, "1"))
    assert len(session.shown) == (0 if starts or notice == PRESS_RUN else len(run))
    head = json.loads(opened.segment.split("\n")[0]) if isinstance(opened.segment, str) else {}
    assert (head.get("message") or {}).get("step") == wanted
    assert (head.get("message") or {}).get("text", "") == query.get("text", "")


@pytest.mark.parametrize(
    ("query", "tab"),
    [({}, None), ({"methods": "d2sd"}, "race"), ({"chapter": "2"}, "learn"), ({"stop": "2", "tab": "race"}, "race")],
)
def test_tab_of_link_follows_its_fields(query, tab):
    assert tab_of(query) == tab


def test_trace_hosts_reads_and_validates_variable(monkeypatch):
    monkeypatch.delenv(HOSTS_VARIABLE, raising=False)
    assert trace_hosts() == []
    monkeypatch.setenv(HOSTS_VARIABLE, " Traces.example.org ,localhost:8000,")
    assert trace_hosts() == ["traces.example.org", "localhost:8000"]
    for value in ("https://a.org", "a.org/x", "*", "a..org;</script>", "a.org:1234567", "a.org:443", "a.org:80"):
        monkeypatch.setenv(HOSTS_VARIABLE, value)
        with pytest.raises(InputError, match="must list hosts"):
            trace_hosts()
