"""ES modules joined into one script, for pages and files that cannot load modules one by one.

A joined script needs no server and no build step: the sources stay as they are, each in a function of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

IMPORT = re.compile(r'^import \{([^}]+)\} from "(\.[^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) ([\w$]+))", re.MULTILINE)
OTHER_FORM = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed source file.

    imports: for every imported file the names taken from it, each with the name it has here.
    exports: names that other modules can import.
    body: the source without its import and export keywords.
    """

    imports: Mapping[Path, Mapping[str, str]]
    exports: tuple[str, ...]
    body: str


def read_module(path: Path) -> Module:
    """Parses the two forms that the sources use: ``import { a, b as c } from "./file.js";`` on one line, and ``export``
    before a function, class or constant at the start of a line.

    Raises ``ValueError`` for any other form.
    """
    source = path.read_text(encoding="utf-8")
    imports: dict[Path, dict[str, str]] = {}
    for names, address in IMPORT.findall(source):
        taken = imports.setdefault((path.parent / address).resolve(), {})
        for name in names.split(","):
            exported, _, own = name.strip().partition(" as ")
            taken[exported] = own or exported
    body = EXPORT.sub("", IMPORT.sub("", source))
    if other := OTHER_FORM.search(body):
        raise ValueError(f"{path}: this form of import or export is not supported: {other[0]}")
    return Module(imports, tuple(EXPORT.findall(source)), body.strip())


@cache
def join_modules(entry: Path) -> str:
    """One JavaScript expression of the entry module and everything that it imports.

    Its value is an object of the entry's exports. Every module runs once, after those that it imports.

    Raises ``ValueError`` if modules import each other in a circle, or a name that is not exported.
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
    """The script of a Gradio component: the body of a function of ``element``, ``trigger``, ``props``, ``watch``, ``server``.

    entry: a module whose ``start`` is called with these five and ``options``.
    sheets: style sheets by element id. Each is added to the page once, ahead of the call.
    options: values for the script, as JSON.
    """
    return f"""for (const [id, rules] of Object.entries({json.dumps(dict(sheets))})) {{
  if (!document.getElementById(id)) document.head.append(Object.assign(document.createElement("style"), {{ id, textContent: rules }}));
}}
{join_modules(entry)}.start(element, trigger, props, watch, server, {json.dumps(dict(options))});"""


def _function(path: Path, module: Module) -> str:
    """Returns a module as a function that returns its exports."""
    taken = [
        f"const {{ {', '.join(n if n == own else f'{n}: {own}' for n, own in names.items())} }} = {_name(source)};"
        for source, names in module.imports.items()
    ]
    inner = "\n".join([*taken, module.body, f"return {{ {', '.join(module.exports)} }};"])
    return f"const {_name(path)} = (() => {{\n{inner}\n}})();"


def _name(path: Path) -> str:
    return f"${path.parent.name}_{path.stem}"
