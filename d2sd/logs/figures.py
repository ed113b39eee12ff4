"""Figures of a log: of one request, of one printed row, or of a source. A source is all rows with the same engine, models and
settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from inspect import signature
from itertools import accumulate, chain, pairwise
from math import inf
from statistics import median, median_low
from typing import Any, Literal

from d2sd.calibration.text import count, percent
from d2sd.errors import require
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

UNDRAFTED = 0.1  # share of tokens from steps without a draft, above which these tokens are reported
MAX_POSITIONS = 1024
LONGEST = 15.0  # seconds; longer intervals of vLLM are assumed to include idle time
MOST_PROMPT = 100.0  # prompt tokens per second; above this speed, an interval includes prefill
# Values that are left out if nothing was drafted.
DRAFTS = ("steps", "drafted", "accepted", "stated_alpha", "stated_rate", "by_position", "reached", "counts")
SUMS = ("requests", "tokens", "steps", "drafted", "accepted", "failures")  # fields that are added up over rows
INTEGERS = (*SUMS, "at_once")  # fields with whole numbers
LOAD = ("running", "waiting", "kv_use")  # fields with one value per row
ENGINE = "engine "  # a ``replica`` that is an engine, not a process, begins with this word
ENOUGH = 20  # steps or rows needed for a judgement
MAX_LENGTHS = 100_000  # entries of ``Figures.by_length``
MAX_SOURCES = 20
MAX_DRAFTED = 64  # largest number of drafted tokens per step that is deduced
NEARLY_ALL = 0.999  # above this acceptance rate, llama.cpp has counted only drafts that were accepted completely

# The requests in a row: one request, or all requests in an interval, since the program's start ("running"), or in a benchmark.
Unit = Literal["request", "interval", "running", "benchmark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one or several requests; ``unit`` says which. A figure is None, or empty, if it is unknown.

    log: name of the log, if there are several.
    model, drafter: names of target and drafter in the log.
    replica: name of the engine or process, such as "engine 2" or "process 7", if several serve the same model; empty otherwise.
    start: part of the log that the figures belong to, counted from 0. A part begins at each start of the program, benchmark run,
        Markdown block or quoted reply.
    prompt: name of the prompt in a benchmark.
    requests: number of requests; 0 if unknown.
    tokens: number of output tokens.
    steps: number of steps with a draft.
    drafted, accepted: numbers of drafted and of accepted tokens in these steps.
    stated_alpha, stated_rate: α and acceptance rate as printed, or computed from other printed values. The properties ``alpha`` and
        ``rate`` use the counts above instead, if these are known.
    by_position: by_position[k] is the share of the steps with a draft in which drafted token k + 1 was accepted. If a draft was too
        short to have this token, its step counts as a step that did not accept it.
    by_length: pairs of text length in tokens and α; one pair per step, or one per row about a single request.
    gamma: drafted tokens per step, from the options in the log, or deduced.
    seconds: total seconds of the requests without prefill. For SGLang's replies, prefill is included.
    token_seconds: mean seconds per output token of one request (TPOT).
    draft_seconds: seconds of the drafter per step.
    tokens_per_second: output tokens per second of all concurrent requests together.
    at_once: number of concurrent requests while ``token_seconds`` was measured.
    running, waiting: numbers of running and of queued requests, one per row.
    kv_use: used share of the KV cache, one per row.
    remote_prefill: whether another server runs prefill.
    failures: number of times that the drafter returned an error.
    alphas: if the figures combine several rows, α of each row that has at least ``ENOUGH`` steps or an unknown number of steps.
    """

    engine: str
    unit: Unit = "request"
    log: str = ""
    model: str | None = None
    drafter: str | None = None
    replica: str = ""
    start: int = 0
    prompt: str | None = None
    requests: int = 0
    tokens: int | None = None
    steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    stated_alpha: float | None = None
    stated_rate: float | None = None
    by_position: tuple[float, ...] = ()
    by_length: tuple[tuple[int, float], ...] = ()
    gamma: float | None = None
    seconds: float | None = None
    token_seconds: float | None = None
    draft_seconds: float | None = None
    tokens_per_second: float | None = None
    at_once: int | None = None
    running: tuple[float, ...] = ()
    waiting: tuple[float, ...] = ()
    kv_use: tuple[float, ...] = ()
    remote_prefill: bool = False
    failures: int = 0
    alphas: tuple[float, ...] = ()

    @property
    def kind(self) -> tuple[str, Unit]:
        return self.engine, self.unit

    @property
    def alpha(self) -> float | None:
        """Mean acceptance length: accepted tokens per step, plus 1 for the bonus token."""
        return 1 + self.accepted / self.steps if self.steps and self.accepted is not None else self.stated_alpha

    @property
    def rate(self) -> float | None:
        """Acceptance rate: accepted ÷ drafted tokens."""
        if self.drafted and self.accepted is not None:
            return self.accepted / self.drafted
        return (self.alpha - 1) / self.draft_length if self.alpha and self.draft_length else self.stated_rate

    @property
    def draft_length(self) -> float | None:
        """Drafted tokens per step."""
        if self.steps and self.drafted is not None:
            return self.drafted / self.steps
        return float(len(self.by_position)) or self.gamma

    @property
    def drafts(self) -> bool:
        """Whether there are figures of drafts; False for plain decoding."""
        return (self.alpha, self.accepted, self.steps, self.rate) != (None,) * 4

    @property
    def undrafted(self) -> int:
        """Number of tokens from steps without a draft, which vLLM does not count as steps; 0 if they are few or unknown."""
        if self.engine != "vllm" or not self.tokens or not self.steps or self.accepted is None:
            return 0
        # the first token of a request belongs to no step
        left = self.tokens - self.requests - self.steps - self.accepted
        return left if left > UNDRAFTED * self.tokens else 0

    @property
    def tokens_per_step(self) -> float:
        """Tokens per step, including steps without a draft; 1 for plain decoding."""
        if self.undrafted and self.tokens and self.steps:
            return self.tokens / (self.steps + self.undrafted)
        return self.alpha or 1.0

    @property
    def step_seconds(self) -> float | None:
        """Seconds per step of one request."""
        return self.token_seconds and self.token_seconds * self.tokens_per_step

    @property
    def equally_long(self) -> bool:
        """Whether all drafts seem to have the same length. Otherwise, the last positions were drafted only in some steps."""
        return self.draft_length is None or len(self.by_position) < 2 or self.draft_length > 0.9 * len(self.by_position)

    @property
    def origin(self) -> str:
        """The names of log, engine, models and replica, as far as they are known, in one phrase."""
        models = " with ".join(escaped(name) for name in (self.model, self.drafter) if name)
        log = f"{escaped(self.log)}: " if self.log else ""
        return log + ", ".join(filter(None, (self.engine, models, self.replica)))

    def __str__(self) -> str:
        since = f" since its {'restart' if self.start else 'start'}" if self.unit == "running" else ""
        parts = [self.origin + since]
        if not self.drafts:
            parts.append("no draft statistics")
            if self.token_seconds:
                parts.append(f"a token takes {milliseconds(self.token_seconds)}{self.with_requests}")
        if self.steps is not None:
            parts.append(count(self.steps, "step"))
        if self.draft_length is not None and self.drafts:
            parts.append(f"{self.draft_length:.3g} drafted {'token' if self.draft_length == 1 else 'tokens'} per step")
        if self.alpha is not None:
            parts.append(f"α {self.alpha:.2f}")
        elif self.rate is not None:
            parts.append(f"{percent(self.rate)} of the drafted tokens accepted, steps unknown")
        if self.by_position:
            last, most = self.last_accepted, len(self.by_position)
            shares = [f"{k}: {percent(share)}" for k, share in enumerate(self.by_position[:last], 1)]
            if last < most:
                shares.append(f"{f'{last + 1} to ' if last + 1 < most else ''}{most}: 0%")
            parts.append(f"accepted up to position {', '.join(shares)}")
        return ", ".join(parts)

    @property
    def with_requests(self) -> str:
        """The words " with N requests at once", which follow a time; empty if ``at_once`` is unknown."""
        return f" with {count(self.at_once, 'request')}{' at once' if self.at_once > 1 else ''}" if self.at_once else ""

    @property
    def last_accepted(self) -> int:
        """The last position at which tokens were accepted; 0 if there is none."""
        return max((k for k, share in enumerate(self.by_position, 1) if share >= 0.0005), default=0)

    @property
    def unknown(self) -> str:
        """A sentence about what the log lacks."""
        what = "the order of the steps" if self.by_position else "acceptance by position"
        return f"not in this log: {what}, the places in the text where steps end, and confidences"

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures for JSON. ``by_length`` and ``alphas`` are left out. Each of the ``LOAD`` fields becomes its lowest,
        median and highest value.
        """
        load = {name: span(values) if (values := getattr(self, name)) else None for name in LOAD}
        derived = ("alpha", "rate", "draft_length", "drafts", "undrafted", "step_seconds")
        data = asdict(self) | {name: getattr(self, name) for name in derived} | load
        del data["by_length"], data["alphas"]
        return data


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{1000 * seconds:.0f} ms"


def span(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the lowest, the median and the highest value; zeros if there are none."""
    return (min(values), median(values), max(values)) if values else (0, 0, 0)


# Equations between the values that programs print.

Values = dict[str, Any]  # values of a row by name


def _of_counts(counts: Sequence[int], steps: float, drafted: float) -> tuple[float, ...] | None:
    """Returns acceptance by position. Returns None if the drafts have different lengths or the counts do not add up.

    counts: counts[j] is the number of steps that accepted j tokens.
    steps, drafted: numbers of steps and of drafted tokens.
    """
    if sum(counts) != steps or drafted % steps or drafted / steps > MAX_POSITIONS:
        return None
    return tuple(sum(counts[k:]) / steps for k in range(1, 1 + round(drafted / steps)))


# (wanted value, its formula). The parameters of a formula are the values that it needs. Of several formulas for a value, the first
# one that can be computed is used. Names of fields of ``Figures`` mean the same here, but ``running`` is a number. The other values:
#
# predicted: output tokens of a request; the first one belongs to no step
# written: output tokens that steps committed
# generated: output tokens; steps without a draft may have committed some of them
# emitted: output tokens that steps committed, in vLLM 0, where accepted tokens after a rejection are counted too
# reached: [k]: steps that accepted drafted token k + 1
# counts: [j]: steps that accepted j tokens
# histogram: acceptance by position, computed from a histogram of committed tokens per step
# chunk: seconds per streamed part, of which vLLM sends one per step
# token_sum, token_count: sum of the times per output token, and number of these times
# draft: seconds of the drafter in all steps
# calls: calls of the drafter, one per step, even if nothing is drafted
# window: seconds of an interval
# accepted_speed: accepted tokens per second
# prompts: prompt tokens per second
# held: tokens in the KV cache
# option: drafted tokens per step, from the options of the program
# transfers: requests whose KV cache is on its way; printed only if another server runs prefill
# external: share or number of prompt tokens whose KV cache came from outside the server
# failure: error code of the drafter
EQUATIONS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("steps", lambda drafted, gamma: drafted / gamma),
    ("steps", lambda drafted, by_position: None if drafted % len(by_position) else drafted / len(by_position)),
    ("steps", lambda accepted, stated_alpha: accepted / (stated_alpha - 1)),
    ("steps", lambda predicted, accepted: predicted - accepted - 1),
    ("steps", lambda written, accepted: written - accepted),
    ("stated_alpha", lambda stated_rate, chunk, token_seconds: chunk / token_seconds),
    ("stated_alpha", lambda emitted, steps: emitted / steps),
    ("accepted", lambda stated_alpha, steps: (stated_alpha - 1) * steps),
    ("by_position", _of_counts),
    ("by_position", lambda histogram: histogram),
    ("by_position", lambda reached, steps: tuple(n / steps for n in reached) if max(reached) <= steps else None),
    ("calls", lambda steps: steps),
    ("draft_seconds", lambda draft, calls: draft / calls),
    ("tokens", lambda predicted: predicted),
    ("tokens", lambda written: written),
    ("tokens", lambda generated: generated),
    ("tokens", lambda emitted: emitted),
    ("window", lambda accepted, accepted_speed: accepted / accepted_speed),
    ("tokens", lambda tokens_per_second, window: tokens_per_second * window if window < LONGEST else None),
    ("seconds", lambda written, tokens_per_second: written / tokens_per_second),
    ("token_seconds", lambda seconds, tokens: seconds / tokens),
    ("token_seconds", lambda token_sum, token_count: token_sum / token_count),
    ("at_once", lambda running: running),
    (
        "token_seconds",
        lambda running, tokens_per_second, prompts: None if prompts > MOST_PROMPT else running / tokens_per_second,
    ),
    ("by_length", lambda held, stated_alpha, running: ((round(held), stated_alpha),) if running == 1 else None),
    ("gamma", lambda option: option),
    ("remote_prefill", lambda transfers: True),
    ("remote_prefill", lambda external: external > 0),
    ("failures", lambda failure: 1),
)
NEEDS = [(wanted, frozenset(signature(formula).parameters), formula) for wanted, formula in EQUATIONS]


def solve(values: Values) -> None:
    """Adds to ``values`` every value that ``EQUATIONS`` can compute from the others."""
    size = -1
    while size < len(values):
        size = len(values)
        for wanted, needs, formula in NEEDS:
            if wanted in values or not needs <= values.keys():
                continue
            try:
                value = formula(**{name: values[name] for name in needs})
            except ZeroDivisionError:
                continue
            if (value and (isinstance(value, tuple) or value > 0)) or (value == 0 and wanted == "accepted"):
                values[wanted] = value


def figures_of(engine: str, unit: Unit, values: Values) -> Figures:
    """Returns the figures of a request or a row.

    values: the values in the log, by the names that are used in ``EQUATIONS``, with the names of the models.
    """
    values = {"prompts": 0.0} | {name: value for name, value in values.items() if value is not None}
    if values.get("tokens_per_second") == 0:
        del values["tokens_per_second"]
    if values.get("drafted") == 0:
        values = {name: value for name, value in values.items() if name not in DRAFTS}
    solve(values)
    figures: Values = {
        field.name: (value,) if field.name in LOAD else round(value) if field.name in INTEGERS else value
        for field in fields(Figures)
        if (value := values.get(field.name)) is not None
    }
    return Figures(engine=engine, unit=unit, requests=int(unit == "request"), **figures)


def row_of(engine: str, unit: Unit, values: Values) -> Iterator[Figures]:
    """Yields the figures of a row (see ``figures_of``). Yields nothing if the row has no figures, or if they contradict each other."""
    row = figures_of(engine, unit, values)
    wrong = (row.accepted or 0) > (row.drafted or inf) or (row.alpha or 0.0) > 1.01 + (row.draft_length or inf)
    if not wrong and (row.drafts or row.token_seconds or row.tokens_per_second or row.failures or row.running):
        yield row


# Several rows.


def joined(rows: Sequence[Figures]) -> Figures:
    """Combines the figures of several rows of one source: sums over the rows, and means over all steps and tokens.

    If the rows have α but no number of steps, as in SGLang's periodic lines, the mean α is weighted by the number of running
    requests.
    """
    if len(rows) == 1:
        return rows[0]
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in fields(Figures)}
    sums: Values = {name: None if None in columns[name] else sum(columns[name]) for name in SUMS}
    weights = columns["steps"] if sums["steps"] else [one or 1 for one in columns["at_once"]]

    def mean(values: Iterable[float | None]) -> float | None:
        pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
        total = sum(weight for _, weight in pairs)
        return sum(value * weight for value, weight in pairs) / total if total else None

    # requests with shorter drafts accepted nothing at later positions
    positions = max(map(len, columns["by_position"]))
    padded = [shares and (*shares, *[0.0] * (positions - len(shares))) for shares in columns["by_position"]]
    lists: Values = {name: tuple(chain(*columns[name])) for name in ("by_length", *LOAD)}
    speeds = [speed for speed in columns["tokens_per_second"] if speed]
    whole = replace(
        rows[0], **sums, **lists,
        by_position=tuple(mean(shares[k] if shares else None for shares in padded) or 0.0 for k in range(positions)),
        stated_alpha=mean(row.alpha for row in rows), stated_rate=mean(row.rate for row in rows),
        tokens_per_second=median(speeds) if speeds and rows[0].unit != "request" else None,
        remote_prefill=any(columns["remote_prefill"]), token_seconds=None, at_once=None,
        alphas=tuple(row.alpha for row in rows if row.alpha and (row.steps is None or row.steps >= ENOUGH)),
    )  # fmt: skip
    timed = [(row.seconds, row.tokens) for row in rows if row.seconds and row.tokens]
    if timed:
        seconds, tokens = map(sum, zip(*timed, strict=True))
        return replace(whole, seconds=seconds, token_seconds=seconds / tokens)
    # An interval counts only if it begins and ends with the same number of requests: this number then hardly changed in between.
    # A few intervals that were slowed down by waiting hardly affect the median.
    steady = [b for a, b in pairwise(rows) if a.at_once == b.at_once and b.token_seconds]
    at_once, most = Counter(row.at_once for row in steady).most_common(1)[0] if steady else (None, 0)
    if most <= len(steady) / 4:
        return whole
    steps = ((row.alpha or 1.0) * (row.token_seconds or 0.0) for row in steady if row.at_once == at_once)
    return replace(whole, token_seconds=median_low(steps) / (whole.alpha or 1.0), at_once=at_once)


# Sources.


def of_trace(trace: Trace) -> Figures:
    """Returns the figures of a trace. Steps without a draft, and steps that the end of the text cut off, are left out."""
    length = len(trace.prefill.prompt_token_ids) + 1 if trace.prefill else 1
    lengths, reached, drafted = [], Counter[int](), 0
    for step in trace.steps:
        length += len(step.committed)
        if step.first_draft and step.actual_boundary is not None:
            drafted += len(step.first_draft.ids)
            reached.update(range(step.actual_boundary))
            lengths.append((length, step.actual_boundary + 1))
    steps = len(lengths)
    positions = max(-(-drafted // (steps or 1)), len(reached))
    values = {
        "model": trace.header["models"].get("target"), "steps": steps, "drafted": drafted, "accepted": reached.total(), "reached": [reached[k] for k in range(positions)],
        "by_length": tuple(lengths), "predicted": len(trace.token_ids), "seconds": (trace.finished and trace.finished.seconds) or None,
    }  # fmt: skip
    return figures_of(str(trace.header["method"]), "request", values)


def sources_of(requests: Iterable[Trace | Figures], log: str = "") -> list[Figures]:
    """Returns the figures of each source of a log, at most ``MAX_SOURCES``; sources without drafts come last.

    log: name of the log, if there are several. Raises ``InputError`` if the log has no figures.
    """
    rows, room = [], MAX_LENGTHS
    for one in requests:
        row = of_trace(one) if isinstance(one, Trace) else one
        rows.append(replace(row, by_length=row.by_length[:room]))
        room -= len(rows[-1].by_length)
    # lines that were pasted without their beginning lack the number of the engine; process numbers are used only if no line has it
    names = {row.replica for row in rows} - {""}
    names = {name for name in names if name.startswith(ENGINE)} or names
    rows = [replace(row, replica=row.replica if row.replica in names and len(names) > 1 else "") for row in rows]
    # servers that draft also log intervals without drafts, while they are idle or process prompts
    drafting = {row.kind for row in rows if row.drafts and row.unit == "interval"}
    groups = by_source([row for row in rows if row.drafts or row.kind not in drafting])
    sglang = [row for row in rows if row.kind == ("sglang", "interval")]
    joint = []
    for group in groups:
        one = joined(group)
        if one.draft_length is None and one.kind == ("sglang", "interval"):
            one = replace(one, gamma=_deduced_drafted(group) or _deduced_drafted(sglang))
        # acceptance does not grow with the position; rounded shares may
        joint.append(replace(one, log=log, by_position=tuple(accumulate(one.by_position, min))))
    sources = [one for one in _with_drafters(joint) if one.drafts or one.token_seconds or one.failures]
    require(sources, "the log has no step with a draft, and no time of plain decoding")
    return sorted(sources, key=lambda one: (not one.drafts, one.replica))[:MAX_SOURCES]


def by_source(rows: Sequence[Figures]) -> list[list[Figures]]:
    """Groups rows by source. All rows of a group have the same engine, models, settings and unit."""

    def kind(row: Figures) -> tuple[object, ...]:
        return row.kind, row.model, row.drafter, row.replica, row.drafts, row.start, row.gamma

    # Intervals that list different numbers of positions have different settings. For requests of llama.cpp, the number is only
    # the length of their longest draft. A line that was cut when it was pasted lists no positions.
    usual = {kind(row): len(row.by_position) for row in rows if row.by_position}
    # kinds with intervals whose steps or load are known; intervals of other kinds are not joined
    joined_kinds = {kind(row) for row in rows if row.steps is not None or row.at_once is not None}
    groups: dict[tuple[object, ...], list[Figures]] = {}
    for row in rows:
        positions = (len(row.by_position) or usual.get(kind(row))) if row.unit == "interval" else None
        # settings may differ between benchmarks, and between starts of a server, so each benchmark and start is a group
        alone = row.unit in ("benchmark", "running") or (row.unit == "interval" and kind(row) not in joined_kinds)
        groups.setdefault((*kind(row), positions, len(groups) if alone else None), []).append(row)
    return list(groups.values())


def _deduced_drafted(rows: Sequence[Figures]) -> float | None:
    """Returns the number of drafted tokens per step that explains α and SGLang's *accept rate* in every row. Returns None if
    several numbers do, or none.

    The rate is α ÷ (drafted + 1) in some versions of SGLang and (α − 1) ÷ drafted in others. Logs round α and the rate.
    """
    pairs = [(row.alpha, row.stated_rate) for row in rows if row.alpha and row.stated_rate]
    fitting = [
        float(n)
        for bonus in (0, 1)  # whether the rate leaves out the bonus token
        for n in range(1, MAX_DRAFTED)
        if all(abs((a - bonus) / (n + 1 - bonus) - rate) <= 0.005 / (n + 1 - bonus) + 0.0051 for a, rate in pairs)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _with_drafters(sources: Sequence[Figures]) -> Iterator[Figures]:
    """Yields the figures of all sources. To figures of llama.cpp's requests, it adds what the program counted for the drafter since
    its start.
    """
    counters = [one for one in sources if one.kind == ("llama.cpp", "running") and one.steps]
    for source in sources:
        if source.kind == ("llama.cpp", "running"):
            continue
        used = [c for c in counters if c.start == source.start]
        if source.kind == ("llama.cpp", "request") and source.drafts and used:
            source = replace(source, draft_seconds=sum(c.draft_seconds or 0.0 for c in used) or None)
            if len(used) == 1:
                (since,) = used
                counters.remove(since)
                # a text that ends within a draft lacks some accepted tokens, so ``source.steps`` is computed too low
                ended = source.drafted == since.drafted and (since.steps or 0) > (source.steps or 0)
                partly = (source.rate or 0.0) > NEARLY_ALL > (since.rate or 0.0)
                counts = since if ended or partly or not source.steps else source
                source = replace(
                    source, drafter=source.drafter or since.drafter, by_position=source.by_position or since.by_position, stated_rate=source.rate,
                    steps=counts.steps, drafted=counts.drafted, accepted=counts.accepted, stated_alpha=counts.stated_alpha,
                )  # fmt: skip
        yield source
    yield from counters
