"""Runs the page's scripts outside a browser, in the Node.js of Playwright."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import playwright

from d2sd.__about__ import HOME

NODE = Path(playwright.__file__).parent / "driver" / ("node.exe" if sys.platform == "win32" else "node")
OPTIONS = ("--disable-warning=MODULE_TYPELESS_PACKAGE_JSON",)
CHAPTERS = """
import { Store } from "HOME/assets/viewer/store.js";
import { chaptersOf } from "HOME/app/learn/chapters.js";
import { tokensWith } from "HOME/assets/viewer/replays.js";
const store = new Store(() => {}, () => {});
store.feed(data.lines.join("\\n"));
while (!store.complete) await new Promise((go) => setTimeout(go, 1));
const steps = Array.from({ length: store.length }, (_, at) => store.step(at));
console.log(JSON.stringify(steps.map((step) => ({ chapters: chaptersOf(step, store), tokens: [0, ...step.branches.keys()].map((_, k) => tokensWith(step, k, store)) }))));
"""


def run_script(source: str, data: Any) -> Any:
    """Runs a module and returns the JSON that it prints.

    source: the module; ``data`` in it is this value, and HOME is replaced by the root of the repository
    """
    read = 'import { readFileSync } from "node:fs";\nconst data = JSON.parse(readFileSync(0, "utf8"));\n'
    module = read + source.replace("HOME", HOME.as_posix())
    command = [NODE, *OPTIONS, "--input-type=module", "-e", module]
    ran = subprocess.run(command, input=json.dumps(data), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def chapters_of(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Returns for every step of a run its ``chapters`` of Learn, and its ``tokens`` with 0, 1, … re-drafts.

    lines: the run with an outcome line before each step, as the page reads it
    """
    return run_script(CHAPTERS, {"lines": list(lines)})
