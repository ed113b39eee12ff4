"""Prompts in a target's chat template."""

from __future__ import annotations

import copy

import pytest

from d2sd import DecodeConfig, Engine, InputError
from d2sd.cli.common import tell_of_template
from d2sd.nets.models import Models
from tests.nets import make_target

# the shape of Qwen3's: an empty thought where thinking is switched off
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)


@pytest.fixture
def chatting(tokenizer):
    own = copy.deepcopy(tokenizer)
    own.chat_template = TEMPLATE
    return Engine(Models(make_target(own)))


@pytest.mark.parametrize(("thinking", "end"), [(True, "<assistant>"), (False, "<assistant><think></think>")])
def test_chat_template_wraps_prompt(chatting, thinking, end):
    ids = chatting.encode("the cat", DecodeConfig("autoregressive", 4, chat=True, thinking=thinking))
    assert chatting.models.target.tokenizer.decode(ids) == f"<user>the cat{end}"
    plain = chatting.encode("the cat", DecodeConfig("autoregressive", 4))
    assert chatting.models.target.tokenizer.decode(plain) == "the cat"


@pytest.mark.parametrize(("thinking", "effort"), [(True, "high"), (False, "low")])
def test_chat_template_receives_reasoning_effort(chatting, thinking, effort):
    # the shape of Harmony, gpt-oss's template
    chatting.models.target.tokenizer.chat_template = (
        "<system>Reasoning: {{ reasoning_effort }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    ids = chatting.encode("the cat", DecodeConfig("autoregressive", 4, chat=True, thinking=thinking))
    assert chatting.models.target.tokenizer.decode(ids) == f"<system>Reasoning: {effort}<user>the cat"


def test_tell_of_template_warns_without_chat_option(chatting, engine, capsys):
    tell_of_template(chatting, DecodeConfig("autoregressive", chat=True))
    tell_of_template(engine, DecodeConfig("autoregressive"))
    assert capsys.readouterr().err == ""
    tell_of_template(chatting, DecodeConfig("autoregressive"))
    assert "is a chat model, and prompts are given to it as they are; --chat asks it" in capsys.readouterr().err


def test_chat_encode_keeps_token_ids(chatting):
    assert chatting.encode([5, 6], DecodeConfig("autoregressive", 4, chat=True)) == [5, 6]


def test_chat_option_refused_without_template(engine):
    with pytest.raises(InputError, match="has no chat template; give the prompt without one"):
        engine.stream("the cat", DecodeConfig("d2sd", 4, chat=True))


def test_chat_option_refuses_already_templated_prompt(chatting):
    with pytest.raises(
        InputError, match=r"begins with <\|mask\|>, so it already has a chat template; leave out --chat"
    ):
        chatting.encode(" <|mask|>the cat", DecodeConfig("autoregressive", 4, chat=True))


def test_chat_template_error_becomes_input_error(chatting):
    chatting.models.target.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(InputError, match="roles must alternate"):
        chatting.stream("the cat", DecodeConfig("autoregressive", 4, chat=True))
