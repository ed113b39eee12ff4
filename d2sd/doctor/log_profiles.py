"""Figures of each source of a log: acceptance, times and load. The rows of a source have the same engine, models and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import median, median_low
from typing import Any

from d2sd.errors import InputError
from d2sd.trace.logs import LogTotals, by_source, together
from d2sd.trace.trace import Trace

MAX_LENGTHS = 100_000  # entries of ``AcceptanceProfile.by_length``
MAX_SOURCES = 20
MAX_DRAFTED = 64  # largest number of drafted tokens per step that is deduced
UNDRAFTED = 0.1  # share of tokens from steps without a draft, above which these tokens are reported
ALL = 0.999  # acceptance rate above which llama.cpp has counted only drafts that were accepted completely


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a server over the rows of a log: (lowest, median, highest); None if unknown.

    running, waiting: numbers of requests.
    kv_use: used share of the KV cache.
    """

    running: tuple[float, float, float] | None = None
    waiting: tuple[float, float, float] | None = None
    kv_use: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class AcceptanceProfile:
    """Figures of one source of a log; None if unknown.

    log: name of the log, if there are several.
    unit: what a row of the log covers, see ``d2sd.trace.logs.requests.Unit``.
    drafted: drafted tokens per step.
    alpha: mean acceptance length; None without drafts.
    by_position: at index k, the share of the steps that accepted drafted token k + 1.
    by_length: (length of the text in tokens, α), for each step or for each row of the log about a single request.
    replica: number of the engine, if several serve the same model.
    start: number of restarts of the program before these figures.
    step_seconds, token_seconds: time of a step and of a token of one request.
    at_once: number of requests that were decoded concurrently while these times were measured.
    draft_seconds: time of the drafter per step.
    tokens_per_second: rate of all requests together.
    remote_prefill: whether prompts are processed on another server.
    rate: accepted ÷ drafted tokens.
    tokens, undrafted: numbers of all tokens and of tokens from steps without a draft; such steps do not count for ``alpha``.
    drafts: whether the source has figures of drafts.
    """

    engine: str
    model: str | None
    drafter: str | None
    steps: int | None
    drafted: float | None
    alpha: float | None
    by_position: tuple[float, ...]
    by_length: tuple[tuple[int, float], ...] = ()
    log: str = ""
    unit: str = "request"
    replica: int | None = None
    start: int = 0
    step_seconds: float | None = None
    token_seconds: float | None = None
    at_once: int | None = None
    draft_seconds: float | None = None
    tokens_per_second: float | None = None
    load: Load = Load()
    remote_prefill: bool = False
    rate: float | None = None
    tokens: int | None = None
    undrafted: int | None = None
    drafts: bool = True

    @property
    def equally_long(self) -> bool:
        """Whether all drafts seem to have the same length. If not, some steps did not draft the last positions."""
        return self.drafted is None or len(self.by_position) < 2 or self.drafted > 0.9 * len(self.by_position)

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures for JSON, without ``by_length``."""
        known = asdict(replace(self, by_length=()))
        del known["by_length"]
        return known


@dataclass
class _Counted:
    """Sums over the steps of traces."""

    steps: int = 0
    committed: int = 0
    drafted: int = 0
    seconds: float = 0.0
    tokens: int = 0
    reached: Counter[int] = field(default_factory=Counter)
    by_length: list[tuple[int, float]] = field(default_factory=list)

    def add(self, trace: Trace) -> None:
        length = len(trace.prefill.prompt_token_ids) + 1 if trace.prefill else 1
        if trace.finished and trace.finished.seconds > 0:
            self.seconds += trace.finished.seconds
            self.tokens += len(trace.token_ids)
        for step in trace.steps:
            length += len(step.committed)
            if step.first_draft is None or step.actual_boundary is None:
                continue
            self.steps += 1
            self.drafted += len(step.first_draft.ids)
            self.committed += step.actual_boundary + 1
            self.reached.update(range(step.actual_boundary))
            if len(self.by_length) < MAX_LENGTHS:
                self.by_length.append((length, step.actual_boundary + 1))

    def profile(self, engine: str, model: str | None) -> AcceptanceProfile:
        shares = (self.reached[k] / self.steps for k in range(max(-(-self.drafted // self.steps), len(self.reached))))
        alpha = self.committed / self.steps
        seconds = self.seconds / self.tokens if self.tokens else None
        return AcceptanceProfile(
            engine, model, None, self.steps, self.drafted / self.steps, alpha, tuple(shares), tuple(self.by_length),
            step_seconds=alpha * seconds if seconds else None, token_seconds=seconds, rate=(self.committed - self.steps) / self.drafted,
        )  # fmt: skip


def profiles_of(found: Iterable[Trace | LogTotals], log: str = "") -> list[AcceptanceProfile]:
    """Returns the profile of each source of a log, at most ``MAX_SOURCES``; sources without drafts come last.

    log: name of the log, if there are several. Raises ``InputError`` if the log has no figures.
    """
    counted: dict[tuple[str, str | None], _Counted] = {}
    rows: list[LogTotals] = []
    for one in found:
        if isinstance(one, LogTotals):
            rows.append(one)
        else:
            models = one.header["models"]
            name = models.get("target") if isinstance(models, dict) else None
            key = str(one.header["method"]), name if isinstance(name, str) else None
            counted.setdefault(key, _Counted()).add(one)
    profiles = [sums.profile(*key) for key, sums in counted.items() if sums.steps]
    # servers that draft also log intervals without drafts, while they are idle or process prompts
    drafting = {(row.engine, row.unit) for row in rows if row.drafts and row.unit == "interval"}
    groups = by_source(row for row in rows if row.drafts or (row.engine, row.unit) not in drafting)
    deduced = _deduced_drafted([row for row in rows if (row.engine, row.unit) == ("sglang", "interval")])
    found_in_rows = [_profile(group, deduced) for group in groups]
    profiles += [profile for profile in found_in_rows if profile.drafts or profile.token_seconds]
    profiles = _with_statistics(profiles)
    if not profiles:
        raise InputError("the log has no step with a draft, and no time of plain decoding")
    profiles.sort(key=lambda profile: (not profile.drafts, profile.replica or 0))
    if len({profile.replica for profile in profiles}) == 1:
        profiles = [replace(profile, replica=None) for profile in profiles]
    return [replace(profile, log=log) for profile in profiles[:MAX_SOURCES]]


def _profile(rows: Sequence[LogTotals], deduced: float | None) -> AcceptanceProfile:
    """Returns the profile of one source's rows. deduced: SGLang's drafted tokens per step, deduced from the rows of all sources."""
    all_of, first = together(rows), rows[0]
    steps, drafted, alpha = all_of["steps"], all_of["drafted"], all_of["mean_acceptance_length"]
    shares = tuple(accumulate(all_of["by_position"], min))  # made non-increasing, as it should be before rounding
    each: float | None = None
    if steps and drafted is not None:
        each = drafted / steps
    elif shares or first.gamma:
        each = float(len(shares) or first.gamma or 0)
    elif first.engine == "sglang" and first.unit == "interval":
        each = _deduced_drafted(rows) or deduced
    lengths = [
        (row.held, row.mean_acceptance_length)
        for row in rows
        if row.held and row.running == 1 and row.mean_acceptance_length is not None
    ]
    step_seconds, at_once = _step_seconds(rows)
    token_seconds = step_seconds / (alpha or 1.0) if step_seconds else None
    tokens, accepted = all_of["tokens"], all_of["accepted"]
    left = tokens - steps - accepted if tokens and steps and accepted is not None and first.engine == "vllm" else 0
    left = left if left > UNDRAFTED * (tokens or 0) else 0
    if left and step_seconds and alpha:
        step_seconds *= tokens / (steps + left) / alpha
    draft = [row.draft_seconds for row in rows if row.draft_seconds is not None]
    speeds = [row.tokens_per_second for row in rows if row.tokens_per_second]
    return AcceptanceProfile(
        first.engine, first.model, first.drafter, steps, each, alpha, shares, tuple(lengths[:MAX_LENGTHS]),
        "", first.unit, first.replica, first.start, step_seconds, token_seconds, at_once, draft[0] if draft else None,
        median(speeds) if speeds and first.unit != "request" else None,
        Load(*(_range(rows, name) for name in ("running", "waiting", "kv_use"))),
        any(row.remote_prefill for row in rows), all_of["acceptance_rate"], tokens, left or None,
        first.drafts,
    )  # fmt: skip


def _range(rows: Sequence[LogTotals], name: str) -> tuple[float, float, float] | None:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return (min(values), median(values), max(values)) if values else None


def _step_seconds(rows: Sequence[LogTotals]) -> tuple[float | None, int | None]:
    """Returns the time of a step, and the number of requests that were decoded concurrently.

    The time of a step is α × the time of a token of one request. Without drafts, a step commits one token. An interval of a
    server counts only if it begins and ends with the most frequent number of requests, which then hardly changed in between. A
    few intervals that were slowed down by prompt processing or waiting hardly affect the median.
    """
    stated = [row for row in rows if row.seconds_per_token]
    if stated:
        return median_low(_alpha(row) * (row.seconds_per_token or 0.0) for row in stated), stated[-1].running
    timed = [row for row in rows if row.seconds and row.tokens]
    if timed:
        seconds = sum(row.seconds or 0.0 for row in timed) / sum(row.tokens or 0 for row in timed)
        return seconds * (together(rows)["mean_acceptance_length"] or 1.0), None
    known = [row for row in rows if row.running and row.tokens_per_second and not row.prefilled]
    if rows[0].engine == "sglang":  # SGLang logs every few steps, so the number of requests hardly changes in between
        often = Counter(row.running for row in known)
        used = [row for row in known if often[row.running] > 1]
    else:
        used = [after for before, after in pairwise(rows) if before.running == after.running and after in known]
    used = known if len(rows) == 1 else used
    at_once, times_seen = Counter(row.running or 0 for row in used).most_common(1)[0] if used else (0, 0)
    if not used or times_seen < len(used) / 4:
        return None, None
    times = (at_once * _alpha(row) / (row.tokens_per_second or 1.0) for row in used if row.running == at_once)
    return median_low(times), at_once


def _alpha(row: LogTotals) -> float:
    return row.mean_acceptance_length or 1.0


def _deduced_drafted(rows: Sequence[LogTotals]) -> float | None:
    """Deduces the drafted tokens per step of SGLang from α and its *accept rate*; None unless exactly one number fits every row.

    The rate is α ÷ (drafted + 1) in some versions of SGLang and (α − 1) ÷ drafted in others. Logs round α and the rate.
    """
    pairs = [
        (r.mean_acceptance_length, r.acceptance_rate) for r in rows if r.mean_acceptance_length and r.acceptance_rate
    ]
    rules: tuple[Callable[[float, int], float], ...] = (lambda a, n: a / (n + 1), lambda a, n: (a - 1) / n)
    fitting = {
        (number, n)
        for number, rule in enumerate(rules)
        for n in range(1, MAX_DRAFTED)
        if all(rule(a - 0.005, n) - 0.0051 <= rate <= rule(a + 0.005, n) + 0.0051 for a, rate in pairs)
    }
    return float(fitting.pop()[1]) if pairs and len(fitting) == 1 else None


def _with_statistics(profiles: list[AcceptanceProfile]) -> list[AcceptanceProfile]:
    """Merges llama.cpp's figures of requests with the totals of each drafter since the program started."""
    totals = [p for p in profiles if (p.engine, p.unit) == ("llama.cpp", "running")]
    merged: list[AcceptanceProfile] = []
    for p in [p for p in profiles if p not in totals]:
        used = [q for q in totals if q.steps and q.start == p.start]
        if (p.engine, p.unit) != ("llama.cpp", "request") or not p.drafts or not used:
            merged.append(p)
            continue
        p = replace(p, draft_seconds=sum(q.draft_seconds or 0.0 for q in used) or None)
        if len(used) == 1:
            totals.remove(used[0])
            p = _with_its_drafter(p, used[0])
        merged.append(p)
    return [*merged, *(p for p in totals if p.steps)]


def _with_its_drafter(own: AcceptanceProfile, since: AcceptanceProfile) -> AcceptanceProfile:
    """Merges ``own``, the figures of requests, with ``since``, the totals of their drafter since the program started."""
    drafter, shares = own.drafter or since.drafter, own.by_position or since.by_position
    merged = replace(own, drafter=drafter, by_position=shares)
    partly = ended = own.steps is None or own.alpha is None
    if own.steps and own.drafted and since.steps and since.drafted and own.alpha and since.alpha:
        # a text that ends within a draft lacks some accepted tokens, so the number of steps of ``own`` is computed too low
        same = round(own.steps * own.drafted) == round(since.steps * since.drafted)
        ended = same and since.steps > own.steps and since.drafted == round(since.drafted)
        partly = (own.alpha - 1) / own.drafted > ALL > (since.alpha - 1) / since.drafted
    if (ended or partly) and since.alpha:
        seconds = since.alpha * own.token_seconds if own.token_seconds else None
        merged = replace(merged, steps=since.steps, drafted=since.drafted, alpha=since.alpha, step_seconds=seconds)
    return merged
