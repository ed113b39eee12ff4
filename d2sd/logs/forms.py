"""The formats in which servers and benchmarks print their figures, for ``d2sd.logs.printed``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from d2sd.logs.figures import ENGINE, MAX_POSITIONS, Unit

NUMBER = r"[0-9]{1,15}(?:\.\n?[0-9]{1,17})?"  # lines may be wrapped after the point
ALONE = r"(?![0-9kKM]|[.,][0-9])"  # not the beginning of a number in another format, such as 2,45 or 1.2k
SEPARATORS = str.maketrans("", "", ",\n")
COUNT = rf"(?:[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,4}}|{NUMBER}){ALONE}"  # may have thousands separators


@dataclass(frozen=True, eq=False)
class Form:
    """A format in which a program prints its figures. Figures that belong together are called a row.

    Patterns contain ``<name>`` in place of a value. ``d2sd.logs.figures.EQUATIONS`` explains the names. The name ``at``, which
    occurs only in this module, is acceptance at one position, printed once per position. A name with ``_ms`` or ``_percent`` is a
    value in this unit.

    begins: pattern of the line that begins a row.
    fields: patterns of the row's values.
    before: patterns of values that are printed in the lines before the row.
    alone: pattern of the line that begins a row of plain decoding, which has only the values of ``before``; empty if there is none.
    requests: number of requests that the program decodes concurrently; 0 if unknown.
    drafts: whether rows have figures of drafts.
    keys: whether the values may be in any order, as in JSON. Any of them may begin a row, and a repeated one begins the next row.
    quoted: whether a row is a reply that is quoted in a text; each such row is a separate source.
    """

    engine: str
    unit: Unit
    begins: str
    fields: tuple[str, ...]
    before: tuple[str, ...] = ()
    alone: str = ""
    requests: int = 0
    drafts: bool = True
    keys: bool = False
    quoted: bool = False


# For each engine: names of values by their keys in JSON.
KEYS = {
    "vllm": {
        "completion_tokens": "generated", "num_spec_steps": "steps", "mean_acceptance_length": "stated_alpha", "num_accepted_draft_tokens": "accepted",
        "num_draft_tokens": "drafted", "draft_acceptance_rate": "stated_rate", "generation_time_ms": "seconds_ms", "acceptance_histogram": "counts",
    },
    "sglang": {
        "completion_tokens": "generated", "spec_verify_ct": "steps", "spec_accept_length": "stated_alpha", "avg_spec_accept_length": "stated_alpha", "spec_accept_rate": "stated_rate",
        "spec_num_correct_drafts": "accepted", "spec_num_proposed_drafts": "drafted", "spec_correct_drafts_histogram": "counts",
        "spec_accept_token_num": "accepted", "spec_draft_token_num": "drafted",
    },
    "llama.cpp": {
        "predicted_n": "predicted", "predicted_ms": "seconds_ms", "draft_n": "drafted", "draft_n_accepted": "accepted",
        "total_predicted": "written", "total_draft": "drafted", "total_draft_accepted": "accepted",
    },
    "vllm bench": {
        "output_throughput": "tokens_per_second", "max_concurrency": "running", "mean_tpot_ms": "token_seconds_ms", "total_output_tokens": "generated",
        "spec_decode_acceptance_length": "stated_alpha", "spec_decode_num_drafts": "steps", "spec_decode_draft_tokens": "drafted", "spec_decode_accepted_tokens": "accepted",
        "spec_decode_per_position_acceptance_rates": "by_position",
    },
    "tensorrt-llm": {"numDraftTokens": "drafted", "numAcceptedTokens": "accepted", "numRequestsWithDraftTokens": "steps"},
}  # fmt: skip


def _of_json(engine: str, unit: Unit, begins: str) -> Form:
    # a reply's number of tokens is left out, since it may have several texts
    named = ((key, name) for key, name in KEYS[engine].items() if key != "completion_tokens")
    fields = (rf"['\"]{key}['\"]\s*:\s*\[?<{name}>" for key, name in named)
    begins = rf"['\"](?:{begins})['\"]\s*:"
    return Form(engine.split()[0], unit, begins, tuple(fields), keys=True, quoted=unit == "request")


_BENCHMARK = (
    "Backend:<backend>", r"Max(?:imum)? request concurrency:<running>", r"(?m:^\W*Concurrency):<running>", "Total generated tokens:<generated>",
    r"Output token throughput \(tok/s\):<tokens_per_second>", r"Mean TPOT \(ms\):<token_seconds_ms>", r"Mean ITL \(ms\):<chunk_ms>", "Output tokens:<generated>",
)  # fmt: skip
_VLLM_LOAD = (
    r"\bpid=<process>", r"Engine\s<replica>", "Avg prompt throughput:<prompts>", "Avg generation throughput:<tokens_per_second>", "Running:<running>", "(?:Waiting|Pending):<waiting>",
    "(?<!CPU )(?:GPU )?KV cache usage:<kv_use_percent>",
    "External prefix cache hit rate:<external_percent>",
)  # fmt: skip
FORMS = (
    Form("vllm", "interval", r"SpecDecoding metrics:|^\W*Mean acceptance length:", (
        "Mean acceptance length:<stated_alpha>", "Accepted throughput:<accepted_speed>", "Accepted:<accepted>", "Drafted:<drafted>", "Per-position acceptance rate:<by_position>",
        "[Dd]raft acceptance rate:<stated_rate_percent>", r"\bpid=<process>",
    ), _VLLM_LOAD, alone="Avg generation throughput:", keys=True),
    Form("vllm", "interval", r"Speculative metrics: Draft acceptance rate: [0-9.]{1,20}, Number of accepted tokens:", (
        "Draft acceptance rate:<stated_rate>", "Number of accepted tokens:<accepted>", "Number of draft tokens:<drafted>",
    )),
    Form("vllm", "running", "Speculative metrics:", (  # vLLM 0
        "Draft acceptance rate:<stated_rate>", "Number of speculative tokens:<gamma>", r"Number of draft tokens(?: tokens)?:<drafted>",
        r"Number of emitted tokens(?: tokens)?:<emitted>",
    ), _VLLM_LOAD),
    Form("vllm", "benchmark", r"Acceptance rate \(%\):", (  # vllm bench serve
        r"Acceptance rate \(%\):<stated_rate_percent>", "Acceptance length:<stated_alpha>", "Drafts:<steps>", "Draft tokens:<drafted>",
        "Accepted tokens:<accepted>", r"Position [0-9]{1,4}:<at_percent>",
    ), _BENCHMARK, alone="Serving Benchmark Result"),
    Form("vllm", "benchmark", r"\bnum_drafts:|\bmean acceptance len(?:gth)?:|\baccept@pos [0-9]", (  # vLLM's offline examples
        "num_drafts:<steps>", "num_draft_tokens:<drafted>", "num_accepted_tokens:<accepted>", r"mean acceptance len(?:gth)?:<stated_alpha>",
        r"accept(?:@pos|ance at token) [0-9]{1,4}:<at>",
    ), ("total_num_output_tokens:<generated>",), keys=True),
    Form("sglang", "interval", r"\bDecode batch\b|\baccept len:", (
        "#running-req:<running>", "#(?:full )?token:<held>", "(?<!-allocated )(?:full )?token usage:<kv_use>", "accept len:<stated_alpha>",
        "accept rate:<stated_rate>", r"gen throughput(?: \(token/s\))?:<tokens_per_second>", "#queue-req:<waiting>", "#transfer-req:<transfers>",
        r"\bDP<replica>",
    ), keys=True),
    Form("sglang", "benchmark", "Accept length:", (
        "Accept length:<stated_alpha>", "Spec verify ct:<steps>", r"Mean TPOT \(ms\):<token_seconds_ms>",
    ), _BENCHMARK),
    Form("sglang", "benchmark", r"\bacc_length\s*[:=]", (r"acc_length\s*[:=]<stated_alpha>", r"speed\s*[:=]<tokens_per_second>"), requests=1),  # SGLang's send_one
    Form("sglang", "benchmark", "#questions:", ("Throughput:<tokens_per_second>", "Acceptance length:<stated_alpha>")),
    Form("dflash", "benchmark", "Average Acceptance length:", (  # z-lab's benchmark
        "Average Acceptance length:<stated_alpha>", r"Acceptance length histogram: \[<histogram>",
    )),
    Form("llama.cpp", "request", r"draft acceptance(?: rate)?\s*=|[0-9] accepted\s*/\s*[0-9]{1,15} generated", (
        r"(?<![0-9.])(?=[0-9]{1,15} accepted)<accepted> accepted\s*/<drafted>",
        r"mean (?:acceptance length|len)\s*=<stated_alpha>", r"per position\s*=\s*\(<by_position>",
    ), (
        r"(?<!prompt )eval time\s*=<seconds_ms> ms\s*/<predicted>",
    ), alone=r"(?<!prompt )\beval time\s*=\s*[0-9.]{1,20} ms\s*/\s*[0-9]{1,12} (?:tokens|runs)"),
    Form("llama.cpp", "running", r"\bstatistics\s+[\w-]{1,40}:", (
        r"statistics\s+<drafter>", r"#calls\(b,g,a\)\s*=\s*[0-9]{1,12}<calls>", r"#gen drafts\s*=<steps>", r"#acc drafts\s*=<reached>", r"#gen tokens\s*=<drafted>",
        r"#acc tokens\s*=<accepted>", r"#mean acc len\s*=<stated_alpha>", r"#acc rate/pos\s*=\s*\(<by_position>",
        r"dur\(b,g,a\)\s*=\s*[0-9.]{1,20},<draft_ms>",
    )),
    Form("llama-speculative", "request", r"\bn_draft(?:ed)?\s+=", (  # llama.cpp's examples
        r"n_predict\s*=<written>", r"n_drafted\s*=<drafted>", r"n_accept\s*=<accepted>",
    ), (r"decoded\s+[0-9]{1,12} tokens in<seconds> seconds",), keys=True),
    Form("llama.cpp", "request", r"\bpred=\s*[0-9]{1,9}\s+draft=", (  # llama.cpp's mtp-bench.py
        r"\b<prompt>(?=\s{1,20}pred=)", r"\bpred=<written>", r"\bdraft=<drafted>", r"\bacc=<accepted>", "tok/s=<tokens_per_second>",
    )),
    Form("llama.cpp", "benchmark", r"\|\s*[0-9.]{1,9}%/[0-9.]{1,9}%\s*\|", (  # ik_llama.cpp's llama-spec-bench: means and deviations
        r"\|<tokens_per_second>/[0-9]", r"\|<stated_rate_percent>%/", r"%\s*\|<stated_alpha>/",
    )),
    Form("llama.cpp", "request", r"\bdraft: llama_decode\b.{0,20} returned -", (r"returned -<failure>",)),
    Form("tensorrt-llm", "benchmark", "Mean Avg Decoded Tokens per Iter:", (
        "Mean Avg Decoded Tokens per Iter:<stated_alpha>", r"Mean TPOT \(ms\):<token_seconds_ms>",
    ), _BENCHMARK),
    Form("tensorrt-llm", "benchmark", r"\[(?:DAR|AL)\] AVERAGE\s*:", (
        r"\[DAR\] AVERAGE\s*:<stated_rate>", r"\[AL\] AVERAGE\s*:<stated_alpha>",
    ), keys=True),
    # Replies that are not valid JSON, because they were shortened or quoted in prose.
    _of_json("vllm", "request", "num_spec_steps|mean_acceptance_length|num_draft_tokens"),
    _of_json("vllm bench", "benchmark", "spec_decode_acceptance_length"),
    _of_json("sglang", "request", "spec_verify_ct|(?:avg_)?spec_accept_length|spec_accept_rate"),
    _of_json("llama.cpp", "request", "predicted_n|draft_n"),
    _of_json("llama.cpp", "benchmark", "total_predicted|total_draft"),  # mtp-bench.py
    _of_json("tensorrt-llm", "interval", "numDraftTokens"),
)  # fmt: skip
PLAIN = [
    replace(form, begins=form.alone, fields=form.before, before=(), drafts=False, keys=False)
    for form in FORMS
    if form.alone
]
# Lists of forms, each with a pattern of the lines that begin a row; group k + 1 belongs to form k.
BEGINS = [(forms, re.compile("|".join(f"({form.begins})" for form in forms))) for forms in (FORMS, PLAIN)]
SIGNS = (
    "metrics:", "ccept", "acc_length", "raft", "#questions:", "statistics", "[DAR]", "[AL]", "Decode batch", "spec_", "predicted",
    "throughput:", "eval time", "Benchmark", "%/", "Decoded Tokens",
)  # fmt: skip


def form_of(line: str) -> Form | None:
    """Returns the form of the row that begins with this line; None if no row does."""
    if any(sign in line for sign in SIGNS):  # fast test that rejects most lines
        for forms, pattern in BEGINS:
            if match := pattern.search(line):
                return forms[(match.lastindex or 1) - 1]
    return None


def _rates(text: str) -> tuple[float, ...]:
    """Returns the rates in a list of numbers; an empty tuple if one of them is above 1."""
    rates = tuple(map(float, re.findall(NUMBER, text)[:MAX_POSITIONS]))
    return rates if max(rates, default=0.0) <= 1 else ()


def _of_lengths(text: str) -> tuple[float, ...]:
    """Returns acceptance by position.

    text: a list of numbers. Number j is the percentage of steps that commit j tokens, for j = 0, 1, 2, …
    """
    shares = [float(share) / 100 for share in re.findall(NUMBER, text)[: MAX_POSITIONS + 2]]
    return tuple(min(1.0, sum(shares[k:])) for k in range(2, len(shares)))


# Patterns of values that are not single numbers, and functions that read them.
WORDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "by_position": (r"[0-9.,\s]{1,20000}", _rates), "histogram": (r"[0-9.,%'\s]{1,20000}", _of_lengths),
    "counts": (r"[0-9,\s]{1,20000}", lambda text: [int(n) for n in re.findall("[0-9]+", text)[: MAX_POSITIONS + 1]]),
    "reached": (NUMBER, lambda text: (float(text),)), "drafter": (r"[\w-]{1,40}", str), "prompt": (r"[\w-]{1,40}", str), "backend": ("sglang|vllm", str),
    "replica": (r"[0-9]{1,8}", lambda number: f"{ENGINE}{int(number)}"), "process": (r"[0-9]{1,8}", "process {}".format),
}  # fmt: skip
COUNTS = ("steps", "drafted", "accepted", "emitted", "generated", "predicted", "written")
UNITS = {"ms": 1000, "percent": 100}


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a pattern that matches any of the given patterns, even if lines are wrapped. The group of a value is named
    ``NAME__NUMBER``, where NUMBER is the index of its pattern.
    """

    def pattern(number: int, text: str) -> str:
        def group(match: re.Match[str]) -> str:
            form = COUNT if match[1] in COUNTS else f"{NUMBER}{ALONE}"
            return rf"\s*(?P<{match[1]}__{number}>{WORDS.get(match[1], (form,))[0]})"

        return re.sub(r"<(\w+)>", group, text.replace(" ", r"\s"))

    return re.compile("|".join(pattern(*each) for each in enumerate(patterns)) or "(?!)")


PATTERNS = {form: (_any_of(form.fields), _any_of(form.before)) for form in (*FORMS, *PLAIN)}


def values(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, Any]]:
    """Yields the names and values that a pattern of ``PATTERNS`` finds, in order."""
    for match in pattern.finditer(text):
        for group, value in match.groupdict().items():
            name = group.rpartition("__")[0]
            if value is None:
                continue
            yield scaled(name, WORDS[name][1](value) if name in WORDS else float(value.translate(SEPARATORS)))


def scaled(name: str, value: Any) -> tuple[str, Any]:
    """Converts a value to seconds or a share, if its name ends with "_ms" or "_percent". Returns the name without this unit, and
    the value.
    """
    what, _, unit = name.rpartition("_")
    return (what, value / UNITS[unit]) if unit in UNITS else (name, value)
