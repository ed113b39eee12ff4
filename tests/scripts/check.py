"""Syntax errors and undefined names in the scripts of the page: ``python -m tests.scripts.check``.

The scripts of a view share one function scope, so names are looked up in what the page is really sent. Node comes with
the Playwright package; it needs nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import playwright

from d2sd.__about__ import HOME

NODE = Path(playwright.__file__).parent / "driver" / ("node.exe" if sys.platform == "win32" else "node")
NAMES = Path(__file__).with_name("names.cjs")
GLOBAL = re.compile(r'(?:Lda|Sta)Global\w* \[\d+:"([^"]+)"\]')
# What Gradio and the viewer give a script, and what the browser has: a name that is missing here is one to look at.
GIVEN = "element, trigger, props, watch, server"
LANGUAGE = "Array Boolean Date Error Infinity JSON Map Math NaN Number Object Promise RegExp Set String Symbol Uint8Array undefined"
BROWSER = """
    Blob CustomEvent DataTransfer DecompressionStream Element Event File Image IntersectionObserver MutationObserver Node ResizeObserver Response
    SVGElement URL URLSearchParams XMLSerializer addEventListener atob clearTimeout console devicePixelRatio document
    fetch getComputedStyle getSelection history innerHeight innerWidth localStorage location matchMedia navigator performance
    removeEventListener requestAnimationFrame sessionStorage setTimeout window"""
KNOWN = {*LANGUAGE.split(), *BROWSER.split()}


class ScriptError(Exception):
    """A script does not parse."""


def undefined(source: str, name: str = "script") -> set[str]:
    """Names in the body of a function that nothing declares; those of functions that nothing refers to are not seen.

    Raises ``ScriptError`` where it does not parse.
    """
    body = f"(async function ({GIVEN}) {{{{{source}\n}}}})"
    done = subprocess.run([NODE, NAMES, name], input=body.encode(), capture_output=True, timeout=60)
    if done.returncode:
        raise ScriptError(done.stderr.decode().strip())
    return set(GLOBAL.findall(done.stdout.decode(errors="replace"))) - KNOWN


def files() -> list[Path]:
    """The script files of the page."""
    return sorted([*(HOME / "assets" / "viewer").glob("*.js"), *(HOME / "app" / "static").rglob("*.js")])


def sent() -> Iterator[tuple[str, str]]:
    """Every script that the page or a standalone file runs, by the view that it belongs to."""
    from app.layout import build
    from app.views.learn import tour_script
    from d2sd.drawing.viewer import runs_page

    for block in build().blocks.values():
        if source := getattr(block, "js_on_load", None):
            yield block.elem_id or type(block).__name__, source
    yield "standalone", runs_page([], "", tour_script()).rpartition("<script>")[2].partition("</script>")[0]


def broken_files() -> list[str]:
    """Files that do not parse alone, each with the line at fault."""
    found = []
    for path in files():
        try:
            undefined(path.read_text(encoding="utf-8"), str(path.relative_to(HOME)))
        except ScriptError as error:
            found.append(str(error))
    return found


def problems() -> list[str]:
    """Sentences about what is wrong with the scripts."""
    found = []
    for view, source in sent():
        try:
            names = undefined(source, view)
        except ScriptError as error:
            found += broken_files() or [f"the scripts of {view} do not go together: {error}"]
            continue
        for name in sorted(names):
            word = re.compile(rf"(?<![\w.$]){re.escape(name)}(?![\w$])")
            where = [str(p.relative_to(HOME)) for p in files() if word.search(p.read_text(encoding="utf-8"))]
            found.append(f"{view}: {name} is not defined; it occurs in {', '.join(where) or 'no file'}")
    return found


if __name__ == "__main__":
    if "missing" not in undefined("return missing;"):
        sys.exit(f"{NODE} prints its bytecode in a way that this check cannot read")
    sentences = problems()
    print("\n".join(sentences) or f"{len(files())} scripts are in order")
    sys.exit(1 if sentences else 0)
