"""Turning a drafted function into its task sentence and source text."""

from __future__ import annotations

import builtins
import copy
import random
import re
from dataclasses import dataclass, field

from .grammar import capital, fix_articles, spin

_FEWEST_LINES, _MOST_LINES = 3, 9
_HUGE = re.compile(r"\d{7}")
_OTHER_NAMES = [
    "result",
    "out",
    "kept",
    "found",
    "chosen",
    "temp",
    "new",
    "final",
    "answer",
    "current",
    "picked",
    "ready",
]
_BUILTINS = {name: getattr(builtins, name) for name in (
    "abs", "all", "any", "dict", "int", "len", "list", "max", "min", "range", "reversed", "round", "set", "sorted",
    "str", "sum", "zip", "enumerate",
)}  # fmt: skip


@dataclass
class Function:
    """A function before it is written down."""

    parameters: list[str]
    kinds: list[str]
    says: list[str]
    body: list[str]
    parts: list[str]
    style: str = ""
    has_style: bool = False
    guard: str = ""
    extra: str = ""
    arguments: list[object] = field(default_factory=list)


def name_value(name: str, rng: random.Random, taken: set[str]) -> tuple[str, str]:
    """Name a value: by its operation, or as the task sentence then says."""
    if name in taken or rng.random() < 0.3:
        name = rng.choice([other for other in _OTHER_NAMES if other not in taken])
        return name, spin(f" [(call it {name})|(as {name})|(named {name})]", rng)
    return name, ""


def loop(target: str, start: str, item: str, source: str, update: str, test: str = "") -> list[str]:
    """Write a loop that fills `target`; `|` in the update parts its lines."""
    lines = update.split("|")
    if test:
        lines = [f"if {test}:", *(f"    {line}" for line in lines)]
    return [f"{target} = {start}", f"for {item} in {source}:", *(f"    {line}" for line in lines)]


def _introduce(function: Function, rng: random.Random) -> str:
    """Say what the function is given."""
    things = [f"{kind} {name}" for kind, name in zip(function.kinds, function.parameters, strict=False)]
    if len(things) == 1:
        kind, name = function.kinds[0], function.parameters[0]
        return spin(
            f"[Take a {kind} called {name}|Given a {kind} {name}|For the {kind} {name}|With a {kind} named {name}]", rng
        )
    names = " and ".join([", ".join(function.parameters[:-1]), function.parameters[-1]])
    return spin(
        f"[Take {function.kinds[0]}s {names}|Given the {function.kinds[0]}s {names}|With {names}, all {function.kinds[0]}s]",
        rng,
    )


def _task(function: Function, documented: bool, rng: random.Random) -> str:
    """Write the sentence that fully says what the body does."""
    says = list(function.says)
    middle = ", ".join(says[:-1])
    ask = f"{middle}{rng.choice([', then ', ' and then ', ', and '])}{says[-1]}" if middle else says[-1]
    text = f"{_introduce(function, rng)}, {ask}"
    if function.style and function.has_style:
        text = (
            f"{text}, {function.style}."
            if rng.random() < 0.5
            else f"{capital(function.style)}: {text[0].lower()}{text[1:]}."
        )
    else:
        text += "."
    if function.guard:
        text += spin(f" Return {function.guard}.", rng)
    if function.extra:
        text += f" {function.extra}"
    if documented:
        text += rng.choice([" Add a docstring.", " Write a docstring.", " Include a docstring."])
    return fix_articles(text)


def _name(function: Function) -> str:
    """Name the function after its parts."""
    parts: list[str] = []
    for part in function.parts[-3:]:
        if part not in parts:
            parts.append(part)
    return "_".join([function.parameters[0], *(part for part in parts if part != function.parameters[0])])


def _example(source: str, name: str, arguments: list[object]) -> str | None:
    """Run the function on its arguments; None where it fails or says too much."""
    space: dict[str, object] = {"__builtins__": _BUILTINS}
    exec(source, space)  # Our own text, composed above from the fixed operations.
    try:
        result = space[name](*copy.deepcopy(arguments))  # type: ignore[operator]
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    shown = ", ".join(repr(argument) for argument in arguments)
    line = f"# {name}({shown}) -> {result!r}"
    return line if len(line) <= 120 else None


def write(function: Function, rng: random.Random) -> str | None:
    """Write the whole document, or None for a function that is too short, long or wrong."""
    documented = rng.random() < 0.2 and len(function.says[-1].split()) > 2
    task = _task(function, documented, rng)
    body = list(function.body)
    if documented:
        body.insert(0, f'"""{capital(fix_articles(function.says[-1]))}."""')
    if not _FEWEST_LINES <= len(body) <= _MOST_LINES:
        return None
    name = _name(function)
    lines = [f"def {name}({', '.join(function.parameters)}):", *(f"    {line}" for line in body)]
    source = "\n".join(lines) + "\n"
    example = _example(source, name, function.arguments)
    if example is None:
        return None
    text = f"# Task: {task}\n{source}"
    shown = rng.random() < 0.4 and not _HUGE.search(example)
    return f"{text}{example}\n" if shown else text
