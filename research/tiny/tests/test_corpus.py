"""The training text: right answers by construction, held-out text apart, every form that a visitor may type."""

from __future__ import annotations

import ast
import json
import random
import re
from dataclasses import replace

import pytest

from d2sd.errors import InputError
from d2sd.train.data import normalise
from research.tiny import public
from research.tiny.corpus import Mix, Sources, begun_anywhere, training_text
from research.tiny.heldout import DOMAINS, candidates, held_out_prompts
from research.tiny.prompts import drafter_prompts, opening, unusual_openings
from research.tiny.synthetic.worked import Wording, equation_text, reworded, varied, worked_steps

NAMES = ("Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gil", "Hal", "Ida", "Jo")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small folder with a file of every public source."""
    folder = tmp_path_factory.mktemp("data")
    stories = [
        f"One day, {a} met {b} near the old mill number {i}. They saw a “kite”.\n"
        + f"{a} liked the kite and the kite was red. {b} took the kite home and they were happy. " * 3
        for i, (a, b) in enumerate((a, b) for a in NAMES for b in NAMES)
    ]
    (folder / "tinystories_x.txt").write_text("\n<|endoftext|>\n".join(stories), encoding="utf-8")
    problems = [
        {"Body": f"{a} has {n + 20} pears and finds {n + 3} more", "Question": "How many pears are there?",
         "Equation": f"( {n + 20}.0 + {n + 3}.0 )"}
        for n, a in enumerate(NAMES)
    ]  # fmt: skip
    (folder / "svamp.json").write_text(json.dumps(problems), encoding="utf-8")
    worked = {"question": "Ann has 3 pens and buys 4. How many?", "answer": "She has 3+4=<<3+4=7>>7 pens.\n#### 7"}
    long = {
        "question": "Ann eats 2 of 9 figs, then 3, then 1. How many are left?",
        "answer": "9-2=<<9-2=7>>7\n7-3=<<7-3=4>>4\n4-1=<<4-1=3>>3\n#### 3",
    }
    rows = {
        "gsm8k_train.jsonl": [{**worked, "question": f"{a}: {worked['question']}"} for a in NAMES] + [long],
        "mbpp.jsonl": [
            {"text": f"Write a function to add {i}.", "code": f"def {name}_{i}(x):\r\n\treturn x + {i}"}
            for name, count in (("add", 9), ("plus", 4))
            for i in range(count)
        ],
        "self_instruct.jsonl": [{"instruction": f"Say how {a} swims."} for a in NAMES],
        "mt_bench.jsonl": [{"turns": [f"Describe {a}."]} for a in NAMES],
    }
    for name, lines in rows.items():
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


MIX = Mix(seed=1, reads=2, asked=0.3, strange=0.2, sums=20, wordings=40, code=20)


def test_worked_steps_come_to_the_value_of_their_equation():
    rng = random.Random(0)
    for _ in range(500):
        sign, left, right = rng.choice("+-*/"), rng.randint(0, 999), rng.randint(1, 99)
        text = equation_text(sign, left, right)
        exact = eval(f"{left} {sign} {right}")
        if exact < 0 or exact != int(exact):
            assert text is None
            continue
        for part in text.split(" = "):
            assert eval(part) == exact, text


def test_a_reworded_problem_keeps_its_equation():
    wording = Wording(
        "Tom has 12 red and 30 blue balls. How many more blue?", ast.parse("30.0 - 12.0", mode="eval").body
    )
    rng = random.Random(1)
    for _ in range(50):
        problem = reworded(wording, rng)
        first, second = map(int, re.findall(r"\d+", problem.question))
        assert problem.answer == second - first
        assert str(problem.answer) in problem.work


def test_a_problem_that_does_not_stay_whole_is_left_out():
    assert worked_steps(ast.parse("7 / 2", mode="eval").body) is None
    assert worked_steps(ast.parse("2 - 7", mode="eval").body) is None


def test_text_holds_every_kind_and_repeats_for_a_seed(data):
    train, _ = Sources.read(data)
    text = training_text(train, MIX)
    assert text == training_text(train, MIX)
    whole = "\n".join(text)
    for part in (
        "One day,",
        "\n\n",
        "Question: ",
        "So the answer is",
        "# Task: ",
        '"""',
        "def add_",
        "very small model",
    ):
        assert part in whole, part
    assert "“" not in whole
    assert "\t" not in whole
    assert "\r" not in whole


def test_what_is_held_out_is_in_no_training_text(data):
    train, held = Sources.read(data)
    for kind in ("stories", "worked", "programs", "instructions"):
        assert getattr(held, kind), kind
        assert not set(map(str, getattr(train, kind))) & set(map(str, getattr(held, kind)))
    texts = [{normalise(text) for program in part.programs for text in program} for part in (train, held)]
    assert texts[0].isdisjoint(texts[1])  # a task or code that the data set has several times
    seen = normalise("\n".join(training_text(train, MIX)))
    rows = list(held_out_prompts(data, [MIX]))
    assert {r["domain"] for r in rows} == set(DOMAINS)
    assert not [r["prompt"] for r in rows if r["domain"] != "stories" and normalise(r["prompt"]) in seen]


def test_held_out_answers_are_right(data):
    _, held = Sources.read(data)
    for row in candidates("questions", held):
        numbers = list(map(int, re.findall(r"\d+", row["prompt"])))
        assert row["answer"] == sum(numbers)


def test_drafter_prompts_are_of_every_kind(data):
    train, _ = Sources.read(data)
    counts = {"stories": 30, "asked": 30, "questions": 30, "code": 30, "varied": 5}
    prompts = drafter_prompts(train, counts, seed=1)
    for part in ("One day", "Answer:", "# Task: ", '"""', "?"):
        assert any(part in p for p in prompts), part
    assert any(p[-1].isalpha() for p in prompts)
    assert len(set(prompts)) == len(prompts)


def test_unusual_openings_are_cut_sentences_with_other_things(data):
    train, _ = Sources.read(data)
    rare = ("anvil", "harp", "kayak")
    stories = [f"Bo sat down. Bo saw the {thing} in a tree." for thing in rare * 3] + ["Bo was in a tree."] * 40
    prompts = unusual_openings(replace(train, stories=stories, worked=[], unanswered=[]), 200, random.Random(1))
    assert len(prompts) == 200
    assert all(re.match(r"Bo (saw|was)", p) for p in prompts)
    assert not [p for p in prompts if re.search(r"\ba anvil|\ban (harp|kayak)", p)]
    things = {word for p in prompts for word in p.split()} - {"Bo", "saw", "was", "in", "a", "an", "the"}
    assert things == set(rare)
    assert len({p.count(" ") for p in prompts}) > 3
    assert set(unusual_openings(replace(train, stories=stories), 9, random.Random(2))) <= set(
        drafter_prompts(replace(train, stories=stories), {"unusual": 9}, seed=2)
    )
    with pytest.raises(InputError, match="too few rare things"):
        unusual_openings(train, 1, random.Random(1))


def test_stories_begin_at_a_sentence(data):
    train, _ = Sources.read(data)
    for story, text in zip(train.stories, begun_anywhere(train.stories, 1), strict=True):
        flat = text.replace("\n\n", "\n")
        assert story.endswith(flat)
        assert len(flat) < len(story)
        assert story[: -len(flat)].rstrip()[-1] in ".!?"


def test_questions_that_are_no_training_text_are_prompts_only(data):
    train, held = Sources.read(data)
    assert train.unanswered == ["Ann eats 2 of 9 figs, then 3, then 1. How many are left?"]
    assert not held.unanswered
    (prompt,) = drafter_prompts(train, {"unanswered": 5}, seed=1)
    assert train.unanswered[0] in prompt
    assert not drafter_prompts(train, {}, seed=1)
    assert not [t for t in training_text(train, MIX) if "figs" in t]


def test_a_varied_question_has_other_numbers_and_names_in_the_same_words():
    question = "Tom has 12 figs and 3 bags. He eats 12. How many are left?"
    for seed in range(20):
        found = re.fullmatch(
            r"(\w+) has (\d+) figs and (\d) bags\. He eats (\d+)\. How many are left\?",
            varied(question, random.Random(seed)),
        )
        assert found is not None
        assert found[1] != "Tom"
        assert found[2] == found[4]


def test_an_opening_is_cut_at_a_word_and_never_whole():
    story = "One day a cat sat on the mat and it was very happy with the mat that it sat on."
    for seed in range(20):
        cut = opening(story, random.Random(seed))
        assert story.startswith(cut + " ")
        assert len(cut) < 0.6 * len(story)


def test_missing_data_is_named(tmp_path):
    with pytest.raises(InputError, match=r"tinystories\*\.txt"):
        public.stories(tmp_path)
