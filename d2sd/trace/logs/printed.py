"""Logs with totals only: printed output of servers and benchmarks, and ``/metrics`` pages of servers (docs/import.md).

A row of figures begins with a line that matches one of ``d2sd.trace.logs.forms.FORMS``. Missing values are taken from the lines
around this line, since some programs print one figure per line, and pasted logs may be wrapped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from d2sd.trace.logs.forms import NUMBER, PATTERNS, WORDS, Form, begins, begins_alone, values
from d2sd.trace.logs.requests import LogTotals, share_of

MAX_LINE = 20_000  # characters; the middle of longer lines is cut out
MAX_POSITIONS = 1024
MAX_WAITING = 10_000  # rows held back by ``read_printed``
AROUND = 60  # number of lines before and after the first line of a row that are searched for the row's figures
ROUNDED = 0.01  # precision of printed α and rates by position
LONGEST = 15.0  # seconds; longer intervals of vLLM are assumed to include idle time
MOST_PROMPT = 100.0  # prompt tokens per second; above this speed, an interval includes prefill
NOT_PRINTED = "not in this log: single requests, the places in the text where steps end, and confidences"
SEVERAL = re.compile(r"(?=\bEngine [0-9]{3}: |\bSpecDecoding metrics: |\bDecode batch\b)")
BACKENDS = ("sglang", "vllm")
# Lines in which a server names its models.
STARTED = re.compile(r"LLM engine|non-default args|server_args|ServerArgs\(|loading (?:draft )?model")
MODEL = re.compile(
    r"((?:speculative_draft_)?model_path|\bmodel|loading (?:draft )?model)['\"]?\s{0,3}[:=]?\s{0,3}['\"]([^'\"\s]{1,200})['\"]"
)
Names = tuple[str | None, str | None]  # names of target and drafter
# Options for the number of drafted tokens per step; SGLang's option also counts the root.
DRAFTED_OPTION = re.compile(
    r"(?:num_spec(?:ulative)?_tokens|spec(?:ulative)?[-_]num[-_]draft[-_]tokens(?P<root>)|--(?:spec-)?draft-(?:n-)?max)['\"]?[\s:=]{1,4}([0-9]{1,4})\b"
)


def read_printed(lines: Iterable[str]) -> Iterator[LogTotals]:
    """Yields the rows of figures. Figures counted since the start of a program come last, one row per start of the program."""
    running: dict[tuple[object, ...], list[LogTotals]] = {}
    waiting: list[LogTotals] = []  # requests of llama.cpp, until its counters show whether it was restarted
    for found in _rows(lines):
        row = _row(found)
        if row is None:
            continue
        model, drafter = found.names
        row = replace(row, model=model, drafter=drafter or row.drafter)
        if row.unit == "running":
            gamma = round(row.drafted / row.steps) if row.engine == "vllm" and row.drafted and row.steps else None
            counts = running.setdefault((row.engine, row.model, row.drafter, row.replica, gamma), [])
            row = replace(row, start=len(counts))
            if counts and (row.drafted or 0) >= (counts[-1].drafted or 0):
                row = replace(row, start=counts.pop().start)
            counts.append(row)
            yield from (replace(one, start=row.start) for one in waiting)
            waiting.clear()
        elif (row.engine, row.unit) == ("llama.cpp", "request") and len(waiting) < MAX_WAITING:
            waiting.append(row)
        else:
            yield row
    yield from waiting
    for counts in running.values():
        yield from counts


@dataclass(slots=True)
class _Found:
    """A row whose lines are being collected.

    before: the lines before the first line of the row.
    names: last printed names of target and drafter.
    gamma: drafted tokens per step, from the last printed options.
    alone: whether it is a row without drafts.
    """

    form: Form
    lines: list[str]
    before: str
    names: Names
    gamma: int | None = None
    alone: bool = False

    def takes(self, form: Form | None, line: str) -> bool:
        """Returns whether a line that may begin a row of ``form`` is instead the next field of this row."""
        if form is not self.form or not form.keys or self.alone:
            return False
        fields = PATTERNS[form][0]
        known = {name for name, _ in values(fields, "\n".join(self.lines))}
        return not known & {name for name, _ in values(fields, line)}


def _split(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines, cut to ``MAX_LINE``. A line that holds several rows, because line breaks were lost, is split."""
    for long in lines:
        line = long if len(long) <= MAX_LINE else f"{long[: MAX_LINE // 2]} {long[-MAX_LINE // 2 :]}"
        if line.count("throughput: ") > 3 or line.count("accept") > 3:
            yield from SEVERAL.split(line)
        else:
            yield line


def _rows(lines: Iterable[str]) -> Iterator[_Found]:
    row: _Found | None = None
    names: Names = (None, None)
    gamma: int | None = None
    recent: deque[str] = deque(maxlen=AROUND)
    for line in _split(lines):
        form = begins(line)
        without = begins_alone(line) if form is None else None
        if row is not None and row.takes(form, line):
            form = None
        if row is not None and without is not None and row.form.keys and without.before is not row.form.before:
            without = None  # llama.cpp's examples print two eval times in a row, of drafter and target
        if row is not None and (form or without or len(row.lines) > AROUND):
            # the figures of a request are printed before the figures of its drafts; both belong to one row
            taken = row.alone and form is not None and set(form.before) & set(row.form.before)
            if not taken:
                yield row
            row = None
        if form is not None:
            row = _Found(form, [line], "\n".join(recent), names, gamma)
            recent.clear()
        elif without is not None:
            row = _Found(without, [line], "", names, alone=True)
            recent.clear()
            recent.append(line)
        else:
            if row is not None:
                row.lines.append(line)
            recent.append(line)
        if "draft" in line or "spec" in line:
            for option in DRAFTED_OPTION.finditer(line):
                gamma = int(option[2]) - (option["root"] is not None)
        if "model" in line and STARTED.search(line):
            names = _names(line, names)
    if row is not None:
        yield row


def _names(line: str, known: Names) -> Names:
    """Returns the names of target and drafter, updated from this line. A drafter is labelled "draft" or is the second name."""
    found = MODEL.findall(line)
    drafters = [name for key, name in found if "draft" in key]
    others = list(dict.fromkeys(name for key, name in found if "draft" not in key))
    if not others:
        return (known[0], drafters[0]) if drafters else known
    return others[0], next(iter([*drafters, *others[1:]]), None)


def _row(found: _Found) -> LogTotals | None:
    """Returns the figures of a row; None if it has none."""
    form, text = found.form, "\n".join(found.lines)
    fields, before = PATTERNS[form]
    # of a repeated value, the first one in the row counts, or else the last one before the row
    known = dict(values(before, found.before))
    own: dict[str, str] = {}
    at: list[float] = []
    for name, value in values(before if found.alone else fields, text):
        if name in ("at", "at_percent"):
            at.append(float(value) / (100 if name == "at_percent" else 1))
        else:
            own.setdefault(name, value)
    known |= own
    if not known.keys() & {"alpha", "accepted", "emitted", "token_ms"} and not own.keys() & {
        "speed",
        "decode_ms",
        "token_ms",
    }:
        return None
    word = {name: known.pop(name) for name in WORDS if name in known}
    number = {name: float(value) for name, value in known.items()}
    for name in list(number):
        what, _, unit = name.rpartition("_")
        if unit in ("ms", "percent"):
            number[what] = number[name] / (1000 if unit == "ms" else 100)
    rates = tuple(at[:MAX_POSITIONS]) or _rates(word.get("rates", "")) or _of_lengths(word.get("histogram", ""))
    steps, accepted, drafted, alpha = (number.get(name) for name in ("steps", "accepted", "drafted", "alpha"))
    tokens = number.get("tokens", number.get("written"))
    if steps is None and drafted and "gamma" in number:
        steps = drafted / number["gamma"]
    if form.engine == "vllm" and alpha is not None and abs(1 + sum(rates) - alpha) > ROUNDED * (1 + len(rates)):
        rates = ()  # incomplete: the line was cut
    if steps is None and rates and drafted is not None and drafted % len(rates) == 0:
        steps = drafted // len(rates)
    if steps is None and alpha is not None and alpha > 1 and accepted:
        steps = accepted / (alpha - 1)
    if steps is None and accepted is not None and tokens is not None:
        steps = tokens - accepted - ("tokens" in number)
    steps = steps if steps is None or steps > 0 else None
    if alpha == 1 and form.unit == "benchmark" and steps is None:
        alpha = None  # benchmarks print α = 1 if nothing was drafted
    if alpha is None and "rate" in number and number.get("chunk") and number.get("token"):
        alpha = number["chunk"] / number["token"]  # vLLM sends one chunk per step
    if alpha is None and steps and "emitted" in number:
        alpha = number["emitted"] / steps
    if alpha is None and steps and accepted is not None:
        alpha = 1 + accepted / steps
    if (accepted is None or "emitted" in number) and alpha is not None and steps:
        accepted = (alpha - 1) * steps
    if accepted is not None and (accepted < 0 or accepted > (drafted or accepted)):
        return None
    if (
        not rates
        and steps
        and drafted == steps * (len(counts := [int(n) for n in re.findall("[0-9]+", word.get("counts", ""))]) - 1)
    ):
        rates = tuple(sum(counts[k:]) / steps for k in range(1, len(counts))) if sum(counts) == steps else ()
    if not rates and steps and "first" in number and number["first"] <= steps:
        rates = (number["first"] / steps,)
    seconds, share = number.get("decode"), share_of(accepted, drafted)
    tokens = number.get("generated", number.get("emitted")) if tokens is None else tokens
    window = accepted / number["accepted_speed"] if accepted and number.get("accepted_speed") else None
    if tokens is None and window and window < LONGEST and number.get("speed"):
        tokens = number["speed"] * window
    speed = number.get("speed") or (tokens / seconds if tokens and seconds else None)
    prefilled = number.get("prompt_speed", 0.0) > MOST_PROMPT or "Prefill batch" in found.before
    calls = number.get("calls") or steps  # calls of the drafter: one per step, even if nothing is drafted
    engine, replica = word.get("backend"), word.get("replica")
    return LogTotals(
        engine=engine if engine in BACKENDS else form.engine, unit=form.unit, drafter=word.get("drafter"),
        replica=None if replica is None else int(replica), tokens=_whole(tokens), steps=_whole(steps), drafted=_whole(drafted),
        accepted=_whole(accepted), acceptance_rate=number.get("rate") if share is None else share, mean_acceptance_length=alpha,
        by_position=rates, tokens_per_second=speed, seconds=seconds, draft_seconds=drafter / calls if (drafter := number.get("draft")) and calls else None,
        seconds_per_token=number.get("token"), running=_whole(number.get("running", form.requests or None)), held=_whole(number.get("held")), gamma=found.gamma, prefilled=prefilled,
        waiting=_whole(number.get("waiting")), kv_use=number.get("kv"), external_hits=number.get("external"),
        remote_prefill="transfers" in number or bool(number.get("external")),
        unknown=NOT_PRINTED if form.unit != "request" else NOT_PRINTED.replace("single requests, ", ""),
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _rates(text: str) -> tuple[float, ...]:
    """Returns the rates in a list, up to the first invalid entry; empty if a rate is above 1."""
    rates = []
    for entry in text.split(",")[:MAX_POSITIONS]:
        found = re.match(rf"\s*({NUMBER})\s*(.?)", entry)
        if found is None:
            break
        rates.append(float(found[1]))
        if found[2]:
            break
    return tuple(rates) if max(rates, default=0.0) <= 1 else ()


def _of_lengths(text: str) -> tuple[float, ...]:
    """Returns acceptance rates by position, given the percentages of steps that commit 0, 1, 2, … tokens."""
    shares = [float(share) / 100 for share in re.findall(NUMBER, text)[: MAX_POSITIONS + 2]]
    reached = list(accumulate(reversed(shares)))[::-1]
    return tuple(min(1.0, share) for share in reached[2:])


# Pages of ``/metrics``, in Prometheus' text format.

SAMPLE = re.compile(
    r"^(?:vllm|sglang):([a-z_]{1,60})(?:\{([^}]*)\})? +(?:\| *)?([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
)
LABEL = re.compile(r'(\w{1,60})="([^"]*)"')
DRAFTS, DRAFTED, ACCEPTED = (f"spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens"))
TIME = "request_time_per_output_token_seconds"
RUNNING, WAITING = ("num_requests_running", "num_running_reqs"), ("num_requests_waiting", "num_queue_reqs")
KV_USE = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")
MAX_SERIES, MOST = 1024, 1e15
_Series = tuple[dict[str, float], dict[int, float]]  # values by name, and accepted tokens by position


def read_metrics(lines: Iterable[str]) -> Iterator[LogTotals]:
    """Yields the figures of ``/metrics`` pages, one row per model and engine.

    vLLM counts steps and tokens since its start; SGLang reports α and the acceptance rate of its last batches. If there are
    several pages, only the last page, and the last page before each restart of the server, are used.
    """
    series: dict[tuple[str, str], list[_Series]] = {}
    for line in lines:
        found = SAMPLE.match(line[:MAX_LINE])
        if found is None:
            continue
        labels: dict[str, str] = dict(LABEL.findall(found[2] or ""))
        key = labels.get("model_name", "")[:200], labels.get("engine", labels.get("dp_rank", ""))[:200]
        name, value, at = found[1].removesuffix("_total"), float(found[3]), labels.get("position", "")
        if not 0 <= value < MOST or (key not in series and len(series) == MAX_SERIES):
            continue
        pages = series.setdefault(key, [({}, {})])
        if name == DRAFTS and value < pages[-1][0].get(name, 0) and len(pages) < MAX_SERIES:
            pages.append(({}, {}))
        sums, positions = pages[-1]
        if name != f"{ACCEPTED}_per_pos":
            sums[name] = value
        elif at.isdecimal() and len(at) < 5 and int(at) < MAX_POSITIONS:
            positions[int(at)] = value
    for (model, engine), pages in series.items():
        for page in pages:
            yield from _page(model, engine, *page)


def _page(model: str, engine: str, sums: dict[str, float], positions: dict[int, float]) -> Iterator[LogTotals]:
    def first(names: Iterable[str]) -> float | None:
        return next((sums[name] for name in names if name in sums), None)

    steps, drafted, accepted = (sums.get(name) for name in (DRAFTS, DRAFTED, ACCEPTED))
    external, queries = (sums.get(f"external_prefix_cache_{what}") for what in ("hits", "queries"))
    known: dict[str, Any] = {
        "model": model or None, "replica": int(engine) if engine.isdecimal() and len(engine) < 6 else None,
        "running": _whole(first(RUNNING)), "waiting": _whole(first(WAITING)), "kv_use": first(KV_USE), "unknown": NOT_PRINTED,
        "external_hits": external / queries if external is not None and queries else None, "remote_prefill": bool(external),
        "seconds_per_token": sums[f"{TIME}_sum"] / sums[f"{TIME}_count"] if sums.get(f"{TIME}_sum") and sums.get(f"{TIME}_count") else None,
    }  # fmt: skip
    if steps is not None:
        by_position = [positions.get(n, 0.0) for n in range(max(positions, default=-1) + 1)]
        yield LogTotals(
            engine="vllm", unit="running", steps=round(steps), drafted=_whole(drafted), accepted=_whole(accepted),
            acceptance_rate=share_of(accepted, drafted),
            mean_acceptance_length=1 + accepted / steps if steps and accepted is not None else None,
            by_position=tuple(n / steps for n in by_position) if steps else (), **known,
        )  # fmt: skip
    elif alpha := sums.get("spec_accept_length"):
        yield LogTotals(
            engine="sglang", unit="interval", acceptance_rate=sums.get("spec_accept_rate"), mean_acceptance_length=alpha,
            tokens_per_second=sums.get("gen_throughput") or None, **known,
        )  # fmt: skip
