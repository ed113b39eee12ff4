"""Alternative prompts for the same questions: with and without chat template, with and without thinking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from d2sd.calibration.resampling import Estimate
from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.models.target import Target

# These texts are others, and some are easier to draft whatever the drafter was trained on: only a large share of α counts, and a
# larger one against a template that is surely the target's, since its markers are tokens of their own.
WORTH, WORTH_OWN = 0.15, 0.5
# Markers of turns, and a template with each.
MARKERS = {
    "<|im_start|>": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "<|start_header_id|>": "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
}


@dataclass(frozen=True, slots=True)
class Template:
    """A way to format prompts.

    said: its description.
    mend: what to change.
    ids: token ids of each prompt.
    worth: relative gain of α from which on it is reported.
    """

    said: str
    mend: str
    ids: tuple[tuple[int, ...], ...]
    worth: float = WORTH


@dataclass(frozen=True, slots=True)
class Asked:
    """Result of another template.

    alpha: over the texts that the target then generates.
    change: of α over the same prompts.
    texts: number of texts.
    helps: whether the change is significant and large enough.
    """

    template: Template
    alpha: float
    change: Estimate
    texts: int
    helps: bool


def templates(engine: Engine, prompts: Sequence[str], config: DecodeConfig) -> list[Template]:
    """Returns the templates whose ids differ from those of ``config``."""
    target = engine.models.target

    def ids(chat: bool, thinking: bool) -> tuple[tuple[int, ...], ...]:
        own = DecodeConfig("autoregressive", config.max_new_tokens, chat=chat, thinking=thinking)
        return tuple(tuple(engine.encode(p, own)) for p in prompts)

    ways = [
        (not config.chat, config.thinking and not config.chat, "the chat template" if not config.chat else "no chat template", "--chat" if not config.chat else "leave out --chat"),
        (True, not config.thinking, "thinking" if not config.thinking else "no thinking", "--thinking" if not config.thinking else "leave out --thinking"),
    ]  # fmt: skip
    found = []
    seen = [ids(config.chat, config.thinking)]
    for chat, thinking, said, mend in ways[: 2 if config.chat else 1]:
        if not target.tokenizer.chat_template:
            break
        try:
            other = ids(chat, thinking)
        except InputError:
            continue  # a prompt that the template refuses
        if other not in seen:
            seen.append(other)
            special = (t.content for t in target.tokenizer.added_tokens_decoder.values() if t.special)
            own = not chat and any(token in target.tokenizer.chat_template for token in special)
            found.append(Template(said, mend, other, WORTH_OWN if own else WORTH))
    marker = unused_marker(target)
    if config.chat and marker is not None:
        texts = [MARKERS[marker].format(p) for p in prompts]
        encoded = tuple(tuple(target.tokenizer(t)["input_ids"]) for t in texts)
        found.append(
            Template(
                f"a template with {marker}", "the target's chat_template, as the drafter was trained with", encoded
            )
        )
    return found


def unused_marker(target: Target) -> str | None:
    """Returns a turn marker that is in the vocabulary but not in the chat template, or None."""
    template, vocabulary = str(target.tokenizer.chat_template or ""), target.tokenizer.get_vocab()
    return next((m for m in MARKERS if m in vocabulary and template and m not in template), None)
