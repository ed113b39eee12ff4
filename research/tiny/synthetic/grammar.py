"""The small template language that the generators share."""

from __future__ import annotations

import random
import re

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa])n? (?=([A-Za-z]+))")
_SOFT_VOWELS = ("uni", "use", "one", "eu")


def spin(template: str, rng: random.Random) -> str:
    """Replace every `[a|b|c]` (which may nest) by one of its choices."""
    while True:
        template, found = _CHOICE.subn(lambda m: rng.choice(m.group(1).split("|")), template)
        if not found:
            return template


def fill(template: str, slots: dict[str, str], rng: random.Random) -> str:
    """Choose among the brackets of a template, then fill its `{slots}`."""
    return spin(template, rng).format_map(slots)


def fix_articles(text: str) -> str:
    """Write `a` or `an` as the next word asks."""

    def article(match: re.Match[str]) -> str:
        word = match.group(2).lower()
        vowel = word[0] in "aeiou" and not word.startswith(_SOFT_VOWELS)
        return f"{match.group(1)}{'n' if vowel else ''} "

    return _ARTICLE.sub(article, text)


def capital(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
