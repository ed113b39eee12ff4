"""Word problems from real wordings: the numbers drawn anew, the answer worked step by step, right by construction."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Mapping
from typing import NamedTuple

from .grammar import fix_articles
from .names import BOYS, GIRLS

_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.]*\d)")
_TRIES = 60
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


class Wording(NamedTuple):
    """A problem as somebody worded it, and the equation over its numbers (a Python expression)."""

    question: str
    equation: ast.expr


class Worked(NamedTuple):
    """A problem with its worked answer."""

    question: str
    work: str
    answer: int


def equation_text(sign: str, left: int, right: int) -> str | None:
    """One step worked place by place ("37 + 58 = 37 + 50 + 8 = 87 + 8 = 95"); None where it leaves the whole numbers."""
    if sign == "/":
        return f"{left} / {right} = {left // right}" if right and left % right == 0 else None
    if sign == "*":
        left, right = max(left, right), min(left, right)
        parts = _places(right) if left > 10 and right > 10 else [right]
        products = [left * part for part in parts]
        if len(parts) == 1:
            return f"{left} * {right} = {left * right}"
        return (
            f"{left} * {right} = {' + '.join(f'{left} * {p}' for p in parts)}"
            f" = {' + '.join(map(str, products))} = {sum(products)}"
        )
    direction = 1 if sign == "+" else -1
    if left + direction * right < 0:
        return None
    text, parts = f"{left} {sign} {right}", _places(right)
    if left < 10 or len(parts) == 1:
        return f"{text} = {left + direction * right}"
    while len(parts) > 1:
        text += f" = {left} {sign} " + f" {sign} ".join(map(str, parts))
        left += direction * parts.pop(0)
    return f"{text} = {left} {sign} {parts[0]} = {left + direction * parts[0]}"


def _places(number: int) -> list[int]:
    """A number by its places: 457 → 400, 50, 7."""
    digits = str(number)
    return [int(d) * 10 ** (len(digits) - i - 1) for i, d in enumerate(digits) if d != "0"] or [0]


def worked_steps(equation: ast.expr) -> tuple[list[str], int] | None:
    """The steps of an equation, innermost first, and its value; None where a step leaves the whole numbers."""
    steps: list[str] = []

    def value(node: ast.expr) -> int | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value == int(node.value):
            return int(node.value)
        if not isinstance(node, ast.BinOp) or type(node.op) not in _SIGNS:
            return None
        left, right = value(node.left), value(node.right)
        if left is None or right is None:
            return None
        text = equation_text(_SIGNS[type(node.op)], left, right)
        if text is None:
            return None
        steps.append(text)
        return int(text.rsplit("= ", 1)[1])

    result = value(equation)
    return None if result is None else (steps, result)


def _draw(number: int, rng: random.Random) -> int:
    """Another number of about the same size, mostly of two digits at most."""
    if number < 2:
        return number
    if number < 10:
        return rng.randint(2, 9)
    return rng.randint(100, 999) if number >= 100 and rng.random() < 0.25 else rng.randint(10, 99)


def reworded(wording: Wording, rng: random.Random) -> Worked | None:
    """The problem with other numbers and names, worked; None where none were found that keep it whole and positive."""
    found = _NUMBER.findall(wording.question)
    constants = [n for n in ast.walk(wording.equation) if isinstance(n, ast.Constant)]
    used = {str(int(n.value)) for n in constants if isinstance(n.value, (int, float))}
    if len(set(found)) < len(found) or not used <= set(found):
        return None
    for _ in range(_TRIES):
        new = {number: _draw(int(number), rng) for number in found}
        divides = [n for n in ast.walk(wording.equation) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        for node in divides:  # make the division come out even
            if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
                divisor, quotient = rng.randint(2, 12), rng.randint(2, 12)
                new[str(int(node.left.value))], new[str(int(node.right.value))] = divisor * quotient, divisor  # type: ignore[arg-type]
        if len(set(new.values())) < len(new):
            continue
        equation = copy.deepcopy(wording.equation)
        for number in ast.walk(equation):
            if isinstance(number, ast.Constant):
                number.value = new[str(int(number.value))]  # type: ignore[arg-type]
        worked = worked_steps(equation)
        if worked is None or not 0 <= worked[1] < 1500:
            continue
        return Worked(fix_articles(_rename(_with(wording.question, new), rng)), _tell(worked[0], rng), worked[1])
    return None


def varied(question: str, rng: random.Random) -> str:
    """The question with other numbers and names, whatever its answer may then be."""
    numbers = {number: _draw(int(number), rng) for number in _NUMBER.findall(question)}
    return fix_articles(_rename(_with(question, numbers), rng))


def _with(question: str, numbers: Mapping[str, object]) -> str:
    """The question with other numbers."""
    return _NUMBER.sub(lambda m: str(numbers[m[0]]), question)


def _rename(question: str, rng: random.Random) -> str:
    """Other names of the same gender."""
    for names in (GIRLS, BOYS):
        for name in [n for n in names if re.search(rf"\b{n}\b", question)]:
            other = rng.choice([n for n in names if not re.search(rf"\b{n}\b", question)])
            question = re.sub(rf"\b{name}\b", other, question)
    return question


def _tell(steps: list[str], rng: random.Random) -> str:
    """The steps as sentences."""
    if len(steps) == 1:
        return rng.choice(["{}.", "{}.", "We work out {}.", "That is {}."]).format(steps[0])
    joints = rng.choice([("", "Then "), ("First, ", "Then "), ("", "Next, ")])
    return " ".join(f"{joints[min(i, 1)]}{step}." for i, step in enumerate(steps))
