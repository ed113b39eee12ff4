"""Code shared by all components with a script of their own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import gradio as gr


class View(gr.HTML):
    """An empty element that ``script`` draws the value into."""

    def __init__(self, value: str | None, script: str, *, elem_id: str, **options: Any):
        # The template is constant: Gradio would run ${...} and {{...}} in a template as code.
        super().__init__(
            value,
            html_template="<div></div>",
            css_template="",
            js_on_load=script,
            apply_default_css=False,
            elem_id=elem_id,
            **options,
        )

    def postprocess(self, value: str | None) -> str | None:
        """Returns the value unchanged. It is never read as HTML: Gradio's check for script tags does not apply."""
        return value

    def get_block_name(self) -> str:
        """The page draws it as any ``gr.HTML``."""
        return "html"

    def __getattr__(self, name: str) -> Any:
        """The listener of an event that the script names in quotes.

        Whenever Gradio describes a component it looks for attributes that it does not have, each of them in the whole script.
        That takes up to 10 ms, for every window and every update of a property.
        """
        if name in _quoted(self.__dict__.get("js_on_load") or ""):
            return super().__getattr__(name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}, and its script no event of that name")


@lru_cache(maxsize=64)
def _quoted(script: str) -> frozenset[str]:
    """All names in quotes."""
    return frozenset(re.findall(r"""['"`](\w+)(?=['"`])""", script))
