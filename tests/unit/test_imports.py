"""Packages import in one direction: a module imports only its own package and lower ones, also for types."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

import d2sd
from d2sd.__main__ import COMMANDS

ROOT = Path(d2sd.__file__).parent
# From top to bottom. Packages on the same line do not import each other.
PACKAGES = (
    ("__main__",),
    ("cli",),
    ("doctor",),
    ("bench", "train"),
    ("replay",),
    ("engine",),
    ("decoding",),
    ("folders",),
    ("nets",),
    ("config", "figures", "logs"),
    ("calibration", "costs", "methods"),
    ("trace",),
    ("tree",),
    ("__about__", "errors"),
)
FLOORS = {package: floor for floor, packages in enumerate(reversed(PACKAGES)) for package in packages}


def modules(top):
    """Paths of all modules by name. Leaves out the top package's ``__init__``, which is above all of them."""
    paths = {path: path.relative_to(ROOT.parent).with_suffix("").parts for path in (ROOT.parent / top).rglob("*.py")}
    named = {".".join(p[:-1] if p[-1] == "__init__" else p): path for path, p in paths.items()}
    del named[top]
    return named


MODULES = modules("d2sd")
PAGE = modules("app")
TOPS = ("d2sd", "app", "gradio")


@cache
def nodes(source):
    """All import statements anywhere in a source."""
    try:
        tree = ast.parse(source)
    except SystemError:  # a bug of Python 3.11 when threads parse (CPython issue 106905)
        tree = ast.parse(source)
    return [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]


def imported(source, name):
    """Full names of the modules of this project and of Gradio that a source imports anywhere."""
    known = MODULES | PAGE
    package = name if known[name].stem == "__init__" else name.rpartition(".")[0]
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in TOPS)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            if base.split(".")[0] in TOPS:
                whole = [f"{base}.{alias.name}" for alias in node.names]
                yield from (w if w in known else base for w in whole)


def wrong(source, name):
    """Forbidden imports of a module with this name."""
    package = name.split(".")[1]

    def allowed(other):
        top, *inner = other.split(".")
        return top == "d2sd" and inner and (inner[0] == package or FLOORS[inner[0]] < FLOORS[package])

    return [other for other in imported(source, name) if not allowed(other)]


def test_import_floors_cover_every_package():
    assert {name.split(".")[1] for name in MODULES} == set(FLOORS)
    assert len([p for p in ROOT.iterdir() if not p.name.startswith("__") and p.suffix != ".typed"]) <= 18


def test_imports_of_d2sd_point_down_and_never_to_app_or_gradio():
    found = {name: wrong(path.read_text(encoding="utf-8"), name) for name, path in MODULES.items()}
    assert not {name: others for name, others in found.items() if others}


@pytest.mark.parametrize("found", [MODULES, PAGE], ids=TOPS[:2])
def test_imports_have_no_cycles(found):
    below = {name: set(imported(path.read_text(encoding="utf-8"), name)) for name, path in found.items()}
    while free := [name for name, needs in below.items() if not needs & (below.keys() - {name})]:
        for name in free:
            del below[name]
    assert not below


def test_light_packages_and_commands_import_without_torch():
    names = [name for name in MODULES if name.split(".")[1] in ("config", "costs", "trace", "tree")]
    names += [f"d2sd.cli.{command}" for command in COMMANDS]
    code = (
        f"import sys; sys.modules['torch'] = None; import {', '.join(names)}; assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_networkx_is_imported_on_first_use():
    for name, path in (MODULES | PAGE).items():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        at_start = [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [line for line in at_start if "networkx" in line], name


NOTEBOOK = """
import sys, types
sys.modules["ipykernel.zmqshell"] = sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["ipywidgets"] = None
"""


def test_d2sd_import_silences_tqdm_widget_warning():
    def said(*imported):
        code = NOTEBOOK + "".join(f"import {name}\n" for name in (*imported, "tqdm.auto"))
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stderr

    assert "IProgress not found" in said()  # tqdm's own behaviour
    assert said("d2sd") == ""
