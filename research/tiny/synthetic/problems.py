"""The worded problems: a question, and for each step a reason and a fact.

`{a}` and `{b}` are the numbers of the first step and `{r}` its result; a second step
does something with `{c}` and comes to `{s}`. `{n}` and `{m}` are people.
"""

from __future__ import annotations

from typing import NamedTuple

THINGS = [
    "apples",
    "coins",
    "stickers",
    "marbles",
    "shells",
    "cards",
    "pencils",
    "books",
    "buttons",
    "stamps",
    "cookies",
    "grapes",
    "pears",
    "oranges",
    "eggs",
    "plums",
    "stones",
    "beads",
    "balloons",
    "crayons",
    "toy cars",
    "flowers",
    "cherries",
    "nuts",
    "muffins",
    "ribbons",
    "leaves",
    "tickets",
    "candles",
    "cupcakes",
    "badges",
    "blocks",
    "keys",
    "postcards",
    "feathers",
    "carrots",
    "onions",
    "potatoes",
    "tulips",
    "puzzles",
]


class Problem(NamedTuple):
    """One way to tell a sum in words."""

    operations: str
    question: str
    whys: tuple[str, ...]
    facts: tuple[str, ...]


_GET = "[gets|finds|buys|is given|collects]"
_LOSE = "[loses|gives away|sells|uses]"
_BOX = "[box|bag|basket|jar|drawer|bucket]"

_PROBLEMS = [
    # One step: add.
    Problem("add", f"{{n}} has {{a}} {{it}}. {{He}} {_GET} {{b}} more. How many {{it}} does {{n}} have [now|in all|altogether]?",
            ("{n} starts with {a} {it} and gets {b} more",), ("{n} has {r} {it} [now|in all]",)),
    Problem("add", "[There are|A shop has|A room has] {a} {it} [in one|in the first] box and {b} [in another|in the second one]. How many {it} are there [in all|altogether|in both boxes]?",
            ("the boxes hold {a} and {b} {it}",), ("there are {r} {it} in both boxes",)),
    Problem("add", "{n} has {a} {it} and {m} has {b} {it}. How many {it} do they have [together|in all|altogether]?",
            ("{n} has {a} {it} and {m} has {b}",), ("{n} and {m} have {r} {it} [together|in all]",)),
    Problem("add", "A bus has {a} people on it. At the [next|first] stop, {b} [more |]people get on. How many people are on the bus [now|then]?",
            ("{a} people are on the bus and {b} get on",), ("there are {r} people on the bus",)),
    Problem("add", "{n} read [{a} pages on Monday and {b} pages on Tuesday|{a} pages in the morning and {b} pages in the evening|{a} pages at home and {b} pages at school]. How many pages did {he} read [in all|altogether]?",
            ("{n} read {a} pages and then {b} pages",), ("{n} read {r} pages",)),
    Problem("add", "{n} is {a} years old. How old will {he} be [in {b} years|{b} years from now]?",
            ("{n} is {a} now and {b} years will pass",), ("{n} will be {r} years old",)),
    Problem("add", "{m} has {a} {it}. {n} has {b} more {it} than {m}. How many {it} does {n} have?",
            ("{n} has {b} more than the {a} {it} of {m}",), ("{n} has {r} {it}",)),
    Problem("add", "{n} [walks|rides|drives] {a} km to the [lake|town|farm] and then {b} km to the [hill|shop|station]. How far does {he} go [in all|altogether]?",
            ("{n} goes {a} km and then {b} km",), ("{n} goes {r} km",)),
    # One step: subtract.
    Problem("sub", f"{{n}} has {{a}} {{it}}. {{He}} {_LOSE} {{b}} of them. How many {{it}} [are left|does {{n}} have left|remain]?",
            ("{n} had {a} {it} and {b} of them are gone",), ("{n} has {r} {it} left",)),
    Problem("sub", "{n} has {a} {it}. {m} has {b} {it}. How many more {it} does {n} have than {m}?",
            ("{n} has {a} {it} and {m} has {b}",), ("{n} has {r} more {it} than {m}",)),
    Problem("sub", "A bus has {a} people on it. At the [next|first] stop, {b} people get off. How many people are [still on|left on|on] the bus?",
            ("{a} people are on the bus and {b} get off",), ("there are {r} people on the bus",)),
    Problem("sub", "A book has {a} pages. {n} has read {b} [of them|pages]. How many pages are left[| to read]?",
            ("the book has {a} pages and {n} has read {b}",), ("{n} has {r} pages left",)),
    Problem("sub", "{n} wants to buy a [hat|ball|book|game] that costs {a} coins. {He} has {b} coins. How many more coins does {he} need?",
            ("the price is {a} coins and {n} has {b}",), ("{n} needs {r} more coins",)),
    Problem("sub", "{n} [made|baked] {a} [pies|rolls|buns]. [The guests|Some friends] ate {b} of them. How many [were|are] left?",
            ("there were {a} and {b} were eaten",), ("there are {r} left",)),
    Problem("sub", "There are {a} {it} in a " + _BOX + ". {n} [takes|picks] out {b} of them. How many {it} are [still in it|left in it]?",
            ("{n} takes {b} of the {a} {it}",), ("{r} {it} are left in it",)),
    Problem("sub", "A [rope|string|ribbon] is {a} cm long. {n} cuts off {b} cm. How [long is it|many cm are left|long is the rest]?",
            ("it is {a} cm long and {b} cm are cut off",), ("{r} cm are left",)),
    # One step: multiply.
    Problem("mul", "{n} has {a} [boxes|bags|jars]. There are {b} {it} in [each|each one|every one]. How many {it} does {n} have [in all|altogether]?",
            ("{n} has {a} times {b} {it}",), ("{n} has {r} {it} [in all|altogether]",)),
    Problem("mul", "There are {a} rows of [chairs|seats|desks] with {b} in each row. How many are there [in all|altogether]?",
            ("there are {a} rows of {b}",), ("there are {r} in all",)),
    Problem("mul", "{n} reads {a} pages [every|each] day. How many pages does {he} read in {b} days?",
            ("{n} reads {a} pages on each of {b} days",), ("{n} reads {r} pages in {b} days",)),
    Problem("mul", "[One toy|A ticket|A cake|One book] costs {a} coins. {n} buys {b}. How many coins does {he} [pay|need]?",
            ("each one of the {b} costs {a} coins",), ("{n} pays {r} coins",)),
    Problem("mul", "{m} has {a} {it}. {n} has {b} times as many. How many {it} does {n} have?",
            ("{n} has {b} times the {a} {it} of {m}",), ("{n} has {r} {it}",)),
    Problem("mul", "{n} [runs|walks|swims] {a} km [on each trip|each time]. How far does {he} go if {he} does this {b} times?",
            ("{n} goes {a} km, {b} times",), ("{n} goes {r} km",)),
    # One step: divide.
    Problem("div", "{n} [shares|splits] {a} {it} [equally|evenly] among {b} [friends|children|people]. How many {it} does each [one |person |]get?",
            ("{a} {it} are shared by {b}",), ("each one gets {r} {it}",)),
    Problem("div", "{n} puts {a} {it} into [boxes|bags|jars] of {b}. How many does {he} [need|fill]?",
            ("{n} packs {a} {it} in groups of {b}",), ("{n} fills {r} of them",)),
    Problem("div", "A book has {a} pages. {n} reads {b} pages [every|each] day. How many days does {he} need?",
            ("{n} reads {b} of the {a} pages each day",), ("{n} needs {r} days",)),
    Problem("div", "{b} [tickets|toys|hats|cups] cost {a} coins [in all|altogether]. How much does one cost?",
            ("{a} coins pay for {b} of them",), ("one costs {r} coins",)),
    Problem("div", "{a} children stand in {b} equal [rows|teams|groups]. How many children are in each one?",
            ("{a} children are split in {b}",), ("there are {r} children in each one",)),
    # Two steps.
    Problem("add sub", f"{{n}} has {{a}} {{it}}. {{He}} {_GET} {{b}} more and then {_LOSE} {{c}}. How many {{it}} does {{n}} have [now|left|in the end]?",
            ("{n} has {a} {it} and gets {b} more", "{c} of them are gone"), ("{n} has {r} {it}", "{n} has {s} {it} left")),
    Problem("add sub", "A bus has {a} people on it. {b} people get on and {c} [people |]get off. How many people are on the bus [now|then]?",
            ("{b} people join the {a} on the bus", "{c} people get off"), ("{r} people are on the bus", "{s} people are on the bus")),
    Problem("add sub", "{n} has {a} {it} and {m} has {b}. Together they [give away|use|sell] {c}. How many {it} are left?",
            ("{n} and {m} have {a} and {b} {it}", "they part with {c}"), ("they have {r} {it} together", "{s} {it} are left")),
    Problem("add sub", "A book has two parts, of {a} and {b} pages. {n} has read {c} pages. How many pages [are left|does {he} still have to read]?",
            ("the parts have {a} and {b} pages", "{n} has read {c} pages"), ("the book has {r} pages", "{s} pages are left")),
    Problem("sub add", f"{{n}} has {{a}} {{it}}. {{He}} {_LOSE} {{b}}, and later {_GET} {{c}} more. How many {{it}} does {{n}} have [now|then]?",
            ("{b} of the {a} {it} are gone", "{n} gets {c} more"), ("{n} has {r} {it}", "{n} has {s} {it} now")),
    Problem("sub add", "There are {a} [birds|ducks|crows] [in|near] a field. {b} fly away and {c} others [come|fly in]. How many are there now?",
            ("{b} of the {a} fly away", "{c} others come"), ("there are {r}", "there are {s} now")),
    Problem("sub add", "{n} has {a} coins. {He} pays {b} coins for a [hat|book|ticket], and then earns {c} coins. How many coins does {he} have?",
            ("{n} pays {b} of {his} {a} coins", "{n} earns {c} coins"), ("{n} has {r} coins", "{n} has {s} coins")),
    Problem("sub sub", f"{{n}} has {{a}} {{it}}. {{He}} gives {{b}} to {{m}} and {_LOSE} {{c}}. How many {{it}} [are left|does {{n}} have left]?",
            ("{n} gives {b} of the {a} {it} to {m}", "{c} more are gone"), ("{n} has {r} {it}", "{n} has {s} {it} left")),
    Problem("sub sub", "A book has {a} pages. {n} reads {b} pages on [Monday|Friday] and {c} on [Sunday|Tuesday]. How many pages are left?",
            ("{n} reads {b} of {a} pages", "{n} reads {c} more"), ("{r} pages are left", "{s} pages are left")),
    Problem("add add", f"{{n}} has {{a}} {{it}}. {{He}} {_GET} {{b}} on [Monday|Friday] and {{c}} on [Sunday|Tuesday]. How many {{it}} does {{n}} have [in all|now]?",
            ("{n} has {a} {it} and gets {b}", "{n} gets {c} more"), ("{n} has {r} {it}", "{n} has {s} {it} in all")),
    Problem("add add", "A farm has {a} [cows|goats], {b} [pigs|ducks] and {c} [sheep|hens]. How many animals are there [in all|altogether]?",
            ("the first two kinds are {a} and {b}", "there are {c} of the third kind"), ("that is {r} animals", "there are {s} animals")),
    Problem("mul add", f"{{n}} has {{a}} [bags|boxes|jars] with {{b}} {{it}} in each. {{He}} {_GET} {{c}} more {{it}}. How many {{it}} does {{n}} have [in all|now]?",
            ("{a} groups hold {b} {it} each", "{n} gets {c} more"), ("{n} has {r} {it}", "{n} has {s} {it} in all")),
    Problem("mul add", "{n} buys {a} [toys|hats|cakes] for {b} coins each and a [book|drum|lamp] for {c} coins. How many coins does {he} pay?",
            ("{n} buys {a} for {b} coins each", "the last thing costs {c} coins"), ("that is {r} coins", "{n} pays {s} coins")),
    Problem("mul sub", f"{{n}} has {{a}} [bags|boxes|jars] with {{b}} {{it}} in each. {{He}} {_LOSE} {{c}} {{it}}. How many {{it}} [are left|does {{n}} have left]?",
            ("{a} groups hold {b} {it} each", "{c} {it} are gone"), ("{n} has {r} {it}", "{n} has {s} {it} left")),
    Problem("mul sub", "There are {a} rows of {b} seats. {c} seats are [taken|full]. How many seats are [free|empty]?",
            ("there are {a} rows of {b} seats", "{c} seats are not free"), ("there are {r} seats", "{s} seats are free")),
    Problem("div add", f"{{n}} and {{his}} friends share {{a}} {{it}}, {{b}} people in all, and each gets the same. Then {{n}} {_GET} {{c}} more. How many {{it}} does {{n}} have?",
            ("{a} {it} are shared by {b}", "{n} gets {c} more"), ("{n} has {r} {it}", "{n} has {s} {it}")),
    Problem("div sub", f"{{n}} splits {{a}} {{it}} into {{b}} equal [piles|bags|boxes] and keeps one. {{He}} {_LOSE} {{c}} from it. How many {{it}} are left in it?",
            ("{a} {it} make {b} equal parts", "{c} are gone from one of them"), ("each part has {r} {it}", "{s} {it} are left")),
    Problem("add div", "{n} has {a} {it} and {m} has {b}. They put them together and share them [equally|evenly] among {c} [friends|children]. How many {it} does each one get?",
            ("{n} and {m} have {a} and {b} {it}", "{c} children share them"), ("there are {r} {it}", "each one gets {s} {it}")),
    Problem("sub div", f"{{n}} has {{a}} {{it}}. {{He}} {_LOSE} {{b}} and puts the rest into {{c}} equal [bags|boxes|rows]. How many {{it}} are in each one?",
            ("{b} of the {a} {it} are gone", "the rest goes into {c} parts"), ("{r} {it} are left", "each one has {s} {it}")),
    Problem("div mul", "{n} packs {a} {it} into {b} equal [bags|boxes]. {m} takes {c} of the same kind. How many {it} does {m} have?",
            ("{b} equal parts make up {a} {it}", "{m} takes {c} of them"), ("each one holds {r} {it}", "{m} has {s} {it}")),
]  # fmt: skip


def _by_operations(steps: int) -> dict[str, list[Problem]]:
    """Group the problems with this many steps by their operations."""
    groups: dict[str, list[Problem]] = {}
    for problem in _PROBLEMS:
        if len(problem.operations.split()) == steps:
            groups.setdefault(problem.operations, []).append(problem)
    return groups


ONE_STEP = _by_operations(1)
TWO_STEP = _by_operations(2)
