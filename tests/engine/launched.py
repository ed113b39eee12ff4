"""Program of each launched process: runs a command and writes its output to a file named by its rank."""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from d2sd.__main__ import main

if __name__ == "__main__":
    with (Path(sys.argv[1]) / f"{os.environ['RANK']}.txt").open("w") as file, redirect_stdout(file):
        code = main(json.loads(sys.argv[2]))
    sys.exit(code)
