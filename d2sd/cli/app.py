"""Start the web page, like "python app.py" in a checkout. The environment variables HOST and PORT set defaults of its address."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from d2sd.__about__ import HOME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", help="port of the page (default: the first free one from 7860)")
    parser.add_argument("--host", help="address of the page (default: 127.0.0.1)")
    parser.add_argument("--share", action="store_const", const="True", help="make a public Gradio link")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(arguments: argparse.Namespace) -> None:
    """Serves the page until it is stopped."""
    asked = {"SERVER_PORT": arguments.port, "SERVER_NAME": arguments.host, "SHARE": arguments.share}
    os.environ.update({f"GRADIO_{name}": value for name, value in asked.items() if value})
    sys.path.insert(0, str(HOME))
    runpy.run_path(str(HOME / "app.py"))["start"](arguments.open)
