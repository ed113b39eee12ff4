"""What ``d2sd`` exports, at run time and for type checkers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import d2sd


def test_public_names_exist_and_are_listed():
    assert all(getattr(d2sd, name) is not None for name in d2sd.__all__)
    assert set(dir(d2sd)) == set(d2sd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'save_trace'"):
        d2sd.save_trace  # type: ignore[attr-defined]


def test_public_names_match_type_checking_block():
    tree = ast.parse(Path(d2sd.__file__).read_text(encoding="utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    known = {alias.name for statement in block.body for alias in statement.names}
    assert known | {"__version__"} == set(d2sd.__all__)
    assert Path(d2sd.__file__).with_name("py.typed").exists()
