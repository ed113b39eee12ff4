"""Prompts sent to a running server: its reply's text, counts and times, as a trace.

llama.cpp sends every token with running totals (``timings_per_token``), so each of its steps is known. vLLM reports them where
it was started with ``--per-request-spec-decode-metrics detailed``, SGLang a histogram. Only the address that was given is
asked: no proxy, no redirect.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import IO, Any
from urllib import error, request
from urllib.parse import urlsplit

import orjson

from d2sd.errors import InputError
from d2sd.trace.logs import engines, llamacpp, sglang
from d2sd.trace.logs.requests import Counts
from d2sd.trace.reader import MAX_LINE_BYTES

MAX_REPLY = 64 * 2**20
SECONDS = 600.0  # that a reply may take


class _Refuse(request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """No redirect is followed: it could lead to another machine."""


class Server:
    """A server by its address."""

    def __init__(self, address: str, allow_remote: bool = False):
        """Raises ``InputError`` for an address that is none, or of another machine where that is not allowed."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InputError(f"{address[:200]} is no server's address; give one like http://127.0.0.1:8000")
        if not allow_remote and not _is_loopback(parts.hostname):
            raise InputError(f"{parts.hostname} is another machine; to ask it, say --allow-remote on the command line")
        self.address = address.rstrip("/")
        self._open = request.build_opener(request.ProxyHandler({}), _Refuse).open

    def ask(self, path: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        """One reply."""
        with self._reply(path, data) as reply:
            raw = reply.read(MAX_REPLY + 1)
        if len(raw) > MAX_REPLY:
            raise InputError(f"{self.address}{path}: the reply is larger than {MAX_REPLY // 2**20} MiB")
        return self._object(raw, path)

    def stream(self, path: str, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The parts of a streamed reply."""
        size = 0
        with self._reply(path, data) as reply:
            while line := reply.readline(MAX_LINE_BYTES):
                size += len(line)
                if size > MAX_REPLY:
                    raise InputError(f"{self.address}{path}: the reply is larger than {MAX_REPLY // 2**20} MiB")
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    yield self._object(line[6:], path)

    def _reply(self, path: str, data: dict[str, Any] | None) -> IO[bytes]:
        body = None if data is None else orjson.dumps(data)
        asked = request.Request(self.address + path, body, {"Content-Type": "application/json"})
        try:
            reply: IO[bytes] = self._open(asked, timeout=SECONDS)
        except error.HTTPError as problem:
            said = problem.read(300).decode("utf-8", "replace")
            raise InputError(f"{self.address}{path} answered {problem.code}: {said}") from None
        except (OSError, ValueError) as problem:
            raise InputError(f"{self.address} does not answer ({problem})") from None
        return reply

    def _object(self, raw: bytes, path: str) -> dict[str, Any]:
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError:
            data = None
        if not isinstance(data, dict):
            raise InputError(f"{self.address}{path}: the reply is no JSON object")
        return data


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def ask_vllm(server: Server, prompt: str, tokens: int) -> Counts:
    """One greedy completion of vLLM, with its ids."""
    models = server.ask("/v1/models").get("data")
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        raise InputError(f"{server.address}/v1/models: it names no model")
    asked = {
        "model": models[0].get("id"), "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True
    }  # fmt: skip
    return engines.read({**server.ask("/v1/completions", asked), "prompt": prompt}, "reply")


def ask_sglang(server: Server, prompt: str, tokens: int) -> Counts:
    """One greedy completion of SGLang, by its own interface."""
    asked = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens}}
    return sglang.read({**server.ask("/generate", asked), "prompt": prompt}, "reply")


def ask_llamacpp(server: Server, prompt: str, tokens: int) -> Counts:
    """One greedy completion of llama.cpp, step by step."""
    asked = {
        "prompt": prompt, "n_predict": tokens, "temperature": 0, "stream": True, "timings_per_token": True,
        "return_tokens": True, "cache_prompt": False,
    }  # fmt: skip
    given = server.ask("/tokenize", {"content": prompt, "add_special": True, "with_pieces": True}).get("tokens")
    parts = [p for p in server.stream("/completion", asked) if isinstance(p.get("timings"), dict)]
    if not parts:
        raise InputError(f"{server.address}/completion: the reply has no timings")
    return llamacpp.streamed(prompt, given if isinstance(given, list) else [], parts)


ENGINES: dict[str, Callable[[Server, str, int], Counts]] = {
    "vllm": ask_vllm,
    "sglang": ask_sglang,
    "llamacpp": ask_llamacpp,
}
