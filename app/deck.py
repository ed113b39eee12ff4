"""A deck: steps of any runs in an order of one's own, with titles, questions and notes, as one HTML file to teach with."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from app.class_file import numbered, page_runs
from app.history import History
from app.inputs import step_number
from app.record import recorded_race
from app.recordings import Recording
from app.views.drawn import STATIC
from app.views.learn import lesson_run, tours_page
from app.views.race import drawing
from d2sd import InputError

ENTRY = STATIC / "deck" / "main.js"
GAMES = ("quiz", "draft")
VIEWS = ("explore", *GAMES, "learn", "race")
LESSON = "lesson"  # in place of a key: the recorded run of Learn
MAX_CARDS = 60
MOST = {"title": 120, "question": 500, "notes": 4000}  # characters
MOST_STOPS = 10


@dataclass(frozen=True, slots=True)
class Card:
    """One thing that is shown.

    view: one of ``VIEWS``.
    key: of its run; empty for a race, which is that of the window.
    step: of that run, from 0; None: the page chooses.
    node: of that step.
    stop: of Learn; 0 is its story.
    words: title, question and notes.
    """

    view: str
    key: str
    step: int | None
    node: int | str | None
    stop: int
    words: Mapping[str, str]


def read_cards(raw: Any) -> list[Card]:
    """Returns the cards that a page sends. Raises ``InputError``."""
    if not isinstance(raw, list) or not raw:
        raise InputError("there is no step in it yet; “Pin” in Share puts one there")
    if len(raw) > MAX_CARDS:
        raise InputError(f"it has {len(raw)} cards; at most {MAX_CARDS} are taken")
    return [_card(number, one) for number, one in enumerate(raw, 1)]


def _card(number: int, raw: Any) -> Card:
    given = raw if isinstance(raw, dict) else {}
    words = {name: str(given.get(name) or "").strip() for name in MOST}
    for name, text in words.items():
        if len(text) > MOST[name]:
            raise InputError(f"the {name} of card {number} has {len(text)} characters; at most {MOST[name]} fit")
    view, node, stop = given.get("view"), given.get("node"), step_number(given.get("stop"))
    if view not in VIEWS:
        raise InputError(f"card {number} does not say what it shows")
    known = node if node == "bonus" or step_number(node) is not None else None
    return Card(
        view, str(given.get("key") or ""), step_number(given.get("step")), known, min(stop or 0, MOST_STOPS), words
    )


def deck_page(history: History, raw: Any) -> str:
    """Returns the deck as a page that works offline; its cards name the runs by their numbers in the list.

    The race is that of the window, or the recorded one. Raises ``InputError``.
    """
    cards = read_cards(raw)
    listed = _listed(history, lesson=any(card.key == LESSON for card in cards))
    numbers = {key: number for key, number, _ in listed}
    for at, card in enumerate(cards, 1):
        if card.view != "race" and card.key not in numbers:
            raise InputError(f"the run of card {at} is no longer in the list; remove the card")
    used = {numbers[card.key] for card in cards if card.view != "race"}
    if not used:
        raise InputError("it has no step of a run; pin one beside the race")
    kept = {number: run for _, number, run in listed if number in used}
    race = history.race or recorded_race()
    raced = any(card.view == "race" for card in cards)
    if raced and (race.status or not race.lanes):
        raise InputError("there is no finished race; run one or remove its card")
    more = {
        "id": uuid.uuid4().hex,
        "cards": [{"address": _address(card, numbers), **card.words} for card in cards],
        "race": drawing(race, offline=True) if raced else None,
    }
    title = cards[0].words["title"] or "D²SD Explorer"
    return tours_page(page_runs(sorted(kept.items())), title, ENTRY, ("race", "deck"), more)


def _listed(history: History, *, lesson: bool) -> list[tuple[str, int, Recording]]:
    """Returns the runs of the list with key and number; that of Learn comes last where it is not among them."""
    runs = [(kept.run.key, number, kept) for number, kept in numbered(history.runs)]
    if lesson:
        run = lesson_run()
        found = next(((LESSON, number, kept) for _, number, kept in runs if kept.run.holds(run)), None)
        runs.append(found or (LESSON, len(runs) + 1, Recording("the run of Learn", run, "Recorded")))
    return runs


def _address(card: Card, numbers: Mapping[str, int]) -> str:
    """Returns what the address of the page says while the card is shown."""
    if card.view == "race":
        return "race=1"
    fields: dict[str, Any] = {"run": numbers[card.key]}
    if card.step is not None:
        fields["step"] = card.step + 1
    if card.view == "learn":
        fields["stop"] = card.stop
    elif card.view in GAMES:
        fields[card.view] = 1
    elif card.node is not None and card.step is not None:
        fields["node"] = card.node
    return urlencode(fields)
