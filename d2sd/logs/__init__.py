"""Logs of serving engines: which engine a log comes from, its requests as traces or ``Figures``, and what the figures say.

A log is recognised by its content (``reading``). Requests with steps become traces (``replies``, ``steps``); of other requests, and of
lines and pages that programs print (``forms``, ``printed``), only ``Figures`` are known, completed by ``EQUATIONS`` (``figures``).
``sources_of`` joins the figures of each source, and ``sentences`` puts them into words. Needs no torch.

The header of an imported trace lists, under ``missing``, the parts that the log lacks. An unknown token has the text ``UNKNOWN``.
"""

from __future__ import annotations

from d2sd.logs.figures import Figures, sources_of
from d2sd.logs.reading import import_log, is_log, read_runs
from d2sd.logs.steps import UNKNOWN, Texts, open_texts

__all__ = ["UNKNOWN", "Figures", "Texts", "import_log", "is_log", "open_texts", "read_runs", "sources_of"]
