"""Common parts of replies in OpenAI's format: text, token ids, usage."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.trace.events import Count
from d2sd.trace.logs.records import convert
from d2sd.trace.schema import MAX_TEXTS

Ids = Annotated[list[Count], Meta(max_length=MAX_TEXTS)]


class Usage(Struct):
    """Token counts of a request."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Message(Struct):
    """A chat reply."""

    content: str | None = None


class Choice(Struct):
    """One output; servers say more of it, which is left to their own readers."""

    text: str | None = None
    message: Message | None = None
    token_ids: Ids | None = None
    prompt_token_ids: Ids | None = None
    finish_reason: str | None = None
    index: int = 0


class Reply(Struct):
    """A whole reply; ``prompt`` is none of OpenAI's fields, but a log may have added it."""

    choices: Annotated[list[Choice], Meta(max_length=1024)] = []
    usage: Usage | None = None
    prompt: str | None = None
    prompt_token_ids: Ids | None = None
    model: str | None = None


def read_reply(record: dict[str, Any], where: str) -> dict[str, Any]:
    """What a reply says of its request, as arguments of ``Counts``; of several outputs nothing is taken."""
    reply = convert(record, Reply, where)
    usage, only = reply.usage or Usage(), reply.choices[0] if len(reply.choices) == 1 else Choice()
    prompt_ids = reply.prompt_token_ids or only.prompt_token_ids or ()
    return {
        "completion": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "prompt": reply.prompt,
        "prompt_ids": tuple(prompt_ids),
        "text": only.text if only.text is not None else only.message and only.message.content,
        "output_ids": None if only.token_ids is None else tuple(only.token_ids),
        "finish": only.finish_reason,
        "model": reply.model,
    }
