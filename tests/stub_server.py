"""A local HTTP server whose replies a function gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@contextmanager
def stub_server(answer: Callable[[str, Any], Any]) -> Iterator[str]:
    """Runs a server and yields its address.

    answer: maps a path and the JSON sent to it (None for GET) to the JSON of the reply, to its bytes, or to a status code.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply = answer(self.path, json.loads(sent) if sent else None)
            if isinstance(reply, int):
                self.send_response(reply)
                self.send_header("Location", "/v1/models")  # if it is a redirect
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
