"""Figures of logged requests. ``Counts`` of single steps become a ``Trace``; other ``Counts`` become a row of ``LogTotals``."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, Literal

from d2sd.errors import InputError, first_line
from d2sd.trace.checks import SCHEMA
from d2sd.trace.events import (
    MAX_ITEMS,
    MAX_TEXTS,
    Alternative,
    Choice,
    Committed,
    Draft,
    Event,
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

STOP_REASONS: dict[str | None, StopReason] = {"stop": "end_token", "length": "max_new_tokens"}
UNKNOWN = "▯"  # text of a token that is not in the log; the id of such a token is 0


class Texts:
    """Texts of token ids from a tokenizer; without a tokenizer, the ids themselves."""

    def __init__(self, tokenizer: Any = None):
        self._labels = TokenTexts(tokenizer) if tokenizer is not None else None
        self._size = len(tokenizer) if tokenizer is not None else 0
        self._tokenizer = tokenizer

    def label(self, token: int, where: str) -> str:
        """Returns the text of a single token. Raises ``InputError`` if the tokenizer has no such token."""
        if self._labels is None:
            return f" {token}"
        if token >= self._size:
            raise InputError(f"{where}: the tokenizer has no token {token}; its last one is {self._size - 1}")
        return self._labels[token]

    def pieces(self, tokens: Sequence[int], where: str) -> list[str]:
        labels = [self.label(token, f"{where}[{at}]") for at, token in enumerate(tokens)]
        if self._labels is None:
            return labels
        feed = Detokenizer(self._tokenizer).feed
        return [feed(token) for token in tokens]


def open_texts(folder: str | None) -> Texts:
    """Returns the texts of a tokenizer. Raises ``InputError`` if the tokenizer cannot be read.

    folder: folder or hub id of the tokenizer; None: token ids are used as texts.
    """
    if folder is None:
        return Texts()
    from transformers import AutoTokenizer

    try:
        return Texts(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read the tokenizer {folder}: {first_line(error, 160)}") from None


@dataclass(frozen=True, slots=True)
class Token:
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
    """Returns the event of a step that drafted and verified a chain.

    number: number of the step, from 0.
    position: number of tokens before the anchor.
    accepted: number of ``drafted`` tokens that the target accepted.
    bonus: the token that the target added; None if the text ended before it.
    decided: whether ``accepted`` is the boundary; False if the text ended before the boundary was known.
    in_text: number of accepted tokens that are in the text, fewer than ``accepted`` if the text ended within the draft; None: all.
    confidence, alternatives: one entry per drafted token, or empty.
    seconds: time of the step.
    elapsed: time from the end of prefill to the end of this step.
    """
    boundary = accepted if drafted and decided else None
    accepted = accepted if in_text is None else in_text
    ids, texts = tuple(t.id for t in drafted), tuple(t.text for t in drafted)
    draft = Draft("first", 0, ids, texts, confidence, alternatives) if ids else None
    nodes = [Node(0, -1, 0, anchor.id, anchor.text, (), "target", "root", None, None, None)]
    for k, token in enumerate(drafted, 1):
        rejected = bonus is not None and k == accepted + 1
        state: State = "accepted" if k <= accepted else "rejected" if rejected else "unreached"
        sure = confidence[k - 1] if confidence else None
        nodes.append(Node(k, k - 1, k, token.id, token.text, (0,), "first", state, sure, None, None))
    path = tuple(range(1, accepted + 1))
    committed = [Committed(drafted[k - 1].id, drafted[k - 1].text, "first", k) for k in path]
    if bonus is not None:
        committed.append(Committed(bonus.id, bonus.text, "target", None))
    choices = tuple(Choice(node, c.token, c.text, None) for node, c in enumerate(committed))
    posterior, full = boundary_posterior(confidence)
    return StepDone(
        number, anchor.id, anchor.text, position, draft, posterior, full if confidence else 0.0, (), (), tuple(nodes),
        choices, path, tuple(committed), boundary, StageSeconds(verify=seconds), elapsed,
    )  # fmt: skip


# The requests in a row: one request, or all requests in an interval, since the program's start ("running"), or in a benchmark.
Unit = Literal["request", "interval", "running", "benchmark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTotals:
    """Figures of the requests that ``unit`` covers. A figure is None if it is unknown.

    model, drafter: names of target and drafter in the log.
    replica: number of the engine, if several serve the same model.
    running, waiting: numbers of concurrently decoded and of queued requests.
    held: number of tokens of the running requests in the KV cache.
    kv_use: used share of the KV cache.
    external_hits: share of the prompt tokens whose keys and values came from an external cache.
    remote_prefill: whether prompts are processed on another server.
    prefilled: whether prompts were also processed, so that ``tokens_per_second`` is not the speed of decoding alone.
    gamma: drafted tokens per step, from the options in the log.
    start: how often the program was restarted before this row, inferred from its counters.
    seconds: time of the output without prefill.
    draft_seconds: time of the drafter per step.
    seconds_per_token: mean time of an output token of one request.
    tokens_per_second: speed of all running requests together.
    mean_acceptance_length: α, number of accepted tokens per step, plus 1 for the bonus token.
    by_position: [k]: share of all steps in which drafted token k + 1 was accepted; known only if all drafts had the same length.
    unknown: a sentence about what the log lacks.
    """

    engine: str
    unit: Unit = "request"
    model: str | None = None
    drafter: str | None = None
    replica: int | None = None
    running: int | None = None
    waiting: int | None = None
    held: int | None = None
    kv_use: float | None = None
    external_hits: float | None = None
    remote_prefill: bool = False
    prefilled: bool = False
    gamma: int | None = None
    start: int = 0
    tokens: int | None = None
    steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    by_position: tuple[float, ...] = ()
    tokens_per_second: float | None = None
    seconds: float | None = None
    draft_seconds: float | None = None
    seconds_per_token: float | None = None
    unknown: str

    @property
    def drafts(self) -> bool:
        """Whether the row has figures of drafts; False for plain decoding."""
        known = (self.mean_acceptance_length, self.accepted, self.steps, self.acceptance_rate)
        return any(figure is not None for figure in known)

    def row(self) -> str:
        parts = [self.engine]
        if self.tokens is not None:
            parts.append(f"{self.tokens} tokens")
        if self.steps is not None:
            parts.append(f"{self.steps} steps")
        rate = "" if self.acceptance_rate is None else f"{self.acceptance_rate:.1%}"
        if self.accepted is not None:
            drafted = "?" if self.drafted is None else self.drafted
            parts.append(f"{self.accepted} of {drafted} drafted tokens accepted{rate and f' ({rate})'}")
        elif rate:
            parts.append(f"{rate} of the drafted tokens accepted")
        if self.mean_acceptance_length is not None:
            parts.append(f"α {self.mean_acceptance_length:.2f}")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.1f} tokens/s")
        if self.by_position:
            shares = (f"{k}: {share:.0%}" for k, share in enumerate(self.by_position, 1))
            parts.append(f"accepted up to position {', '.join(shares)}")
        return ", ".join(parts)


def share_of(accepted: float | None, drafted: float | None) -> float | None:
    """Returns the accepted share of drafted tokens; None if a number is unknown, or nothing was drafted."""
    return accepted / drafted if drafted and accepted is not None else None


def by_source(rows: Iterable[LogTotals]) -> list[list[LogTotals]]:
    """Returns the rows in groups. All rows of a group have the same engine, models, settings and unit."""
    rows = list(rows)

    def kind(row: LogTotals) -> tuple[object, ...]:
        return row.engine, row.model, row.drafter, row.replica, row.unit, row.drafts, row.start

    # Intervals that list different numbers of positions have different settings. For requests of llama.cpp, the number is only
    # the length of their longest draft. A line that was cut when it was pasted may list no positions.
    lengths: dict[tuple[object, ...], set[int]] = {}
    for row in rows:
        if row.unit == "interval" and row.by_position:
            lengths.setdefault(kind(row), set()).add(len(row.by_position))
    groups: dict[tuple[object, ...], list[LogTotals]] = {}
    for row in rows:
        known = lengths.get(kind(row), set())
        gamma = len(row.by_position) if len(known) > 1 else None
        # settings may differ between benchmarks, and between starts of a server, so each benchmark and start is a group
        lone = row.unit == "interval" and row.steps is None and row.running is None  # neither steps nor load are known
        alone = len(groups) if lone or row.unit in ("benchmark", "running") else None
        groups.setdefault((*kind(row), gamma, alone), []).append(row)
    return list(groups.values())


def together(rows: Sequence[LogTotals]) -> dict[str, Any]:
    """Returns the rows of one group combined: sums over the rows, and means over all steps and tokens.

    If only α is known, as in SGLang's periodic lines, the mean of α is weighted by the number of running requests. Acceptance by
    position uses the rows with the most common number of positions.
    """

    def total(name: str) -> int | None:
        values = [getattr(row, name) for row in rows]
        return None if None in values else sum(values)

    def mean(pairs: Iterable[tuple[float | None, int]]) -> float | None:
        known = [(value, weight) for value, weight in pairs if value is not None]
        over = sum(weight for _, weight in known)
        return sum(value * weight for value, weight in known) / over if over else None

    accepted, drafted, steps = total("accepted"), total("drafted"), total("steps")
    weights = [row.steps or 0 for row in rows] if steps else [row.running or 1 for row in rows]
    weighed = list(zip(rows, weights, strict=True))
    alpha = mean((row.mean_acceptance_length, weight) for row, weight in weighed)
    lengths = Counter(len(row.by_position) for row in rows if row.by_position)
    positions = max(lengths, key=lengths.__getitem__, default=0)
    profiles = [(row.by_position, weight) for row, weight in weighed if len(row.by_position) == positions]
    return {
        "tokens": total("tokens"),
        "steps": steps,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": share_of(accepted, drafted),
        "mean_acceptance_length": 1 + accepted / steps if steps and accepted is not None else alpha,
        "by_position": [mean((shares[at], weight) for shares, weight in profiles) or 0.0 for at in range(positions)],
    }


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures of one request. A figure is None if the log does not contain it.

    place: place in the log, for error messages.
    accepted, drafted: for each step, the numbers of accepted and of drafted tokens.
    histogram: [j]: number of steps that accepted j tokens.
    completion, prompt_tokens: number of tokens of the output and of the prompt.
    seconds: time of the output, without prefill.
    elapsed: time of the output up to the end of each step.
    pieces, prompt_pieces: texts of ``output_ids`` and ``prompt_ids``, if the engine returned them.
    domain: prompt group.
    """

    engine: str
    place: str
    steps: int | None
    num_accepted: int
    num_drafted: int | None
    histogram: tuple[int, ...] | None = None
    accepted: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None
    longest: int | None = None
    completion: int | None = None
    prompt_tokens: int | None = None
    prompt: str | None = None
    prompt_ids: tuple[int, ...] = ()
    text: str | None = None
    output_ids: tuple[int, ...] | None = None
    finish: str | None = None
    seconds: float | None = None
    prefill_seconds: float | None = None
    model: str | None = None
    elapsed: tuple[float, ...] = ()
    pieces: tuple[str, ...] = ()
    prompt_pieces: tuple[str, ...] = ()
    domain: str | None = None

    def _contradictions(self) -> Iterator[str]:
        """Yields an error message for each contradiction between the figures, to append to ``place``."""
        if self.num_drafted is not None and self.num_accepted > self.num_drafted:
            yield f": {self.num_accepted} tokens accepted of {self.num_drafted} drafted"
        if self.histogram is not None:
            total, weighed = sum(self.histogram), sum(j * n for j, n in enumerate(self.histogram))
            if total != self.steps:
                yield f": the histogram counts {total} steps, but {self.steps} are reported"
            if weighed != self.num_accepted:
                yield f": the histogram holds {weighed} accepted tokens, but {self.num_accepted} are reported"
        if self.accepted is not None and self.drafted is not None:
            yield from self._contradictory_steps(self.accepted, self.drafted)
        if self.output_ids is not None and self.completion is not None and len(self.output_ids) != self.completion:
            yield f": {len(self.output_ids)} output ids, but {self.completion} completion tokens are reported"

    def _contradictory_steps(self, accepted: Sequence[int], drafted: Sequence[int]) -> Iterator[str]:
        if len(accepted) != len(drafted):
            yield f".per_step_drafted: {len(drafted)} steps, but per_step_accepted has {len(accepted)}"
        if len(accepted) != self.steps:
            yield f".per_step_accepted: {len(accepted)} steps, but {self.steps} are reported"
        most = min(self.longest or MAX_ITEMS, MAX_ITEMS - 1)
        for at, (a, d) in enumerate(zip(accepted, drafted, strict=True)):
            if a > d:
                yield f".per_step_accepted[{at}]: {a} tokens accepted of {d} drafted"
            if d > most:
                yield f".per_step_drafted[{at}]: {d} tokens, but at most {most} are drafted per step"
        if sum(accepted) != self.num_accepted:
            yield f".per_step_accepted: {sum(accepted)} in total, but {self.num_accepted} are reported"
        if self.num_drafted is not None and sum(drafted) != self.num_drafted:
            yield f".per_step_drafted: {sum(drafted)} in total, but {self.num_drafted} are reported"
        if self.histogram not in (None, tuple(accepted.count(j) for j in range(len(self.histogram or ())))):
            yield ".acceptance_histogram: it does not match per_step_accepted"

    def result(self, texts: Texts) -> Trace | LogTotals:
        """Returns the request as a trace, or as totals if its single steps are unknown.

        Raises ``InputError``, which names line and field, if the figures contradict each other.
        """
        if (wrong := next(self._contradictions(), None)) is not None:
            raise InputError(self.place + wrong)
        if not self.accepted or self.drafted is None:
            return totals_of(self)
        return Trace.of(self._header(), self._events(texts, self.accepted, self.drafted))

    def _header(self) -> dict[str, object]:
        missing = ["confidence"]
        if not self._cut(self.accepted or ()):
            missing.append("tokens")
        elif self.accepted != self.drafted:
            missing.append("rejected")
        if not self.elapsed:
            missing.append("times")
        models = {"target": self.model} if self.model else {}
        header: dict[str, object] = {
            "event": "Header", "schema": SCHEMA, "run": uuid.uuid4().hex, "method": self.engine, "config": {}, "models": models,
            "versions": {}, "hardware": {}, "prompt": self.prompt, "missing": missing,
        }  # fmt: skip
        if self.prompt_tokens is not None:
            header["prompt_tokens"] = self.prompt_tokens
        if self.domain is not None:
            header["domain"] = self.domain
        return header

    def _most(self, accepted: Sequence[int]) -> int:
        """Returns the length of an output that was not cut off: a token from prefill, and each step's accepted and bonus tokens."""
        return 1 + sum(accepted) + len(accepted)

    def _cut(self, accepted: Sequence[int]) -> bool:
        """Returns whether the output ids can be assigned to steps: they are known, and no token comes from a step without a draft."""
        return self.output_ids is not None and len(self.output_ids) <= self._most(accepted)

    def _events(self, texts: Texts, accepted: Sequence[int], drafted: Sequence[int]) -> Iterator[Event]:
        most = self._most(accepted)
        length = len(self.output_ids) if self.output_ids is not None else self.completion
        least = most - accepted[-1]
        if length is not None and length < least:
            raise InputError(f"{self.place}: {length} output tokens, but the steps committed at least {least}")
        left_out = max(0, most - length) if length is not None else 0  # the text ended within the last step
        if self._cut(accepted) and self.output_ids is not None:
            pieces = self.pieces or texts.pieces(self.output_ids, "output ids")
            tokens = [Token(i, t) for i, t in zip(self.output_ids, pieces, strict=True)]
        else:
            tokens = [NOT_KNOWN] * min(most - left_out, MAX_TEXTS)
        prompt = self.prompt_pieces or texts.pieces(self.prompt_ids, "prompt ids")
        first = Committed(tokens[0].id, tokens[0].text, "target", None)
        yield PrefillDone(self.prompt_ids, tuple(prompt), self.prefill_seconds or 0.0, (first,))
        before = len(self.prompt_ids) or self.prompt_tokens or 0
        at, last = 1, len(accepted) - 1
        for number, (a, d) in enumerate(zip(accepted, drafted, strict=True)):
            end = at + a + 1 - (left_out if number == last else 0)
            own = tokens[at:end]
            committed = min(a, len(own))
            chain = [*own[:committed], *[NOT_KNOWN] * (d - committed)]
            bonus = own[committed] if len(own) > committed else None
            # without times per step, only the end of the last step is known
            elapsed = self.elapsed[number] if self.elapsed else self.seconds or 0.0 if number == last else 0.0
            position = before + at - 1
            yield chain_step(number, tokens[at - 1], position, chain, a, bonus, in_text=committed, elapsed=elapsed)
            at = end
        text = self.text if self.text is not None and not self._cut(accepted) else "".join(t.text for t in tokens)
        ids = tuple(t.id for t in tokens)
        end_reason = STOP_REASONS.get(self.finish, "stopped")
        yield Finished(end_reason, text, ids, len(accepted), self.seconds or 0.0, self.prefill_seconds or 0.0)


def totals_of(counts: Counts) -> LogTotals:
    steps, histogram = counts.steps, counts.histogram
    by_position: tuple[float, ...] = ()
    if steps and histogram and counts.longest and counts.num_drafted == steps * counts.longest:
        reached = [sum(histogram[k:]) for k in range(len(histogram))]
        by_position = tuple(n / steps for n in reached[1:])
    lacking = ["the places in the text where steps end", "confidences"]
    lacking = ["the order of the steps" if by_position else "acceptance by position", *lacking]
    if steps is None:
        lacking = ["the number of steps and therefore α", *lacking]
    return LogTotals(
        engine=counts.engine,
        model=counts.model,
        tokens=counts.completion,
        steps=steps,
        drafted=counts.num_drafted,
        accepted=counts.num_accepted,
        acceptance_rate=share_of(counts.num_accepted, counts.num_drafted),
        mean_acceptance_length=1 + counts.num_accepted / steps if steps else None,
        by_position=by_position,
        tokens_per_second=counts.completion / counts.seconds if counts.completion and counts.seconds else None,
        unknown=f"not in this log: {', '.join(lacking[:-1])}, and {lacking[-1]}",
    )


def dense(histogram: dict[str, int] | Sequence[int], where: str) -> tuple[int, ...]:
    """Returns a histogram as a tuple. The keys of a dict are numbers of accepted tokens."""
    if not isinstance(histogram, dict):
        return tuple(histogram)
    if any(not k.isdecimal() or int(k) >= MAX_ITEMS for k in histogram):
        raise InputError(f"{where}: its keys must be numbers of accepted tokens, 0 to {MAX_ITEMS - 1}")
    return tuple(histogram.get(str(j), 0) for j in range(1 + max(map(int, histogram), default=-1)))


def check_mean(reported: float | None, value: float | None, where: str) -> None:
    """Raises ``InputError`` if a reported mean contradicts the counts."""
    if reported and value is not None and not isclose(reported, value, rel_tol=1e-3, abs_tol=1e-3):
        raise InputError(f"{where}: {reported:g}, but the counts give {value:.4g}")
