"""Calls without the page's scripts: wrong values, sizes, closed addresses, and windows that are closed."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from threading import Event

import gradio as gr
import pytest

from app import gradio_internals, guard, presets
from d2sd.trace.run import RecordedRun
from tests.page_client import PATIENCE, Window

WRONG = [
    5, -1.5, 10**400, True, [], {}, [[]], {"path": "/etc/passwd"}, "x", "\ud800", "x" * 300_000, [5], [{"a": 1}], ["\ud800"],
    {"path": "http://127.0.0.1:1/x", "meta": {"_type": "gradio.FileData"}}, {"path": 5}, [None], "/etc/passwd",
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, float("nan"), float("inf"),
]  # fmt: skip


def quick(client):
    """Returns the calls outside the queue, which are answered immediately."""
    return [c for c in client.calls if not c["queue"] and c["backend_fn"]]


def test_gradio_queue_sleep_intervals_are_raised(demo):
    """The attributes are private. If Gradio renames them, an idle page keeps 5% of a core busy."""
    fresh = gr.Blocks().queue()._queue
    for name in ("sleep_when_free", "progress_update_sleep_when_free"):
        assert getattr(demo._queue, name) > getattr(fresh, name)


def test_call_with_wrong_value_is_one_sentence(client, caplog, capfd):
    caplog.set_level(logging.INFO)
    window, tried = Window(client), 0
    for call in quick(client):
        right = client.values(call)
        for place in range(len(right)):
            for value in WRONG[tried % 12 :: 12]:  # one or two per argument
                wrong = [*right[:place], value, *right[place + 1 :]]
                status, answer = window.at_once(call, wrong)
                assert status in (200, 400, 422, 500)
                if status == 500:
                    assert answer["error"].endswith("."), (call, value, answer)
            tried += 1
        for values in ([], [*right, 1], None, "x")[tried % 2 :: 2]:
            window.at_once(call, values)  # type: ignore[arg-type]
        for event in WRONG[tried % 9 :: 9]:
            status, answer = window.at_once(call, right, event)
            assert status == 200 or answer["error"].endswith("."), (call, event, answer)
    assert tried > 30
    assert "Traceback" not in "".join(capfd.readouterr())
    assert not [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]


def test_queued_call_with_wrong_value_is_one_sentence(client, capfd):
    work = client.then(client.call("run", "click"))
    for name, value in (("prompt", {}), ("model", 5), ("gamma", "x"), ("gamma-2", 10**400), ("branches", [])):
        values = client.values(work, **{name: value})
        assert values != client.values(work)
        *_, done = [m for m in Window(client).queued(work, values) if m.get("output")]
        assert done["success"] is False
        assert done["output"]["error"].endswith(".")
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("button", ["run", "start-race"])
def test_last_queue_message_contains_problem_sentence(client, button):
    """Gradio's client may lose the problem if the last message comes without it."""
    done = [m for m in Window(client).run(button, prompt=" ") if m["msg"].startswith("process_")][-1]
    assert done["msg"] == "process_completed"
    assert done["success"]
    assert "is empty" in json.dumps(done["output"]["data"])


def test_malformed_request_bodies_are_refused(client, capfd):
    for body in (b"", b"[", b"[" * 500_000, b"{}", b"null", b'{"data": 5, "fn_index": 0}', b'{"data": [], "fn_index": "x"}',
                 b'{"data": [], "fn_index": 99999, "session_hash": "x"}', b"\xff"):  # fmt: skip
        for path in ("/gradio_api/run/predict", "/gradio_api/queue/join", "/gradio_api/component_server"):
            assert client.post(path, body)[0] in (400, 404, 422)
    status, answer = client.post("/gradio_api/component_server", b'{"component_id": 99999, "fn_name": "x", "data": 1}')
    assert status == 400
    assert json.loads(answer)["detail"].endswith(".")
    assert "Traceback" not in capfd.readouterr().err


def test_call_and_upload_sizes_are_limited(client, monkeypatch):
    assert client.post("/gradio_api/run/predict", b" " * (guard.MAX_CALL_BYTES + 1))[0] == 413
    monkeypatch.setattr(guard, "MAX_UPLOAD_BYTES", 1000)
    assert client.upload("a.jsonl", bytes(2000))[0] == 413
    assert client.upload("a.jsonl", bytes(10))[0] == 200


def sent_in_parts(demo, path: str, *parts: bytes) -> tuple[int, bytes]:
    """Returns status and body of the answer to a request without a Content-Length."""
    connection = HTTPConnection(demo.server_name, demo.server_port, timeout=PATIENCE)
    with closing(connection):
        connection.request("POST", path, iter(parts), {"Content-Type": "application/json"}, encode_chunked=True)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_large_call_without_length_is_refused_as_too_large(demo, client):
    call = quick(client)[0]
    body = json.dumps({"data": client.values(call), "fn_index": call["id"], "session_hash": "parts"}).encode()
    half = b" " * (guard.MAX_CALL_BYTES // 2)
    assert sent_in_parts(demo, "/gradio_api/run/predict", half, body)[0] == 200
    status, answer = sent_in_parts(demo, "/gradio_api/run/predict", half, half, body)
    assert status == 413
    assert "at most 1 MiB" in json.loads(answer)["detail"]


@pytest.mark.parametrize(
    "path",
    ["file={path}", "file={path}?x", "file/{path}", "file=app.py", "file=/etc/passwd", "proxy=http://127.0.0.1:1/",
     "deep_link", "monitoring", "monitoring/summary", "run-history/buckets", "stream/a/1/2/playlist.m3u8"],
)  # fmt: skip
def test_unneeded_gradio_addresses_are_closed(client, path):
    status, there = client.upload("secret.jsonl", b"secret")
    assert status == 200
    for prefix in ("/gradio_api/", "/"):
        status, body = client.get(prefix + path.format(path=there))
        assert status in (403, 404, 405)
        assert b"secret" not in body


def test_uploaded_file_of_another_window_is_refused(client, tmp_path):
    _, there = client.upload("mine.jsonl", b'{"event":"Header"}')
    folder, name = there.rsplit("/", 1)
    call = client.call("open-trace", "upload")
    own = tmp_path / "own.jsonl"
    own.write_text("secret")
    for path in (f"{folder[:-1]}0/{name}", f"{folder}/../{name}", str(own), folder, "/etc/passwd"):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        *_, done = [m for m in Window(client).queued(call, client.values(call, open_trace=file)) if m.get("output")]
        assert str(tmp_path) not in str(done)
        assert "secret" not in str(done)
        assert done["output"].get("error") or "was not opened" in str(done["output"]["data"])


def test_closed_window_state_is_freed(client, demo, monkeypatch):
    gc.collect()  # collect older garbage first: pytest keeps the frames in which it warns
    monkeypatch.setattr(guard, "SECONDS_KEPT", 0.1)
    monkeypatch.setenv("GRADIO_HEARTBEAT_INTERVAL", "0.2")
    window = Window(client)
    window.stay()
    _, there = client.upload("x.jsonl", "\n".join([*presets.opening().lines(), ""]).encode())
    call = client.call("open-trace", "upload")
    list(window.queued(call, client.values(call, open_trace={"path": there, "meta": {"_type": "gradio.FileData"}})))
    kept = demo.app.state_holder.session_data[window.hash]
    shown = [s.shown for s in kept.state_data.values() if hasattr(s, "shown") and isinstance(s.shown, RecordedRun)]
    gone = [weakref.ref(s) for s in (kept, *kept.state_data.values()) if hasattr(s, "__weakref__")]
    assert any("".join(s.lines()) for s in shown)
    del kept, shown
    forgotten, forget = Event(), guard.forget
    monkeypatch.setattr(guard, "forget", lambda *which: forget(*which) or which[0] != window.hash or forgotten.set())
    window.leave()
    forgotten.wait()
    assert window.hash not in demo.app.state_holder.session_data
    gc.collect()
    assert not [g for g in gone if g() is not None]


def test_window_data_kept_for_two_minutes_after_last_visit(monkeypatch):
    timers, forgotten = [], []
    monkeypatch.setattr(guard, "forget", lambda window, _: forgotten.append(window))
    scope = {"type": "http", "method": "GET", "path": "/gradio_api/heartbeat/w", "headers": [], "app": object()}

    class Timer:
        def __init__(self, seconds, call, *arguments):
            self.seconds, self.call, self.cancelled = seconds, partial(call, *arguments), False
            timers.append(self)

        def cancel(self):
            self.cancelled = True

    async def visited(*_):
        assert all(timer.cancelled for timer in timers)  # no timer runs while the window is open

    async def visits():
        watch = guard.Guard(visited, Timer)
        await watch(scope, None, None)
        await watch(scope, None, None)
        first, second = timers
        assert (first.cancelled, second.cancelled, second.seconds) == (True, False, guard.SECONDS_KEPT)
        second.call()
        assert forgotten == ["w"]

    with ThreadPoolExecutor() as apart:  # Playwright's event loop may run in this thread
        apart.submit(asyncio.run, visits()).result()


def test_queue_timer_stops_once_run_begins(client):
    window, first = Window(client), client.call("run", "click")
    tick = client.ticked(first).call
    asked = {"prompt": "One day", "max_tokens": 1}
    stopped = {"__type__": "update", "active": False}
    window.at_once(first, client.values(first, **asked))
    early = window.at_once(tick, client.values(tick))[1]["data"]  # before the server has queued the run
    work = client.then(first)
    list(window.queued(work, client.values(work, **asked)))
    late = window.at_once(tick, client.values(tick))[1]["data"]
    assert not any(stopped.items() <= part.items() for part in early)
    assert any(stopped.items() <= part.items() for part in late)


def test_gradio_pin_matches_read_in_version():
    """If it fails, check ``gradio_internals`` and ``guarded_blocks`` against Gradio's source, then set ``READ_IN``."""
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"gradio=={gradio_internals.READ_IN}" in pins
