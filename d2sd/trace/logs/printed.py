"""Console output of servers, and their ``/metrics``: α over a period of time, without single requests.

vLLM logs ``SpecDecoding metrics: …`` every ten seconds, SGLang ``Decode batch … accept len: …``, llama.cpp ``draft acceptance = …``
after every request, with the mean length and the rates by position since 2026. ``/metrics`` of vLLM counts since its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from d2sd.trace.logs.totals import Totals

NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
VLLM = re.compile(
    rf"SpecDecoding metrics: .*?Mean acceptance length: {NUMBER}.*?Accepted: ([0-9]+) tokens, Drafted: ([0-9]+) tokens"
    rf"(?:, Per-position acceptance rate: ([0-9., ]+))?"
)
SGLANG = re.compile(rf"Decode batch.*?accept len: {NUMBER}(?:.*?accept rate: {NUMBER})?(?:.*?gen throughput \(token/s\): {NUMBER})?")  # fmt: skip
LLAMACPP = re.compile(rf"draft acceptance(?: rate)? = +{NUMBER} +\( *([0-9]+) accepted / +([0-9]+) generated\)(.*)")
LENGTH = re.compile(rf"mean (?:acceptance length|len) = +{NUMBER}")
RATES = re.compile(r"per position = \(([0-9., ]+)\)")
EVALUATED = re.compile(rf"(?<!prompt )eval time = +{NUMBER} ms / +([0-9]+) tokens")
SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{([^}]*)\})? +([0-9.eE+-]+|NaN)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
MOST_LINE = 10_000  # characters that are looked at
MOST_POSITIONS = 1024
LOG = "not in this log: single requests, where in the text each step ended and confidences"


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of a running vLLM: steps, drafted and accepted tokens, and accepted by position, since its start."""

    steps: float
    drafted: float
    accepted: float
    by_position: tuple[float, ...] = ()

    def totals(self) -> Totals:
        """The same as a row of figures."""
        return Totals(
            "vllm", None, round(self.steps), round(self.drafted), round(self.accepted),
            self.accepted / self.drafted if self.drafted else None, 1 + self.accepted / self.steps if self.steps else None,
            tuple(n / self.steps for n in self.by_position) if self.steps else (), None, LOG,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a running SGLang says of its last batches: α, and the share of drafted tokens that are accepted."""

    length: float
    rate: float | None

    def totals(self) -> Totals:
        """The same as a row of figures."""
        return Totals("sglang", None, None, None, None, self.rate, self.length, (), None, LOG)


def read_text(lines: Iterable[str]) -> Iterator[Totals]:
    """A row of figures for each line that has some; all others are passed over."""
    tokens: int | None = None
    for long in lines:
        line = long[:MOST_LINE]
        if (found := EVALUATED.search(line)) is not None:
            tokens = int(found[2])
        for read in (_vllm, _sglang):
            if (row := read(line)) is not None:
                yield row
        if (row := _llamacpp(line, tokens)) is not None:
            tokens = None
            yield row


def _vllm(line: str) -> Totals | None:
    found = VLLM.search(line)
    if found is None:
        return None
    length, accepted, drafted = float(found[1]), int(found[2]), int(found[3])
    rates = _rates(found[4])
    steps = round(accepted / (length - 1)) if length > 1 and accepted else None
    if steps is None and rates and drafted % len(rates) == 0:
        steps = drafted // len(rates)
    return Totals(
        "vllm", None, steps, drafted, accepted, accepted / drafted if drafted else None, length, rates, None, LOG
    )


def _sglang(line: str) -> Totals | None:
    found = SGLANG.search(line)
    if found is None:
        return None
    rate, speed = (None if found[n] is None else float(found[n]) for n in (2, 3))
    return Totals("sglang", None, None, None, None, rate, float(found[1]), (), speed, LOG)


def _llamacpp(line: str, tokens: int | None) -> Totals | None:
    """tokens: of the request, from the line before it."""
    found = LLAMACPP.search(line)
    if found is None:
        return None
    accepted, drafted = int(found[2]), int(found[3])
    length, rates = LENGTH.search(found[4]), RATES.search(found[4])
    steps = None if tokens is None or tokens - 1 <= accepted else tokens - 1 - accepted
    if length is not None and float(length[1]) > 1:
        steps = round(accepted / (float(length[1]) - 1))
    alpha = float(length[1]) if length is not None else 1 + accepted / steps if steps else None
    return Totals(
        "llama.cpp", tokens, steps, drafted, accepted, accepted / drafted if drafted else None, alpha,
        _rates(rates[1] if rates else None), None, LOG.replace("single requests, ", ""),
    )  # fmt: skip


def _rates(text: str | None) -> tuple[float, ...]:
    return tuple(float(n) for n in (text or "").strip(" ,").split(",")[:MOST_POSITIONS] if n.strip())


def read_metrics(text: str) -> Counters | Gauges | None:
    """The figures of a page in Prometheus' text format, all models and engines together; None where it has none."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        found = SAMPLE.match(line[:MOST_LINE])
        if found is None or found[3] == "NaN":
            continue
        name, value = found[1].replace("vllm:", "").replace("sglang:", "").removesuffix("_total"), float(found[3])
        if name == "spec_decode_num_accepted_tokens_per_pos":
            at = dict(LABEL.findall(found[2] or "")).get("position", "")
            if at.isdecimal() and int(at) < MOST_POSITIONS:
                positions[int(at)] = positions.get(int(at), 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value if name.startswith("spec_decode") else value
    if {"spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"} <= sums.keys():
        by_position = tuple(positions.get(n, 0.0) for n in range(max(positions, default=-1) + 1))
        return Counters(
            sums["spec_decode_num_drafts"], sums["spec_decode_num_draft_tokens"], sums["spec_decode_num_accepted_tokens"],
            by_position,
        )  # fmt: skip
    if sums.get("spec_accept_length"):
        return Gauges(sums["spec_accept_length"], sums.get("spec_accept_rate"))
    return None
