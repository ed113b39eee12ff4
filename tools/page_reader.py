"""Reads runs of the page like a browser, but draws nothing: ``python -m tools.page_reader ADDRESS TOKENS METHOD``.

For every line on standard input, it starts a run of METHOD with TOKENS tokens, and prints the number of bytes received.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any
from urllib.request import Request, urlopen


class Reader:
    """A simulated browser window, which sends requests to the page's server.

    address: URL of the page, with a slash at its end.
    """

    def __init__(self, address: str, tokens: int, method: str):
        self.address, self.window = address, uuid.uuid4().hex[:11]
        config = json.loads(urlopen(f"{address}config").read())
        props = {part["id"]: part["props"] for part in config["components"]}
        run = next(i for i, p in props.items() if p.get("elem_id") == "run")
        calls = config["dependencies"]
        self.request = next(c for c in calls if [run, "click"] in [list(t) for t in c["targets"]])
        self.work = next(c for c in calls if c.get("trigger_after") == self.request["id"])
        asked: dict[str, Any] = {
            "max-tokens": tokens,
            "method": method,
            "model": "tiny",  # the server times this model's engine
            "chat": False,
            "gamma-2": None,
            "budget": None,
        }
        self.values = [asked.get(props[i].get("elem_id"), props[i].get("value")) for i in self.work["inputs"]]

    def read(self) -> int:
        """Starts a run and reads it to its end. Returns the number of bytes received."""
        window = self.window
        self._post("run/predict", self.request["id"], [None] * len(self.request["inputs"]), window)
        self._post("queue/join", self.work["id"], self.values, window)
        count = 0
        with urlopen(f"{self.address}gradio_api/queue/data?session_hash={window}") as stream:
            for line in stream:
                count += len(line)
                if b"close_stream" in line:
                    break
        return count

    def _post(self, path: str, call: int, data: list[Any], window: str) -> None:
        body = {"data": data, "fn_index": call, "session_hash": window}
        headers = {"Content-Type": "application/json"}
        urlopen(Request(f"{self.address}gradio_api/{path}", json.dumps(body).encode(), headers)).close()


def main() -> None:
    reader = Reader(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    for _ in sys.stdin:
        print(reader.read(), flush=True)


if __name__ == "__main__":
    main()
