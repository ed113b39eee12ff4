"""Logs of serving engines as traces: one reader per source, recognised by content. Needs no torch.

The header of a trace lists the parts that its log lacks under ``missing``; an unknown token has the text ``UNKNOWN``. A log
without steps is read as ``LogTotals``, a row of figures.
"""

from __future__ import annotations

from d2sd.trace.logs.requests import UNKNOWN, LogTotals, Texts, open_texts, together
from d2sd.trace.logs.sources import SOURCES, import_log

__all__ = ["SOURCES", "UNKNOWN", "LogTotals", "Texts", "import_log", "open_texts", "together"]
