"""A chat model writes the prompts that its drafters learn from: what its users would ask.

After the template's header of a user message the model goes on with a message (Magpie, arXiv 2406.08464). Given first
words steer what it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.errors import InputError
from d2sd.nets.target import Target
from d2sd.train.regenerate import RegenerateConfig, respond_to
from d2sd.train.text import normalise

MARK = "\u2063question\u2063"  # nothing that a template holds
SHORTEST = 8  # characters


def user_header(target: Target) -> str:
    """What the chat template writes before a user's first message.

    Raises ``InputError`` where there is no template, or where it changes the message.
    """
    if not target.tokenizer.chat_template:
        raise InputError(f"{target.name} has no chat template; only chat models write questions")
    text = target.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    header, mark, _ = text.partition(MARK)
    if not mark:
        raise InputError(f"the chat template of {target.name} changes messages, so that it cannot write questions")
    return str(header)


def write_questions(target: Target, first_words: Sequence[str], count: int, config: RegenerateConfig) -> list[str]:
    """Different questions of this chat model, at most ``count``, in the order in which they were written.

    first_words: beginnings, taken in turn; an empty one leaves all to the model. Left out: questions that do not end
    within ``config.max_new_tokens``, very short ones, and repeats.
    """
    header = user_header(target)
    encode, decode = target.tokenizer, target.tokenizer.decode
    begins = [first_words[i % len(first_words)] for i in range(count)]
    prompts = [encode(header + words, add_special_tokens=False)["input_ids"] for words in begins]
    found: dict[str, str] = {}
    for words, response in zip(begins, respond_to(target, prompts, config), strict=True):
        text = (words + decode(response, skip_special_tokens=True)).strip()
        if response[-1] in target.end_ids and len(text) >= SHORTEST:
            found.setdefault(normalise(text), text)
    return list(found.values())
