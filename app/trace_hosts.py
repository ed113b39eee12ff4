"""Hosts that a link may load a trace from (``?trace=URL``), besides the page's own."""

from __future__ import annotations

import os
import re

from d2sd import InputError

VARIABLE = "D2SD_TRACE_HOSTS"
USUAL = (":80", ":443")  # a browser leaves them out of the addresses that are compared
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")


def listed() -> list[str]:
    """Returns the owner's list: hosts separated by commas, each with its port if that is not the default.

    The visitor's browser fetches, never this server. Raises ``InputError``.
    """
    hosts = [host.strip().lower() for host in os.environ.get(VARIABLE, "").split(",") if host.strip()]
    for host in hosts:
        if not HOST.fullmatch(host) or host.endswith(USUAL):
            raise InputError(f"{VARIABLE} must list hosts such as traces.example.org, not {host[:60]!r}")
    return hosts
