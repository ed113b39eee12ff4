"""Windows, macOS and ARM, simulated: without the calls and files that only Linux or Unix has."""

from __future__ import annotations

import ast
import ctypes
import os
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import app
from app import api, machine, visitors
from d2sd import load_trace
from d2sd.__about__ import HOME
from d2sd.__main__ import main
from d2sd.bench.provenance import circumstances
from d2sd.costs.kept import processor
from d2sd.train.features import feature_bytes
from tests.page_client import PageClient, served

# missing on Windows
CALLS = {
    "chown", "fchmod", "fork", "forkpty", "geteuid", "getgid", "getloadavg", "getuid", "killpg", "mkfifo", "nice", "posix_spawn", "pread",
    "sched_getaffinity", "sched_setaffinity", "sendfile", "setsid", "statvfs", "sysconf", "uname", "wait", "waitid", "SIGALRM", "SIGHUP",
    "SIGKILL", "SIGUSR1", "AF_UNIX",
}  # fmt: skip
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
PACKAGES = [Path(app.__file__).parent, HOME / "d2sd"]


@pytest.fixture
def windows(monkeypatch):
    for name in ("fork", "getloadavg", "getuid", "killpg", "mkfifo", "sched_getaffinity", "sysconf", "uname"):
        monkeypatch.delattr(os, name)
    opened, library = Path.open, ctypes.CDLL

    def absent(path, *arguments, **options):
        if path.parts[:2] in (("/", "proc"), ("/", "sys"), ("/", "dev")):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return opened(path, *arguments, **options)

    def load(name, *arguments, **options):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        return library(name, *arguments, **options)

    monkeypatch.setattr(Path, "open", absent)
    monkeypatch.setattr(ctypes, "CDLL", load)


def test_calls_of_unix_are_guarded():
    for path in (path for folder in PACKAGES for path in folder.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}  # as in hasattr(os, "getloadavg")
        for node in nodes:
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "signal", "socket"):
                assert node.attr not in CALLS - texts, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not {getattr(node, "module", None), *(name.name for name in node.names)} & MODULES, path


def test_page_and_commands_work_without_calls_of_unix(windows, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    machine.leave_a_core()
    machine.release_memory()
    assert machine.memory() > 0
    assert feature_bytes(torch.device("cpu"))[1] > 0
    with served() as page:
        assert PageClient(page.address).get("/")[0] == 200
        assert api.generate("One day, a cat", max_new_tokens=8)["totals"]["tokens"] == 8
    out = tmp_path / "ä 1.jsonl"
    assert main(["generate", "--prompt", "é", "--max-new-tokens", "8", "--trace", str(out)]) == 0
    assert len(load_trace(out).token_ids) == 8
    target = SimpleNamespace(device=torch.device("cpu"), numbers="float32")
    assert circumstances(target, [])["hardware"]["load_average"] is None


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("5000", "2000", 3000), ("1000", "2000", 0), ("max", "2000", 9000), ("99999", "0", 9000)],
)
def test_memory_of_container_is_the_rest_of_its_limit(monkeypatch, limit, used, free):
    read = {"/sys/fs/cgroup/memory.max": limit, "/sys/fs/cgroup/memory.current": used}
    monkeypatch.setattr(Path, "read_text", lambda path, **_: read[path.as_posix()])
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=9000))
    assert machine.memory() == free


def test_processor_without_model_name_is_named_by_its_architecture(monkeypatch):
    for lines, name in (("processor\t: 0\nCPU part\t: 0xd0c\n", "aarch64"), ("model name\t: Zen\n", "Zen")):
        monkeypatch.setattr(Path, "read_text", lambda *_, lines=lines, **__: lines)
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        assert processor() == name


def test_taken_port_is_found_without_sharing_of_addresses(monkeypatch):
    """On Windows, a program with ``SO_REUSEADDR`` can take the port of another program."""
    options = []
    with monkeypatch.context() as patched:  # pytest itself reads os.name
        patched.setattr(os, "name", "nt")
        patched.setattr(visitors.socket.socket, "setsockopt", lambda _, *option: options.append(option))
        visitors.listen_options()
    assert visitors.socket.SO_REUSEADDR not in {name for _, name, *_ in options}
