"""Start the web page, like "python app.py" in a checkout. The environment variables HOST and PORT set its address."""

from __future__ import annotations

import argparse
import runpy
import sys

from d2sd.__about__ import HOME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Does nothing, since the command has no arguments."""


def run(_: argparse.Namespace) -> None:
    sys.path.insert(0, str(HOME))
    runpy.run_path(str(HOME / "app.py"), run_name="__main__")
