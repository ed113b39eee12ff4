"""``examples/d2sd_step.py`` writes the engine's text in the same number of steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from d2sd import DecodeConfig
from examples import d2sd_step


@pytest.mark.parametrize(("prompt", "tokens", "branches"), [("the cat", 24, 2), ("a b", 17, 6)])
def test_step_example_equals_engine_text_and_steps(engine, prompt, tokens, branches):
    trace = engine.generate(prompt, DecodeConfig("d2sd", tokens, num_branches=branches))
    assert d2sd_step.generate(engine.models, prompt, tokens, branches) == (trace.finished.text, trace.totals.steps)


def test_step_example_commits_several_tokens_per_step(bundled):
    text, steps = d2sd_step.generate(bundled.models, "One day, a cat", 32)
    assert text == bundled.generate("One day, a cat", DecodeConfig("autoregressive", 32)).finished.text
    assert steps < 16


def test_step_example_has_at_most_120_lines():
    assert len(Path(d2sd_step.__file__).read_text(encoding="utf-8").splitlines()) <= 120
