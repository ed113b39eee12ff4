"""What ``d2sd`` exports, at run time and for type checkers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import d2sd

ROOT = Path(d2sd.__file__).parent.parent


def test_every_public_name_is_there_and_listed():
    assert all(getattr(d2sd, name) is not None for name in d2sd.__all__)
    assert set(dir(d2sd)) == set(d2sd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'save_trace'"):
        d2sd.save_trace  # type: ignore[attr-defined]


def test_a_type_checker_knows_the_public_names_and_no_others(tmp_path):
    use = tmp_path / "use.py"
    use.write_text("import d2sd\n" + "".join(f"d2sd.{name}\n" for name in (*d2sd.__all__, "save_trace")))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=skip",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--config-file=",
    ]
    done = subprocess.run(
        [*command, str(use), str(ROOT / "d2sd" / "__init__.py")], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    (error,) = [line for line in done.stdout.splitlines() if "error" in line and not line.startswith("Found")]
    assert 'Module has no attribute "save_trace"' in error
    assert (ROOT / "d2sd" / "py.typed").exists()
