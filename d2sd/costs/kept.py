"""Measured stage costs in a file of the user's cache folder, so that not every process measures them again."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from filelock import FileLock

from d2sd.costs.machines import STAGES, Curve, Machine

PASSES = 2  # part of every key; increase it when passes become faster or slower
MOST = 64  # tables in the file: the newest ones
MAX_BYTES = 1 << 20  # of a file that is read
WAIT = 10  # seconds for another process that writes
Points = Annotated[
    list[tuple[Annotated[int, msgspec.Meta(ge=1)], Annotated[float, msgspec.Meta(ge=0)]]],
    msgspec.Meta(min_length=1, max_length=128),
]


class KeptTimes(msgspec.Struct, frozen=True):
    """Seconds of the stages over their rows, and when and after how many tokens they were measured, as in ``Machine``, for one
    ``key``. Files of earlier versions have no ``measured`` and no ``context``."""

    key: str
    first_draft: Points
    second_draft: Points
    verify: Points
    other: Annotated[float, msgspec.Meta(ge=0)]
    measured: Annotated[str, msgspec.Meta(max_length=40)] = ""
    context: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def machine(self) -> Machine:
        first, second, verify = (Curve.through(getattr(self, stage)) for stage in STAGES)
        return Machine(first, second, verify, self.other, measured=self.measured, context=self.context)


_READ = msgspec.json.Decoder(list[KeptTimes])


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def find(file: Path, key: Sequence[object]) -> Machine | None:
    """Returns the costs that were kept for this key; None if there are none.

    key: all that they depend on: hardware, versions, models, shapes. Its items are compared as texts.
    """
    return next((table.machine() for table in _tables(file) if table.key == _text(key)), None)


def keep_costs(file: Path, key: Sequence[object], costs: Machine) -> None:
    """Add costs to the file, in place of older ones for this key. Where it cannot be written, nothing happens."""
    stages = {stage: list(getattr(costs, stage).points) for stage in STAGES}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", timeout=WAIT):  # no process overwrites what another one adds
            tables = [table for table in _tables(file) if table.key != _text(key)][-(MOST - 1) :]
            added = KeptTimes(_text(key), **stages, other=costs.other, measured=costs.measured, context=costs.context)
            _replace(file, msgspec.json.encode([*tables, added]))
    except OSError:  # a lock that stays taken too
        return


def _replace(file: Path, content: bytes) -> None:
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.write_bytes(content)
        os.replace(fresh, file)  # a reader sees the old file or the new one
    finally:
        fresh.unlink(missing_ok=True)


def _text(key: Sequence[object]) -> str:
    return "; ".join(map(str, key))


def _tables(file: Path) -> list[KeptTimes]:
    """Returns the tables in the file; none if it is not there, too large, or not in this form."""
    try:
        return _READ.decode(file.read_bytes()) if file.stat().st_size <= MAX_BYTES else []
    except (OSError, msgspec.MsgspecError):
        return []
