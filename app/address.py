"""Where the page listens."""

from __future__ import annotations

import os
import socket
from typing import Any

from d2sd import InputError

EXAMPLE = "PORT=8123 python app.py, or PORT=8123 make run"


def host() -> str:
    """Returns the name or address that the page listens on, from Gradio's own variable or from ``HOST``."""
    return os.environ.get("GRADIO_SERVER_NAME") or os.environ.get("HOST") or "127.0.0.1"


def wanted() -> dict[str, Any]:
    """Host and, where one is named, port for ``launch``, from Gradio's own variables or from ``HOST`` and ``PORT``. Gradio alone
    would quietly take another port if the named one is not free.

    Raises ``InputError``.
    """
    listens = host()
    port = (os.environ.get("GRADIO_SERVER_PORT") or os.environ.get("PORT") or "").strip()
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 2**16):
        raise InputError(f"the port must be a number from 1 to 65535, not {port[:40]!r}; for example {EXAMPLE}")
    try:
        family, kind, _, _, place = socket.getaddrinfo(listens.strip("[]"), int(port or 0), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        at, other = (f"{listens}:{port}", f"port, such as {EXAMPLE}") if port else (listens, "HOST, such as 127.0.0.1")
        raise InputError(f"the page cannot listen on {at}: {error.strerror}; choose another {other}") from None
    return {"server_name": listens, **({"server_port": int(port)} if port else {})}
