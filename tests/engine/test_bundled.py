"""Quality of the bundled target and first drafter, and the bundled drafters of SmolLM2."""

from __future__ import annotations

import json
import re

import pytest

from d2sd import METHODS, DecodeConfig, load
from d2sd.bench.prompts import prompt_file
from d2sd.calibration import calibrate
from d2sd.folders.store import REMOTE, downloaded, home
from d2sd.nets.dtypes import can_mix

WHERE, TARGET = home().parent, downloaded("smollm2")  # read before the tests set D2SD_HOME


@pytest.mark.skipif(TARGET is None, reason=f"{REMOTE['smollm2'].title} is not here; get it with: d2sd get smollm2")
def test_smollm2_text_equals_plain_decoding(monkeypatch):
    """Settings of a run on the page and of a timed run alternate by method."""
    monkeypatch.setenv("D2SD_HOME", str(WHERE))
    smollm2, prompt = load("smollm2"), "Why is the sky blue?"
    plain = smollm2.generate(prompt, DecodeConfig("autoregressive", 6, chat=True)).token_ids
    methods = [m for m in METHODS if m != "autoregressive" and smollm2.obstacle(m) is None]
    assert len(methods) > 1
    for number, method in enumerate(methods):
        settings = ({}, {"block_size": 6, "num_branches": 2, "inspect": False})[number % 2]
        trace = smollm2.generate(prompt, DecodeConfig(method, 6, chat=True, **settings))
        assert trace.token_ids == plain, method
    assert smollm2.models.target.numbers == ("mixed" if can_mix() else "float32")  # the default on CPUs


# Prompts and new tokens by domain.
LIMITS = {"sums": (10, 60), "stories": (3, 160), "questions": (3, 64), "instructions": (3, 64), "code": (3, 64)}


@pytest.fixture(scope="module")
def runs(bundled):
    """By domain, the first prompts and runs on them."""
    rows, made = [json.loads(line) for line in prompt_file("heldout").read_text(encoding="utf-8").splitlines()], {}
    for domain, (prompts, tokens) in LIMITS.items():
        config, of_domain = DecodeConfig("dflash", tokens, inspect=False), [r for r in rows if r["domain"] == domain]
        made[domain] = [(row, bundled.generate(row["prompt"], config)) for row in of_domain[:prompts]]
    return made


def test_tiny_target_answers_most_sums_correctly(runs):
    right = 0
    for row, run in runs["sums"]:
        answers = re.findall(r"the answer is (-?\d+)", run.finished.text)
        right += answers[:1] == [str(row["answer"])]
    assert right >= 0.6 * LIMITS["sums"][0]  # 75% right when it was trained (PROVENANCE.md)


def test_first_drafter_confidence_is_calibrated(runs):
    ece = calibrate(run for of_domain in runs.values() for _, run in of_domain[:3]).ece.value
    assert ece < 0.1, ece  # 0.02 over all held-out prompts when it was trained (PROVENANCE.md)
