"""Logs of served engines as traces: one small reader a source, recognised by content. Needs no torch.

What a log does not hold is not invented: the trace's header names it under ``missing``, and a token that is not known has the
text ``chain.UNKNOWN``. A log of totals alone has no steps, so it gives ``Totals``, a row of figures.
"""

from __future__ import annotations

from d2sd.trace.logs.sources import SOURCES, import_log, is_trace
from d2sd.trace.logs.totals import Totals

__all__ = ["SOURCES", "Totals", "import_log", "is_trace"]
