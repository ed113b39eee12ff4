"""Reads logs of serving engines and of benchmarks, and says what their figures mean. Needs no torch.

* ``reading`` recognises the format of a log by its content.
* ``replies`` and ``steps`` turn requests whose steps are known into traces.
* ``forms`` and ``printed`` read printed lines and ``/metrics`` pages. They give ``Figures`` only; so do requests without steps.
* ``figures`` computes missing figures from the others, and combines the figures of each source (``sources_of``).
* ``sentences`` explains the figures.

The header of an imported trace lists, under ``missing``, the parts that the log lacks. A token that is not in the log has the text
``UNKNOWN``.
"""

from __future__ import annotations

from d2sd.logs.figures import Figures, sources_of
from d2sd.logs.reading import import_log, is_log, read_runs
from d2sd.logs.steps import UNKNOWN, Texts, open_texts

__all__ = ["UNKNOWN", "Figures", "Texts", "import_log", "is_log", "open_texts", "read_runs", "sources_of"]
