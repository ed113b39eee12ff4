"""Logs of serving engines as traces: one small reader per source, recognised by content. Needs no torch.

The header of a trace lists the parts that its log lacks under ``missing``, and an unknown token has the text
``chain.UNKNOWN``. A log with totals only has no steps; it is read as ``Totals``, a row of figures.
"""

from __future__ import annotations

from d2sd.trace.logs.sources import SOURCES, import_log, is_trace
from d2sd.trace.logs.totals import Totals

__all__ = ["SOURCES", "Totals", "import_log", "is_trace"]
