"""All machines for which a run's cost can be calculated without measuring one."""

from __future__ import annotations

from typing import Any

from d2sd.costs.machine import STAGES, Machine
from d2sd.costs.measured import H200
from d2sd.costs.published import PAPER
from d2sd.costs.roofline import HARDWARE, HOW, calculated
from d2sd.errors import InputError

MACHINES: dict[str, Machine] = {
    "paper": PAPER,
    "h200-measured": H200,
    **{name: calculated(h) for name, h in HARDWARE.items()},
}
DEFAULT = "paper"  # what is compared with where nothing else was chosen
NOMINAL_SECONDS = 0.02  # of a plain step, where a source gives ratios alone


def machine_of(name: str) -> Machine:
    """Returns the machine of this id, with a plain step of 20 ms if its source gives ratios alone. Raises ``InputError``."""
    if name not in MACHINES:
        raise InputError(f"there is no machine {name!r}; choose one of: {', '.join(MACHINES)}")
    machine = MACHINES[name]
    return machine.absolute(NOMINAL_SECONDS) if machine.relative else machine


def drawing(machine: Machine) -> dict[str, Any]:
    """Returns a machine as the page's scripts read it (``assets/viewer/machine.js``), times in plain decoding steps."""
    unit = machine.plain()

    def points(curve: Any) -> list[list[float]]:
        return [[rows, seconds / unit] for rows, seconds in curve.points]

    return {
        "name": machine.name,
        "source": f"{HOW} {machine.source}" if machine.kind == "calculated" else machine.source,
        "kind": machine.kind,
        "milliseconds": None if machine.relative else 1e3 * unit,
        **{stage: points(getattr(machine, stage)) for stage in STAGES},
        "other": machine.other / unit,
        "drafts": {method: curve and points(curve) for method, curve in machine.drafts.items()},
    }


def drawings() -> list[dict[str, Any]]:
    """Returns all known machines in that form, each with its id."""
    return [{"id": name, **drawing(machine)} for name, machine in MACHINES.items()]
