"""Sources of a log: the rows with the same engine, models and settings, as ``Figures``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from d2sd.errors import InputError
from d2sd.logs.figures import Figures, figures_of, joined
from d2sd.trace.trace import Trace

MAX_LENGTHS = 100_000  # entries of ``Figures.by_length``
MAX_SOURCES = 20
MAX_DRAFTED = 64  # largest number of drafted tokens per step that is deduced
ALL = 0.999  # acceptance rate above which llama.cpp has counted only drafts that were accepted completely


def of_trace(trace: Trace) -> Figures:
    """Returns the figures of a trace. Steps without a draft, and steps that the end of the text cut off, are left out."""
    length = len(trace.prefill.prompt_token_ids) + 1 if trace.prefill else 1
    lengths, reached, drafted = list[tuple[int, float]](), Counter[int](), 0
    for step in trace.steps:
        length += len(step.committed)
        if step.first_draft is not None and step.actual_boundary is not None:
            drafted += len(step.first_draft.ids)
            reached.update(range(step.actual_boundary))
            lengths.append((length, step.actual_boundary + 1))
    steps = len(lengths)
    positions = max(-(-drafted // (steps or 1)), len(reached))
    known = {
        "model": trace.header["models"].get("target"), "steps": steps, "drafted": drafted, "accepted": reached.total(), "reached": [reached[k] for k in range(positions)],
        "by_length": tuple(lengths), "predicted": len(trace.token_ids), "seconds": (trace.finished and trace.finished.seconds) or None,
    }  # fmt: skip
    return figures_of(str(trace.header["method"]), "request", known)


def sources_of(found: Iterable[Trace | Figures], log: str = "") -> list[Figures]:
    """Returns the figures of each source of a log, at most ``MAX_SOURCES``; sources without drafts come last.

    log: name of the log, if there are several. Raises ``InputError`` if the log has no figures.
    """
    rows, room = list[Figures](), MAX_LENGTHS
    for one in found:
        row = of_trace(one) if isinstance(one, Trace) else one
        rows.append(replace(row, by_length=row.by_length[:room]))
        room -= len(rows[-1].by_length)
    # lines that were pasted without their beginning lack the number
    if len({row.replica for row in rows} - {None}) == 1:
        rows = [replace(row, replica=None) for row in rows]
    # servers that draft also log intervals without drafts, while they are idle or process prompts
    drafting = {row.kind for row in rows if row.drafts and row.unit == "interval"}
    groups = by_source([row for row in rows if row.drafts or row.kind not in drafting])
    sglang = [row for row in rows if row.kind == ("sglang", "interval")]
    joint = list[Figures]()
    for group in groups:
        one = joined(group)
        if one.draft_length is None and one.kind == ("sglang", "interval"):
            one = replace(one, gamma=_deduced_drafted(group) or _deduced_drafted(sglang))
        # as acceptance by position is before rounding
        joint.append(replace(one, log=log, by_position=tuple(accumulate(one.by_position, min))))
    known = [one for one in _with_counters(joint) if one.drafts or one.token_seconds or one.failures]
    if not known:
        raise InputError("the log has no step with a draft, and no time of plain decoding")
    return sorted(known, key=lambda one: (not one.drafts, one.replica or 0))[:MAX_SOURCES]


def by_source(rows: Sequence[Figures]) -> list[list[Figures]]:
    """Returns the rows in groups. All rows of a group have the same engine, models, settings and unit."""

    def kind(row: Figures) -> tuple[object, ...]:
        return row.kind, row.model, row.drafter, row.replica, row.drafts, row.start, row.gamma

    # Intervals that list different numbers of positions have different settings. For requests of llama.cpp, the number is only
    # the length of their longest draft. A line that was cut when it was pasted lists no positions.
    usual = {kind(row): len(row.by_position) for row in rows if row.by_position}
    groups: dict[tuple[object, ...], list[Figures]] = {}
    for row in rows:
        positions = (len(row.by_position) or usual.get(kind(row))) if row.unit == "interval" else None
        # settings may differ between benchmarks, and between starts of a server, so each benchmark and start is a group
        lone = row.unit == "interval" and row.steps is None and row.at_once is None  # neither steps nor load are known
        alone = len(groups) if lone or row.unit in ("benchmark", "running") else None
        groups.setdefault((*kind(row), positions, alone), []).append(row)
    return list(groups.values())


def _deduced_drafted(rows: Sequence[Figures]) -> float | None:
    """Deduces the drafted tokens per step of SGLang from α and its *accept rate*; None unless exactly one number fits every row.

    The rate is α ÷ (drafted + 1) in some versions of SGLang and (α − 1) ÷ drafted in others. Logs round α and the rate.
    """
    pairs = [(row.alpha, row.stated_rate) for row in rows if row.alpha and row.stated_rate]
    rules: tuple[Callable[[float, int], float], ...] = (lambda a, n: a / (n + 1), lambda a, n: (a - 1) / n)
    fitting = [
        float(n)
        for rule in rules
        for n in range(1, MAX_DRAFTED)
        if all(rule(a - 0.005, n) - 0.0051 <= rate <= rule(a + 0.005, n) + 0.0051 for a, rate in pairs)
    ]
    return fitting[0] if pairs and len(fitting) == 1 else None


def _with_counters(found: Sequence[Figures]) -> Iterator[Figures]:
    """Yields the figures, with those of llama.cpp's requests and of their drafter since the program started in one."""
    counters = [one for one in found if one.kind == ("llama.cpp", "running") and one.steps]
    for one in found:
        used = [c for c in counters if c.start == one.start]
        if one.kind == ("llama.cpp", "running"):
            continue
        if one.kind == ("llama.cpp", "request") and one.drafts and used:
            one = replace(one, draft_seconds=sum(c.draft_seconds or 0.0 for c in used) or None)
            if len(used) == 1:
                counters.remove(used[0])
                one = _with_its_drafter(one, used[0])
        yield one
    yield from counters


def _with_its_drafter(own: Figures, since: Figures) -> Figures:
    """Merges ``own``, the figures of requests, with ``since``, the totals of their drafter since the program started."""
    # a text that ends within a draft lacks some accepted tokens, so the number of steps of ``own`` is computed too low
    ended = own.drafted == since.drafted and (since.steps or 0) > (own.steps or 0)
    partly = (own.rate or 0.0) > ALL > (since.rate or 0.0)
    counts = since if ended or partly or not own.steps else own
    return replace(
        own, drafter=own.drafter or since.drafter, by_position=own.by_position or since.by_position, stated_rate=own.rate,
        steps=counts.steps, drafted=counts.drafted, accepted=counts.accepted, stated_alpha=counts.stated_alpha,
    )  # fmt: skip
