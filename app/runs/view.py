"""The list of runs of a window, and the address of the run that is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import orjson

from app import links
from app.models import said
from app.runs import recordings as trace_hosts
from app.runs.recordings import MAX_MEGABYTES, Recording
from app.session import History
from app.settings import SETTINGS, element
from app.view import DrawnView
from d2sd.folders.store import REMOTE
from d2sd.methods import METHODS
from d2sd.trace.metrics import SYMBOLS

MAX_LINK = 8000  # characters; longer ones are cut off on their way by some
NAMED = ("prompt", "model", "folder", "vp", "method", "compare")  # controls whose element has their own name
FORM: dict[str, str] = dict(zip(NAMED, NAMED, strict=True)) | {s.name: element(s) for s in SETTINGS}
DEFAULTS = {s.name: s.default for s in SETTINGS}
ABOUT = (
    "num_branches",
    "block_size",
    "temperature",
    "node_budget",
)  # settings that the list names, if they are not as usual


class RunsView(DrawnView):
    """Draws what ``drawing`` returns.

    Events and what they carry:

    * ``show``: another run is wanted (``key``; on the way back through the browser's history also ``step`` and ``node``);
    * ``rename``: a run has another name (``key``, ``label``);
    * ``move``: a run is to be moved down the list (``key``, ``by`` how many places);
    * ``remove``, ``file``: a run is to be removed, or saved (``key``);
    * ``together``: a file of runs is wanted (``kind``; for ``class`` with ``step``, the ``keys`` of its runs and the ``title``).
    """

    def __init__(self, value: str | None = None, *, elem_id: str = "runs", **options: Any):
        given = {"form": FORM, "hosts": trace_hosts.listed(), "megabytes": MAX_MEGABYTES}
        super().__init__(value, "runs/main.js", sheets=("runs/runs.css",), given=given, elem_id=elem_id, **options)


def drawing(history: History, shown: str, file: dict[str, str] | None = None) -> str:
    """Returns the view's value: the kept runs, the key of the shown one, and a file to save, if requested."""
    data = {"shown": shown, "runs": [_row(kept) for kept in history.runs], "file": file}
    return orjson.dumps(data).decode()


def _row(kept: Recording) -> dict[str, Any]:
    header = kept.run.header
    fields = links.fields(header)
    query = urlencode(fields)
    return {
        "key": kept.run.key,
        "run": str(header.get("run", "")),
        "label": kept.label,
        "about": f"{kept.source}: {about(header)}",
        "at": kept.at,
        "query": query if len(query) <= MAX_LINK else "",
    }


def about(header: Mapping[str, Any]) -> str:
    """Returns method, models and non-default settings in a few words."""
    config, of_models = header.get("config"), header.get("models")
    known = config if isinstance(config, Mapping) else {}
    name = of_models.get("preset") if isinstance(of_models, Mapping) else None
    model = REMOTE[name].title if isinstance(name, str) and name in REMOTE else str(name)[:40]
    words = [f"{said(header)}{f' on {model}' if name else ''}"]
    words += [f"drafter {str(d)[:40]}" for d in _drafters(header) if not str(d).startswith(f"{name}/")]
    shown = (n for n in ABOUT if known.get(n) not in (None, DEFAULTS[n]))
    words += [f"{SYMBOLS[n]} {known[n]}"[:24] for n in shown]
    return ", ".join(words)


def _drafters(header: Mapping[str, Any]) -> list[Any]:
    """Returns the names of a run's drafters."""
    models, method = header.get("models"), METHODS.get(str(header.get("method")))
    if not isinstance(models, Mapping) or method is None:
        return []
    used = {
        "first_drafter": method.first_drafter,
        "second_drafter": method.second_drafter == "vp",
        "draft_model": method.draft_model,
        "eagle3": method.eagle3,
    }
    return [models[part] for part, there in used.items() if there and models.get(part)]
