"""Logs of serving engines as traces: one reader per source, recognised by content. Needs no torch.

The header of a trace lists the parts that its log lacks under ``missing``; an unknown token has the text ``UNKNOWN``. A log
without steps is read as ``LogTotals``, a row of figures.
"""

from __future__ import annotations

from d2sd.trace.logs.requests import UNKNOWN, LogTotals, Texts, by_source, open_texts, together
from d2sd.trace.logs.sources import SOURCES, import_log, is_log, no_steps, read_runs

__all__ = [
    "SOURCES", "UNKNOWN", "LogTotals", "Texts", "by_source", "import_log", "is_log", "no_steps", "open_texts", "read_runs", "together",
]  # fmt: skip
