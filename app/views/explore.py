"""The Explore view: a run, streamed step by step, as linked text, tree, confidence strip and timeline."""

from __future__ import annotations

from typing import Any

from app.view import View
from d2sd.figures.viewer import viewer_script


class ExplorerView(View):
    """Draws a run. The value is a segment of an ``d2sd.trace.run.RecordedRun``: new lines and where they belong.

    Events and what they carry:

    * ``select``: a step or node is pinned (``run``, ``step``, ``node``);
    * ``missed``: the page lacks lines (``key``, ``start``);
    * ``export``: a file is wanted that the server makes (``kind``, ``step``);
    * ``redraft``: what would a re-draft have added (``key``, ``step``, ``prefix``, ``number`` of the question)? The answer is a
      segment's note of this name, see ``app.explore.questions.run``.
    * ``typed``: what does the target make of a reader's own draft (``key``, ``step``, ``words``, ``number``)? Answered likewise.

    linked: names of the settings in links; without them the view offers nothing that needs a server.
    """

    def __init__(
        self, value: str | None = None, *, linked: list[str] | None = None, elem_id: str = "explorer", **options: Any
    ):
        super().__init__(value, viewer_script(), elem_id=elem_id, linked=linked, **options)
