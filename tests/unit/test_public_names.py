"""Public names: exported, typed and documented; the examples of the documentation run."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import d2sd
from d2sd.__about__ import HOME
from tools import python_docs

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
    declared = {alias.name for statement in block.body for alias in statement.names}
    assert declared | ({"__version__"} & set(module.__all__)) == set(dir(module)) == set(module.__all__)
    assert Path(d2sd.__file__).with_name("py.typed").exists()


DOCUMENTED = {
    f"{package}.{name}": value for package, name, value in python_docs.public() if name not in python_docs.CONSTANTS
}
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_python_page_is_current():
    """``make docs`` writes the page."""
    assert python_docs.PATH.read_text(encoding="utf-8") == python_docs.page()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_name_is_documented_and_typed(name):
    value = DOCUMENTED[name]
    documented = python_docs.docstring(value)
    assert len(documented) > 20
    if isinstance(value, property):
        assert inspect.signature(value.fget).return_annotation is not inspect.Signature.empty
        return
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    signature = inspect.signature(value)
    assert inspect.isclass(value) or signature.return_annotation is not signature.empty
    described = {one for names, _ in python_docs.parameters(documented) for one in names.split(", ")}
    taken = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    assert [one.name for one in taken if one.name not in described or one.annotation is one.empty] == []


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_python_examples_run(page, bundled, monkeypatch, capsys):
    """The bundled model has no chat template, so ``chat=True`` is removed."""
    monkeypatch.chdir(HOME)
    monkeypatch.setattr(d2sd, "load", lambda *_: bundled, raising=False)
    variables: dict[str, object] = {}
    for example in PYTHON.findall((HOME / page).read_text(encoding="utf-8").partition(python_docs.MARK)[0]):
        exec(compile(example.replace(", chat=True", ""), page, "exec"), variables)
    assert len(capsys.readouterr().out) > 100
