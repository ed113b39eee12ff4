"""A client of the page's HTTP calls without a browser, for tests, campaigns and load."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PATIENCE = 120  # seconds without a byte


@contextmanager
def served() -> Iterator[Any]:
    """Context with the page, served by this process at ``page.address``."""
    from app.layout import build, launch_options

    page: Any = build()
    _, page.address, _ = page.launch(**launch_options(), prevent_thread_lock=True, quiet=True, server_port=None)
    try:
        yield page
    finally:
        page.close(verbose=False)


@dataclass(frozen=True, slots=True)
class Tick:
    """The call that a timer makes, and its interval."""

    call: dict[str, Any]
    seconds: float


class PageClient:
    """Components and calls in the config of the page at ``address``."""

    def __init__(self, address: str):
        self.address = address.rstrip("/")
        config = json.loads(self.get("/config")[1])
        self.components = {part["id"]: part for part in config["components"]}
        self.calls: list[dict[str, Any]] = config["dependencies"]

    def call(self, elem_id: str, event: str, number: int = 0) -> dict[str, Any]:
        """The call that an event of a component makes."""
        ids = [c["id"] for c in self.components.values() if c["props"].get("elem_id") == elem_id]
        return [c for c in self.calls if any(list(t) == [i, event] for t in c["targets"] for i in ids)][number]

    def then(self, call: dict[str, Any]) -> dict[str, Any]:
        """The call that is triggered after ``call``."""
        return next(c for c in self.calls if c.get("trigger_after") == call["id"])

    def ticked(self, call: dict[str, Any]) -> Tick:
        """The timer that a call starts."""
        timer = next(i for i in call["outputs"] if self.components[i]["type"] == "timer")
        (tick,) = (c for c in self.calls if [timer, "tick"] in [list(t) for t in c["targets"]])
        return Tick(tick, self.components[timer]["props"]["value"])

    def values(self, call: dict[str, Any], **asked: Any) -> list[Any]:
        """Inputs of a call: ``asked`` by element id (``_`` for ``-``), otherwise the controls' initial values."""
        by_id = {name.replace("_", "-"): value for name, value in asked.items()}
        parts = [self.components[i] for i in call["inputs"]]
        initial = [0 if p["type"] == "dataset" else p["props"].get("value") for p in parts]
        return [by_id.get(p["props"].get("elem_id") or "", value) for p, value in zip(parts, initial, strict=True)]

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        return self._open(Request(self.address + path))

    def post(self, path: str, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
        """Status and body."""
        return self._open(Request(self.address + path, body, {"Content-Type": kind}))

    def upload(self, name: str, content: bytes) -> tuple[int, Any]:
        """Status, and the path that the server gave the file."""
        border = uuid.uuid4().hex
        head = f'--{border}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
        body = head.encode("utf-8", "replace") + content + f"\r\n--{border}--\r\n".encode()
        status, answer = self.post("/gradio_api/upload", body, f"multipart/form-data; boundary={border}")
        return status, json.loads(answer)[0] if status == 200 else answer

    def _open(self, request: Request) -> tuple[int, bytes]:
        try:
            with urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()


class Window:
    """A browser window: its calls share the state that the server keeps for it."""

    def __init__(self, page: PageClient):
        self.page, self.hash = page, uuid.uuid4().hex[:11]
        self._alive: Any = None
        self._streams = list[Any]()

    def stay(self) -> None:
        """Opens Gradio's heartbeat, as a browser does, until ``leave``."""
        self._alive = urlopen(f"{self.page.address}/gradio_api/heartbeat/{self.hash}", timeout=PATIENCE)
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(Exception):
            while self._alive.read(1):
                pass

    def leave(self) -> None:
        """Closes the heartbeat and all streams of messages."""
        for stream in [*self._streams, *([self._alive] if self._alive is not None else [])]:
            with suppress(Exception):
                stream.fp.raw._sock.shutdown(2)

    def at_once(self, call: dict[str, Any], values: list[Any], event: Any = None) -> tuple[int, dict[str, Any]]:
        """A call outside the queue: status and answer."""
        status, answer = self.page.post("/gradio_api/run/predict", self._body(call, values, event))
        return status, _object(answer)

    def queued(self, call: dict[str, Any], values: list[Any], event: Any = None) -> Iterator[dict[str, Any]]:
        """A call through the queue: yields its messages, with ``process_completed`` last."""
        status, answer = self.page.post("/gradio_api/queue/join", self._body(call, values, event))
        if status != 200:
            yield {"msg": "refused", "status": status, "output": _object(answer)}
            return
        event_id = json.loads(answer)["event_id"]
        url = f"{self.page.address}/gradio_api/queue/data?session_hash={self.hash}"
        with urlopen(url, timeout=PATIENCE) as stream:
            self._streams.append(stream)
            for line in stream:
                if line.startswith(b"data:"):
                    message = json.loads(line[5:])
                    if message.get("event_id") in (event_id, None):
                        yield message
                    if message["msg"] in ("close_stream", "unexpected_error"):
                        return

    def run(self, elem_id: str, **asked: Any) -> list[dict[str, Any]]:
        """Presses a button that counts a request immediately and then works in the queue; returns its messages."""
        request = self.page.call(elem_id, "click")
        self.at_once(request, self.page.values(request, **asked))
        work = self.page.then(request)
        return list(self.queued(work, self.page.values(work, **asked)))

    def _body(self, call: dict[str, Any], values: list[Any], event: Any) -> bytes:
        body = {"data": values, "fn_index": call["id"], "session_hash": self.hash, "event_data": event}
        return json.dumps(body).encode()


def _object(answer: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        parsed = json.loads(answer)
        if isinstance(parsed, dict):
            return parsed
    return {"text": answer[:1000].decode("utf-8", "replace")}
