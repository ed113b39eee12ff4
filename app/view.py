"""Components of the page that are drawn by a script of their own, and the plotly.js that some of them load."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from d2sd.figures.modules import FAMILIES, FONTS, font_faces, view_script
from d2sd.figures.style import COLOURS, VIEWER

APP = Path(__file__).resolve().parent
STATIC = APP / "static"
PLOTLY_PATH = "/gradio_api/plotly.js"  # where Gradio's own addresses are: a server in front of it passes those on
FONT_PATH = "/gradio_api/fonts/"
FIGURES = {"colours": COLOURS, "plotly": f"{PLOTLY_PATH}?v={version('plotly')}"}  # what figures.js needs to know


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


def _plotly(_: Request) -> Response:
    """Serves plotly.js from the installed plotly package; nothing is fetched from elsewhere."""
    from plotly.offline import get_plotlyjs  # when a figure is first drawn, not when the page starts

    cached = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(get_plotlyjs(), media_type="text/javascript", headers=cached)


def _font(request: Request) -> Response:
    """Serves a font of the page."""
    name = request.path_params["name"]
    if name not in FAMILIES.values():
        return Response(status_code=404)
    return Response(
        (FONTS / name).read_bytes(), media_type="font/woff2", headers={"cache-control": "public, max-age=86400"}
    )


def fonts() -> str:
    """Returns the markup of the fonts, which a browser begins to load ahead of the page's scripts."""
    at = FONT_PATH.removeprefix("/")  # relative, since the page may be served below another address
    early = "".join(
        f'<link rel="preload" as="font" type="font/woff2" href="{at}{n}" crossorigin>' for n in FAMILIES.values()
    )
    return f"{early}<style>{font_faces(lambda name: at + name)}</style>"


ROUTES = [Route(PLOTLY_PATH, _plotly), Route(f"{FONT_PATH}{{name}}", _font)]


class DrawnView(View):
    """Draws its value, a JSON text, with ``start`` of a script of ``app``."""

    def __init__(
        self,
        value: str | None,
        script: str,
        *,
        elem_id: str,
        constants: Mapping[str, Any] | None = None,
        sheets: Sequence[str] = (),
        server_functions: list[Callable[..., Any]] | None = None,
        **options: Any,
    ):
        """
        script: path of the entry module in ``app``.
        constants: values for the script.
        sheets: paths of its style sheets in ``app``.
        options: those of ``gr.HTML``.
        """
        joined = view_script(APP / script, panel_sheets(*sheets), constants or {})
        super().__init__(value, joined, elem_id=elem_id, server_functions=server_functions, **options)


def panel_sheets(*sheets: str) -> dict[str, str]:
    """Style sheets by element id: what all views share, then these of ``app``, whose rules win over it."""
    viewer = read(VIEWER / "colours.css") + read(VIEWER / "map.css")
    shared = viewer.replace(".explorer", ".panels") + read(STATIC / "shared" / "panels.css")
    return {"panels-style": shared, **{f"{Path(sheet).stem}-style": read(APP / sheet) for sheet in sheets}}


def read(path: Path) -> str:
    """Returns a source file of the page."""
    return path.read_text(encoding="utf-8")


class FoldView(View):
    """A button that collapses a part of the page: it toggles the class ``open`` of the element with the id ``folds``.

    Unlike in a closed ``gr.Accordion``, the content is in the page from the start: the style sheet decides where it is folded.
    """

    def __init__(self, name: str, folds: str, *, elem_id: str, **options: Any):
        super().__init__(
            None, view_script(STATIC / "fold.js", {}, {}), elem_id=elem_id, name=name, folds=folds, **options
        )
