"""Prompts that a chat model writes itself."""

from __future__ import annotations

import pytest
import torch

from d2sd.errors import InputError
from d2sd.folders.loading import load_target
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import prompt_ids, user_header, write_questions

TEMPLATE = "{% for m in messages %}<|endoftext|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


@pytest.fixture
def chat_target():
    target = load_target("assets/models/tiny/target", torch.float32, "cpu")
    target.tokenizer.chat_template = TEMPLATE
    return target


def test_write_questions_start_as_given_without_repeats(chat_target):
    assert user_header(chat_target) == "<|endoftext|>user: "
    config = RegenerateConfig(8, 60, temperature=0.7, top_k=20)
    found = list(write_questions(chat_target, ["Question: Tom has 3", "What is"], 8, config))
    assert found
    assert len(set(found)) == len(found)
    assert all(q.startswith(("Question: Tom has 3", "What is")) for q in found)


def test_user_header_needs_chat_template(chat_target):
    chat_target.tokenizer.chat_template = None
    with pytest.raises(InputError, match="has no chat template"):
        user_header(chat_target)


def test_user_header_needs_words_before_message(chat_target):
    chat_target.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(InputError, match="writes nothing before a message"):
        user_header(chat_target)


def test_prompt_ids_add_special_tokens_once(chat_target):
    tokenizer = chat_target.tokenizer
    end = tokenizer.eos_token_id
    assert prompt_ids(tokenizer, "tiny", "<|endoftext|>Once", chat=False)[:2] != [end, end]
    plain, begun = (prompt_ids(tokenizer, "tiny", text, chat=False) for text in ("Once", "<|endoftext|>Once"))
    assert plain == begun
    assert prompt_ids(tokenizer, "tiny", "Once", chat=True).count(end) == 1
