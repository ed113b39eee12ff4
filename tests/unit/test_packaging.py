"""Packaging: declared dependencies, tested versions, and the files in the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

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


def test_constraints_cover_every_requirement():
    tested = {name: next(iter(r.specifier)) for name, r in requirements("constraints.txt").items()}
    for name, wanted in {**requirements("requirements.txt"), **requirements("requirements-dev.txt")}.items():
        assert tested[name].operator == "==", name
        assert tested[name].version in wanted.specifier, name


def test_requirement_bounds_match_tested_versions():
    """Lower bounds are the versions of ``make oldest``; upper bounds exclude releases after ``make newest``."""
    oldest, newest = (
        {name: Version(next(iter(r.specifier)).version) for name, r in requirements(f"constraints-{end}.txt").items()}
        for end in ("oldest", "newest")
    )
    for name, wanted in requirements("requirements.txt").items():
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
