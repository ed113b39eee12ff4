"""Sends prompts to a running server and reads the counts and times in its replies.

llama.cpp sends every token with running totals (``timings_per_token``), so every step is known. vLLM reports steps if it was
started with ``--per-request-spec-decode-metrics detailed``; SGLang reports a histogram. Proxies are not used, and redirects are not
followed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from typing import Any
from urllib import error, request
from urllib.parse import urlsplit

import orjson
from msgspec import Struct

from d2sd.errors import InputError, require
from d2sd.logs.replies import Fields, convert, first_of, read_llamacpp, read_sglang, read_stream, read_vllm, record_in
from d2sd.logs.steps import Request
from d2sd.trace.events import Count
from d2sd.trace.trace import MAX_LINE_BYTES

MAX_REPLY = 64 * 2**20
TIMEOUT = 600.0  # seconds


class _Refuse(request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Returns None, so that no redirect is followed: it could lead to another machine."""


class Piece(Struct):
    """A token of the prompt, from llama.cpp's ``/tokenize``."""

    id: Count
    piece: Any


class Server:
    def __init__(self, address: str, allow_remote: bool = False):
        """address: URL, with or without /v1. Raises ``InputError`` if it is invalid, or remote and ``allow_remote`` is false."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InputError(f"{address[:200]} is not the address of a server; use one like http://127.0.0.1:8000")
        require(
            allow_remote or _is_loopback(parts.hostname),
            f"{parts.hostname} is another machine; to allow it, add --allow-remote to the command",
        )
        self.address = address.rstrip("/").removesuffix("/v1")
        self._open = request.build_opener(request.ProxyHandler({}), _Refuse).open

    def request(self, path: str, data: Fields | None = None) -> Fields:
        """Returns the server's JSON reply. Raises ``InputError`` if there is none.

        path: path of the URL, after the server's address.
        data: content of a POST request; None: a GET request is sent.
        """
        return record_in(b"".join(self.lines(path, data)), f"{self.address}{path}")

    def lines(self, path: str, data: Fields | None) -> Iterator[bytes]:
        """Yields the lines of the reply to a request. Arguments and errors are those of ``request``."""
        body, size = None if data is None else orjson.dumps(data), 0
        message = request.Request(self.address + path, body, {"Content-Type": "application/json"})
        try:
            with self._open(message, timeout=TIMEOUT) as reply:
                while size <= MAX_REPLY and (line := reply.readline(MAX_LINE_BYTES)):
                    size += len(line)
                    yield line
        except error.HTTPError as problem:
            text = problem.read(300).decode("utf-8", "replace")
            raise InputError(f"{self.address}{path} answered {problem.code}: {text}") from None
        except (OSError, ValueError, HTTPException) as problem:
            raise InputError(
                f"{self.address} {'broke off its reply' if size else 'does not answer'} ({problem})"
            ) from None
        require(size <= MAX_REPLY, f"{self.address}{path}: the reply is larger than {MAX_REPLY // 2**20} MiB")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def served_model(server: Server) -> str:
    """Returns the first model that the server lists under OpenAI's ``/v1/models``. Raises ``InputError`` if it lists none."""
    model = first_of(server.request("/v1/models"), "data").get("id")
    require(model, f"{server.address}/v1/models: no model is listed")
    return str(model)


ENGINES = ("vllm", "sglang", "llamacpp")


def complete(server: Server, engine: str, prompt: str, tokens: int) -> Request:
    """Requests a greedy completion. Returns it with the figures that the engine reports.

    engine: one of ``ENGINES``.
    tokens: maximum number of output tokens.

    Raises ``InputError`` if the server does not answer, or does not return figures of drafts.
    """
    given = {"prompt": prompt}
    if engine == "vllm":
        options = {"model": served_model(server), "max_tokens": tokens, "temperature": 0, "return_token_ids": True}
        return read_vllm(server.request("/v1/completions", options | given) | given, "reply")
    if engine == "sglang":
        options = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens}}
        return read_sglang(server.request("/generate", options) | given, "reply")
    options = {
        "n_predict": tokens, "temperature": 0, "stream": True, "timings_per_token": True, "return_tokens": True, "cache_prompt": False
    }  # fmt: skip
    tokenized = server.request("/tokenize", {"content": prompt, "add_special": True, "with_pieces": True})
    pieces = []
    with suppress(InputError):  # older servers return no pieces
        pieces = convert(tokenized.get("tokens"), list[Piece], "tokens")
    lines = (line for line in enumerate(server.lines("/completion", options | given), 1) if line[1].strip())
    reply = next((reply for _, reply in read_stream(lines)), {})
    completed = read_llamacpp(reply | given | {"prompt_token_ids": [p.id for p in pieces]}, "reply")
    return replace(completed, prompt_pieces=tuple(str(p.piece) for p in pieces))
