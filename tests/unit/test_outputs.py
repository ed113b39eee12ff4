"""Outputs of commands: no file of the user is deleted, or replaced without --force, and no two commands write one output."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from d2sd import load_trace
from d2sd.__main__ import COMMANDS, main
from d2sd.cli.outputs import held
from tests.unit.test_logs import VLLM as WITH_STEPS
from tests.unit.test_pasted_logs import VLLM

DATA = Path(__file__).parents[1] / "data"
OLD = b"of the user's"
BEING_WRITTEN = "is being written by another command"


def parsers(command):
    """The words of a command and of its subcommands, and their parsers."""
    parser = argparse.ArgumentParser()
    import_module(f"d2sd.cli.{command}").add_arguments(parser)
    left = [((command,), parser)]
    for words, one in left:
        subs = [action for action in one._actions if isinstance(action, argparse._SubParsersAction)]
        left += [((*words, name), sub) for action in subs for name, sub in action.choices.items()]
    return left


@pytest.mark.parametrize("command", COMMANDS)
def test_writing_option_is_declared_as_output(command):
    for _, one in parsers(command):
        outputs = one.get_default("outputs") or {}
        for action in one._actions:
            words = f"{' '.join(action.option_strings)} {action.metavar}: {action.help}"
            writes = re.search(r"(?<!held)-out\b|\bOUT[^:/]*:|(?<!server )\bwrite\b", words)
            assert not (writes and action.option_strings and action.nargs != 0) or action.dest in outputs, words


@pytest.fixture
def trace(tmp_path):
    """A recorded run in the user's folder."""
    path = tmp_path / "run.jsonl.gz"
    shutil.copyfile(DATA / "schema-1.jsonl.gz", path)
    return path


def refused(capsys, *command):
    assert main(list(map(str, command))) == 2
    return capsys.readouterr().err


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_trace_import_of_totals_writes_and_deletes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    log, kept = Path("server.log"), Path("server.trace.jsonl")
    log.write_text(VLLM)
    kept.write_bytes(OLD)
    assert main(["trace", "import", "server.log", "--json"]) == 0
    imported = json.loads(capsys.readouterr().out)
    assert (imported["file"], len(imported["totals"])) == (None, 1)
    for more in (["-o", "new.jsonl"], ["-o", "server.trace.jsonl", "--force"]):
        assert main(["trace", "import", "server.log", *more]) == 0
        assert f"{more[1]} was not written: no request in this log has steps" in capsys.readouterr().err
    assert (kept.read_bytes(), log.read_text()) == (OLD, VLLM)
    assert names(tmp_path) == ["server.log", "server.trace.jsonl"]


@pytest.mark.parametrize("given", [[], ["-o", "served.trace.jsonl"]])
def test_trace_import_refuses_file_that_is_there(tmp_path, monkeypatch, capsys, given):
    monkeypatch.chdir(tmp_path)
    Path("served.json").write_text(json.dumps(WITH_STEPS))
    Path("served.trace.jsonl").write_bytes(OLD)
    said = refused(capsys, "trace", "import", "served.json", *given)
    assert "already exists; name another file, or replace it with --force" in said
    assert Path("served.trace.jsonl").read_bytes() == OLD
    assert main(["trace", "import", "served.json", "--force", *given]) == 0
    assert main(["trace", "validate", "served.trace.jsonl"]) == 0


COMMANDS_WITH_INPUT = {
    "to-html": "trace to-html {trace} -o {out}",
    "to-graphml": "trace to-graphml {trace} -o {out}",
    "calibrate": "calibrate --traces {trace} --html {out}",
    "compare": "compare --a {trace} --b {trace} --html {out}",
    "doctor": "doctor --log {trace} --out {out}",
    "folder": "calibrate --traces {folder} --html {out}",
}


@pytest.mark.parametrize("way", ["same", "link", "hard link", "from elsewhere"])
@pytest.mark.parametrize("command", COMMANDS_WITH_INPUT)
def test_output_that_is_input_is_refused(trace, tmp_path, monkeypatch, capsys, command, way):
    before, out = trace.read_bytes(), tmp_path / "out"
    if way == "same":
        out = trace
    elif way == "from elsewhere":
        monkeypatch.chdir(tmp_path / "..")
        out = Path(tmp_path.name) / "." / trace.name
    else:
        (out.symlink_to if way == "link" else out.hardlink_to)(trace)
    asked = COMMANDS_WITH_INPUT[command].format(trace=trace, folder=tmp_path, out=out)
    assert "is an input of this command" in refused(capsys, *asked.split(), "--force")
    assert trace.read_bytes() == before


def test_output_is_replaced_with_force_only_when_complete(trace, tmp_path, monkeypatch, capsys):
    out = tmp_path / "page.html"
    out.write_bytes(OLD)
    asked = ["trace", "to-html", trace, "-o", out]
    assert "replace it with --force" in refused(capsys, *asked)
    with monkeypatch.context() as patch:
        patch.setattr("d2sd.figures.viewer.standalone_page", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main([*map(str, asked), "--force"])
    assert out.read_bytes() == OLD
    assert main([*map(str, asked), "--force"]) == 0
    assert out.read_bytes() != OLD
    assert names(tmp_path) == ["page.html", "run.jsonl.gz"]


def test_output_to_device_missing_folder_or_two_at_once(trace, tmp_path, capsys):
    assert main(["trace", "to-graphml", str(trace), "-o", os.devnull]) == 0
    missing = tmp_path / "none" / "page.html"
    assert "there is no folder" in refused(capsys, "trace", "to-html", trace, "-o", missing)
    assert "it is a folder" in refused(capsys, "trace", "to-html", trace, "-o", tmp_path)
    both = tmp_path / "both"
    asked = ["calibrate", "--traces-out", both, "--html", both]
    assert "named for two outputs" in refused(capsys, *asked)


def test_calibrate_folder_must_be_empty(tmp_path, capsys):
    (tmp_path / "001.jsonl.gz").write_bytes(OLD)
    for more in ((), ("--force",)):
        said = refused(capsys, "calibrate", "--traces-out", tmp_path, *more)
        assert said.endswith("is not empty; name another folder\n")
    assert (tmp_path / "001.jsonl.gz").read_bytes() == OLD


@pytest.mark.parametrize(
    "stage",
    [
        "pair --target x --out {folder}",
        "eagle3 --target x --responses r --out {folder}",
        "recipe smollm2 --out {folder}",
        "regenerate --target x --prompts p --out {folder}/notes",
    ],
)
def test_train_refuses_output_that_it_did_not_begin(tmp_path, capsys, stage):
    (tmp_path / "notes").write_bytes(OLD)  # without a line break, so resuming could take it for a cut line
    said = refused(capsys, "train", *stage.format(folder=tmp_path).split())
    assert "contains something that this command did not write" in said


def test_train_refuses_start_as_output(tmp_path, capsys):
    (tmp_path / "vp").mkdir(parents=True)
    asked = ["train", "pair", "--target", "x", "--start", tmp_path / "vp", "--out", tmp_path / "vp"]
    assert "is an input of this command" in refused(capsys, *asked)


HOLDER = """
import sys
from argparse import Namespace
from d2sd.cli.outputs import held
outputs = {path: (True, ("none",)) for path in sys.argv[1:]}
with held(Namespace(argv=["train", "pair", "--out"], outputs=outputs, **{path: path for path in outputs})):
    print("holds", flush=True)
    sys.stdin.read()
"""


def required(parser):
    """Arguments that satisfy a parser, except for its outputs."""
    outputs = parser.get_default("outputs")
    for action in parser._actions:
        if action.required and action.dest not in outputs:
            yield from [*action.option_strings[:1], next(iter(action.choices or "1"))]
    for group in parser._mutually_exclusive_groups:
        yield from [group._group_actions[0].option_strings[0], "1"] if group.required else []


def outputs_of(command):
    """For each output of a command: the words of the command line before the output's path, and a name."""
    for words, one in parsers(command):
        for action in one._actions:
            if action.dest in (one.get_default("outputs") or {}):
                yield [*words, *required(one), action.option_strings[-1]], f"{'-'.join(words)}-{action.dest}"


WRITING = [command for command in COMMANDS if any(one.get_default("outputs") for _, one in parsers(command))]


@pytest.mark.parametrize("command", WRITING)
def test_output_of_another_command_is_refused_until_that_command_is_killed(command, tmp_path, monkeypatch, capsys):
    asked = [(words, str(tmp_path / name)) for words, name in outputs_of(command)]
    ran, module = [], import_module(f"d2sd.cli.{command}")
    monkeypatch.setattr(module, "run", ran.append)
    holder = [sys.executable, "-c", HOLDER, *(path for _, path in asked)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holds\n"
        for words, path in asked:
            said = refused(capsys, *words, path)
            assert f"{path} {BEING_WRITTEN} (d2sd train pair, process {process.pid}, since 20" in said
        process.kill()
    assert (ran, names(tmp_path)) == ([], [])
    for words, path in asked:
        assert main([*words, path]) == 0
    assert (len(ran), names(tmp_path)) == (len(asked), [])


@pytest.mark.parametrize("command", WRITING)
def test_output_that_cannot_be_written_is_refused_at_once(command, monkeypatch, capsys):
    monkeypatch.setattr(import_module(f"d2sd.cli.{command}"), "run", lambda _: pytest.fail("the command ran"))
    for words, _ in outputs_of(command):
        assert "cannot write /proc/none: " in refused(capsys, *words, "/proc/none")


@pytest.mark.parametrize("home", ["home", "file/home"])
@pytest.mark.parametrize(
    ("asked", "out"),
    [("trace import served.json", "served.trace.jsonl"), ("bench gpu --shape tiny", "docs/benchmarks")],
)
def test_output_without_option_is_locked_even_if_cache_is_read_only(tmp_path, monkeypatch, capsys, asked, out, home):
    monkeypatch.chdir(tmp_path)
    Path("served.json").write_text(json.dumps(WITH_STEPS))
    Path("file").touch()
    monkeypatch.setenv("D2SD_HOME", str(tmp_path / home))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with held(argparse.Namespace(argv=["x"], outputs={"out": (True, ("none",))}, out=out)):
        before = names(tmp_path)
        assert f"{out} {BEING_WRITTEN} (d2sd x, process {os.getpid()}" in refused(capsys, *asked.split())
        assert names(tmp_path) == before
    assert not list(tmp_path.rglob("locks/*.txt"))


def test_two_commands_that_generate_at_once_leave_one_whole_trace(tmp_path, capsys):
    prompt, trace = tmp_path / "prompt", tmp_path / "run.jsonl"
    os.mkfifo(prompt)
    first = ["generate", "--prompt-file", str(prompt), "--max-new-tokens", "8", "--trace", str(trace)]
    with subprocess.Popen([sys.executable, "-m", "d2sd", *first], stderr=subprocess.PIPE) as process:
        with prompt.open("w") as file:  # opened when the first command reads its prompt, and then locks its trace
            second = ["generate", "--prompt", "One day", "--trace", trace]
            assert f"d2sd generate --prompt-file, process {process.pid}" in refused(capsys, *second)
            file.write("One day")
        assert b"8 tokens" in process.stderr.read()
    assert process.returncode == 0
    assert len(load_trace(trace).token_ids) == 8


def test_command_without_output_does_not_import_locks():
    code = "from d2sd.__main__ import main; main(['trace', 'stats', sys.argv[1]]); assert 'filelock' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"import sys; {code}", DATA / "schema-1.jsonl.gz"], check=True)
