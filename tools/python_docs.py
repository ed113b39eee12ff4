"""Writes the reference in ``docs/python.md``, below its introduction, from the signatures and docstrings of public names.

Run it with ``make docs``; a test compares the file with ``page()``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_overloads

from d2sd.__about__ import HOME

PATH = HOME / "docs" / "python.md"
MARK = "<!-- Written by make docs from here on. -->\n"
PACKAGES = ("d2sd", "d2sd.calibration", "d2sd.figures", "d2sd.doctor")
WIDTH = 100
CONSTANTS = {
    "__version__": "Version of the package.",
    "METHODS": "The drafting methods by id; each has a `name` and a `sentence` that describes it ([methods.md](methods.md)).",
    "Event": "An event of a generation: `PrefillDone | StepDone | Finished`.",
}
PARAMETER = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (.*)")


class _AsWritten(str):
    """Part of a signature that is printed without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def public() -> Iterator[tuple[str, str, Any]]:
    """Yields package, name and value of every public name. The methods and properties of a class follow the class."""
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(module.__all__, key=str.casefold):
            value = getattr(module, name)
            yield package, name, value
            for member, attribute in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (
                    inspect.isfunction(attribute) or isinstance(attribute, property | classmethod)
                ):
                    yield package, f"{name}.{member}", getattr(attribute, "__func__", attribute)


def parameters(documented: str) -> list[tuple[str, str]]:
    """Returns the parameters or fields that a docstring describes: pairs of their names, separated by commas, and their
    description.
    """
    described = re.findall(rf"^{PARAMETER.pattern}((?:\n {{4}}.*)*)", inspect.cleandoc(documented), re.MULTILINE)
    return [(names, text + more) for names, text, more in described]


def docstring(value: Any) -> str:
    """Returns the docstring of ``value``. If it is a class, the descriptions of its inherited fields are added."""
    bases = [base for base in getattr(value, "__mro__", ())[1:] if base.__module__.startswith("d2sd.")]
    inherited = [f"{names}: {text}" for base in bases for names, text in parameters(base.__doc__ or "")]
    return "\n".join([inspect.cleandoc(value.__doc__ or ""), *inherited])


def signatures(name: str, value: Any) -> Iterator[str]:
    """Yields the signatures of a callable, one for each overload, or the type of a property. Yields nothing for exceptions."""
    if isinstance(value, property):
        yield f"{name}: {inspect.signature(value.fget).return_annotation}"
    elif not (inspect.isclass(value) and issubclass(value, Exception)):
        for call in (not inspect.isclass(value) and get_overloads(value)) or [value]:
            signature, written = inspect.signature(call), list[str]()
            for one in signature.parameters.values():
                default = _AsWritten("…") if inspect.isfunction(one.default) else one.default
                annotation = _AsWritten(call.__annotations__.get(one.name, one.annotation))
                if one.kind is one.KEYWORD_ONLY and "*" not in written:
                    written.append("*")
                if one.name not in ("self", "cls"):
                    written.append(str(one.replace(annotation=annotation, default=default)))
            end = ")" if inspect.isclass(call) else f") -> {signature.return_annotation}"
            line = f"{name}({', '.join(written)}{end}"
            yield line if len(line) <= WIDTH else "\n    ".join([f"{name}(", *(f"{w}," for w in written)]) + f"\n{end}"


def prose(documented: str) -> str:
    """Returns a docstring as Markdown, with its parameters as a list."""
    lines: list[str] = []
    for line in documented.splitlines():
        if match := PARAMETER.fullmatch(line):
            if lines and lines[-1] and not lines[-1].startswith(("* ", "  ")):
                lines.append("")
            line = f"* {', '.join(f'`{name}`' for name in match[1].split(', '))}: {match[2]}"
        lines.append(re.sub("^    ", "  ", line))
    return re.sub(r"``(.+?)``", r"`\1`", "\n".join(lines))


def reference() -> Iterator[str]:
    """Yields the paragraphs of the reference."""
    last = ""
    for package, name, value in public():
        if package != last:
            yield from (f"## {package}", prose(docstring(import_module(package))))
            last = package
        yield f"#### {name}" if "." in name else f"### {package}.{name}"
        if name not in CONSTANTS and (code := list(signatures(name.split(".")[-1], value))):
            yield "\n".join(["```python", *code, "```"])
        yield CONSTANTS.get(name) or prose(docstring(value))


def page() -> str:
    """Returns the text of ``docs/python.md``: its present introduction, followed by the new reference."""
    introduction = PATH.read_text(encoding="utf-8").partition(MARK)[0]
    return "\n\n".join([f"{introduction}{MARK.strip()}", *reference()]) + "\n"


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
