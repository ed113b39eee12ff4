"""Logs with totals only: printed output of servers and benchmarks, and ``/metrics`` pages of servers (docs/import.md).

A row of figures begins with a line that matches one of ``d2sd.logs.forms.FORMS``. Missing values are taken from the lines
around this line, since some programs print one figure per line, and pasted logs may be wrapped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from d2sd.logs.figures import ENGINE, MAX_POSITIONS, Figures, Unit, Values, row_of
from d2sd.logs.forms import PATTERNS, Form, form_of, values

MAX_LINE = 20_000  # characters; the middle of longer lines is cut out
MAX_WAITING = 10_000  # rows held back by ``read_printed``
FENCE = "```"  # Markdown fence around a block of a pasted thread
ROUNDED = 0.01  # precision of printed α and rates by position
AROUND = 60  # number of lines before and after the first line of a row that are searched for the row's figures
SEVERAL = re.compile(
    r"(?=\bEngine [0-9]{3}: |\bSpecDecoding metrics: |\bDecode batch\b|['\"]speculative_decoding(?:_stats)?['\"]\s*:)"
)
TIMED = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}")
MOST_TIMED = 20_000  # largest number of lines with a time that are remembered, to skip lines that were pasted twice
# Lines in which a server names its models.
STARTED = re.compile(r"LLM engine|non-default args|server_args|ServerArgs\(|loading (?:draft )?model")
MODEL = re.compile(
    r"((?:speculative_draft_)?model_path|\bmodel|loading (?:draft )?model)['\"]?\s{0,3}[:=]?\s{0,3}['\"]([^'\"\s]{1,200})['\"]"
)
# Options for the number of drafted tokens per step; SGLang's option also counts the root.
DRAFTED_OPTION = re.compile(
    r"(?:num_spec(?:ulative)?_tokens|spec(?:ulative)?[-_]num[-_]draft[-_]tokens(?P<root>)|--(?:spec-)?draft-(?:n-)?max|\bn_max)['\"]?[\s:=]{1,4}([0-9]{1,4})\b"
)


def read_printed(lines: Iterable[str]) -> Iterator[Figures]:
    """Yields the rows of figures in printed lines. Figures that a program counts since its start come last, one row per start."""
    running: dict[tuple[object, ...], list[Figures]] = {}
    # requests of llama.cpp are held back until its counters show whether it was restarted, or until the next benchmark run begins
    waiting, prompts, runs = list[Figures](), set[str | None](), 0
    for row in _rows(lines):
        start = None
        if row.unit == "running":
            counts = running.setdefault((row.engine, row.model, row.drafter, row.replica, row.gamma), [])
            restarted = counts and (row.drafted or 0) < (counts[-1].drafted or 0)
            start = max(0, len(counts) - (not restarted))
            counts[start:] = [replace(row, start=start)]
        elif waiting and (row.kind == ("llama.cpp", "benchmark") or (row.prompt and row.prompt in prompts)):
            start = runs = runs + 1
        if start is not None:
            yield from (replace(one, start=start) for one in waiting)
            waiting.clear()
            prompts.clear()
        if row.kind == ("llama.cpp", "request") and len(waiting) < MAX_WAITING:
            waiting.append(row)
            prompts.add(row.prompt)
        elif start is None:  # otherwise, the row is the sum of the requests before it
            yield row
    yield from waiting
    for counts in running.values():
        yield from counts


@dataclass(slots=True)
class _Row:
    """A row whose lines are being collected.

    before: the lines before the first line of the row.
    stated: values from earlier lines: names of target and drafter, drafted tokens per step, and ``Figures.start``.
    """

    form: Form
    lines: list[str]
    before: str
    stated: Values

    def takes(self, form: Form | None, line: str) -> bool:
        """Returns whether a line that could begin a row of ``form`` belongs to this row instead."""
        if not form or not self.form.keys:
            return False
        if not form.drafts:  # llama.cpp's examples print two eval times in a row, of drafter and target
            return form.fields is not self.form.before
        fields = PATTERNS[form][0]
        collected = {name for name, _ in values(fields, "\n".join(self.lines)[-MAX_LINE:])} - {"at"}
        return form is self.form and not collected & {name for name, _ in values(fields, line)}

    def figures(self) -> Iterator[Figures]:
        form, (fields, before) = self.form, PATTERNS[self.form]
        row_values = list(values(fields, "\n".join(self.lines)))
        # of a repeated value, the first one in the row counts, or else the last one before the row
        row = dict(values(before, self.before)) | dict(reversed(row_values))
        if shares_by_position := tuple(value for name, value in row_values if name == "at")[:MAX_POSITIONS]:
            row["by_position"] = shares_by_position
        alpha, shares = row.get("stated_alpha"), row.get("by_position", ())
        if alpha and abs(1 + sum(shares) - alpha) > ROUNDED * (1 + len(shares)):  # the line was cut
            row["by_position"] = None
        if form.unit == "benchmark" and alpha == 1 and "steps" not in row:  # nothing was drafted
            row["stated_alpha"] = None
        row = {"replica": row.get("process"), **row}
        if form.requests:
            row["running"] = form.requests
        if "Prefill batch" in self.before:
            row["prompts"] = inf
        row |= {name: value for name, value in self.stated.items() if value}
        yield from row_of(row.get("backend", form.engine), form.unit, row)


def _split(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines, cut to ``MAX_LINE`` characters. If a line contains several rows, because line breaks were lost, it is
    split.
    """
    for long in map(str.rstrip, lines):
        line = long if len(long) <= MAX_LINE else f"{long[: MAX_LINE // 2]} {long[-MAX_LINE // 2 :]}"
        if line.count("throughput: ") > 3 or line.count("accept") > 3:
            yield from SEVERAL.split(line)
        else:
            yield line


def _rows(lines: Iterable[str]) -> Iterator[Figures]:
    """Yields the rows in the order in which they end. Rows of ``/metrics`` pages come last."""
    pages: Pages = {}
    row = None
    stated: Values = {}
    recent: deque[str] = deque(maxlen=AROUND)
    timed, previous = set[str](), ""
    for line in _split(lines):
        if line.lstrip().startswith(FENCE):  # the blocks of a pasted thread may be about different runs
            if row:
                yield from row.figures()
            row = None
            recent.clear()
            stated["start"] = stated.get("start", 0) + 1
            continue
        if sample := SAMPLE.match(line):
            yield from _add_sample(pages, sample)
            continue
        form = form_of(line)
        if form and TIMED.search(line):
            again, previous = line in timed and line != previous, line
            if again:  # pasted twice
                continue
            if len(timed) < MOST_TIMED:
                timed.add(line)
        if row and row.takes(form, line):
            form = None
        if row and (form or len(row.lines) > AROUND):
            # the figures of a request are printed before the figures of its drafts; both belong to one row
            if not (form and not row.form.drafts and set(form.before) & set(row.form.fields)):
                yield from row.figures()
            row = None
        if form:
            stated["start"] = stated.get("start", 0) + form.quoted
            row = _Row(form, [line], "\n".join(recent), dict(stated))
            recent.clear()
        elif row:
            row.lines.append(line)
        if not form or not form.drafts:
            recent.append(line)
        stated |= _stated(line)
    if row:
        yield from row.figures()
    for key, samples in pages.items():
        yield from _page_rows(key, samples)


def _stated(line: str) -> Values:
    """Returns what a line says about the program: names of target and drafter, and the option for drafted tokens per step."""
    stated: Values = {}
    if "draft" in line or "spec" in line:
        for option in DRAFTED_OPTION.finditer(line):
            stated["option"] = int(option[2]) - (option["root"] is not None)
    if "model" in line and STARTED.search(line):
        names = MODEL.findall(line)
        others = list(dict.fromkeys(name for key, name in names if "draft" not in key))
        # a drafter is labelled "draft" or is the second name
        drafters = [*(name for key, name in names if "draft" in key), *others[1:]]
        if others:
            stated |= {"model": others[0], "drafter": None}
        if drafters:
            stated["drafter"] = drafters[0]
    return stated


# Pages of ``/metrics``, in Prometheus' text format.

SAMPLE = re.compile(
    r"^(vllm|sglang|llamacpp):([a-z_]{1,60})(?:\{([^}]*)\})? +(?:\| *)?([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
)
LABEL = re.compile(r'(\w{1,60})="([^"]*)"')
VALUES = {
    "spec_decode_num_drafts": "steps", "spec_decode_num_draft_tokens": "drafted", "spec_decode_num_accepted_tokens": "accepted",
    "spec_decode_num_accepted_tokens_per_pos": "reached", "spec_accept_length": "stated_alpha", "spec_accept_rate": "stated_rate",
    "gen_throughput": "tokens_per_second", "request_time_per_output_token_seconds_sum": "token_sum",
    "request_time_per_output_token_seconds_count": "token_count", "external_prefix_cache_hits": "external",
    "num_requests_running": "running", "num_running_reqs": "running", "num_requests_waiting": "waiting", "num_queue_reqs": "waiting",
    "kv_cache_usage_perc": "kv_use", "gpu_cache_usage_perc": "kv_use", "token_usage": "kv_use",
}  # fmt: skip
BEGINNING = ("steps", "drafted", "stated_alpha")  # if one of them is repeated, a new page begins
COUNTERS = ("steps", "drafted", "accepted", "reached", "token_sum", "token_count")
MAX_SERIES, MOST = 1024, 1e15
# The last two pages of each (program, model, engine). A page holds values by metric and position; the position is 0 for metrics
# without positions. vLLM and llama.cpp count since their start; SGLang reports α and the acceptance rate of its last batches.
Page = dict[tuple[str, int], float]
Pages = dict[tuple[str, str, str], list[Page]]


def _add_sample(pages: Pages, sample: re.Match[str]) -> Iterator[Figures]:
    """Adds one line of a ``/metrics`` page to ``pages``. If the line begins a new page, yields the rows of the previous page."""
    labels: dict[str, str] = dict(LABEL.findall(sample[3] or ""))
    key = sample[1], labels.get("model_name", "")[:200], labels.get("engine", labels.get("dp_rank", ""))[:5]
    metric, value, label = sample[2].removesuffix("_total"), float(sample[4]), labels.get("position", "")
    position = 1 + int(label) if label.isdecimal() and len(label) < 5 else 0
    accepted = metric in VALUES and 0 <= value < MOST and position <= MAX_POSITIONS
    if not accepted or (key not in pages and len(pages) == MAX_SERIES):
        return
    series = pages.setdefault(key, [{}])
    if VALUES[metric] in BEGINNING and (metric, position) in series[-1]:
        yield from _page_rows(key, series)
        series[:] = [series[-1], {}]
    series[-1][metric, position] = value


def _page_rows(source: tuple[str, str, str], pages: Sequence[Page]) -> Iterator[Figures]:
    """Yields the totals of the last page and, if there is a page before it, the figures of the time between the two pages."""
    (program, model, replica), page, before = source, pages[-1], pages[-2] if len(pages) > 1 else {}
    engine = "llama.cpp" if program == "llamacpp" else program
    since = {key: value - before.get(key, 0.0) for key, value in page.items() if VALUES[key[0]] in COUNTERS}
    units: list[tuple[Unit, Page]] = [("interval" if engine == "sglang" else "running", page)]
    if before and max(since.values(), default=0.0) > 0 <= min(since.values()):
        units.append(("interval", page | since))
    for unit, values_of in units:
        row: Values = {VALUES[metric]: value for (metric, position), value in values_of.items() if not position}
        reached = {position: value for (_, position), value in values_of.items() if position}
        row["reached"] = [reached.get(k, 0.0) for k in range(1, 1 + max(reached, default=0))] or None
        row |= {"model": model or None, "replica": f"{ENGINE}{int(replica)}" if replica.isdecimal() else None}
        yield from row_of(engine, unit, row)
