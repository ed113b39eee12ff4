from __future__ import annotations

import argparse
from typing import get_type_hints

import pytest

from d2sd import DecodeConfig, Engine, InputError
from d2sd.cli.common import add_decode_arguments, decode_config
from d2sd.config import BACKENDS, SETTINGS, Settings
from d2sd.nets.attention import NAMES
from d2sd.nets.models import Models


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "magic"}, "unknown method 'magic'; choose one of"),
        ({"backend": "magic"}, "unknown backend"),
        ({"block_size": 1}, "block_size must be between 2 and 1024"),
        ({"temperature": -0.1}, "temperature must be between 0"),
        ({"temperature": float("nan")}, "temperature must be between 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_k": -1}, "top_k must be 0"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
        ({"seed": -1}, "seed must be between"),
        ({"seed": 10**5000}, "seed must be a whole number"),
        ({"temperature": 10**400}, "temperature must be a number"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"method": "x" * 10**6}, "unknown method 'x{30}"),
        ({"chat": "yes"}, "chat must be true or false"),
    ],
)
def test_decode_config_refuses_invalid_settings(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        DecodeConfig(**settings)


def test_engine_checks_settings_against_drafter(engine):
    for method, settings, sentence in (
        ("d2sd", {"block_size": 17}, "larger than the block size this drafter was trained with"),
        ("d2sd", {"block_size": 4, "num_branches": 4}, "more than the 3 prefixes"),
        ("draft_model", {"block_size": 32}, r"32 is larger than the limit of draft models \(16\); choose 2 to 16"),
    ):
        with pytest.raises(InputError, match=sentence):
            engine.stream("a", DecodeConfig(method, **settings))
    engine.stream("a", DecodeConfig("dflash", block_size=4, num_branches=4))  # dflash does not use K


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        *((ids, "only whole numbers from 0 to") for ids in ([-1], [0, 10**6], [1.5], ["a"])),
        *((text, "the prompt is empty") for text in ("", "  \n", [])),
        ("the cat sat on the mat " * 100, r"the prompt has \d+ tokens, but at most 112 fit"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_engine_refuses_empty_invalid_or_long_prompts(engine, prompt, sentence):
    with pytest.raises(InputError, match=sentence):
        engine.stream(prompt, DecodeConfig(max_new_tokens=400))


def test_generate_returns_trace_for_each_prompt_of_list(engine):
    prompts = ["the cat sat", "a dog"]
    alone = [engine.generate(prompt, max_new_tokens=6) for prompt in prompts]
    traces = engine.generate(prompts, max_new_tokens=6)
    assert [t.header["prompt"] for t in traces] == prompts
    assert [t.token_ids for t in traces] == [t.token_ids for t in alone]
    assert engine.generate(list(alone[0].prefill.prompt_token_ids), max_new_tokens=6).token_ids == alone[0].token_ids
    for wrong in (["the cat", ""], ["the cat", 5]):  # found before anything runs
        with pytest.raises(InputError, match=r"the prompt is empty|only whole numbers"):
            engine.generate(wrong)


def test_generate_takes_method_that_models_can_run(engine):
    models = engine.models
    for kept, method in (
        (models, "d2sd"),
        (Models(models.target, first=models.first), "dflash"),
        (Models(models.target, eagle3=models.eagle3), "eagle3"),
        (Models(models.target), "autoregressive"),
    ):
        engine = Engine(kept)
        assert engine.default_method == engine.generate("the cat", max_new_tokens=2).header["method"] == method
    with pytest.raises(InputError, match="method 'd2sd' needs a drafter"):  # a method that is named is never replaced
        engine.generate("the cat", DecodeConfig())


def test_settings_have_command_line_options():
    parser = argparse.ArgumentParser()
    add_decode_arguments(parser)
    assert decode_config(parser.parse_args([]), "dflash") == DecodeConfig("dflash")
    changed = {"whole": "3", "real": "0.5"}
    for entry in SETTINGS.values():
        if entry.name == "inspect":  # each command sets it
            continue
        option = f"--{entry.name.replace('_', '-')}"
        value = [] if entry.kind == "flag" else [changed.get(entry.kind) or entry.choices[-1]]
        config = decode_config(parser.parse_args([option, *value]), "dflash")
        assert getattr(config, entry.name) != entry.default


def test_generate_takes_keyword_settings_and_refuses_unknown_ones(engine):
    whole = engine.generate("the cat", DecodeConfig("dflash", 8, seed=3))
    for config, settings in (
        (None, {"method": "dflash", "max_new_tokens": 8, "seed": 3}),
        (DecodeConfig("dflash", 20, seed=1), {"max_new_tokens": 8, "seed": 3}),
    ):
        trace = engine.generate("the cat", config, **settings)
        assert (trace.header["config"], trace.token_ids) == (whole.header["config"], whole.token_ids)
    *_, finished = engine.stream("the cat", method="dflash", max_new_tokens=8)
    assert list(finished.token_ids) == whole.token_ids
    for call in (engine.generate, engine.stream):
        with pytest.raises(InputError, match=r"unknown setting 'max_tokens'; did you mean max_new_tokens\?"):
            call("the cat", max_tokens=8)


def test_keyword_settings_and_backends_match_their_definitions():
    """config.py repeats the names of backends, as it must not import torch."""
    assert get_type_hints(Settings) == get_type_hints(DecodeConfig)
    assert ("auto", *NAMES) == BACKENDS
