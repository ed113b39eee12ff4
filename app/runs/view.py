"""The list of a window's runs, with the query of each run's link."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import orjson

from app import links
from app.gradio_internals import View
from app.methods import run_title
from app.runs.recordings import MAX_MEGABYTES, Recording
from app.session import Session
from app.settings import SETTINGS
from app.view import drawn_view
from d2sd.errors import require
from d2sd.folders.store import REMOTE
from d2sd.methods import METHODS
from d2sd.trace.metrics import SYMBOLS

DEFAULTS = {s.name: s.default for s in SETTINGS}
ABOUT = (
    "num_branches",
    "block_size",
    "temperature",
    "node_budget",
)  # settings that the list shows if they are not the default
HOSTS_VARIABLE = "D2SD_TRACE_HOSTS"
USUAL_PORTS = (":80", ":443")  # default ports, which a browser omits from addresses
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")


def trace_hosts() -> list[str]:
    """Returns the hosts from which a link may load a trace (``?trace=URL``), besides the page's own host.

    They are in ``D2SD_TRACE_HOSTS``, separated by commas, with a port if it is not the default. The visitor's browser fetches
    the trace, never this server. Raises ``InputError`` if a host is invalid.
    """
    hosts = [host.strip().lower() for host in os.environ.get(HOSTS_VARIABLE, "").split(",") if host.strip()]
    for host in hosts:
        require(
            HOST.fullmatch(host) and not host.endswith(USUAL_PORTS),
            f"{HOSTS_VARIABLE} must list hosts such as traces.example.org, not {host[:60]!r}",
        )
    return hosts


def runs_list() -> View:
    """Returns the view that draws ``runs_drawing``.

    Events and their data:

    * ``show``: shows another run (``key``). From the browser's history, also with ``step``, ``node`` and the number of the
      request (``travel``), and ``open`` is false, since the browser has opened the tab;
    * ``rename``: renames a run (``key``, ``label``);
    * ``move``: moves a run down the list (``key``, ``by``: number of places);
    * ``remove``, ``file``: removes or saves a run (``key``);
    * ``race``: shows runs (``keys``) side by side in Race;
    * ``together``: requests a file of runs (``kind``; for a class page, ``kind`` is ``"class"``, and the event also has ``step``,
      ``keys`` (its runs) and ``title``).
    """
    constants = {"hosts": trace_hosts(), "megabytes": MAX_MEGABYTES}
    return drawn_view(None, "runs/main.js", sheets=("runs/runs.css",), constants=constants, elem_id="runs")


def runs_drawing(session: Session, file: dict[str, str] | None = None) -> str:
    """Returns the value of the list of runs, as JSON. file: a file for the browser to save."""
    data = {"shown": session.shown.key, "runs": [_row(recording) for recording in session.history.runs]}
    return orjson.dumps(data | {"file": file, "travels": session.travels}).decode()


def _row(recording: Recording) -> dict[str, Any]:
    header = recording.header
    return {
        "key": recording.run.key,
        "run": header["run"],
        "label": recording.label,
        "about": f"{recording.source}: {about(header)}",
        "at": recording.at,
        "query": links.query(links.query_fields(header)),
    }


def about(header: Mapping[str, Any]) -> str:
    config, name = header["config"], header["models"].get("preset")
    model = REMOTE[name].title if isinstance(name, str) and name in REMOTE else str(name)[:40]
    words = [f"{run_title(header)}{f' on {model}' if name else ''}"]
    words += [f"drafter {str(d)[:40]}" for d in _drafters(header) if not str(d).startswith(f"{name}/")]
    shown = (n for n in ABOUT if config.get(n) not in (None, DEFAULTS[n]))
    words += [f"{SYMBOLS[n]} {config[n]}"[:24] for n in shown]
    return ", ".join(words)


def _drafters(header: Mapping[str, Any]) -> list[Any]:
    models, method = header["models"], METHODS.get(header["method"])
    if method is None:  # a trace of another version
        return []
    used = {
        "first_drafter": method.first_drafter,
        "second_drafter": method.second_drafter == "vp",
        "draft_model": method.draft_model,
        "eagle3": method.eagle3,
    }
    return [models[part] for part, there in used.items() if there and models.get(part)]
