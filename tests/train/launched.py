"""The program of each launched process: runs several commands in turn and writes the output of each to its own file."""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from d2sd.__main__ import main

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, arguments in json.loads(sys.argv[2]).items():
        with (folder / f"{name}-{os.environ['RANK']}.txt").open("w") as file, redirect_stdout(file):
            code = main(arguments)
        if code:
            sys.exit(code)
