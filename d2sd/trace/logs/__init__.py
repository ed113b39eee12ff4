"""Reads logs of serving engines as traces. The source of a log is recognised by its content. Needs no torch.

The header of such a trace lists, under ``missing``, the parts that the log lacks. An unknown token has the text ``UNKNOWN``. A
log without single steps is read as rows of figures, ``LogTotals``.
"""

from __future__ import annotations

from d2sd.trace.logs.requests import UNKNOWN, LogTotals, Texts, by_source, open_texts, together
from d2sd.trace.logs.sources import SOURCES, import_log, is_log, no_steps, read_runs

__all__ = [
    "SOURCES", "UNKNOWN", "LogTotals", "Texts", "by_source", "import_log", "is_log", "no_steps", "open_texts", "read_runs", "together",
]  # fmt: skip
