"""The Explore view: a run, streamed step by step, as linked text, tree, confidence strip and timeline.

The value is a trace as JSON lines (see ``d2sd.trace``) and only ever grows while a run streams; the page reads the
appended lines; ``d2sd.viewer`` draws them.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import zlib
from typing import Any

import gradio as gr

from d2sd.viewer import pack_line, viewer_script


class _Packer:
    """Packs the long lines of a trace for the page, each line once.

    Gradio writes out and compares the whole value in the page on every change, so its length is what a stream costs
    there: packed, a run of 100 steps takes a tenth of the time. The same line always packs to the same text, so a
    growing value still only grows. Remembered by digest: every line comes again with each change of the value.
    """

    LONG = 2048
    KEPT = 4096

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def pack(self, value: str) -> str:
        """``value`` with every long step line as ``~`` and base64 of its raw deflate stream."""
        # not splitlines(): JSON may hold U+2028 and the like unescaped
        *lines, rest = value.split("\n")
        return "\n".join([*(self._line(line) if self._packs(line) else line for line in lines), rest])

    def _packs(self, line: str) -> bool:
        return len(line) > self.LONG and '"StepDone"' in line[:40]

    def _line(self, line: str) -> str:
        raw = line.encode("utf-8", "replace")
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        with self._lock:
            if packed := self._known.get(digest):
                return packed
        packed = pack_line(line)
        with self._lock:
            self._known[digest] = packed
            while len(self._known) > self.KEPT:
                del self._known[next(iter(self._known))]
        return packed


def unpack(value: str) -> str:
    """The trace lines that ``_Packer.pack`` was given."""

    def line(text: str) -> str:
        if not text.startswith("~"):
            return text
        return zlib.decompress(base64.b64decode(text[1:]), -zlib.MAX_WBITS).decode()

    return "\n".join(map(line, value.split("\n")))


_packer = _Packer()


class ExplorerView(gr.HTML):
    """Draws a growing trace. Pinning a step or node fires ``select`` with ``run``, ``step`` and ``node``."""

    def __init__(self, value: str | None = None, *, elem_id: str = "explorer", **options: Any):
        # The template is constant: Gradio would run ${...} and {{...}} in a template as code.
        super().__init__(
            value,
            html_template="<div></div>",
            css_template="",
            js_on_load=viewer_script(),
            apply_default_css=False,
            elem_id=elem_id,
            **options,
        )

    def postprocess(self, value: str | None) -> str | None:
        """Trace lines → what the page gets. It is never read as HTML: Gradio's check for script tags does not apply."""
        return None if value is None else _packer.pack(value)

    def preprocess(self, payload: str | None) -> str | None:
        """What the page holds → trace lines."""
        return None if payload is None else unpack(payload)

    def get_block_name(self) -> str:
        """The page draws it as any ``gr.HTML``."""
        return "html"
