"""Parts of the page: its views' events, the scripts that run first, and style sheets that restyle only their own tab."""

from __future__ import annotations

import re

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.explore.controls import explorer_view
from app.gradio_internals import EarlyHead
from app.runs.view import runs_list
from app.view import APP
from d2sd.__about__ import HOME

# classes and ids that each sheet may style
SCOPES = {"calibrate": (".calibrate",), "learn": (".tour",), "race": (".race", "#race"), "runs": ("#runs",)}


@pytest.mark.parametrize(("made", "event"), [(explorer_view, "missed"), (explorer_view, "export"), (runs_list, "show")])
def test_view_event_of_script_can_be_registered(made, event):
    with gr.Blocks():
        view = made()
        getattr(view, event)(lambda: None, None, None)


@pytest.mark.parametrize(
    "sheet", [s for s in sorted(APP.glob("*/*.css")) if s.parent.name != "static"], ids=lambda s: s.stem
)
def test_tab_style_rules_stay_in_their_view(sheet):
    rules = re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.DOTALL))
    selectors = [one.strip() for rule in rules for one in re.split(r",(?![^(]*\))", rule)]
    assert [s for s in selectors if not s.startswith(("@", *SCOPES[sheet.stem]))] == []


def test_fonts_have_four_sizes():
    sheets = [*APP.rglob("*.css"), *(HOME / "assets" / "viewer").glob("*.css")]
    sizes = {
        (sheet.name, float(size))
        for sheet in sheets
        for size in re.findall(r"font(?:-size)?:[^;{}]*?(\d+(?:\.\d+)?)px", sheet.read_text(encoding="utf-8"))
    }
    assert {size for _, size in sizes} == {13, 16, 19, 36}


def test_early_head_inserts_script_first_and_only_into_pages():
    page = "<!doctype html><html><head><title>é</title></head><body><head></body></html>"
    routes = [
        Route("/", lambda _: HTMLResponse(page)),
        Route("/parts", lambda _: StreamingResponse(iter([page[:40], page[40:]]), media_type="text/html")),
        Route("/data", lambda _: JSONResponse("<head>")),
        Route("/none", lambda _: HTMLResponse("")),
    ]
    client = TestClient(Starlette(routes=routes, middleware=[Middleware(EarlyHead, "go()")]))
    whole, parts = client.get("/"), client.get("/parts")
    assert whole.text == parts.text == page.replace("<head>", "<head><script>{go()}</script>", 1)
    assert whole.headers["content-length"] == str(len(whole.content))
    assert "content-length" not in parts.headers
    assert client.get("/data").json() == "<head>"
    assert client.get("/none").text == ""
