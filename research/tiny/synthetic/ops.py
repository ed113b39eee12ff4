"""The operations that Python functions are composed of.

Each operation says itself in words and writes itself as a comprehension or as a loop.
"""

from __future__ import annotations

import random
from typing import NamedTuple

_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth"}


class Condition(NamedTuple):
    """A test of one number: how it is said, written, and called."""

    words: tuple[str, ...]
    test: str
    name: str


class Change(NamedTuple):
    """A change of one number: how it is said, written, and called."""

    words: tuple[str, ...]
    value: str
    name: str


class Step(NamedTuple):
    """One line that makes a new value out of an old one, `{v}`."""

    words: tuple[str, ...]
    value: str
    name: str


def condition(rng: random.Random) -> Condition:
    """Draw a test of `{x}`."""
    c, k = rng.randint(1, 30), rng.randint(3, 9)
    return rng.choice([
        Condition(("the even ones", "only the even ones", "those that are even"), "{x} % 2 == 0", "evens"),
        Condition(("the odd ones", "only the odd ones", "those that are odd"), "{x} % 2 == 1", "odds"),
        Condition((f"those greater than {c}", f"only those above {c}", f"those that are more than {c}"), f"{{x}} > {c}", "large"),
        Condition((f"those less than {c}", f"only those below {c}", f"those that are under {c}"), f"{{x}} < {c}", "small"),
        Condition((f"those that are at least {c}", f"those of {c} or more", f"those not below {c}"), f"{{x}} >= {c}", "enough"),
        Condition((f"those that are at most {c}", f"those of {c} or less", f"those not above {c}"), f"{{x}} <= {c}", "limited"),
        Condition((f"the multiples of {k}", f"those that divide by {k}", f"only multiples of {k}"), f"{{x}} % {k} == 0", "multiples"),
        Condition(("the positive ones", "only the positive ones", "those above zero"), "{x} > 0", "positive"),
        Condition(("the negative ones", "only the negative ones", "those below zero"), "{x} < 0", "negative"),
        Condition((f"those that are not {k}", f"all but those equal to {k}", f"those different from {k}"), f"{{x}} != {k}", "others"),
        Condition((f"those between {k} and {k + c}", f"those from {k} to {k + c}", f"those in the range {k} to {k + c}"),
                  f"{k} <= {{x}} <= {k + c}", "middle"),
    ])  # fmt: skip


def change(rng: random.Random) -> Change:
    """Draw a change of `{x}`."""
    c, k = rng.randint(2, 30), rng.randint(2, 10)
    return rng.choice([
        Change((f"multiply each by {k}", f"make each {k} times as big", f"scale each one by {k}"), f"{{x}} * {k}", "scaled"),
        Change((f"add {c} to each", f"increase each by {c}", f"raise each one by {c}"), f"{{x}} + {c}", "raised"),
        Change((f"subtract {c} from each", f"lower each by {c}", f"take {c} from each one"), f"{{x}} - {c}", "lowered"),
        Change(("square each", "replace each by its square", "square every one"), "{x} ** 2", "squares"),
        Change(("cube each", "replace each by its cube", "cube every one"), "{x} ** 3", "cubes"),
        Change(("negate each", "flip the sign of each", "turn each into its negative"), "-{x}", "negated"),
        Change(("take the absolute value of each", "drop the sign of each", "make each one absolute"), "abs({x})", "sizes"),
        Change((f"take each modulo {k}", f"keep the remainder of each by {k}", f"reduce each one modulo {k}"), f"{{x}} % {k}", "remainders"),
        Change((f"divide each by {k}, rounding down", f"floor divide each by {k}", f"split each one by {k} without a rest"), f"{{x}} // {k}", "parts"),
        Change((f"cap each at {c}", f"limit each to at most {c}", f"cut each one down to at most {c}"), f"min({{x}}, {c})", "capped"),
        Change((f"raise each to at least {k}", f"lift each one up to at least {k}", f"use {k} for each one that is lower"), f"max({{x}}, {k})", "lifted"),
    ])  # fmt: skip


def list_step(rng: random.Random) -> Step:
    """Draw an operation on a whole list."""
    n = rng.randint(2, 6)
    return rng.choice([
        Step(("sort them", "put them in order", "order them from small to large"), "sorted({v})", "ordered"),
        Step(("sort them in reverse", "order them from large to small", "sort them with the largest first"), "sorted({v}, reverse=True)", "ranked"),
        Step(("reverse them", "turn the order around", "put them in reverse order"), "{v}[::-1]", "flipped"),
        Step((f"take the first {n}", f"keep only the first {n}", f"cut them to the first {n}"), f"{{v}}[:{n}]", "head"),
        Step((f"take the last {n}", f"keep only the last {n}", f"cut them to the last {n}"), f"{{v}}[-{n}:]", "tail"),
        Step((f"skip the first {n}", f"drop the first {n}", f"leave out the first {n}"), f"{{v}}[{n}:]", "rest"),
        Step((f"take every {_ORDINALS[n]} one", f"keep one in {n}, from the first", f"step through them by {n}"), f"{{v}}[::{n}]", "stepped"),
        Step(("remove duplicates and sort them", "sort the distinct ones", "put the unique ones in order"), "sorted(set({v}))", "unique"),
        Step(("repeat the list twice", "put the list after itself", "double the list"), "{v} + {v}", "twice"),
        Step((f"add a {n} at the end", f"append a {n}", f"put a {n} last"), f"{{v}} + [{n}]", "extended"),
    ])  # fmt: skip


class Ending(NamedTuple):
    """What a function gives back; `start` and `update` write it as a loop."""

    words: tuple[str, ...]
    value: str
    name: str
    start: str = ""
    update: str = ""
    empty_safe: bool = True


ENDINGS = (
    Ending(("return their sum", "give back the total", "return what they add up to"), "sum({v})", "total", "0", "{t} += {x}"),
    Ending(("return how many there are", "count them and return the count", "return their number"), "len({v})", "count", "0", "{t} += 1"),
    Ending(("return their product", "multiply them all and return the result", "return all of them multiplied"), "", "product", "1", "{t} *= {x}"),
    Ending(("return the largest", "return the biggest one", "give back the maximum"), "max({v})", "largest", empty_safe=False),
    Ending(("return the smallest", "return the least one", "give back the minimum"), "min({v})", "smallest", empty_safe=False),
    Ending(("return the first one", "give back the first", "return the one at the front"), "{v}[0]", "first", empty_safe=False),
    Ending(("return the last one", "give back the last", "return the one at the end"), "{v}[-1]", "last", empty_safe=False),
    Ending(("return the largest minus the smallest", "return their spread", "give back the gap from smallest to largest"), "max({v}) - min({v})", "spread", empty_safe=False),
    Ending(("return their average", "give back the mean", "return the sum over the count"), "sum({v}) / len({v})", "average", empty_safe=False),
    Ending(("return the list", "return them as a list", "give back the list"), "{v}", "list"),
    Ending(("return them joined with commas", "return a string with commas between them", "join them with commas"), '",".join(str({x}) for {x} in {v})', "text"),
    Ending(("return the running totals", "return a list of running sums", "give back the sum so far at each place"), "", "running", "[]", "{r} += {x}|{t}.append({r})"),
    Ending(("return a dict with the count of each", "count each one in a dict", "return how often each one occurs"), "", "counts", "{}", "{t}[{x}] = {t}.get({x}, 0) + 1"),
    Ending(("return the sum of their squares", "square them and return the sum", "give back the sum of squares"), "sum({x} ** 2 for {x} in {v})", "square_total", "0", "{t} += {x} ** 2"),
    Ending(("return the differences of neighbors", "return each one minus the one before", "give back the steps between neighbors"), "[b - a for a, b in zip({v}, {v}[1:])]", "steps"),
    Ending(("return True if all are positive", "check that all are above zero", "tell if each one is positive"), "all({x} > 0 for {x} in {v})", "all_positive"),
)  # fmt: skip


def text_step(rng: random.Random) -> Step:
    """Draw an operation on a string."""
    a, b = rng.sample("abcdefghilmnoprstu", 2)
    n, mark = rng.randint(2, 6), rng.choice("-_.!*+#")
    return rng.choice([
        Step(("make it upper case", "turn it to capitals", "write it in upper case"), "{v}.upper()", "upper"),
        Step(("make it lower case", "turn it to small letters", "write it in lower case"), "{v}.lower()", "lower"),
        Step(("swap its case", "swap capitals and small letters", "turn the case around"), "{v}.swapcase()", "swapped"),
        Step(("write it as a title", "start each word with a capital", "give it title case"), "{v}.title()", "titled"),
        Step((f"replace '{a}' with '{b}'", f"change every '{a}' to '{b}'", f"put '{b}' in place of '{a}'"), f'{{v}}.replace("{a}", "{b}")', "changed"),
        Step((f"remove every '{a}'", f"drop each '{a}'", f"delete all '{a}' letters"), f'{{v}}.replace("{a}", "")', "cleaned"),
        Step(("remove the spaces", "drop all spaces", "delete every space"), '{v}.replace(" ", "")', "packed"),
        Step((f"replace spaces with '{mark}'", f"put '{mark}' in place of spaces", f"turn each space into '{mark}'"), f'{{v}}.replace(" ", "{mark}")', "marked"),
        Step(("reverse it", "turn it around", "write it backwards"), "{v}[::-1]", "backwards"),
        Step((f"take the first {n} letters", f"keep only the first {n} letters", f"cut it to {n} letters"), f"{{v}}[:{n}]", "start"),
        Step((f"take the last {n} letters", f"keep only the last {n} letters", f"cut it to its last {n} letters"), f"{{v}}[-{n}:]", "end"),
        Step((f"add '{mark}' at the end", f"put '{mark}' after it", f"append '{mark}'"), f'{{v}} + "{mark}"', "closed"),
        Step((f"add '{mark}' at the start", f"put '{mark}' before it", f"prefix it with '{mark}'"), f'"{mark}" + {{v}}', "opened"),
        Step((f"repeat it {n} times", f"write it {n} times over", f"make {n} copies of it in a row"), f"{{v}} * {n}", "repeated"),
        Step(("strip the spaces around it", "trim it", "cut the spaces off both ends"), "{v}.strip()", "trimmed"),
        Step(("sort its letters", "put its letters in order", "order its letters"), '"".join(sorted({v}))', "ordered"),
    ])  # fmt: skip


def text_ending(rng: random.Random) -> Ending:
    """Draw what a function over a string gives back."""
    a = rng.choice("aeilnorst")
    mark = rng.choice("-_,+/")
    return rng.choice([
        Ending(("return it", "return the result", "give it back"), "{v}", "text"),
        Ending(("return its length", "return how long it is", "give back the number of letters"), "len({v})", "length"),
        Ending(("count the vowels", "return the number of vowels", "return how many vowels it has"), 'sum(1 for {x} in {v} if {x} in "aeiou")', "vowels", "0", 'if {x} in "aeiou":|    {t} += 1'),
        Ending((f"count the letter '{a}'", f"return how often '{a}' occurs", f"return the number of '{a}'"), f'{{v}}.count("{a}")', f"count_{a}", "0", f'if {{x}} == "{a}":|    {{t}} += 1'),
        Ending(("return the list of words", "split it into words", "give back its words"), "{v}.split()", "words"),
        Ending(("return the number of words", "count the words", "return how many words it has"), "len({v}.split())", "word_count"),
        Ending((f"join its words with '{mark}'", f"return the words with '{mark}' between them", f"put '{mark}' between the words and return it"), f'"{mark}".join({{v}}.split())', "joined"),
        Ending(("return the words in reverse order", "put the words in reverse order in a list", "give back a list of the words from last to first"), "{v}.split()[::-1]", "words_reversed"),
        Ending(("return the length of each word", "give back a list of word lengths", "list how long each word is"), "[len({x}) for {x} in {v}.split()]", "lengths"),
        Ending(("return the first letter of each word", "give back a list of initials", "list the initials"), "[{x}[0] for {x} in {v}.split()]", "initials"),
        Ending(("return True if it is a palindrome", "tell if it reads the same backwards", "check that it equals its reverse"), "{v} == {v}[::-1]", "palindrome"),
        Ending((f"tell if it starts with '{a}'", f"return True if it starts with '{a}'", f"check for '{a}' at the start"), f'{{v}}.startswith("{a}")', f"starts_{a}"),
        Ending((f"tell if it contains '{a}'", f"return True if '{a}' is in it", f"check it for '{a}'"), f'"{a}" in {{v}}', f"has_{a}"),
        Ending(("count each letter in a dict", "return a dict of letter counts", "return how often each letter occurs"), "", "letter_counts", "{}", "{t}[{x}] = {t}.get({x}, 0) + 1"),
        Ending(("return the distinct letters in order", "return its unique letters sorted", "give back the sorted set of letters"), "sorted(set({v}))", "letters"),
    ])  # fmt: skip
