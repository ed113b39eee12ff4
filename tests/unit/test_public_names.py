"""Names that the public packages export, at run time and for type checkers."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import d2sd

LAZY = ("d2sd", "d2sd.doctor")
PUBLIC = (*LAZY, "d2sd.calibration", "d2sd.figures")


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_exist_and_are_listed(package):
    module = import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no attribute 'save_trace'"):
        module.save_trace


@pytest.mark.parametrize("package", LAZY)
def test_public_names_match_type_checking_block(package):
    module = import_module(package)
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    known = {alias.name for statement in block.body for alias in statement.names}
    assert known | ({"__version__"} & set(module.__all__)) == set(dir(module)) == set(module.__all__)
    assert Path(d2sd.__file__).with_name("py.typed").exists()
