"""Progress on stderr: a bar on a terminal, and plain lines in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm

SECONDS = 10.0  # between lines, and before the first
LINE = "{desc}: {n_fmt} of {total_fmt}, {elapsed} gone, {remaining} left{postfix}"


class _Lines:
    """A file for a bar that puts each of its states on a line of its own instead of writing the next one over it."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, text: str) -> None:
        """Write what is visible of a state."""
        if line := text.strip():
            self._file.write(f"{line}\n")

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Returns tqdm's bar over the items, with its options, on stderr.

    Where stderr is no terminal, a job of more than ten seconds prints a line every ten seconds.
    """
    if sys.stderr.isatty():
        return tqdm(items, file=sys.stderr, **options)
    plain: dict[str, Any] = {"mininterval": SECONDS, "delay": SECONDS, "miniters": 1, "bar_format": LINE}
    return tqdm(items, file=_Lines(sys.stderr), **{**options, **plain})
