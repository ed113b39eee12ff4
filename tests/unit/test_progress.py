"""Progress in a file: plain lines, none of them written over."""

from __future__ import annotations

import subprocess
from pathlib import Path

import d2sd
from d2sd.trace import progress as module
from d2sd.trace.progress import progress


def test_a_long_job_prints_lines_where_stderr_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    bar = progress(range(3), desc="texts", unit="text")
    for number in bar:
        bar.set_postfix({"loss": number}, refresh=False)
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "\r" not in err
    lines = err.splitlines()
    assert [line.partition(",")[0] for line in lines[:4]] == [f"texts: {n} of 3" for n in range(4)]
    assert lines[2].endswith("loss=0") or lines[2].endswith("loss=1")


def test_a_short_job_prints_nothing_there(capsys):
    assert list(progress(range(3), desc="texts", leave=False)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    list(progress(range(3), desc="texts"))
    assert "100%" in capsys.readouterr().err


def test_every_command_shows_its_progress_so():
    found = subprocess.run(
        ["grep", "-rlE", r"^from tqdm|^import tqdm", str(Path(d2sd.__file__).parent)], capture_output=True, text=True
    ).stdout
    assert [Path(path).name for path in found.split()] == ["progress.py"]
