"""Distribution of work over the processes of ``accelerate launch``, and gathering of the results."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from d2sd.trace.text import progress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among ``count``; ``device``: the one it should use, or None."""

    index: int = 0
    count: int = 1
    device: str | None = None

    @classmethod
    def launched(cls) -> Processes:
        """Returns the processes started by ``accelerate launch``, or just this one."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return cls()
        state = PartialState(cpu=not torch.cuda.is_available())  # gloo where there is no GPU
        return cls(state.process_index, state.num_processes, str(state.device))

    @property
    def main(self) -> bool:
        """Whether this process prints and writes."""
        return self.index == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Returns every ``count``-th item, so that consecutive groups are spread over all processes."""
        return list(items[self.index :: self.count])

    def collect(
        self, batches: Callable[[Callable[[], object]], Iterator[list[T]]], total: int, name: str
    ) -> tuple[list[T], bool]:
        """Returns the items of all batches of all processes, and whether Ctrl-C ended them; only whole batches are kept.

        ``batches`` is given a function to call ``total`` times in all; it moves the progress bar of the main process.
        """
        items: list[T] = []
        stopped = False
        with progress(total=total, desc=name, unit="run", disable=not self.main) as bar:
            try:
                for batch in batches(bar.update):
                    items += batch
            except KeyboardInterrupt:
                stopped = True
        return self._merge(items), any(self._merge([stopped]))

    def _merge(self, items: list[Any]) -> list[Any]:
        if self.count == 1:
            return items
        # the launcher passes Ctrl-C on to processes that may have had it from the terminal already
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        merged: list[Any] = gather_object(items)
        return merged
