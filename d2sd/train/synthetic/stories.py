"""Short stories for small children, told from a plot grammar."""

from __future__ import annotations

import random
import re

from . import words
from .grammar import capital, fill, fix_articles
from .plots import SHARED
from .plots_help import HELP_PLOTS
from .plots_play import PLAY_PLOTS

_SHORTEST, _LONGEST = 90, 190
_OPTIONAL_CHANCE = 0.6
_BREAK_CHANCE = 0.6
_REFERENCE = re.compile(r"<(\w+)>")

Step = tuple[bool, list[str]]


def _parse(plot: str) -> list[list[Step]]:
    """Read a plot: paragraphs of steps, each step with its paraphrases.

    A line opens a step, `| ` adds a paraphrase to it, `? ` makes it optional.
    """
    paragraphs: list[list[Step]] = [[]]
    for line in plot.strip().splitlines():
        line = line.strip()
        if not line:
            paragraphs.append([])
        elif line.startswith("| "):
            paragraphs[-1][-1][1].append(line[2:])
        else:
            optional = line.startswith("? ")
            paragraphs[-1].append((optional, [line[2:] if optional else line]))
    return paragraphs


_PLOTS = [_parse(plot) for plot in (*PLAY_PLOTS, *HELP_PLOTS)]
_SHARED = {name: [step.strip() for step in text.strip().splitlines()] for name, text in SHARED.items()}


def _pronouns(prefix: str, girl: bool) -> dict[str, str]:
    """Return the pronoun slots of one character, small and with a capital."""
    he, him, his = ("she", "her", "her") if girl else ("he", "him", "his")
    slots = {f"{prefix}he": he, f"{prefix}him": him, f"{prefix}his": his, f"{prefix}self": f"{him}self"}
    slots |= {f"{prefix.upper()}He": capital(he), f"{prefix.upper()}His": capital(his)}
    return slots


def _characters(rng: random.Random) -> dict[str, str]:
    """Choose the hero, a friend and a grown-up."""
    animals = rng.random() < 0.35
    slots: dict[str, str] = {}
    names: list[str] = []
    kinds = rng.sample(words.ANIMALS, 2)
    for index, prefix in enumerate(("", "f")):
        girl = rng.random() < 0.5
        if animals:
            pool, kind = (words.ANIMAL_GIRLS if girl else words.ANIMAL_BOYS), kinds[index]
        else:
            pool, kind = (words.GIRLS if girl else words.BOYS), "girl" if girl else "boy"
        name = rng.choice([name for name in pool if name not in names])
        names.append(name)
        slots |= _pronouns(prefix, girl)
        slots |= {prefix or "h": name, f"{prefix}kind": kind}
    parent = rng.choice(["mom", "mom", "dad", "dad", "grandma", "grandpa", "aunt", "uncle"])
    slots |= {"p": parent, "P": capital(parent)}
    slots |= _pronouns("p", parent in ("mom", "grandma", "aunt"))
    slots["trait"] = rng.choice(
        ["little", "small", "kind", "happy", "brave", "shy", "funny", "clever", "young", "busy", "quiet", "cheerful"]
    )
    return slots


def _scene(rng: random.Random, slots: dict[str, str], things: list[str]) -> dict[str, str]:
    """Choose the things and places of a story, none of them twice."""
    adj, color = rng.choice(words.ADJECTIVES), rng.choice(words.COLORS)
    noun = rng.choice(things)
    place, other = rng.sample(words.OUTDOORS, 2)
    spots = rng.sample(words.SPOTS, 3)
    pets = [pet for pet in words.PETS if slots["kind"] not in pet and slots["fkind"] not in pet]
    scene = {"adj": adj, "noun": noun, "obj": f"{adj} {noun}", "color": color}
    for key, where in (("place", place), ("other", other)):
        preposition, name = where.split("|")
        scene |= {key: f"the {name}", f"at_{key}": f"{preposition} the {name}"}
    scene |= {f"spot{i}": spot for i, spot in enumerate(spots, 1)}
    pet = rng.choice(pets)
    scene |= {"pet": pet, "petkind": pet.split()[-1]}
    for key, pool in (
        ("room", words.ROOMS), ("food", words.FOODS), ("treat", words.TREATS), ("plant", words.PLANTS),
        ("build", words.BUILDS), ("skill", words.SKILLS), ("material", words.MATERIALS), ("maker", words.MAKERS),
    ):  # fmt: skip
        scene[key] = rng.choice(pool)
    scene["Day"] = rng.choice(["One day", "One morning", "One afternoon", "Today", "On Monday", "On Sunday"])
    scene["number"] = rng.choice(["two", "three", "four", "five", "six", "seven", "ten"])
    return scene


def _tell(rng: random.Random) -> str:
    """Tell one story of any length."""
    plot = rng.choice(_PLOTS)
    used = str(plot)
    slots = _characters(rng)
    things = words.BREAKABLE if "<own_breakable>" in used else words.TOYS if "<own_toy>" in used else None
    slots |= _scene(rng, slots, things or words.TOYS + words.THINGS)
    text = ""
    for paragraph in plot:
        lines = []
        for optional, paraphrases in paragraph:
            if optional and rng.random() > _OPTIONAL_CHANCE:
                continue
            line = rng.choice(paraphrases)
            while _REFERENCE.search(line):
                line = _REFERENCE.sub(lambda m: rng.choice(_SHARED[m.group(1)]), line)
            lines.append(fill(line, slots, rng))
        gap = "" if not text else "\n\n" if rng.random() < _BREAK_CHANCE else " "
        text += gap + " ".join(lines)
    return fix_articles(text)


def story(rng: random.Random) -> str:
    """Tell a story of 90 to 190 words with one hero, a small problem and a happy end."""
    while True:
        text = _tell(rng)
        if _SHORTEST <= len(text.split()) <= _LONGEST:
            return text
