"""The colours of all drawings, read from the page's style sheet without a plotting package."""

from __future__ import annotations

import re

from d2sd.__about__ import HOME

VIEWER = HOME / "assets" / "viewer"


def _light_colours() -> dict[str, str]:
    """Returns the colours of the light theme by name, without those for text on filled shapes."""
    light = (VIEWER / "colours.css").read_text(encoding="utf-8").partition(".dark")[0]
    found: list[tuple[str, str]] = re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light)
    return {name: value for name, value in found if not name.endswith("-on")}


COLOURS = _light_colours()
# Categories without a colour of their own: the palette of Okabe and Ito, told apart with every common colour blindness.
CATEGORIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
