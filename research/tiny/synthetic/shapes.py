"""Functions over plain numbers and over dicts."""

from __future__ import annotations

import random

from .source import Function, name_value

_PAIRS = (
    ("width", "height"), ("x", "y"), ("left", "right"), ("first", "second"), ("low", "high"),
    ("price", "tax"), ("start", "end"), ("base", "bonus"), ("speed", "time"), ("p", "q"), ("cost", "fee"),
)  # fmt: skip
_SINGLES = ["n", "count", "number", "limit", "size", "amount", "total_days", "level", "score", "age"]
_DICTS = {
    "stock": ("item", "amount"), "prices": ("name", "price"), "scores": ("player", "score"), "ages": ("name", "age"),
    "votes": ("party", "number"), "marks": ("pupil", "mark"), "sales": ("shop", "sold"), "table": ("key", "value"),
    "points": ("team", "point"), "pets": ("owner", "pet_count"), "orders": ("client", "size"), "rain": ("town", "level"),
}  # fmt: skip
_KEYS = ["apple", "pear", "plum", "fig", "nut", "tea", "milk", "bread", "salt", "corn", "rice", "egg"]


def _combine(pair: tuple[str, str], rng: random.Random) -> Function:
    """Combine two numbers, adjust the result, and test it."""
    a, b = pair
    k, c, limit = rng.randint(2, 9), rng.randint(2, 30), rng.randint(5, 60)
    words, value, name = rng.choice([
        (f"add {a} and {b}", f"{a} + {b}", "total"), (f"multiply {a} by {b}", f"{a} * {b}", "product"),
        (f"subtract {b} from {a}", f"{a} - {b}", "difference"), (f"take the larger of {a} and {b}", f"max({a}, {b})", "larger"),
        (f"take the smaller of {a} and {b}", f"min({a}, {b})", "smaller"), (f"take the distance of {a} and {b}", f"abs({a} - {b})", "distance"),
        (f"add {k} times {a} to {b}", f"{b} + {k} * {a}", "mix"), (f"add the squares of {a} and {b}", f"{a} ** 2 + {b} ** 2", "squares"),
    ])  # fmt: skip
    target, said = name_value(name, rng, set(pair))
    body, says = [f"{target} = {value}"], [words + said]
    for _index in range(rng.choice([0, 1, 1, 2])):
        words, line, extra = rng.choice([
            (f"multiply the result by {k}", f"{target} *= {k}", f"times_{k}"), (f"add {c} to the result", f"{target} += {c}", f"plus_{c}"),
            (f"subtract {c} from the result", f"{target} -= {c}", f"minus_{c}"), (f"floor divide the result by {k}", f"{target} //= {k}", f"by_{k}"),
            (f"take the result modulo {k}", f"{target} %= {k}", f"mod_{k}"), ("negate the result", f"{target} = -{target}", "negated"),
        ])  # fmt: skip
        if line not in body:
            body.append(line)
            says.append(words)
            name = extra
    first, second = rng.choice(
        [("high", "low"), ("yes", "no"), ("big", "small"), ("stop", "go"), ("many", "few"), ("full", "free")]
    )
    words, lines, ending = rng.choice([
        ("return it", [f"return {target}"], "value"),
        (f"return '{first}' if it is above {limit} and '{second}' if not", [f"if {target} > {limit}:", f'    return "{first}"', f'return "{second}"'], first),
        (f"return it, but never more than {limit}", [f"if {target} > {limit}:", f"    return {limit}", f"return {target}"], "capped"),
        (f"return it, but never less than {c}", [f"if {target} < {c}:", f"    return {c}", f"return {target}"], "at_least"),
        ("return True if it is even", [f"return {target} % 2 == 0"], "is_even"),
        (f"return 0 if it is below {limit} and it doubled if not", [f"if {target} < {limit}:", "    return 0", f"return {target} * 2"], "doubled"),
    ])  # fmt: skip
    function = Function([a, b], ["number", "number"], [*says, words], body + lines, [target, name, ending])
    function.arguments = [rng.randint(1, 40), rng.randint(1, 20)]
    return function


def _repeat(n: str, rng: random.Random) -> Function:
    """Count, collect or add up in a loop over whole numbers."""
    k, c, start = rng.randint(2, 9), rng.randint(1, 20), rng.randint(0, 5)
    test, tested, tag = rng.choice([
        ("", "", "all"), (f"i % {k} == 0", f" that divide by {k}", f"by_{k}"), ("i % 2 == 1", " that are odd", "odd"),
        (f"i != {k}", f" except {k}", f"not_{k}"), (f"i > {k}", f" above {k}", f"above_{k}"), ("i % 2 == 0", " that are even", "even"),
    ])  # fmt: skip
    said, value, changed = rng.choice([
        ("", "i", ""), ("the squares of ", "i * i", "squares"), (f"{k} times each of ", f"i * {k}", f"times_{k}"), (f"{c} more than each of ", f"i + {c}", f"plus_{c}"),
    ])  # fmt: skip
    verb, begin, update, target = rng.choice([
        ("add up", str(start), "{t} += {v}", "total"), ("collect in a list", "[]", "{t}.append({v})", "found"),
        ("subtract", str(c * 10), "{t} -= {v}", "rest"), ("write as a string with commas after each", '""', '{t} += str({v}) + ","', "text"),
    ])  # fmt: skip
    target, named = name_value(target, rng, {n})
    numbers = f"{said}the numbers from 1 to {n}{tested}"
    lead = {"add up": f"start at {start} and add up {numbers}", "subtract": f"start at {c * 10} and subtract {numbers}"}
    words = lead.get(verb, f"{verb} {numbers}")
    line = update.format(t=target, v=value)
    inner = [f"    if {test}:", f"        {line}"] if test else [f"    {line}"]
    body = [f"{target} = {begin}", f"for i in range(1, {n} + 1):", *inner, f"return {target}"]
    ending = rng.choice(["return the result", "return it", "give back the result"])
    parts = [part for part in (changed, tag, target) if part]
    return Function(
        [n], ["number"], [words + named, ending], body, parts, "with a loop", True, arguments=[rng.randint(3, 12)]
    )


def _while(n: str, rng: random.Random) -> Function:
    """Change a number until it passes a limit."""
    k, limit, c = rng.randint(2, 5), rng.randint(1, 15), rng.randint(2, 12)
    top = limit * 10 + 20
    words, test, change, tag = rng.choice([
        (f"floor divide it by {k} while it is above {limit}", f"{n} > {limit}", f"{n} //= {k}", "divided"),
        (f"subtract {c} while it is at least {limit + c}", f"{n} >= {limit + c}", f"{n} -= {c}", "lowered"),
        (f"multiply it by {k} while it is below {top}", f"{n} < {top}", f"{n} *= {k}", "grown"),
        (f"add {c} while it is below {top}", f"{n} < {top}", f"{n} += {c}", "raised"),
    ])  # fmt: skip
    said, begin, line, result, target = rng.choice([
        ("count the steps", "0", "{t} += 1", "{t}", "steps"), ("collect each value before the change in a list", "[]", "{t}.append({n})", "{t}", "seen"),
        ("add up each value before the change", "0", "{t} += {n}", "{t}", "total"), ("count the steps", "0", "{t} += 1", "{t}, {n}", "steps"),
    ])  # fmt: skip
    target, named = name_value(target, rng, {n})
    result = result.format(t=target, n=n)
    ending = f"return {target} and {n}" if "," in result else f"return {target}"
    body = [
        f"{target} = {begin}",
        f"while {test}:",
        f"    {line.format(t=target, n=n)}",
        f"    {change}",
        f"return {result}",
    ]
    function = Function([n], ["number"], [words, said + named, ending], body, [tag, target], "with a while loop", True)
    function.arguments = [rng.randint(1, 12) if tag in ("grown", "raised") else rng.randint(20, 99)]
    return function


def number_function(rng: random.Random) -> Function:
    """Draw a function over one or two numbers."""
    if rng.random() < 0.5:
        return _combine(rng.choice(_PAIRS), rng)
    return rng.choice([_repeat, _while])(rng.choice(_SINGLES), rng)


def dict_function(rng: random.Random) -> Function:
    """Filter and change a dict of numbers, then end with one value."""
    parameter = rng.choice(sorted(_DICTS))
    key, value = _DICTS[parameter]
    c, k, n = rng.randint(2, 30), rng.randint(2, 9), rng.randint(3, 5)
    letter = rng.choice("abcdefmnprst")
    said, test, tag = rng.choice([
        (f"with a {value} above {c}", f"{value} > {c}", "above"), (f"with a {value} below {c}", f"{value} < {c}", "below"),
        (f"with an even {value}", f"{value} % 2 == 0", "even"), (f"with a {value} that divides by {k}", f"{value} % {k} == 0", "multiple"),
        (f"with a {key} longer than {n} letters", f"len({key}) > {n}", "long"), (f"with a {key} with the letter '{letter}'", f'"{letter}" in {key}', f"with_{letter}"),
    ])  # fmt: skip
    raised, new, change = rng.choice([
        ("", value, ""), (f"add {c} to each {value}", f"{value} + {c}", "raised"), (f"multiply each {value} by {k}", f"{value} * {k}", "scaled"),
        (f"subtract {k} from each {value}", f"{value} - {k}", "lowered"), (f"cap each {value} at {c}", f"min({value}, {c})", "capped"),
    ])  # fmt: skip
    target, named = name_value("kept", rng, {parameter})
    looped = rng.random() < 0.5
    pick = rng.choice(["keep", "pick", "choose"])
    says = [f"{pick} the entries {said}{' and ' + raised if raised else ''}{named}"]
    if looped:
        body = [
            f"{target} = {{}}",
            f"for {key}, {value} in {parameter}.items():",
            f"    if {test}:",
            f"        {target}[{key}] = {new}",
        ]
    else:
        body = [f"{target} = {{{key}: {new} for {key}, {value} in {parameter}.items() if {test}}}"]
    safe = [f"if not {target}:", "    return None"]
    words, lines, ending = rng.choice([
        ("return the dict", [f"return {target}"], "dict"), (f"return the sum of each {value}", [f"return sum({target}.values())"], "total"),
        ("return how many there are", [f"return len({target})"], "count"), (f"return each {key} in order", [f"return sorted({target})"], "sorted"),
        (f"return each {value} from large to small", [f"return sorted({target}.values(), reverse=True)"], "ranked"),
        (f"return the {key} with the largest {value}", [*safe, f"return max({target}, key={target}.get)"], "best"),
        (f"return the {key} with the smallest {value}", [*safe, f"return min({target}, key={target}.get)"], "least"),
        (f"swap each {key} and {value} and return the dict", [f"return {{{value}: {key} for {key}, {value} in {target}.items()}}"], "swapped"),
        (f"return each {key} in upper case in a list", [f"return [{key}.upper() for {key} in {target}]"], "upper"),
        (f"return the average {value}", [*safe, f"return sum({target}.values()) / len({target})"], "average"),
    ])  # fmt: skip
    function = Function(
        [parameter], ["dict"], [*says, words], body + lines, [part for part in (tag, change, ending) if part]
    )
    function.style, function.has_style = ("with a loop" if looped else "with a comprehension"), True
    function.guard = "None if none are left" if lines[0] == safe[0] else ""
    function.arguments = [{name: rng.randint(1, 40) for name in rng.sample(_KEYS, rng.randint(2, 4))}]
    return function
