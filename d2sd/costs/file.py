"""A machine by its name, or from a file of stage times."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import orjson

from d2sd.costs.machines import MACHINES, STAGES, Curve, Machine
from d2sd.errors import InputError

MAX_FILE_BYTES, MAX_POINTS, MAX_ROWS, MAX_MILLISECONDS = 1 << 16, 64, 1 << 16, 1e6
NOMINAL_SECONDS = 0.02  # of a plain step, where a source gives ratios alone
SOURCE = "Stated in a file, not measured here."
FORM = (
    '{"machine": "what it is", "milliseconds": {"verify": [[nodes, ms], …], "first_draft": [[rows, ms], …], '
    '"second_draft": [[rows, ms], …], "other": ms}}'
)
COSTS_HELP = f"a machine ({', '.join(MACHINES)}), or a file of milliseconds of every stage on one, as JSON: {FORM}"


def machine_of(name: str) -> Machine:
    """Returns a known machine by its id, or that of a file. If only ratios are known, a plain step is taken as 20 ms."""
    if name not in MACHINES:
        return read_costs(name)
    machine = MACHINES[name]
    return machine.absolute(NOMINAL_SECONDS) if machine.relative else machine


def read_costs(path: str) -> Machine:
    """Returns a machine from a JSON file of the form ``FORM``; raises ``InputError`` for any other content."""
    try:
        with Path(path).open("rb") as f:
            raw = f.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the cost file {path}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"the cost file {path} is larger than 64 KiB")
    try:
        given = orjson.loads(raw)
        times = given["milliseconds"]
        machine = given["machine"]
        if not isinstance(machine, str) or not 1 <= len(machine) <= 200:
            raise InputError("machine must be a text of at most 200 characters")
        unknown = set(times) - {*STAGES, "other"}
        if unknown:
            raise InputError(f"milliseconds has {', '.join(sorted(unknown))}, which is none of its stages")
        first, second, verify = (_curve(stage, times[stage]) for stage in STAGES)
        other = _seconds(times.get("other", 0.0))
        return Machine(first, second, verify, other, name=machine, source=SOURCE, kind="stated")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, InputError) as error:
        reason = str(error) if isinstance(error, InputError) else "it is not JSON of this form"
        raise InputError(f"cannot read the cost file {path}: {reason}. Its form: {FORM}") from None


def _curve(stage: str, points: Any) -> Curve:
    if not isinstance(points, list) or not 1 <= len(points) <= MAX_POINTS:
        raise InputError(f"{stage} must be a list of 1 to {MAX_POINTS} points")
    read = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2 or type(point[0]) is not int:
            raise InputError(f"{stage} must hold pairs of a whole number and milliseconds")
        read.append((point[0], _seconds(point[1])))
    rows = [p[0] for p in read]
    if not 1 <= rows[0] <= rows[-1] <= MAX_ROWS or any(b <= a for a, b in pairwise(rows)):
        raise InputError(f"the rows of {stage} must ascend, between 1 and {MAX_ROWS}")
    if any(b[1] < a[1] for a, b in pairwise(read)):
        raise InputError(f"the times of {stage} must not fall as rows grow")
    if stage == "verify" and not read[0][1]:
        raise InputError("verifying must take time")
    return Curve(tuple(read))


def _seconds(milliseconds: Any) -> float:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not isfinite(milliseconds):
        raise InputError("a time must be a number of milliseconds")
    if not 0 <= milliseconds <= MAX_MILLISECONDS:
        raise InputError(f"a time must be between 0 and {MAX_MILLISECONDS:.0f} milliseconds")
    return milliseconds / 1e3
