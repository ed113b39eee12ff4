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
class Draft:
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


def _introduce(draft: Draft, rng: random.Random) -> str:
    """Say what the function is given."""
    things = [f"{kind} {name}" for kind, name in zip(draft.kinds, draft.parameters, strict=False)]
    if len(things) == 1:
        kind, name = draft.kinds[0], draft.parameters[0]
        return spin(
            f"[Take a {kind} called {name}|Given a {kind} {name}|For the {kind} {name}|With a {kind} named {name}]", rng
        )
    names = " and ".join([", ".join(draft.parameters[:-1]), draft.parameters[-1]])
    return spin(
        f"[Take {draft.kinds[0]}s {names}|Given the {draft.kinds[0]}s {names}|With {names}, all {draft.kinds[0]}s]", rng
    )


def _task(draft: Draft, documented: bool, rng: random.Random) -> str:
    """Write the sentence that fully says what the body does."""
    says = list(draft.says)
    middle = ", ".join(says[:-1])
    ask = f"{middle}{rng.choice([', then ', ' and then ', ', and '])}{says[-1]}" if middle else says[-1]
    text = f"{_introduce(draft, rng)}, {ask}"
    if draft.style and draft.has_style:
        text = (
            f"{text}, {draft.style}." if rng.random() < 0.5 else f"{capital(draft.style)}: {text[0].lower()}{text[1:]}."
        )
    else:
        text += "."
    if draft.guard:
        text += spin(f" Return {draft.guard}.", rng)
    if draft.extra:
        text += f" {draft.extra}"
    if documented:
        text += rng.choice([" Add a docstring.", " Write a docstring.", " Include a docstring."])
    return fix_articles(text)


def _name(draft: Draft) -> str:
    """Name the function after its parts."""
    parts: list[str] = []
    for part in draft.parts[-3:]:
        if part not in parts:
            parts.append(part)
    return "_".join([draft.parameters[0], *(part for part in parts if part != draft.parameters[0])])


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


def write(draft: Draft, rng: random.Random) -> str | None:
    """Write the whole document, or None for a function that is too short, long or wrong."""
    documented = rng.random() < 0.2 and len(draft.says[-1].split()) > 2
    task = _task(draft, documented, rng)
    body = list(draft.body)
    if documented:
        body.insert(0, f'"""{capital(fix_articles(draft.says[-1]))}."""')
    if not _FEWEST_LINES <= len(body) <= _MOST_LINES:
        return None
    name = _name(draft)
    lines = [f"def {name}({', '.join(draft.parameters)}):", *(f"    {line}" for line in body)]
    source = "\n".join(lines) + "\n"
    example = _example(source, name, draft.arguments)
    if example is None:
        return None
    text = f"# Task: {task}\n{source}"
    shown = rng.random() < 0.4 and not _HUGE.search(example)
    return f"{text}{example}\n" if shown else text
