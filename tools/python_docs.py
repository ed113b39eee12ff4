"""Writes ``docs/python.md``: the reference of the Python interface, from its signatures and docstrings.

Run with ``make docs``; a test compares the file with ``page()``, and another checks that every parameter is described.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_overloads

from d2sd.__about__ import HOME

PATH = HOME / "docs" / "python.md"
PACKAGES = ("d2sd", "d2sd.calibration", "d2sd.figures", "d2sd.doctor")
WIDTH = 100
CONSTANTS = {
    "__version__": "Version of the package.",
    "METHODS": "The drafting methods by their ids; each has a `name` and a `sentence` that describes it ([methods.md](methods.md)).",
    "Event": "What a generation yields: `PrefillDone | StepDone | Finished`.",
}
PARAMETER = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (.*)")
INTRODUCTION = """# Python interface

Written by `make docs` from the docstrings. [trace-format.md](trace-format.md) describes all parts of a step.

```python
import d2sd
from d2sd.calibration import calibrate, read_report
from d2sd.figures import calibration_panels

engine = d2sd.load("tiny")
trace = engine.generate("One day, a small dog found a key.", max_new_tokens=64)
print(trace.text, trace.totals.mean_acceptance_length)
rows = trace.rows()  # for pandas: DataFrame(rows)

prompts = ["Once upon a time", "The sun was warm and", "Tom had a red ball."]
report = calibrate(engine.generate(prompts, method="d2sd", max_new_tokens=64))
print(report.ece.value, *(sentence.text for sentence in read_report(report)), sep="\\n")
figures = [panel.figure for panel in calibration_panels(report)]  # plotly: figures[0].show()
```

`d2sd.doctor.examine(target, drafter)` says why a drafter is rejected. Invalid input raises `d2sd.InputError`.
"""


class _Raw(str):
    """Part of a signature that is printed as it is: annotations are texts, which would be quoted."""

    __slots__ = ()
    __repr__ = str.__str__


def public() -> Iterator[tuple[str, str, Any]]:
    """Yields the public names: package, name in it, and value; methods and properties of a class follow it."""
    for package in PACKAGES:
        for name in sorted(import_module(package).__all__, key=str.casefold):
            value = getattr(import_module(package), name)
            yield package, name, value
            for member, own in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and isinstance(own, property | classmethod) | inspect.isfunction(own):
                    yield package, f"{name}.{member}", own


def parameters(documented: str) -> list[tuple[str, str]]:
    """Returns the parameters or fields that a docstring describes: their names, separated by commas, and the text."""
    found = re.findall(rf"^{PARAMETER.pattern}((?:\n {{4}}.*)*)", inspect.cleandoc(documented), re.MULTILINE)
    return [(names, text + more) for names, text, more in found]


def docstring(value: Any) -> str:
    """Returns the docstring, for a class with fields followed by the descriptions of inherited ones."""
    own = inspect.cleandoc(value.__doc__ or "")
    bases = (
        [base for base in value.__mro__[1:] if base.__module__.startswith("d2sd.")] if inspect.isclass(value) else []
    )
    inherited = (f"{names}: {text}" for base in bases for names, text in parameters(base.__doc__ or ""))
    return "\n".join([own, *([""] if own else []), *inherited]).rstrip()


def signatures(name: str, value: Any) -> Iterator[str]:
    """Yields the signatures of a callable, one for each overload; none of an exception."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    for call in get_overloads(value) or [value] if inspect.isfunction(value) else [value]:
        signature = inspect.signature(call)
        written = []
        for one in signature.parameters.values():
            annotation = getattr(call, "__annotations__", {}).get(
                one.name, one.annotation
            )  # as written, also of structs
            default = _Raw("…") if callable(one.default) and one.default is not one.empty else one.default
            if one.kind is one.KEYWORD_ONLY and not any(w.startswith("*") for w in written):
                written.append("*")
            if one.name not in ("self", "cls"):
                written.append(str(one.replace(annotation=_Raw(annotation), default=default)))
        returns = (
            ""
            if isinstance(call, type) or isinstance(signature.return_annotation, type)
            else f" -> {signature.return_annotation}"
        )
        line = f"{name}({', '.join(written)}){returns}"
        yield line if len(line) <= WIDTH else "\n    ".join([f"{name}(", *(f"{w}," for w in written)]) + f"\n){returns}"


def prose(documented: str) -> str:
    """Returns a docstring as Markdown, with its parameters as a list."""
    lines: list[str] = []
    for line in documented.splitlines():
        if match := PARAMETER.fullmatch(line):
            names = ", ".join(f"`{name}`" for name in match[1].split(", "))
            if lines and lines[-1] and not lines[-1].startswith(("* ", "  ")):
                lines.append("")
            line = f"* {names}: {match[2]}"
        lines.append(re.sub("^    ", "  ", line))
    return re.sub(r"``(.+?)``", r"`\1`", "\n".join(lines))


def entry(name: str, value: Any) -> Iterator[str]:
    last = name.split(".")[-1]
    yield f"{'####' if re.search('[A-Z].*[.]', name) else '###'} {name}\n"
    if last in CONSTANTS:
        yield f"{CONSTANTS[last]}\n"
        return
    if isinstance(value, property):
        code = [f"{last}: {inspect.signature(value.fget).return_annotation}"]
    else:
        code = list(signatures(last, getattr(value, "__func__", value)))
    if code:
        yield "```python\n" + "\n".join(code) + "\n```\n"
    yield f"{prose(docstring(value))}\n"


def page() -> str:
    """Returns the text of ``docs/python.md``."""
    lines, last = [INTRODUCTION], ""
    for package, name, value in public():
        if package != last:
            lines += [f"## {package}\n", f"{prose(docstring(import_module(package)))}\n"]
            last = package
        lines += entry(name if "." in name else f"{package}.{name}", value)
    return "\n".join(lines)


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
