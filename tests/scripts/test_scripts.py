"""The scripts of the page: their unit tests, and rules for their source."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from d2sd.__about__ import HOME
from d2sd.figures.modules import IMPORT, join_modules, read_module
from tests.scripts.node import NODE, OPTIONS

SUITES = sorted(Path(__file__).parent.glob("*.test.mjs"))
MODULES = sorted(path for folder in ("assets/viewer", "app") for path in (HOME / folder).rglob("*.js"))


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.name)
def test_script_suites_pass(suite):
    command = [NODE, *OPTIONS, "--test", "--test-reporter=spec", suite]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "fail 0" in done.stdout
    assert "pass 0" not in done.stdout


def test_every_module_joins_and_every_export_is_used():
    """``start`` is exempt: Python calls it in entry modules."""
    used = {
        ((path.parent / address).resolve(), name.split(" as ")[0].strip())
        for path in [*MODULES, *SUITES]
        for names, address in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in names.split(",")
    }
    for path in MODULES:
        assert join_modules(path)
        unused = {name for name in read_module(path).exports if (path.resolve(), name) not in used} - {"start"}
        assert not unused, path
        assert all(line.count("`") % 2 == 0 for line in path.read_text(encoding="utf-8").splitlines()), path


MARKUP = r"(inner|outer)HTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|\beval\(|new Function\("


# Text from models and files enters the page as text nodes only. Storage that the browser refuses throws at every access.
@pytest.mark.parametrize(
    ("pattern", "allowed"), [(MARKUP, []), ("localStorage", ["dom.js"])], ids=["markup", "storage"]
)
def test_only_some_modules_may_contain_risky_code(pattern, allowed):
    assert [path.name for path in MODULES if re.search(pattern, path.read_text(encoding="utf-8"))] == allowed


def joined(folder: Path, **sources: str) -> str:
    """Joins the modules, runs ``start`` of ``main`` in Node and returns the output."""
    for name, source in sources.items():
        (folder / f"{name}.js").write_text(source, encoding="utf-8")
    script = f"console.log(JSON.stringify({join_modules(folder / 'main.js')}.start()));"
    return subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=True).stdout.strip()


def test_joined_modules_keep_names_and_run_once(tmp_path):
    imports = 'import { name as first, runs } from "./a.js";\nimport { name } from "./b.js";\n'
    ran = joined(
        tmp_path,
        main=f"{imports}export const start = () => [first, name, runs.length];\n",
        a='import { name as other } from "./b.js";\nexport const runs = [1];\nexport const name = `a of ${other}`;\n',
        b='const runs = [2, 3];\nexport class A {}\nexport async function f() {}\nexport const name = "b" + runs.length;\n',
    )
    assert ran == '["a of b2","b2",1]'


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('import { gone } from "./main.js";', "import each other"),
        ('import { gone } from "./b.js";', "does not export gone"),
        ("export let changing = 1;", "not supported: export let"),
        ('import all from "./b.js";', "not supported: import all"),
    ],
)
def test_join_modules_refuses_unsupported_imports(tmp_path, source, problem):
    with pytest.raises(ValueError, match=problem):
        joined(tmp_path, main='import { x } from "./a.js";\n', a=f"{source}\n", b="export const y = 1;\n")


def test_names_in_comments_are_not_exports(tmp_path):
    (tmp_path / "a.js").write_text("// export const a = 1;\n * export class B\nexport const c = 1;\n", encoding="utf-8")
    module = read_module(tmp_path / "a.js")
    assert (module.exports, "\nexport" in f"\n{module.body}") == (("c",), False)


def test_comments_and_indentation_stay_out_of_the_page(tmp_path):
    (tmp_path / "a.js").write_text(
        "// of readers\n/** A number,\n *  of no use. */\nexport const c = () => {\n  return 1; // one\n};\n"
    )
    assert read_module(tmp_path / "a.js").body == "const c = () => {\nreturn 1; // one\n};"
    (tmp_path / "a.js").write_text("const a = `\n  b`;\n")
    with pytest.raises(ValueError, match="several lines"):
        read_module(tmp_path / "a.js")
