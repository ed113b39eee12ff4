"""Where the page listens."""

from __future__ import annotations

import os
import socket

from d2sd import InputError

EXAMPLE = "GRADIO_SERVER_PORT=8123 d2sd app, or PORT=8123 make run"


def wanted() -> dict[str, int]:
    """The port for ``launch``, where one is named: Gradio alone would quietly take another one if it is not free.

    Raises ``InputError``.
    """
    host = os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    named = os.environ.get("GRADIO_SERVER_PORT", "").strip()
    if not named:
        return {}
    if not (named.isascii() and named.isdigit() and 0 < int(named[:6]) < 2**16):
        raise InputError(f"the port must be a number from 1 to 65535, not {named[:40]!r}; for example {EXAMPLE}")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), int(named), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise InputError(
            f"the page cannot listen on {host}:{named}: {error.strerror}; choose another port, such as {EXAMPLE}"
        ) from None
    return {"server_port": int(named)}
