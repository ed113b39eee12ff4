"""Stores measured stage costs in the user's cache folder, so that later processes need not measure them again."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from filelock import FileLock

from d2sd.costs.machines import STAGES, Curve, StageCosts
from d2sd.errors import InputError
from d2sd.trace.files import write_whole

PASSES = 2  # part of every key; to be increased when a change of the code makes passes faster or slower
MOST = 64  # maximum number of tables in the file; the newest table is the last one
MAX_BYTES = 1 << 20  # size limit of the file
WAIT = 10  # seconds to wait while another process writes
Points = Annotated[
    list[tuple[Annotated[int, msgspec.Meta(ge=1)], Annotated[float, msgspec.Meta(ge=0)]]],
    msgspec.Meta(min_length=1, max_length=128),
]


class KeptTimes(msgspec.Struct, frozen=True):
    """One table in the file: the measured fields of a ``StageCosts``, and their ``key``. Files of earlier versions lack ``measured`` and
    ``context``."""

    key: str
    first_draft: Points
    second_draft: Points
    verify: Points
    other: Annotated[float, msgspec.Meta(ge=0)]
    measured: Annotated[str, msgspec.Meta(max_length=40)] = ""
    context: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def costs(self) -> StageCosts:
        first, second, verify = (Curve.through(getattr(self, stage)) for stage in STAGES)
        return StageCosts(first, second, verify, self.other, measured=self.measured, context=self.context)


_READ = msgspec.json.Decoder(list[KeptTimes])


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def find(file: Path, key: Sequence[object]) -> StageCosts | None:
    """Returns the costs that the file has for a key; None if it has none.

    key: everything that the costs depend on: hardware, versions, models, shapes. Its items are compared as text.
    """
    return next((table.costs() for table in _tables(file) if table.key == _text(key)), None)


def keep_costs(file: Path, key: Sequence[object], costs: StageCosts) -> None:
    """Writes costs to the file, in place of older costs for the same key. Does nothing if the file cannot be written.

    key: as for ``find``.
    """
    stages = {stage: list(getattr(costs, stage).points) for stage in STAGES}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", timeout=WAIT):  # otherwise concurrent additions could be lost
            tables = [table for table in _tables(file) if table.key != _text(key)][-(MOST - 1) :]
            added = KeptTimes(_text(key), **stages, other=costs.other, measured=costs.measured, context=costs.context)
            write_whole(file, msgspec.json.encode([*tables, added]))
    except (OSError, InputError):  # includes the timeout of the lock
        return


def _text(key: Sequence[object]) -> str:
    return "; ".join(map(str, key))


def _tables(file: Path) -> list[KeptTimes]:
    """Returns the tables in the file; empty if it is missing, too large or invalid."""
    try:
        return _READ.decode(file.read_bytes()) if file.stat().st_size <= MAX_BYTES else []
    except (OSError, msgspec.MsgspecError):
        return []
