"""Starts the page; the same as ``python app.py`` in a checkout. HOST and PORT set the address it listens on."""

from __future__ import annotations

import argparse
import runpy
import sys

from d2sd.__about__ import HOME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(_: argparse.Namespace) -> None:
    sys.path.insert(0, str(HOME))
    runpy.run_path(str(HOME / "app.py"), run_name="__main__")
