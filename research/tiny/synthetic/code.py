"""Small Python functions under a task sentence that says what they do."""

from __future__ import annotations

import random

from .grammar import spin
from .ops import ENDINGS, Ending, Step, change, condition, list_step, text_ending, text_step
from .shapes import dict_function, number_function
from .source import Function, loop, name_value, write

_LISTS = {
    "numbers": "number", "prices": "price", "scores": "score", "values": "value", "ages": "age", "items": "item",
    "weights": "weight", "points": "point", "sizes": "size", "marks": "mark", "steps": "step",
    "heights": "height", "data": "entry", "costs": "cost", "days": "day", "levels": "level", "bids": "bid",
}  # fmt: skip
_TEXTS = [
    "text",
    "word",
    "name",
    "line",
    "title",
    "label",
    "phrase",
    "message",
    "sentence",
    "key",
    "code",
    "note",
    "city",
]
_SAMPLES = (
    "red apple", "Hello World", "a small test", "level", "green tea", "One Two Three", "blue sky", "sun",
    "open the door", "noon", "Little Bird", " old map ", "banana split", "tree house", "radar", "My Name",
)  # fmt: skip


def _guard(ending: Ending, rng: random.Random) -> tuple[str, str]:
    """Choose what an empty list gives: (words, literal), or empty strings for no guard."""
    if ending.empty_safe and rng.random() < 0.75:
        return "", ""
    literal = rng.choice(["0", "-1", "None"])
    if ending.name in ("list", "running", "steps"):
        literal = "[]"
    words = "an empty list" if literal == "[]" else literal
    return words, literal


def _list_function(rng: random.Random) -> Function:
    """Filter, change and arrange a list of numbers, then end with one value."""
    parameter = rng.choice(sorted(_LISTS))
    item = _LISTS[parameter]
    looped = rng.random() < 0.5
    ending = rng.choice(ENDINGS)
    guard_words, literal = _guard(ending, rng)
    body: list[str] = []
    says: list[str] = []
    parts: list[str] = []
    current = parameter

    kinds = rng.choice(["fm", "f", "m", "f", "m", "fs", "ms", "sf", "sm", "s", "ss", "fms", "mf"])
    merged = kinds.startswith("fm") and rng.random() < 0.7
    index = 0
    while index < len(kinds):
        kind = kinds[index]
        test, value = "", item
        if kind == "s":
            step = list_step(rng)
            target, said = name_value(step.name, rng, {*parts, parameter})
            body.append(f"{target} = {step.value.format(v=current)}")
            says.append(rng.choice(step.words) + said)
        else:
            words = []
            name = ""
            if kind == "f":
                chosen = condition(rng)
                test, name = chosen.test.format(x=item), chosen.name
                words.append(f"{rng.choice(['keep', 'pick', 'choose'])} {rng.choice(chosen.words)}")
            if kind == "m" or (merged and index == 0):
                changed = change(rng)
                value, name = changed.value.format(x=item), changed.name
                words.append(rng.choice(changed.words))
                index += kind == "f"
            target, said = name_value(name, rng, {*parts, parameter})
            says.append(" and ".join(words) + said)
            if looped:
                body += loop(target, "[]", item, current, f"{target}.append({value})", test)
            else:
                body.append(f"{target} = [{value} for {item} in {current}{' if ' + test if test else ''}]")
        parts.append(target)
        current = target
        index += 1

    end_words = rng.choice(ending.words)
    if ending.value and not (looped and ending.update):
        if not ending.empty_safe and current != parameter:
            body += [f"if not {current}:", f"    return {literal}"]
            guard_words = guard_words and f"{guard_words} if none are left"
        body.append(f"return {ending.value.format(v=current, x=item)}")
    else:
        result = ending.name
        update = ending.update.format(t=result, x=item, r="so_far")
        if "so_far" in update:
            body.append("so_far = 0")
        body += [*loop(result, ending.start, item, current, update), f"return {result}"]
    if guard_words and ending.empty_safe:
        body = [f"if not {parameter}:", f"    return {literal}", *body]
        guard_words += " if the list is empty"

    says.append(end_words)
    function = Function(
        [parameter], ["list"], says, body, [*parts, ending.name], "with loops" if looped else "with comprehensions"
    )
    function.has_style = any(line.startswith("for ") if looped else " for " in line for line in body)
    function.guard = guard_words
    function.arguments = [[rng.randint(-9 if rng.random() < 0.3 else 1, 40) for _ in range(rng.randint(3, 6))]]
    return function


def _text_function(rng: random.Random) -> Function:
    """Change a string in one to three steps, then end with one value."""
    parameter = rng.choice(_TEXTS)
    ending = text_ending(rng)
    looped = bool(ending.update) and (not ending.value or rng.random() < 0.5)
    body: list[str] = []
    says: list[str] = []
    parts: list[str] = []
    current = parameter
    reuse = rng.random() < 0.4
    count = rng.choice([1, 2, 2, 3, 3])
    chosen: list[Step] = []
    while len(chosen) < count:
        step = text_step(rng)
        if step.name not in [other.name for other in chosen] and step.name != parameter:
            chosen.append(step)
    for step in chosen:
        target, said = (parameter, "") if reuse else name_value(step.name, rng, {*parts, parameter})
        body.append(f"{target} = {step.value.format(v=current)}")
        says.append(rng.choice(step.words) + said)
        parts.append(step.name if reuse else target)
        current = target
    letter = "letter" if "split" not in ending.value else "part"
    if looped:
        result = ending.name if not ending.name.startswith("count_") else "count"
        body += [
            *loop(result, ending.start, letter, current, ending.update.format(t=result, x=letter)),
            f"return {result}",
        ]
    else:
        body.append(f"return {ending.value.format(v=current, x=letter)}")
    says.append(rng.choice(ending.words))
    function = Function([parameter], ["string"], says, body, [*parts, ending.name], "with a loop" if looped else "")
    function.has_style = looped
    if reuse:
        function.extra = spin(f"Keep the [result|value] in {parameter} [all the way|at each step].", rng)
    if rng.random() < 0.2:
        literal, words = rng.choice([('""', "an empty string"), ("None", "None"), ("0", "0")])
        function.body = [f"if not {parameter}:", f"    return {literal}", *body]
        function.guard = f"{words} if {parameter} is empty"
    function.arguments = [rng.choice(_SAMPLES)]
    return function


_SHAPES = (_list_function, _list_function, _text_function, number_function, dict_function)


def python_function(rng: random.Random) -> str:
    """Write a task comment, the function it asks for, and sometimes an example."""
    while True:
        function = rng.choice(_SHAPES)(rng)
        text = write(function, rng)
        if text is not None:
            return text
