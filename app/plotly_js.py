"""plotly.js for the page, served from the installed plotly package; nothing is fetched from elsewhere."""

from __future__ import annotations

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATH = "/gradio_api/plotly.js"  # where Gradio's own addresses are: a server in front of it passes those on
ADDRESS = f"{PATH}?v={version('plotly')}"


def _answer(_: Request) -> Response:
    from plotly.offline import get_plotlyjs  # when a figure is first drawn, not when the page starts

    kept = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(get_plotlyjs(), media_type="text/javascript", headers=kept)


ROUTE = Route(PATH, _answer)
