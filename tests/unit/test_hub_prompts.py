"""Prompts from data sets of the hub, with a stub of the package datasets."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from d2sd.bench import prompts as hub_prompts
from d2sd.bench.prompts import Prompt, digest, read_prompts
from d2sd.errors import InputError

ROWS = [
    {"question": "Why?", "turns": ["a", "b"], "chat": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "n": 1},
    {"question": "How?", "turns": ["c"], "chat": [{"role": "user", "content": "v"}], "n": 2},
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Calls of load_dataset."""
    calls = []

    def load_dataset(name, configuration, **options):
        calls.append((name, configuration, options))
        return iter(ROWS)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(__version__="4.1.0", load_dataset=load_dataset))
    return calls


@pytest.mark.parametrize(
    ("column", "texts"), [("question", ["Why?", "How?"]), ("turns", ["a", "c"]), ("chat", ["u", "v"])]
)
def test_hub_prompts_read_texts_turns_and_chats(asked, column, texts):
    assert read_prompts(f"org/set:test:{column}") == [Prompt(text, "all") for text in texts]
    assert asked == [("org/set", None, {"split": "test", "streaming": True})]
    assert len(read_prompts(f"org/set/main:train:{column}", 1)) == 1
    assert asked[1][:2] == ("org/set", "main")


def test_hub_prompts_digest_depends_on_texts(asked):
    source = "org/set:test:question"
    first = digest(source, read_prompts(source))
    assert first == digest(source, read_prompts(source)) != digest(source, read_prompts(source, 1))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [("org/set:test:answer", "there is no column answer; the columns are question, turns"), ("org/set:test:n", "row 1: n has neither a text")],
)  # fmt: skip
def test_hub_prompts_refuse_unusable_column(asked, source, sentence):
    with pytest.raises(InputError, match=sentence):
        read_prompts(source)


def test_hub_prompts_need_limit_for_many_rows(asked, monkeypatch):
    monkeypatch.setattr(hub_prompts, "MAX_ROWS", 1)
    with pytest.raises(InputError, match="more than 1 rows; set --limit"):
        read_prompts("org/set:test:question")


def no_route(*_, **__):
    raise ConnectionError("no route\nto the hub")


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        (None, "need the package datasets"),
        (SimpleNamespace(__version__="3.6.0"), r"datasets 4 or newer, not 3\.6\.0"),
        (SimpleNamespace(__version__="4.0.0", load_dataset=no_route), r"cannot read the data set org/set:test:question: no route$"),
    ],
)  # fmt: skip
def test_hub_prompts_report_missing_or_old_package_and_hub_errors(monkeypatch, package, sentence):
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(InputError, match=sentence):
        read_prompts("org/set:test:question")
