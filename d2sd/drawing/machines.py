"""The known machines as a module of the page's scripts: ``python -m d2sd.drawing.machines`` writes it."""

from __future__ import annotations

import json

from d2sd.costs.machines import drawings
from d2sd.drawing.colours import VIEWER

PATH = VIEWER / "machines.js"
DIGITS = 6


def source() -> str:
    """Returns the module's source. Times are in plain decoding steps, except ``milliseconds``, those of such a step."""
    lines = ",\n".join(f"  {json.dumps(_rounded(machine), ensure_ascii=False)}" for machine in drawings())
    return f"// Written by python -m d2sd.drawing.machines from d2sd/costs: what passes cost, in steps of plain decoding.\n\nexport const MACHINES = [\n{lines},\n];\n"


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    PATH.write_text(source(), encoding="utf-8")
