"""Logs with totals only: what servers and benchmarks print, and the ``/metrics`` of servers (docs/import.md).

All printed forms are entries of one table, ``FORMS``. A row of figures begins with a line of its form and takes what it lacks from
the lines after it: some programs print a figure a line, and some logs are wrapped when they are pasted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from d2sd.trace.logs.requests import LogTotals, Unit, share_of

MAX_LINE = 20_000  # characters that are looked at; of a longer line half at either end
MAX_POSITIONS = 1024
AFTER, BEFORE = 20, 16  # lines of a row, after and before its first one
NOT_PRINTED = "not in this log: single requests, where in the text each step ended and confidences"
NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,17})?"
WORDS = {"rates": r"[0-9.,\s]{1,20000}", "histogram": r"[0-9.,%'\s]{1,20000}", "drafter": r"[\w-]{1,40}"}


@dataclass(frozen=True, eq=False)
class Form:
    """How a program prints its figures.

    begins: pattern of the line that begins a row.
    fields: by the pattern that stands before a value, the name of the figure. ``tokens`` includes the first one of a request, which
        is no step's, ``written`` does not; ``at`` and ``at_percent`` come once a position.
    before: the same of lines before the first.
    """

    engine: str
    unit: Unit
    begins: str
    fields: Mapping[str, str]
    before: Mapping[str, str] = field(default_factory=dict)


def _json(name: str) -> str:
    return rf"['\"]{name}['\"]:"


FORMS = (
    Form("vllm", "interval", "SpecDecoding metrics:", {
        "Mean acceptance length:": "alpha", "Accepted:": "accepted", "Drafted:": "drafted",
        "Per-position acceptance rate:": "rates", "[Dd]raft acceptance rate:": "percent",
    }),
    Form("vllm", "benchmark", r"Acceptance rate \(%\):", {  # vllm bench serve
        r"Acceptance rate \(%\):": "percent", "Acceptance length:": "alpha", "Drafts:": "steps", "Draft tokens:": "drafted",
        "Accepted tokens:": "accepted", r"Position [0-9]{1,4}:": "at_percent",
    }),
    Form("vllm", "benchmark", r"\bnum_drafts:", {  # its example of offline inference
        "num_drafts:": "steps", "num_draft_tokens:": "drafted", "num_accepted_tokens:": "accepted",
        "mean acceptance length:": "alpha", r"acceptance at token [0-9]{1,4}:": "at",
    }),
    Form("sglang", "interval", r"\baccept len:", {
        "#running-req:": "running", "#token:": "held", "accept len:": "alpha", "accept rate:": "rate", r"gen throughput \(token/s\):": "speed",
    }),
    Form("sglang", "request", r"\bFinish: obj=", {
        _json("completion_tokens"): "tokens", _json("spec_accept_length"): "alpha", _json("spec_accept_rate"): "rate",
        _json("spec_verify_ct"): "steps", _json("spec_num_correct_drafts"): "accepted",
        _json("spec_num_proposed_drafts"): "drafted",
    }),
    Form("sglang", "benchmark", "Accept length:", {"Accept length:": "alpha", "Spec verify ct:": "steps"}, {
        "Output tokens:": "tokens", "Total generated tokens:": "tokens", r"Output token throughput \(tok/s\):": "speed",
    }),
    Form("sglang", "benchmark", "#questions:", {"Throughput:": "speed", "Acceptance length:": "alpha"}),
    Form("dflash", "benchmark", "Average Acceptance length:", {  # z-lab's own
        "Average Acceptance length:": "alpha", r"Acceptance length histogram: \[": "histogram",
    }),
    Form("llama.cpp", "request", r"draft acceptance(?: rate)?\s*=", {
        r"draft acceptance(?: rate)?\s*=\s*[0-9.]{1,20}\s*\(": "accepted", r"accepted\s*/": "drafted",
        r"mean (?:acceptance length|len)\s*=": "alpha", r"per position\s*=\s*\(": "rates",
    }, {r"(?<!prompt )eval time\s*=\s*[0-9.]{1,20} ms\s*/": "tokens"}),
    Form("llama.cpp", "running", r"\bstatistics\s+[\w-]{1,40}:", {
        r"statistics\s+": "drafter", r"#gen drafts\s*=": "steps", r"#gen tokens\s*=": "drafted", r"#acc tokens\s*=": "accepted",
        r"#mean acc len\s*=": "alpha", r"#acc rate/pos\s*=\s*\(": "rates",
    }),
    Form("llama.cpp", "request", r"\bn_draft\s+=", {  # its examples
        r"n_predict\s*=": "written", r"n_drafted\s*=": "drafted", r"n_accept\s*=": "accepted",
    }),
    Form("tensorrt-llm", "benchmark", r"\[DAR\] AVERAGE\s*:", {
        r"\[DAR\] AVERAGE\s*:": "rate", r"\[AL\] AVERAGE\s*:": "alpha",
    }),
)  # fmt: skip
BEGINS = re.compile("|".join(f"({form.begins})" for form in FORMS))
SIGNS = ("metrics:", "ccept", "draft", "Finish:", "#questions:", "statistics", "[DAR]")


def begins(line: str) -> re.Match[str] | None:
    """Returns the match of a line that begins a row; the number of its group is that of its form, from 1."""
    return BEGINS.search(line) if any(sign in line for sign in SIGNS) else None  # many times as fast on other lines


def _any_of(fields: Mapping[str, str]) -> re.Pattern[str]:
    """A pattern that finds one value after another; the names of its groups are those of the figures, and a number."""
    values = (
        rf"{before}\s*(?P<{name}_{n}>{WORDS.get(name, NUMBER)})" for n, (before, name) in enumerate(fields.items())
    )
    return re.compile("|".join(values) or "(?!)")


PATTERNS = {form: (_any_of(form.fields), _any_of(form.before)) for form in FORMS}
# Lines in which a server names its models.
STARTED = re.compile(r"LLM engine|non-default args|server_args|ServerArgs\(|loading (?:draft )?model")
MODEL = re.compile(
    r"((?:speculative_draft_)?model_path|\bmodel|loading (?:draft )?model)['\"]?\s{0,3}[:=]?\s{0,3}['\"]([^'\"\s]{1,200})['\"]"
)
Names = tuple[str | None, str | None]  # of target and drafter


def read_printed(lines: Iterable[str]) -> Iterator[LogTotals]:
    """Yields a row of figures for each line that begins one; those that count since the start of a program once, at the end."""
    running: dict[tuple[str, str | None, str | None], LogTotals] = {}
    requests = set[str]()
    for form, before, text, (model, drafter) in _rows(lines):
        row = _row(form, before, text)
        if row is None:
            continue
        row = replace(row, model=model, drafter=drafter or row.drafter)
        if form.unit == "running":
            running[row.engine, row.model, row.drafter] = row
            continue
        if form.unit == "request":
            requests.add(row.engine)
        yield row
    yield from (row for row in running.values() if row.engine not in requests)  # llama.cpp prints both


def _rows(lines: Iterable[str]) -> Iterator[tuple[Form, str, str, Names]]:
    """Yields each row's form, the lines before it and its own, and the names of target and drafter that were printed last."""
    form: Form | None = None
    names: Names = (None, None)
    own, before, its_names = list[str](), "", names
    recent: deque[str] = deque(maxlen=BEFORE)
    for long in lines:
        line = long if len(long) <= MAX_LINE else f"{long[: MAX_LINE // 2]} {long[-MAX_LINE // 2 :]}"
        found = begins(line)
        if form is not None and (found is not None or len(own) == AFTER):
            yield form, before, "\n".join(own), its_names
            form = None
        if found is not None:
            form, own, before, its_names = FORMS[(found.lastindex or 1) - 1], [line], "\n".join(recent), names
            recent.clear()
            continue
        if form is not None:
            own.append(line)
        recent.append(line)
        if "model" in line and STARTED.search(line):
            names = _names(line, names)
    if form is not None:
        yield form, before, "\n".join(own), its_names


def _names(line: str, known: Names) -> Names:
    """The names of target and drafter after a line that may have some: a drafter is called so, or is the second name."""
    found = MODEL.findall(line)
    drafters = [name for key, name in found if "draft" in key]
    others = list(dict.fromkeys(name for key, name in found if "draft" not in key))
    if not others:
        return (known[0], drafters[0]) if drafters else known
    return others[0], next(iter([*drafters, *others[1:]]), None)


def _row(form: Form, before: str, text: str) -> LogTotals | None:
    """The figures of a row; None if it has none of acceptance."""
    fields, fields_before = PATTERNS[form]
    values: dict[str, str] = {}
    at: list[float] = []
    for found in fields_before.finditer(before):  # the last of these is this row's, of the others the first
        values |= _named(found)
    own: dict[str, str] = {}
    for found in fields.finditer(text):
        ((name, value),) = _named(found).items()
        if name in ("at", "at_percent"):
            at.append(float(value) / (100 if name == "at_percent" else 1))
        else:
            own.setdefault(name, value)
    values |= own
    if not values.keys() & {"alpha", "accepted"}:
        return None
    word = {name: values.pop(name) for name in WORDS if name in values}
    number = {name: float(value) for name, value in values.items()}
    rates = tuple(at[:MAX_POSITIONS]) or _rates(word.get("rates", "")) or _of_lengths(word.get("histogram", ""))
    steps, accepted, drafted, alpha = (number.get(name) for name in ("steps", "accepted", "drafted", "alpha"))
    rate = number.get("rate", number["percent"] / 100 if "percent" in number else None)
    tokens = number.get("tokens", number.get("written"))
    if steps is None and alpha is not None and alpha > 1 and accepted:
        steps = accepted / (alpha - 1)
    if steps is None and rates and drafted is not None and drafted % len(rates) == 0:
        steps = drafted // len(rates)
    if steps is None and accepted is not None and tokens is not None:
        steps = tokens - accepted - ("tokens" in number)
    steps = steps if steps is None or steps > 0 else None
    if alpha is None and steps and accepted is not None:
        alpha = 1 + accepted / steps
    if accepted is None and alpha is not None and steps:
        accepted = (alpha - 1) * steps
    if accepted is not None and (accepted < 0 or accepted > (drafted or accepted)):
        return None
    share = share_of(accepted, drafted)
    return LogTotals(
        engine=form.engine, unit=form.unit, drafter=word.get("drafter"), tokens=_whole(tokens), steps=_whole(steps),
        drafted=_whole(drafted), accepted=_whole(accepted), acceptance_rate=rate if share is None else share,
        mean_acceptance_length=alpha, by_position=rates, tokens_per_second=number.get("speed"),
        running=_whole(number.get("running")), held=_whole(number.get("held")),
        unknown=NOT_PRINTED if form.unit != "request" else NOT_PRINTED.replace("single requests, ", ""),
    )  # fmt: skip


def _named(found: re.Match[str]) -> dict[str, str]:
    group = found.lastgroup or ""
    return {group.rpartition("_")[0]: found[group]}


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _rates(text: str) -> tuple[float, ...]:
    """Rates in a list, which ends at what is none; empty if one is above 1."""
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
    """Rates by position from a list of the shares of steps that commit 0, 1, 2, … tokens, in percent."""
    shares = [float(share) / 100 for share in re.findall(NUMBER, text)[: MAX_POSITIONS + 2]]
    reached = list(accumulate(reversed(shares)))[::-1]
    return tuple(min(1.0, share) for share in reached[2:])


# Pages of ``/metrics``, in Prometheus' text format.

SAMPLE = re.compile(
    r"^(?:vllm|sglang):(spec_[a-z_]{1,60})(?:\{([^}]*)\})? +([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
)
LABEL = re.compile(r'(\w{1,60})="([^"]*)"')
DRAFTS, DRAFTED, ACCEPTED = (f"spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens"))
MAX_SERIES, MOST = 1024, 1e15


def read_metrics(lines: Iterable[str]) -> Iterator[LogTotals]:
    """Yields the figures of a page, a row for each model and engine that has some.

    vLLM counts steps and tokens since its start; SGLang says α and the acceptance rate of its last batches.
    """
    series: dict[tuple[str, str], tuple[dict[str, float], dict[int, float]]] = {}
    for line in lines:
        found = SAMPLE.match(line[:MAX_LINE])
        if found is None:
            continue
        labels: dict[str, str] = dict(LABEL.findall(found[2] or ""))
        key = labels.get("model_name", "")[:200], labels.get("engine", labels.get("dp_rank", ""))[:200]
        name, value, at = found[1].removesuffix("_total"), float(found[3]), labels.get("position", "")
        if not 0 <= value < MOST or (key not in series and len(series) == MAX_SERIES):
            continue
        sums, positions = series.setdefault(key, ({}, {}))
        if name != f"{ACCEPTED}_per_pos":
            sums[name] = value
        elif at.isdecimal() and len(at) < 5 and int(at) < MAX_POSITIONS:
            positions[int(at)] = value
    for (model, _), (sums, positions) in series.items():
        steps, drafted, accepted = (sums.get(name) for name in (DRAFTS, DRAFTED, ACCEPTED))
        by_position = [positions.get(n, 0.0) for n in range(max(positions, default=-1) + 1)]
        if steps is not None and drafted is not None and accepted is not None:
            yield LogTotals(
                engine="vllm", unit="running", model=model or None, steps=round(steps), drafted=round(drafted),
                accepted=round(accepted), acceptance_rate=share_of(accepted, drafted),
                mean_acceptance_length=1 + accepted / steps if steps else None,
                by_position=tuple(n / steps for n in by_position) if steps else (), unknown=NOT_PRINTED,
            )  # fmt: skip
        elif alpha := sums.get("spec_accept_length"):
            yield LogTotals(
                engine="sglang", unit="interval", model=model or None, acceptance_rate=sums.get("spec_accept_rate"),
                mean_acceptance_length=alpha, unknown=NOT_PRINTED,
            )  # fmt: skip
