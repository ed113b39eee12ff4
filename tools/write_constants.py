"""Writes ``assets/viewer/constants.js``: constants of Python that the page's scripts also use.

Run with ``python -m tools.write_constants``; a test compares the file with ``source()``.
"""

from __future__ import annotations

import json
from typing import Any

from app.links import PLACE_FIELDS, RUN_FIELDS
from app.methods import NAMES
from d2sd.config import SETTINGS
from d2sd.costs.machines import H200, PAPER, cost_drawing
from d2sd.figures.style import VIEWER
from d2sd.trace.metrics import SYMBOLS

PATH = VIEWER / "constants.js"
DIGITS = 6


def source() -> str:
    """Returns the source of the module. Times in it are in one-token passes."""
    numbers = {
        s.name: SYMBOLS.get(s.name, s.label) for s in SETTINGS.values() if s.kind in ("whole", "real") and s.label
    }
    del numbers["max_new_tokens"]  # a limit; it does not change steps
    return "\n".join(
        [
            "// Written by python -m tools.write_constants from d2sd and app.",
            "",
            "// Costs of passes of an 8B model on an H200, in one-token passes: published and measured.",
            f"export const PAPER = {_json(_rounded(cost_drawing(PAPER)))};",
            f"export const MEASURED = {_json(_rounded(cost_drawing(H200)))};",
            "",
            "// Names of methods, by id.",
            f"export const METHOD_NAMES = {_json(NAMES)};",
            "",
            "// Fields of links that define a run, and fields that select a place in it.",
            f"export const RUN_FIELDS = {_json(RUN_FIELDS)};",
            f"export const PLACE_FIELDS = {_json(PLACE_FIELDS)};",
            "",
            "// Numerical settings: symbol or label in texts, and name in a recorded run.",
            _array("SETTINGS", [[symbol, name] for name, symbol in numbers.items()]),
            "",
        ]
    )


def _array(name: str, rows: list[Any]) -> str:
    lines = "".join(f"  {_json(row)},\n" for row in rows)
    return f"export const {name} = [\n{lines}];"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    PATH.write_text(source(), encoding="utf-8")
