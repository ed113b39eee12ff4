"""Joins ES modules into one script, and makes HTML files from scripts, styles and data.

In the joined script, each module is a function that contains the module's code. The script needs no server and no build step.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from d2sd.__about__ import HOME

FONTS = HOME / "assets" / "fonts"
FAMILIES = {"Inter": "inter.woff2", "JetBrains Mono": "jetbrains-mono.woff2"}  # fonts of text and of tokens
IMPORT = re.compile(r'^import \{([^}]+)\} from "(\.[^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) ([\w$]+))", re.MULTILINE)
# Comment lines, empty lines and indentation, which are a sixth of a script. Removing them is safe, since no string in the sources
# spans several lines.
MARGIN = re.compile(r"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)?\n|^[ \t]+", re.MULTILINE)
OTHER_FORM = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class Module(NamedTuple):
    """A parsed source file.

    imports: for each imported file, a mapping from the imported names to their local names.
    exports: names that other modules can import.
    body: the source without import statements, ``export`` keywords, comments and indentation.
    """

    imports: Mapping[Path, Mapping[str, str]]
    exports: tuple[str, ...]
    body: str


def read_module(path: Path) -> Module:
    """Parses a source file. Imports must have the form ``import { a, b as c } from "./file.js";``. ``export`` must be at the start
    of a line, before a function, class or constant.

    Raises ``ValueError`` for other forms, and for template literals over several lines, which would lose their indentation.
    """
    source = path.read_text(encoding="utf-8")
    if any(line.count("`") % 2 for line in source.splitlines()):
        raise ValueError(f"{path}: a template literal over several lines is not supported")
    imports: dict[Path, dict[str, str]] = {}
    for names, address in IMPORT.findall(source):
        local_names = imports.setdefault((path.parent / address).resolve(), {})
        for name in filter(None, map(str.strip, names.split(","))):  # a trailing comma leaves an empty name
            exported, _, local = name.partition(" as ")
            local_names[exported] = local or exported
    body = EXPORT.sub("", IMPORT.sub("", source))
    if other := OTHER_FORM.search(body):
        raise ValueError(f"{path}: this form of import or export is not supported: {other[0]}")
    return Module(imports, tuple(EXPORT.findall(source)), MARGIN.sub("", body).strip())


@cache
def join_modules(entry: Path) -> str:
    """Returns one JavaScript expression with the code of a module and of all modules that it imports, directly or indirectly.

    The value of the expression is an object with the exports of ``entry``. Every module runs once, after the modules it imports.

    Raises ``ValueError`` for circular imports, and for an import of a name that is not exported.
    """
    modules: dict[Path, Module] = {}

    def add(path: Path, above: tuple[Path, ...]) -> None:
        if path in above:
            raise ValueError(f"modules import each other: {' → '.join(p.name for p in (*above, path))}")
        if path in modules:
            return
        module = read_module(path)
        for source, names in module.imports.items():
            add(source, (*above, path))
            if missing := names.keys() - set(modules[source].exports):
                raise ValueError(f"{path}: {source.name} does not export {', '.join(sorted(missing))}")
        modules[path] = module

    add(entry.resolve(), ())
    functions = "\n".join(_function(path, module) for path, module in modules.items())
    return f'(() => {{\n"use strict";\n{functions}\nreturn {_name(entry.resolve())};\n}})()'


def view_script(entry: Path, sheets: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Returns the script of a Gradio component.

    The script is a function body. Gradio provides it with the values ``element``, ``trigger``, ``props``, ``watch`` and ``server``.

    entry: a module. The script calls its function ``start`` with these five values and ``options``.
    sheets: style sheets by element id. Each is added to the page once, before ``start`` is called.
    options: values for ``start``, passed as JSON.
    """
    return f"""for (const [id, rules] of Object.entries({json.dumps(dict(sheets))})) {{
  if (!document.getElementById(id)) document.head.append(Object.assign(document.createElement("style"), {{ id, textContent: rules }}));
}}
{join_modules(entry)}.start(element, trigger, props, watch, server, {json.dumps(dict(options))});"""


def _function(path: Path, module: Module) -> str:
    constants = [
        f"const {{ {', '.join(n if n == local else f'{n}: {local}' for n, local in names.items())} }} = {_name(source)};"
        for source, names in module.imports.items()
    ]
    inner = "\n".join([*constants, module.body, f"return {{ {', '.join(module.exports)} }};"])
    return f"const {_name(path)} = (() => {{\n{inner}\n}})();"


def _name(path: Path) -> str:
    return f"${path.parent.name}_{path.stem}"


def font_faces(address: Callable[[str], str]) -> str:
    """Returns the CSS rules of the fonts. address: function that returns the URL of a font file in ``FONTS``, given its name."""
    return "".join(
        f'@font-face {{ font-family: "{family}"; src: url("{address(name)}") format("woff2"); font-weight: 400 600; }}\n'
        for family, name in FAMILIES.items()
    )


@cache
def inlined_fonts() -> str:
    return font_faces(lambda name: f"data:font/woff2;base64,{base64.b64encode((FONTS / name).read_bytes()).decode()}")


def html_page(title: str, styles: str, body: str, scripts: Sequence[str], images: str = "blob:") -> str:
    """Returns an HTML file that needs no network. Its security policy allows no scripts but ``scripts``, and no connections.

    title: plain text.
    styles: CSS.
    body: HTML, with untrusted text already escaped.
    scripts: JavaScript, run in this order after the body.
    images: allowed sources of images, as in the policy's ``img-src``.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src {images}; font-src data:; base-uri 'none'; form-action 'none'"
    run = "".join(f"<script>{script}</script>\n" for script in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<style>
{inlined_fonts()}{styles}</style>
</head>
<body>
{body}{run}</body>
</html>
"""
