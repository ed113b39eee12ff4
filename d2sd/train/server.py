"""Responses from a server with OpenAI's API (vLLM, SGLang, llama.cpp, …) that runs the target."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from d2sd.errors import InputError, first_line
from d2sd.train.settings import RegenerateConfig
from d2sd.train.writer import Request

SECONDS = 600  # until an answer must have come
MAX_BYTES = 16 * 2**20  # of an answer


class Server:
    """An OpenAI-compatible endpoint. It continues token ids (``/v1/completions``), so the chat template is that of the target here."""

    def __init__(self, url: str):
        """url: such as http://localhost:8000 or http://localhost:8000/v1. Raises ``InputError`` if no model answers there."""
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise InputError(f"{url} is no address of a server; give one like http://localhost:8000/v1")
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1"
        served = self._ask("models")
        try:
            self.model = str(served["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise InputError(f"{self._url}/models names no model; is this a server with OpenAI's API?") from None

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.loads(answer.read(MAX_BYTES))
        except urllib.error.HTTPError as error:
            said = error.read(500).decode("utf-8", "replace")
            raise InputError(
                f"{self._url}/{path} answered {error.code}: {said[:200].strip() or error.reason}"
            ) from None
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot reach {self._url}/{path}: {first_line(error)}; is the server running there?"
            ) from None

    def write(
        self, requests: Sequence[Request], config: RegenerateConfig, tokenizer: Any
    ) -> Iterator[tuple[Request, list[int]]]:
        """Yields requests with the server's token ids after each prompt, ``config.batch_size`` of them at a time.

        Where a server returns no ids, its text is tokenised, and the end token added where the text ended by itself.
        """

        def one(request: Request) -> tuple[Request, list[int]]:
            body = {
                "model": self.model, "prompt": request.prompt, "max_tokens": config.max_new_tokens, "return_token_ids": True,
                "temperature": 0.0 if request.greedy else config.temperature, "seed": config.seed + request.number,
            }  # fmt: skip
            found = self._ask("completions", body)
            try:
                choice = found["choices"][0]
                ids, text, ended = choice.get("token_ids"), str(choice["text"]), choice.get("finish_reason") == "stop"
            except (KeyError, IndexError, TypeError, AttributeError):
                raise InputError(
                    f"{self._url}/completions answered without choices; is this a server with OpenAI's API?"
                ) from None
            size = len(tokenizer)
            if not isinstance(ids, list) or not all(isinstance(n, int) and 0 <= n < size for n in ids):
                ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
            ids = ids[: config.max_new_tokens]
            if not ids or (ended and ids[-1] != tokenizer.eos_token_id):
                ids = [*ids, tokenizer.eos_token_id]
            return request, ids

        with ThreadPoolExecutor(config.batch_size) as pool:
            yield from pool.map(one, requests)
