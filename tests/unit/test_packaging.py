"""Packaging: declared dependencies, tested versions, ways of installing, the files in the wheel, and its page."""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
import tomllib
import venv
import zipfile
import zlib
from pathlib import Path
from sysconfig import get_path
from types import SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from tests.page_client import PageClient
from tools import install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(name: str) -> dict[str, Requirement]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").split("\n")]
    return {r.name.lower(): r for r in map(Requirement, (line for line in lines if line and not line.startswith("-r")))}


@pytest.mark.parametrize(
    ("name", "declared"),
    [("requirements.txt", PROJECT["dependencies"]), ("requirements-gpu.txt", PROJECT["optional-dependencies"]["gpu"])],
)
def test_pyproject_dependencies_match_requirements(name, declared):
    assert sorted(map(str, requirements(name).values())) == sorted(str(Requirement(d)) for d in declared)


# starlette: gradio depends on it. The others are optional.
UNDECLARED = {"starlette", "spaces", "flashinfer", "IPython", "datasets"}


def test_imported_and_run_packages_are_required():
    used = set()
    for path in (ROOT / "app.py", *(path for name in ("app", "d2sd") for path in (ROOT / name).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    used |= {name.name for name in names}
                case ast.ImportFrom(module=str(module)):
                    used.add(module)
                case ast.Tuple(elts=[ast.Constant(value="-m"), ast.Constant(value=str(module)), *_]):
                    used.add(module)
    outside = {name.partition(".")[0] for name in used} - sys.stdlib_module_names - {"app", "d2sd", *UNDECLARED}
    assert outside <= requirements("requirements.txt").keys()
    assert {"pip", "torch"} <= outside


def test_constraints_cover_every_requirement():
    tested = {name: next(iter(r.specifier)) for name, r in requirements("constraints.txt").items()}
    for name, wanted in {**requirements("requirements.txt"), **requirements("requirements-dev.txt")}.items():
        if name == "pip":  # that of the environment
            continue
        assert tested[name].operator == "==", name
        assert tested[name].version in wanted.specifier, name


def test_requirement_bounds_match_tested_versions():
    """Lower bounds are the versions of ``make oldest``; upper bounds exclude releases after ``make newest``."""
    oldest, newest = (
        {name: Version(next(iter(r.specifier)).version) for name, r in requirements(f"constraints-{end}.txt").items()}
        for end in ("oldest", "newest")
    )
    for name, wanted in requirements("requirements.txt").items():
        if name == "pip":
            continue
        bounds = {s.operator: Version(s.version) for s in wanted.specifier}
        assert bounds[">="] == oldest[name], name
        major, minor = newest[name].release[:2]
        assert bounds.get("<", Version(f"{major}.{minor + 1}")) == Version(f"{major}.{minor + 1}"), name


def test_readme_front_matter_fits_requirements():
    """A Hugging Face Space reads the front matter of the README."""
    _, front, _ = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["sdk"] == "gradio"
    assert matter["sdk_version"] in requirements("requirements.txt")["gradio"].specifier
    assert (ROOT / matter["app_file"]).is_file()
    assert len(matter["short_description"]) <= 60  # the hub refuses longer ones


def copy_but_weights(source: str, to: str) -> None:
    if source.endswith(".safetensors"):
        Path(to).touch()
    else:
        shutil.copyfile(source, to)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel with empty weight files, because packing the weights takes most of the time."""
    folder, copy = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("checkout")
    for part in ("app", "assets", "d2sd"):
        shutil.copytree(
            ROOT / part, copy / part, copy_function=copy_but_weights, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("app.py", "pyproject.toml", ".gitignore", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def files(*parts: str) -> set[str]:
    found = [p for part in parts for p in (ROOT / part).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return {str(p.relative_to(ROOT)) for p in found if p.suffix != ".pyi"}  # Gradio writes .pyi files on import


def test_wheel_holds_exactly_package_page_and_assets(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    held = {name for name in names if ".dist-info/" not in name and not name.endswith(".pyi")}
    beside = files("app", "assets") - files("assets/images")
    assert held == files("d2sd") | {f"d2sd/home/{name}" for name in beside | {"app.py"}}


def test_installed_wheel_finds_assets_from_any_folder(wheel, tmp_path):
    held = zipfile.ZipFile(wheel)
    held.extractall(tmp_path / "site", [name for name in held.namelist() if not name.endswith(".safetensors")])
    script = """
import d2sd
from d2sd.__about__ import HOME
from d2sd.bench.prompts import read_prompts
from d2sd.figures.viewer import viewer_script
print(len(read_prompts("heldout")) > 0, len(viewer_script()) > 0, (HOME / "app.py").is_file(), d2sd.__file__)
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True", "True", str(tmp_path / "site" / "d2sd" / "__init__.py")], done.stderr
    (scripts,) = [name for name in held.namelist() if name.endswith("entry_points.txt")]
    assert "d2sd = d2sd.__main__:main" in held.read(scripts).decode()


OWN = "torch's own index cannot be used (cause: no address): torch comes from pip's indexes\n"
NO_UV = "uv cannot install the packages here: pip installs them\n"
CONFIGURED = (
    ":env:.index-url='https://a.test/simple'\nglobal.extra-index-url='file:///b c'\n"
    "global.find-links='/d /e'\nglobal.index-url='https://f.test'\n"
)


@pytest.mark.parametrize(
    ("failing", "last", "said"),
    [
        ((), "uv with torch's index", ""),
        (("dry run",), "uv", OWN),
        (("pip install uv",), "pip", NO_UV),
        (("dry run", "uv"), "pip", OWN + NO_UV),
        (("uv with torch's index",), "pip", NO_UV),
    ],
)
@pytest.mark.parametrize(("build", "backend"), [(None, "auto"), ("cpu", "cpu"), ("cuda", "cu130")])
def test_packages_are_installed_in_the_first_way_that_works(monkeypatch, capsys, failing, last, said, build, backend):
    calls = []

    def run(command, env=None, **_):
        kind = "pip install uv" if command[-1] == "uv" else "pip"
        if command[2] == "uv":
            own = command[-1] == backend or "--dry-run" in command
            assert own == ("--torch-backend" in command)
            assert (env["UV_DEFAULT_INDEX"], env["UV_INDEX"]) == ("https://a.test/simple", "file:///b c")
            assert env["UV_FIND_LINKS"] == "/d,/e"
            kind = "dry run" if "--dry-run" in command else "uv with torch's index" if own else "uv"
        calls.append(kind)
        return SimpleNamespace(returncode=kind in failing, stdout=CONFIGURED, stderr="error: no\n  cause: no address\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("TORCH", build or "")
    for name in install.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    assert install.install(["-r", "requirements.txt"]) == 0
    assert calls[-1] == last
    assert capsys.readouterr().err == said


def test_unknown_build_of_torch_is_refused(monkeypatch):
    monkeypatch.setenv("TORCH", "rocm")
    with pytest.raises(SystemExit, match="TORCH must be one of auto, cpu, cuda, not 'rocm'"):
        install.install([])


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_installs_pinned_versions_for_tests_in_any_folder(tmp_path):
    folder = tmp_path / "a b"
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    python = folder / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho "$TORCH:" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    command = ["make", "TORCH=cpu", ".venv/.run", ".venv/.dev"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("cpu: ")] == [
        "cpu: -m tools.install -r requirements.txt",
        "cpu: -m tools.install -r requirements-dev.txt -c constraints.txt",
    ]


@pytest.fixture
def program(wheel, tmp_path) -> Path:
    """The installed program, in an environment in which nothing can be read from this checkout's page and package."""
    venv.create(tmp_path / "env")
    python = next((tmp_path / "env").glob("[Bbs]*/python*"))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    places = tuple(str(ROOT / name) for name in ("app", "assets", "d2sd"))
    code = f"import sys; sys.addaudithook(lambda event, at: 1 / (event != 'open' or not str(at[0]).startswith({places!r})))"
    (site,) = {path.parent.parent for path in (tmp_path / "env").rglob("d2sd/__main__.py")}
    (site / "own.pth").write_text(f"{get_path('purelib')}\n{code}\n", encoding="utf-8")
    return python.parent / "d2sd-explorer"


def test_installed_page_opens_without_the_checkout(program, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GRADIO_SERVER_PORT", "GRADIO_SHARE")}
    command = [program, "--port", str(port), "--host", "localhost"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, encoding="utf-8") as served:
        try:
            assert any(f"http://localhost:{port}" in line for line in served.stdout)
            assert PageClient(f"http://localhost:{port}").get("/")[0] == 200
        finally:
            served.kill()


def test_wheel_takes_at_most_75_megabytes(wheel):
    """The weights' packed size is computed from samples, since packing takes long."""
    weights = [path.read_bytes() for path in (ROOT / "assets" / "models").rglob("*.safetensors")]
    samples = [data[at : at + (1 << 16)] for data in weights for at in range(1 << 19, len(data), 1 << 20)]
    share = sum(len(zlib.compress(sample)) for sample in samples) / sum(map(len, samples))
    assert wheel.stat().st_size + share * sum(map(len, weights)) < 75e6
