"""Prompts in a target's chat template."""

from __future__ import annotations

import copy

import pytest

from d2sd import DecodeConfig, Engine, InputError
from d2sd.nets.models import Models
from tests.nets import make_target

# like Qwen3's template: an empty thought if thinking is switched off
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)
HARMONY = "<system>Reasoning: {{ reasoning_effort }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"  # gpt-oss's


@pytest.fixture
def chatting(tokenizer):
    own = copy.deepcopy(tokenizer)
    own.chat_template = TEMPLATE
    return Engine(Models(make_target(own)))


@pytest.mark.parametrize(
    ("template", "thinking", "text"),
    [
        (TEMPLATE, True, "<user>the cat<assistant>"),
        (TEMPLATE, False, "<user>the cat<assistant><think></think>"),
        (HARMONY, True, "<system>Reasoning: high<user>the cat"),
        (HARMONY, False, "<system>Reasoning: low<user>the cat"),
    ],
)
def test_chat_template_wraps_text_but_not_token_ids(chatting, template, thinking, text):
    tokenizer = chatting.models.target.tokenizer
    tokenizer.chat_template = template
    chat = DecodeConfig("autoregressive", 4, chat=True, thinking=thinking)
    assert tokenizer.decode(chatting.encode("the cat", chat)) == text
    assert tokenizer.decode(chatting.encode("the cat", DecodeConfig("autoregressive", 4))) == "the cat"
    assert chatting.encode([5, 6], chat) == [5, 6]


@pytest.mark.parametrize(
    ("template", "prompt", "sentence"),
    [
        (None, "the cat", "has no chat template; give the prompt without one"),
        (TEMPLATE, " <|mask|>the cat", r"begins with <\|mask\|>, so it already has a chat template; leave out --chat"),
        ("{{ raise_exception('roles must alternate') }}", "the cat", "roles must alternate"),
    ],
)
def test_chat_option_refuses_unusable_template_or_prompt(chatting, template, prompt, sentence):
    chatting.models.target.tokenizer.chat_template = template
    with pytest.raises(InputError, match=sentence):
        chatting.stream(prompt, DecodeConfig("autoregressive", 4, chat=True))
