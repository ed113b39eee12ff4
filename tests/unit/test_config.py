from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from d2sd import DecodeConfig, InputError
from d2sd.cli.common import add_decode_arguments, decode_config
from d2sd.config import BACKENDS, SETTINGS
from d2sd.nets.attention import NAMES


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "magic"}, "unknown method 'magic'; choose one of"),
        ({"backend": "magic"}, "unknown backend"),
        ({"block_size": 1}, "block_size must be between 2 and 1024"),
        ({"num_branches": 0}, "num_branches must be between 1"),
        ({"temperature": -0.1}, "temperature must be between 0"),
        ({"temperature": float("nan")}, "temperature must be between 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_k": -1}, "top_k must be 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be between 1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
        ({"block_size": 10**12}, "block_size must be between 2 and 1024"),
        ({"seed": -1}, "seed must be between"),
        ({"seed": 10**5000}, "seed must be a whole number"),
        ({"temperature": 10**400}, "temperature must be a number"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"top_p": -(10**400)}, "top_p must be a number"),
        ({"top_p": None}, "top_p must be a number"),
        ({"method": ["d2sd"]}, "unknown method"),
        ({"method": "x" * 10**6}, "unknown method 'x{30}"),
        ({"chat": "yes"}, "chat must be true or false"),
    ],
)
def test_bad_settings_are_one_clear_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        DecodeConfig(**settings)


def test_settings_are_checked_against_the_drafter(engine):
    with pytest.raises(InputError, match="larger than the block this drafter was trained with"):
        engine.stream("a", DecodeConfig(block_size=17))
    with pytest.raises(InputError, match="more than the 3 prefixes"):
        engine.stream("a", DecodeConfig(block_size=4, num_branches=4))
    with pytest.raises(InputError, match=r"32 is larger than what a draft model drafts \(16\); choose 2 to 16"):
        engine.stream("a", DecodeConfig("draft_model", block_size=32))
    engine.stream("a", DecodeConfig("dflash", block_size=4, num_branches=4))  # K means nothing to dflash


@pytest.mark.parametrize("ids", [[-1], [0, 10**6], [1.5], ["a"]])
def test_ids_that_are_no_tokens_are_refused(engine, ids):
    with pytest.raises(InputError, match="takes whole numbers from 0 to"):
        engine.stream(ids, DecodeConfig())


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(engine, prompt):
    with pytest.raises(InputError, match="the prompt is empty"):
        engine.stream(prompt, DecodeConfig())


def test_an_over_long_prompt_is_refused_with_its_length(engine):
    with pytest.raises(InputError, match=r"the prompt has \d+ tokens; with 400 new tokens at most 112 fit"):
        engine.stream("the cat sat on the mat " * 100, DecodeConfig(max_new_tokens=400))


def test_backends_are_those_of_the_attention_package():
    """The settings name them without importing torch."""
    assert ("auto", *NAMES) == BACKENDS


def test_settings_need_no_torch():
    code = "import sys, d2sd.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_setting_is_an_option_that_sets_it():
    parser = argparse.ArgumentParser()
    add_decode_arguments(parser)
    assert decode_config(parser.parse_args([]), "dflash") == DecodeConfig("dflash")
    changed = {"whole": "3", "real": "0.5"}
    for entry in SETTINGS.values():
        if entry.name == "inspect":  # left to each command
            continue
        option = f"--{entry.name.replace('_', '-')}"
        given = (
            [option]
            if entry.kind == "flag"
            else [option, changed.get(entry.kind, entry.choices[-1:] and entry.choices[-1])]
        )
        config = decode_config(parser.parse_args(given), "dflash")
        assert getattr(config, entry.name) != entry.default
