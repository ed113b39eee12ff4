"""Components that are drawn by the page's scripts, and routes for plotly.js and fonts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.gradio_internals import View
from d2sd.figures.modules import FAMILIES, FONTS, font_faces, view_script
from d2sd.figures.style import COLOURS, VIEWER

APP = Path(__file__).resolve().parent
STATIC = APP / "static"
PLOTLY_PATH = "/gradio_api/plotly.js"  # under Gradio's prefix, which reverse proxies forward
FONT_PATH = "/gradio_api/fonts/"
FIGURES = {"colours": COLOURS, "plotly": f"{PLOTLY_PATH}?v={version('plotly')}"}  # constants of figures.js


def _plotly(_: Request) -> Response:
    """Serves plotly.js from the installed plotly package, so no network is needed."""
    from plotly.offline import get_plotlyjs  # imported only when a figure is first drawn

    cached = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(get_plotlyjs(), media_type="text/javascript", headers=cached)


def _font(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FAMILIES.values():
        return Response(status_code=404)
    return Response(
        (FONTS / name).read_bytes(), media_type="font/woff2", headers={"cache-control": "public, max-age=86400"}
    )


def fonts() -> str:
    """Returns the markup of the fonts. With it, browsers load the fonts before the page's scripts."""
    path = FONT_PATH.removeprefix("/")  # relative, since a proxy may serve the page under a path
    early = "".join(
        f'<link rel="preload" as="font" type="font/woff2" href="{path}{n}" crossorigin>' for n in FAMILIES.values()
    )
    return f"{early}<style>{font_faces(lambda name: path + name)}</style>"


ROUTES = [Route(PLOTLY_PATH, _plotly), Route(f"{FONT_PATH}{{name}}", _font)]


def script_view(value: str | None, script: str, **options: Any) -> View:
    """Returns an empty element whose ``script`` draws the value. ``options``: options of ``gr.HTML``."""
    # The template is constant, since Gradio runs ${...} and {{...}} in a template as code.
    return View(
        value,
        html_template="<div></div>",
        css_template="",
        js_on_load=script,
        apply_default_css=False,
        **options,
    )


def drawn_view(
    value: str | None,
    script: str,
    *,
    constants: Mapping[str, Any] | None = None,
    sheets: Sequence[str] = (),
    **options: Any,
) -> View:
    """Returns a view whose script draws its value, a JSON text.

    script: path of the script in ``app``. It is a module; its ``start`` is called.
    constants: values for the script.
    sheets: paths of the view's style sheets in ``app``.
    options: options of ``gr.HTML``.
    """
    joined = view_script(APP / script, panel_sheets(*sheets), constants or {})
    return script_view(value, joined, **options)


def drawer_button() -> View:
    """Returns the button that opens and closes the drawer, the part of the page with the id ``drawer``.

    Unlike the content of a closed ``gr.Accordion``, the drawer is in the page from the start. Style sheets hide it when closed.
    """
    return script_view(None, view_script(STATIC / "drawer.js", {}, {}), elem_id="fold")


def panel_sheets(*sheets: str) -> dict[str, str]:
    """Returns style sheets by element id: the sheet that all panels share, then the given files of ``app``, whose rules override
    it.
    """
    viewer = read_source(VIEWER / "colours.css") + read_source(VIEWER / "parts.css")
    shared = viewer.replace(".explorer", ".panels") + read_source(STATIC / "shared" / "panels.css")
    return {"panels-style": shared, **{f"{Path(sheet).stem}-style": read_source(APP / sheet) for sheet in sheets}}


def read_source(path: Path) -> str:
    return path.read_text(encoding="utf-8")
