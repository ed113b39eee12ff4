"""The scripts of the page: their own unit tests, and that the check of names finds what it looks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.scripts.check import NODE, ScriptError, undefined

SUITES = sorted(Path(__file__).parent.glob("*.test.cjs"))


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.name)
def test_units(suite):
    done = subprocess.run([NODE, "--test", "--test-reporter=spec", suite], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "fail 0" in done.stdout
    assert "pass 0" not in done.stdout


@pytest.mark.parametrize(
    "source",
    [
        "element.append(missing);",
        "missing = 1;",
        "const f = () => missing; trigger(f);",
        "class A { go() { return [1].map((x) => `${missing} ${x}`); } } trigger(A);",
        "try { start(); } catch { missing(); } function start() {}",
    ],
)
def test_an_undefined_name_is_found(source):
    assert undefined(source) == {"missing"}


def test_declared_names_properties_and_the_browsers_own_are_not():
    source = "const { a, b: [c] } = props; label: for (const x of a) { trigger(x.missing, c, { missing: 1 }); document.title = x; }"
    assert undefined(source) == set()


def test_a_syntax_error_names_its_place():
    with pytest.raises(ScriptError, match=r"lane\.js:2"):
        undefined("let a;\nlet a;", "lane.js")
