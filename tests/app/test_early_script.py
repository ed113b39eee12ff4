"""``EarlyHead`` inserts a script at the start of every page and changes nothing else."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.gradio_internals import EarlyHead

PAGE = "<!doctype html><html><head><title>é</title></head><body><head></body></html>"
TAG = "<script>{go()}</script>"


@pytest.fixture(scope="module")
def client():
    routes = [
        Route("/", lambda _: HTMLResponse(PAGE)),
        Route("/parts", lambda _: StreamingResponse(iter([PAGE[:40], PAGE[40:]]), media_type="text/html")),
        Route("/data", lambda _: JSONResponse("<head>")),
        Route("/none", lambda _: HTMLResponse("")),
    ]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(EarlyHead, "go()")]))


@pytest.mark.parametrize("path", ["/", "/parts"])
def test_early_head_inserts_script_first(client, path):
    answer = client.get(path)
    assert answer.text == PAGE.replace("<head>", f"<head>{TAG}", 1)
    length = None if path == "/parts" else str(len(answer.content))
    assert answer.headers.get("content-length") == length


def test_early_head_leaves_other_responses_unchanged(client):
    assert client.get("/data").json() == "<head>"
    assert client.get("/none").text == ""
