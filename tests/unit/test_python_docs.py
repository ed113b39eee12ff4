"""The reference of the Python interface is current, complete and typed, and examples in the documentation run."""

from __future__ import annotations

import inspect
import re

import pytest

import d2sd
from d2sd.__about__ import HOME
from tools import python_docs

PUBLIC = {f"{package}.{name}": value for package, name, value in python_docs.public()}
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_python_page_is_current():
    """``make docs`` writes the page."""
    assert python_docs.PATH.read_text(encoding="utf-8") == python_docs.page()


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.split(".")[-1] not in python_docs.CONSTANTS])
def test_public_name_is_documented_and_typed(name):
    value = PUBLIC[name]
    documented = python_docs.docstring(value)
    assert len(documented) > 20
    if isinstance(value, property):
        assert inspect.signature(value.fget).return_annotation is not inspect.Signature.empty
        return
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    signature = inspect.signature(value)
    assert inspect.isclass(value) or signature.return_annotation is not signature.empty
    known = {one for names, _ in python_docs.parameters(documented) for one in names.split(", ")}
    taken = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    assert [one.name for one in taken if one.name not in known or one.annotation is one.empty] == []


def test_python_docs_list_overloads_and_defaults():
    page = python_docs.page()
    assert len(re.findall(r"^generate\($", page, re.MULTILINE)) == 2
    assert "name: str = 'tiny'," in page
    assert "#### Trace.rows" in page
    assert "cls" not in page.partition("#### Trace.of")[2][:80]
    assert "nodes: Items[Node]," in page  # as written in the source


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_python_examples_run(page, bundled, monkeypatch, capsys):
    """The bundled model has no chat template, so ``chat=True`` is removed."""
    monkeypatch.chdir(HOME)
    monkeypatch.setattr(d2sd, "load", lambda *_: bundled, raising=False)
    known: dict[str, object] = {}
    for example in PYTHON.findall((HOME / page).read_text(encoding="utf-8").partition(python_docs.MARK)[0]):
        exec(compile(example.replace(", chat=True", ""), page, "exec"), known)
    assert len(capsys.readouterr().out) > 100
