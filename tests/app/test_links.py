"""Query strings are anybody's text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app import links, models, presets
from app.settings import SETTINGS
from d2sd.trace.run import RecordedRun


def test_every_setting_survives_the_way_through_a_link():
    asked = {
        "prompt": "Ünï — “code” 🙂\n", "model": "tiny", "method": "d2sd_tree", "block_size": 8, "second_block_size": 12,
        "num_branches": 3, "node_budget": 20, "temperature": 0.75, "top_p": 0.9, "seed": 2**62, "max_new_tokens": 99,
        "cost_aware": True, "chat": True, "draft_depth": 4, "draft_top_k": 6, "confidence": "head",
    }  # fmt: skip
    assert set(asked) == {"prompt", "model", "method", *(s.name for s in SETTINGS)}
    query = {name: str(value).lower() if value is True else str(value) for name, value in asked.items()}
    link = links.read({**query, "step": "4", "node": "bonus"})
    assert link.values == asked
    assert (link.step, link.node, link.ignored, link.sentence) == (3, "bonus", (), "")


def test_a_link_knows_the_text_of_its_run_by_a_hash():
    run = presets.opening()
    mark = links.fingerprint(run.trace())
    assert links.read({"text": mark}).text == mark
    assert [links.read({"text": text}).text for text in ("", "x" * 8, mark * 2, mark.upper() + "G")] == [""] * 4
    assert links.read({"text": mark}).other_text(run) == ""
    assert "near ties" in links.read({"text": "00000000"}).other_text(run)
    cut_off = RecordedRun.of(replace(run.trace(), finished=None).records())
    assert links.read({"text": "00000000"}).other_text(cut_off) == ""
    assert links.read({"temperature": "0.5"}).drawn.startswith("Its text is drawn at temperature 0.5")
    assert links.read({"temperature": "0"}).drawn == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "   "),
        ("prompt", "a" * 20_001),
        ("model", "/etc/passwd"),
        ("model", "folder"),
        ("model", "Qwen/Qwen3-8B"),
        ("method", "D2SD"),
        ("method", ""),
        *((name, value) for name in ("block_size", "seed") for value in ("", "1e1", " 4", "+4", "4_0", "１６", "4.0", "nan", "9" * 20)),
        ("confidence", "both"),
        ("block_size", "1"),
        ("node_budget", "100000"),
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "5.5"),
        ("top_p", "0"),
        ("max_new_tokens", "0"),
        ("cost_aware", "yes"),
        ("step", "0"),
        ("step", "1.5"),
        ("step", "1000000000"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_left_out_and_named(name, value, monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    link = links.read({"num_branches": "2", name: value})
    assert link.values == {"num_branches": 2}
    assert link.step is None
    assert link.sentence.startswith(f"Not everything in this link could be used: {name} (")


def test_a_link_to_a_model_asks_for_its_chat_template_unless_it_says_otherwise():
    found = [
        links.read({"model": name} | more).values["chat"]
        for name in ("tiny", "smollm2")
        for more in ({}, {"chat": "false"})
    ]
    assert found == [False, False, True, False]


def test_a_node_needs_its_step():
    assert links.read({"node": "3"}).wanted is None
    assert "node" in links.read({"step": "2", "node": "-1"}).sentence


def test_a_link_fits_the_runs_that_it_describes():
    header = presets.opening().header
    config = {name: value for name, value in header["config"].items() if value is not None}
    names = {s.name for s in SETTINGS}
    query = {"prompt": header["prompt"], "model": header["models"]["preset"], "method": header["method"]}
    query |= {name: str(value) for name, value in config.items() if name in names}
    query = {name: value.lower() if value in ("True", "False") else value for name, value in query.items()}
    assert links.read(query).fits(header)
    assert not links.read(query | {"seed": "5"}).fits(header)
    assert not links.read(query | {"prompt": "another"}).fits(header)
    assert not links.read({}).fits(header)
    assert not links.read(query).fits({"config": 3, "models": None})
