"""Whether the page may have visitors other than its owner, and what is then hidden."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address

from app.address import host

_PATH = re.compile(r"""(?<![\w/.:])(?:[A-Za-z]:)?[/\\](?:[^\s/\\:'"]+[/\\])+([^\s/\\:'"]*)""")


def public() -> bool:
    """Whether others than the owner of this machine may be visiting; they may not name folders of it, nor hub ids.

    True on a Hugging Face Space, behind a link that Gradio shares, and on any address but the loopback one. ``FOLDERS=allow``
    lets visitors name them all the same. ``FOLDERS=refuse`` does not, for a page on the loopback address behind a proxy.
    """
    said = os.environ.get("FOLDERS", "").strip().lower()
    if said in ("allow", "refuse"):
        return said == "refuse"
    shared = "SPACE_ID" in os.environ or os.environ.get("GRADIO_SHARE", "").strip().lower() == "true"
    return shared or not _loopback(host())


def _loopback(name: str) -> bool:
    try:
        return ip_address(name.strip("[] ")).is_loopback
    except ValueError:
        return name.strip().lower() == "localhost"


def without_paths(sentence: str) -> str:
    """Returns a sentence for a visitor, with paths of this machine reduced to their last part; its owner sees them whole."""
    return _PATH.sub(r"…/\1", sentence) if public() else sentence
