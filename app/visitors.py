"""The address of the page, whether the page is public, and the removal of local paths from sentences."""

from __future__ import annotations

import os
import re
import socket
from ipaddress import ip_address
from typing import Any

from d2sd import InputError

EXAMPLE = "d2sd app --host localhost --port 8123, or PORT=8123 make run"
_PATH = re.compile(r"""(?<![\w/.:])(?:[A-Za-z]:)?[/\\](?:[^\s/\\:'"]+[/\\])+([^\s/\\:'"]*)""")


def _variable(*names: str) -> str:
    """Returns the value of the first of these environment variables that is set; without one, ""."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def host() -> str:
    """Returns the name or address that the page listens on, from Gradio's own variable or from ``HOST``."""
    return _variable("GRADIO_SERVER_NAME", "HOST") or "127.0.0.1"


def listen_options() -> dict[str, Any]:
    """Returns host and, if set, port for ``launch``, from Gradio's own variables or from ``HOST`` and ``PORT``.

    Raises ``InputError`` if the page cannot listen there. Gradio alone would silently choose another port.
    """
    name, port = host(), _variable("GRADIO_SERVER_PORT", "PORT")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 2**16):
        raise InputError(f"the port must be a number from 1 to 65535, not {port[:40]!r}; for example {EXAMPLE}")
    try:
        family, *_, address = socket.getaddrinfo(name.strip("[]"), int(port or 0), type=socket.SOCK_STREAM)[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # create_server adds the address
        raise InputError(
            f"the page cannot listen on {name}{port and f':{port}'}: {reason}; choose another address: {EXAMPLE}"
        ) from None
    return {"server_name": name, **({"server_port": int(port)} if port else {})}


def public() -> bool:
    """Returns whether people other than the owner of this machine may visit the page. Such visitors may not name folders or hub
    ids.

    True on a Hugging Face Space, with a share link of Gradio, and on any address except loopback. ``FOLDERS=allow`` makes it
    False. ``FOLDERS=refuse`` makes it True, for a page on the loopback address behind a proxy.
    """
    folders = os.environ.get("FOLDERS", "").strip().lower()
    if folders in ("allow", "refuse"):
        return folders == "refuse"
    shared = "SPACE_ID" in os.environ or os.environ.get("GRADIO_SHARE", "").strip().lower() == "true"
    return shared or not _loopback(host())


def _loopback(name: str) -> bool:
    try:
        return ip_address(name.strip("[] ")).is_loopback
    except ValueError:
        return name.strip().lower() == "localhost"


def without_paths(sentence: str) -> str:
    """Returns a sentence; on a public page, with each local path reduced to its last part."""
    return _PATH.sub(r"…/\1", sentence) if public() else sentence
