"""The comparison with llama.cpp: figures of a table, tested without llama.cpp."""

from __future__ import annotations

from functools import partial

import pytest

from d2sd.errors import InputError
from tools.peers import PEER, Decoded, alternate, table


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
