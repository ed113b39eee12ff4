"""A deck: steps of any runs, in an order of one's own, in one file."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace

import pytest

from app import presets
from app.deck import LESSON, MAX_CARDS, deck_page
from app.history import History
from app.page_session import Session
from app.record import recorded_race
from app.tabs.runs import move, together
from app.views.learn import lesson_run
from d2sd import InputError
from d2sd.trace.run import RecordedRun
from tests.app.event import Event

BREAKOUT = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


@pytest.fixture
def kept():
    history = History()
    lines = presets.opening().lines()
    for number in range(3):
        head = {**json.loads(lines[0]), "run": f"{number}" * 32, "prompt": f"prompt {number}"}
        history.keep(RecordedRun.read("\n".join([json.dumps(head), *lines[1:]]).encode()), "Explore")
    return history


def block(page, name):
    return json.loads(page.partition(f'id="{name}">')[2].partition("</script>")[0])


def card(view, key="", **more):
    return {
        "view": view,
        "key": key,
        "step": None,
        "node": None,
        "stop": 0,
        "title": "",
        "question": "",
        "notes": "",
        **more,
    }


def test_cards_name_the_runs_as_the_list_numbers_them_in_their_own_order(kept):
    newest, _, oldest = (k.run.key for k in kept.runs)
    cards = [
        card("learn", newest, step=4, node=2, stop=3),
        card("explore", oldest, step=0, node="bonus", title="A"),
        card("quiz", newest, step=5, node=7, notes="n", question="q"),
        card("draft", newest, step=0),
        card("explore", newest),
    ]
    page = deck_page(kept, cards)
    more = block(page, "more")
    assert [c["address"] for c in more["cards"]] == [
        "run=3&step=5&stop=3",
        "run=1&step=1&node=bonus",
        "run=3&step=6&quiz=1",
        "run=3&step=1&draft=1",
        "run=3",
    ]
    assert [(c["title"], c["question"], c["notes"]) for c in more["cards"]][1:3] == [("A", "", ""), ("", "q", "n")]
    assert [(run["number"], run["label"]) for run in block(page, "trace")] == [
        (1, "D²SD: prompt 0"),
        (3, "D²SD: prompt 2"),
    ]
    assert more["race"] is None


def test_the_run_of_learn_brings_k_and_gamma_and_is_there_once(kept):
    own = kept.runs[0].run.key
    page = deck_page(kept, [card("learn", LESSON, step=7, stop=10), card("explore", own)])
    assert block(page, "more")["cards"][0]["address"] == "run=4&step=8&stop=10"
    tours = [
        json.loads(zlib.decompress(base64.b64decode(run["tour"]), -zlib.MAX_WBITS)) for run in block(page, "trace")
    ]
    assert [tour.get("live") for tour in tours] == [None, presets.lesson()["live"]]
    kept.keep(lesson_run(), "Recorded")
    again = deck_page(kept, [card("learn", LESSON), card("explore", kept.runs[0].run.key)])
    assert [c["address"] for c in block(again, "more")["cards"]] == ["run=4&stop=0", "run=4"]
    assert len(block(again, "trace")) == 1


def test_the_race_of_the_window_comes_along_and_nothing_of_it_can_be_run(kept):
    key = kept.runs[0].run.key
    race = json.loads(block(deck_page(kept, [card("explore", key), card("race")]), "more")["race"])
    assert race["offline"]
    assert len(race["lanes"]) == len(recorded_race().lanes)
    kept.race = replace(recorded_race(), lanes=recorded_race().lanes[:2])
    race = json.loads(block(deck_page(kept, [card("explore", key), card("race")]), "more")["race"])
    assert len([lane for lane in race["lanes"] if lane.get("steps")]) == 2
    kept.race = replace(kept.race, status="running")
    with pytest.raises(InputError, match="no finished race"):
        deck_page(kept, [card("explore", key), card("race")])


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (None, "no step in it yet"),
        ([], "no step in it yet"),
        ([card("explore", "gone")], "the run of card 1 is no longer in the list"),
        ([card("race")], "no step of a run"),
        ([card("shell", "x")], "card 1 does not say what it shows"),
        (["x"], "card 1 does not say what it shows"),
        ([card("explore", "x", notes="n" * 4001)], "the notes of card 1 has 4001 characters; at most 4000 fit"),
        ([card("explore", "x")] * (MAX_CARDS + 1), "at most 60"),
    ],
)
def test_what_is_no_deck_is_a_sentence(kept, raw, said):
    with pytest.raises(InputError, match=said):
        deck_page(kept, raw)


def test_words_and_wrong_numbers_stay_data(kept):
    key = kept.runs[0].run.key
    words = {"title": BREAKOUT, "question": BREAKOUT, "notes": BREAKOUT}
    page = deck_page(kept, [card("explore", key, step="4", node=[1], **words)])
    assert block(page, "more")["cards"] == [{"address": "run=3", **words}]
    assert "<img" not in page
    assert len(re.findall(r"<script", page)) == 3  # the runs, the deck, the code


def test_the_page_makes_the_file_and_says_why_it_cannot(kept):
    session = Session(history=kept, shown=kept.runs[0].run)
    file = json.loads(together(session, Event(kind="deck", cards=[card("quiz", kept.runs[1].run.key, step=2)]))[0])[
        "file"
    ]
    assert file["name"] == "d2sd-deck.html"
    assert "run=2&step=3&quiz=1" in base64.b64decode(file["base64"]).decode()
    assert "The file was not made: there is no step in it yet" in together(session, Event(kind="deck"))[1].value


def test_a_run_moves_in_the_list_and_takes_the_number_of_its_place(kept):
    session = Session(history=kept, shown=kept.runs[0].run)
    first, second, third = (k.run.key for k in kept.runs)
    move(session, Event(key=third, by=-1))
    assert [k.run.key for k in kept.runs] == [first, third, second]
    assert kept.numbered("2").run.key == third
    for key, by in ((first, -1), (second, 1), ("gone", 1), (first, "1"), (first, None)):
        move(session, Event(key=key, by=by))
    assert [k.run.key for k in kept.runs] == [first, third, second]
