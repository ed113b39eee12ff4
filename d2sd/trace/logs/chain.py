"""Steps of engines that draft a chain: one draft, verified from its first token on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from d2sd.errors import InputError, first_line
from d2sd.trace.events import Alternative, Choice, Committed, Draft, Node, StageSeconds, State, StepDone
from d2sd.trace.text import Detokenizer, TokenTexts
from d2sd.tree.boundary import boundary_posterior

UNKNOWN = "▯"  # the text of a token that the log does not hold; its id is 0
Label = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its text."""

    id: int
    text: str


NOT_KNOWN = Token(0, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Chain:
    """One step as an engine logged it.

    accepted: number of accepted ``drafted`` tokens.
    bonus: the token that the target added; None if the text ended before it.
    confidence: of each drafted token, or empty.
    boundary: the number of accepted tokens, if it is known.
    kept: number of accepted tokens in the text; fewer than ``accepted`` if the text ended within the draft."""

    drafted: Sequence[Token]
    accepted: int
    bonus: Token | None
    boundary: int | None
    confidence: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    kept: int | None = None
    seconds: float = 0.0


def chain_step(number: int, anchor: Token, position: int, chain: Chain, elapsed: float) -> StepDone:
    """Returns the step as an event.

    number: from 0.
    position: number of tokens before the anchor.
    elapsed: seconds since prefill, after this step.
    """
    drafted, kept = chain.drafted, chain.accepted if chain.kept is None else chain.kept
    ids, texts = tuple(t.id for t in drafted), tuple(t.text for t in drafted)
    draft = Draft("first", 0, ids, texts, chain.confidence, chain.alternatives) if ids else None
    nodes = [Node(0, -1, 0, anchor.id, anchor.text, (), "target", "root", None, None, None)]
    for k, token in enumerate(drafted, 1):
        rejected = chain.bonus is not None and k == kept + 1
        state: State = "accepted" if k <= kept else "rejected" if rejected else "unreached"
        sure = chain.confidence[k - 1] if chain.confidence else None
        nodes.append(Node(k, k - 1, k, token.id, token.text, (0,), "first", state, sure, None, None))
    path = tuple(range(1, kept + 1))
    committed = [Committed(drafted[k - 1].id, drafted[k - 1].text, "first", k) for k in path]
    if chain.bonus is not None:
        committed.append(Committed(chain.bonus.id, chain.bonus.text, "target", None))
    choices = tuple(Choice(node, c.token, c.text, None) for node, c in enumerate(committed))
    posterior, full = boundary_posterior(chain.confidence)
    return StepDone(
        number, anchor.id, anchor.text, position, draft, posterior, full if chain.confidence else 0.0, (), (), tuple(nodes),
        choices, path, tuple(committed), chain.boundary, StageSeconds(verify=chain.seconds), elapsed,
    )  # fmt: skip


class Texts:
    """Texts of token ids: by a tokenizer, or without one their numbers."""

    def __init__(self, tokenizer: Any = None):
        self._labels = TokenTexts(tokenizer) if tokenizer is not None else None
        self._size = len(tokenizer) if tokenizer is not None else 0
        self._tokenizer = tokenizer

    def label(self, token: int, where: str) -> str:
        """Of one token by itself; ``InputError`` where the tokenizer does not have it."""
        if self._labels is None:
            return f" {token}"
        if token >= self._size:
            raise InputError(f"{where}: the tokenizer has no token {token}; its last one is {self._size - 1}")
        return self._labels[token]

    def pieces(self, tokens: Sequence[int], where: str) -> list[str]:
        """What each token adds to the decoded text."""
        labels = [self.label(token, f"{where}[{at}]") for at, token in enumerate(tokens)]
        if self._labels is None:
            return labels
        feed = Detokenizer(self._tokenizer).feed
        return [feed(token) for token in tokens]


def open_texts(folder: str | None) -> Texts:
    """The texts of a tokenizer's folder or hub id; of none: numbers."""
    if folder is None:
        return Texts()
    from transformers import AutoTokenizer

    try:
        return Texts(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read the tokenizer {folder}: {first_line(error, 160)}") from None
