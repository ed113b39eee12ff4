"""What the bundled target can do on prompts that it never saw."""

from __future__ import annotations

import re

import pytest

from d2sd import DecodeConfig
from d2sd.bench.prompts import read_prompts
from d2sd.train.recipe import HELD_OUT_PROMPTS, HELD_OUT_SEED
from d2sd.train.synthetic import documents, prompt_of

SUMS, STORIES = 30, 10


def texts(bundled, domain: str, count: int, max_new_tokens: int) -> dict[str, str]:
    prompts = [p.text for p in read_prompts("heldout") if p.domain == domain][:count]
    return {p: bundled.generate(p, DecodeConfig("dflash", max_new_tokens)).finished.text for p in prompts}


def answer(text: str) -> str | None:
    found = re.findall(r"the answer is (-?\d+)", text)
    return found[-1] if found else None


def test_sums_are_answered_rightly(bundled):
    right = {prompt_of(d): answer(d) for d in documents("sums", 4 * HELD_OUT_PROMPTS, HELD_OUT_SEED)}
    written = texts(bundled, "sums", SUMS, 100)
    wrong = [p for p, text in written.items() if answer(text) != right[p]]
    assert len(wrong) <= SUMS // 10, wrong


def test_stories_do_not_run_in_circles(bundled):
    def circles(text: str) -> bool:
        words = text.split()
        grams = [tuple(words[i : i + 6]) for i in range(len(words) - 5)]
        return len(grams) > 0 and len(set(grams)) < 0.7 * len(grams)

    written = texts(bundled, "stories", STORIES, 150)
    assert sum(map(circles, written.values())) <= 1


@pytest.mark.parametrize("domain", ["stories", "sums", "code"])
def test_held_out_prompts_are_of_every_domain(domain):
    assert sum(p.domain == domain for p in read_prompts("heldout")) == HELD_OUT_PROMPTS
