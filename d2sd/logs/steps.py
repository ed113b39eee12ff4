"""Turns logged requests into traces. A request whose steps are known becomes a ``Trace``; of another request, only the ``Figures``
are known.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from d2sd.errors import InputError, first_line
from d2sd.logs.figures import Figures
from d2sd.trace.checks import SCHEMA
from d2sd.trace.events import (
    MAX_TEXTS,
    Alternative,
    Choice,
    Committed,
    Count,
    Draft,
    Finished,
    Node,
    PrefillDone,
    StageSeconds,
    State,
    StepDone,
    StopReason,
)
from d2sd.trace.text import Detokenizer, TokenTexts
from d2sd.trace.trace import Trace
from d2sd.tree.boundary import boundary_posterior

Ids = Annotated[list[Count], Meta(max_length=MAX_TEXTS)]
STOP_REASONS: dict[str | None, StopReason] = {
    "stop": "end_token", "eos": "end_token", "length": "max_new_tokens", "limit": "max_new_tokens",
}  # fmt: skip
UNKNOWN = "▯"  # text of a token that is not in the log; the id of such a token is 0


class Texts:
    """Gives the text of token ids. Without a tokenizer, the text of a token is its id."""

    def __init__(self, tokenizer: Any = None):
        self._labels = None if tokenizer is None else TokenTexts(tokenizer)

    def label(self, token: int, where: str) -> str:
        """Returns the text of a single token. Raises ``InputError`` if the tokenizer has no such token.

        where: place of the token in the log, for the error message.
        """
        if self._labels is None:
            return f" {token}"
        if token >= (size := len(self._labels.tokenizer)):
            raise InputError(f"{where}: the tokenizer has no token {token}; its last one is {size - 1}")
        return self._labels[token]

    def pieces(self, tokens: Sequence[int], where: str) -> list[str]:
        labels = [self.label(token, f"{where}[{index}]") for index, token in enumerate(tokens)]
        return labels if self._labels is None else [*map(Detokenizer(self._labels.tokenizer).feed, tokens)]


def open_texts(folder: str | None) -> Texts:
    """Loads a tokenizer for ``Texts``. Raises ``InputError`` if the tokenizer cannot be read.

    folder: folder or hub id of the tokenizer; None: token ids are used as texts.
    """
    if folder is None:
        return Texts()
    from transformers import AutoTokenizer

    try:
        return Texts(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read the tokenizer {folder}: {first_line(error, 160)}") from None


class Token(NamedTuple):
    id: int
    text: str


NOT_KNOWN = Token(0, UNKNOWN)


def chain_step(
    number: int,
    anchor: Token,
    position: int,
    drafted: Sequence[Token],
    accepted: int,
    bonus: Token | None,
    *,
    decided: bool = True,
    in_text: int | None = None,
    confidence: tuple[float, ...] = (),
    alternatives: tuple[tuple[Alternative, ...], ...] = (),
    seconds: float = 0.0,
    elapsed: float = 0.0,
) -> StepDone:
    """Returns the event of a step that drafted and verified a chain of tokens.

    number: index of the step, from 0.
    anchor: the last token before the step.
    position: number of tokens before the anchor.
    accepted: number of ``drafted`` tokens that the target accepted.
    bonus: the token that the target added; None if the text ended before it.
    decided: whether ``accepted`` is the actual boundary; False if the text ended before the boundary was known.
    in_text: number of accepted tokens that are in the text. It is smaller than ``accepted`` if the text ended within the draft.
        None: all.
    confidence, alternatives: one entry per drafted token, or empty.
    seconds: duration of the step in seconds.
    elapsed: seconds from the end of prefill to the end of this step.
    """
    boundary = accepted if drafted and decided else None
    accepted = accepted if in_text is None else in_text
    ids, texts = tuple(t.id for t in drafted), tuple(t.text for t in drafted)
    draft = Draft("first", 0, ids, texts, confidence, alternatives) if drafted else None
    nodes = [Node(0, -1, 0, *anchor, (), "target", "root", None, None, None)]
    for k, token in enumerate(drafted, 1):
        rejected = bonus is not None and k == accepted + 1
        state: State = "accepted" if k <= accepted else "rejected" if rejected else "unreached"
        sure = confidence[k - 1] if confidence else None
        nodes.append(Node(k, k - 1, k, *token, (0,), "first", state, sure, None, None))
    path = tuple(range(1, accepted + 1))
    committed = [Committed(*drafted[k - 1], "first", k) for k in path]
    if bonus is not None:
        committed.append(Committed(*bonus, "target", None))
    choices = tuple(Choice(node, c.token, c.text, None) for node, c in enumerate(committed))
    posterior, full = boundary_posterior(confidence)
    return StepDone(
        number, *anchor, position, draft, posterior, full if confidence else 0.0, (), (), tuple(nodes),
        choices, path, tuple(committed), boundary, StageSeconds(verify=seconds), elapsed,
    )  # fmt: skip


# Replies in OpenAI's format: text, token ids, usage.


class Usage(Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Message(Struct):
    content: str | None = None


class Output(Struct):
    """An entry of ``choices`` in a reply."""

    text: str | None = None
    message: Message | None = None
    token_ids: Ids | None = None
    prompt_token_ids: Ids | None = None
    finish_reason: str | None = None


class Reply(Struct):
    """A whole reply. OpenAI's format has no ``prompt`` and ``domain``, but a log may contain them."""

    choices: Annotated[list[Output], Meta(max_length=1024)] = []
    usage: Usage | None = None
    prompt: str | None = None
    prompt_token_ids: Ids | None = None
    model: str | None = None
    content: str | None = None  # llama.cpp's own format
    domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request in the log of an engine. A field is None, or empty, if the log does not contain its value.

    accepted, drafted: numbers of accepted and of drafted tokens in each step.
    elapsed: seconds from the end of prefill to the end of each step.
    prompt_tokens: number of tokens in the prompt.
    prefill_seconds: duration of prefill in seconds.
    pieces, prompt_pieces: text of every output token and of every prompt token, if the engine returned them.
    drafts: for each step, the drafted tokens, their confidences, and the alternatives at each position.
    missing: names of the parts that the log lacks, for the trace's header; if empty, ``result`` determines them.
    """

    figures: Figures
    accepted: tuple[int, ...] = ()
    drafted: tuple[int, ...] = ()
    elapsed: tuple[float, ...] = ()
    reply: Reply
    prompt_tokens: int | None = None
    prompt_pieces: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    prefill_seconds: float = 0.0
    drafts: Sequence[tuple[Sequence[Token], tuple[float, ...], tuple[tuple[Alternative, ...], ...]]] = ()
    missing: Sequence[str] = ()

    @property
    def output(self) -> Output:
        """The output of the reply; an empty one if the reply has several outputs or none."""
        return self.reply.choices[0] if len(self.reply.choices) == 1 else Output()

    def result(self, texts: Texts) -> Trace | Figures:
        """Returns the request as a trace, or its figures if its steps are unknown.

        texts: gives texts of token ids for which the engine returned none. Raises ``InputError`` if its tokenizer lacks a token.
        """
        if not self.accepted:
            return self.figures
        output = self.output
        # a whole output has a token from prefill, and each step's accepted and bonus tokens
        whole, ids = 1 + sum(self.accepted) + len(self.accepted), output.token_ids
        if (
            ids is None or len(ids) > whole
        ):  # if some tokens are from steps without a draft, the text cannot be divided into steps
            ids, tokens = None, [NOT_KNOWN] * min(whole, self.figures.tokens or whole, MAX_TEXTS)
        else:
            tokens = [*map(Token, ids, self.pieces or texts.pieces(ids, "output ids"))]
        missing = {
            "confidence": True,
            "tokens": ids is None,
            "rejected": ids is not None and self.accepted != self.drafted,
            "times": not self.elapsed,
        }
        header = {
            "event": "Header", "schema": SCHEMA, "run": uuid.uuid4().hex, "method": self.figures.engine, "config": {}, "versions": {}, "hardware": {},
            "models": {"target": self.figures.model} if self.figures.model else {}, "prompt": self.reply.prompt,
            "prompt_tokens": self.prompt_tokens, "domain": self.reply.domain,
            "missing": self.missing or [what for what, lacks in missing.items() if lacks],
        }  # fmt: skip
        prompt_ids = tuple(self.reply.prompt_token_ids or output.prompt_token_ids or ())
        prompt = tuple(self.prompt_pieces or texts.pieces(prompt_ids, "prompt ids"))
        first = Committed(*tokens[0], "target", None)
        steps = tuple(self._steps(tokens, len(prompt_ids) or self.prompt_tokens or 0))
        given = (output.text, (output.message or Message()).content, self.reply.content)
        text = next((text for text in given if text is not None and ids is None), "".join(t.text for t in tokens))
        prefill = PrefillDone(prompt_ids, prompt, self.prefill_seconds, (first,))
        finished = Finished(
            STOP_REASONS.get(output.finish_reason, "stopped"), text, tuple(t.id for t in tokens), len(steps),
            self.figures.seconds or 0.0, self.prefill_seconds,
        )  # fmt: skip
        return Trace(header, prefill, steps, finished)

    def _steps(self, tokens: Sequence[Token], before: int) -> Iterator[StepDone]:
        """Yields the steps of a request.

        tokens: the output, including the first token, which prefill gives.
        before: number of tokens before the output.
        """
        begin = 1
        for number, (a, d) in enumerate(zip(self.accepted, self.drafted, strict=True)):
            tokens_of_step = tokens[begin : begin + a + 1]  # fewer in the last step if the text ended within it
            in_text = min(a, len(tokens_of_step))
            # without times per step, only the end of the last step is known
            last = number == len(self.accepted) - 1
            elapsed = self.elapsed[number] if self.elapsed else last * (self.figures.seconds or 0.0)
            chain, confidence, alternatives = (
                self.drafts[number]
                if self.drafts
                else ([*tokens_of_step[:in_text], *[NOT_KNOWN] * (d - in_text)], (), ())
            )
            yield chain_step(
                number, tokens[begin - 1], before + begin - 1, chain, a, next(iter(tokens_of_step[a:]), None), in_text=in_text,
                confidence=confidence, alternatives=alternatives, elapsed=elapsed,
            )  # fmt: skip
            begin += a + 1
