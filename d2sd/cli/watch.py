"""Watch a running vLLM or SGLang: α and acceptance by position over time, from its /metrics, until Ctrl-C.

Nothing is sent to the model. A drift is told where α is clearly off the readings before.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from datetime import datetime

import orjson

from d2sd.errors import InputError
from d2sd.trace.logs.serving import Server
from d2sd.trace.logs.watching import Watch, line
from d2sd.trace.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``watch``."""
    parser.add_argument("server", metavar="URL", help="such as http://127.0.0.1:8000")
    parser.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds between readings (default 10)")
    parser.add_argument("--count", type=int, metavar="N", help="stop after so many readings (default: at Ctrl-C)")
    parser.add_argument("--allow-remote", action="store_true", help="the server may be on another machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object a reading and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Read and print, again and again."""
    if not arguments.every > 0:
        raise InputError(f"every must be above 0 seconds, not {arguments.every:g}")
    if arguments.count is not None and arguments.count < 1:
        raise InputError(f"count must be at least 1, not {arguments.count}")
    watch, done = Watch(Server(arguments.server, arguments.allow_remote)), 0
    while True:
        reading = watch.read()
        now = datetime.now().astimezone()
        if arguments.json:
            sys.stdout.write(
                orjson.dumps({"time": now.isoformat(timespec="seconds"), **asdict(reading)}).decode() + "\n"
            )
        else:
            for text in line(reading):
                print(printable(f"{now:%H:%M:%S}  {text}"))
        sys.stdout.flush()
        done += 1
        if done == arguments.count:
            return
        time.sleep(arguments.every)
