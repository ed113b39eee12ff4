"""The formats in which servers and benchmarks print their figures, for ``d2sd.trace.logs.printed``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from d2sd.trace.logs.requests import Unit

NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,17})?"
WORDS = {
    "rates": r"[0-9.,\s]{1,20000}", "histogram": r"[0-9.,%'\s]{1,20000}", "counts": r"[0-9,\s]{1,20000}",
    "drafter": r"[\w-]{1,40}", "backend": r"[\w.-]{1,40}", "replica": r"[0-9]{1,8}",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Form:
    """A format in which a program prints its figures. Figures that belong together are called a row.

    Patterns contain ``<name>`` in place of a value. Some names:

    * tokens: number of output tokens of a request; written: tokens − 1, since the first token belongs to no step;
    * emitted: number of committed tokens of all steps;
    * at, at_percent: acceptance at one position, printed once per position;
    * counts: numbers of steps by number of accepted tokens; histogram: shares of steps by number of committed tokens;
    * first: number of drafts with at least one accepted token;
    * ``…_ms``, ``…_percent``: values in these units.

    begins: pattern of the line that begins a row.
    fields: patterns of the row's values.
    before: patterns of values in the lines before the row.
    alone: pattern of the line that begins a row without drafts. The values of such a row match ``before``.
    requests: number of requests that the program decodes concurrently; 0 if it varies.
    keys: whether any field may begin a row and a repeated field begins the next row, as in JSON.
    """

    engine: str
    unit: Unit
    begins: str
    fields: tuple[str, ...]
    before: tuple[str, ...] = ()
    alone: str = ""
    requests: int = 0
    keys: bool = False


def _json(**names: str) -> tuple[str, ...]:
    lists = {"counts": r"\["}
    return tuple(rf"['\"]{key}['\"]\s*:\s*{lists.get(name, '')}<{name}>" for key, name in names.items())


def _of_json(engine: str, begins: str, **names: str) -> Form:
    return Form(engine, "request", rf"['\"](?:{begins})['\"]\s*:", _json(**names), keys=True)


_BENCHMARK = (
    "Backend:<backend>", r"Max(?:imum)? request concurrency:<running>", r"(?m:^\W*Concurrency):<running>", "Total generated tokens:<generated>",
    r"Output token throughput \(tok/s\):<speed>", r"Mean TPOT \(ms\):<token_ms>", r"Mean ITL \(ms\):<chunk_ms>", "Output tokens:<generated>",
)  # fmt: skip
FORMS = (
    Form("vllm", "interval", r"SpecDecoding metrics:|^\W*Mean acceptance length:", (
        "Mean acceptance length:<alpha>", "Accepted throughput:<accepted_speed>", "Accepted:<accepted>", "Drafted:<drafted>", "Per-position acceptance rate:<rates>",
        "[Dd]raft acceptance rate:<rate_percent>",
    ), (
        r"\bpid=<replica>", r"Engine\s<replica>", "Avg prompt throughput:<prompt_speed>", "Avg generation throughput:<speed>", "Running:<running>", "(?:Waiting|Pending):<waiting>",
        "(?:GPU )?KV cache usage:<kv_percent>", "(?<!External )[Pp]refix cache hit rate:(?: GPU:)?<hits_percent>",
        "External prefix cache hit rate:<external_percent>",
    ), alone="Avg generation throughput:", keys=True),
    Form("vllm", "interval", r"Speculative metrics: Draft acceptance rate: [0-9.]{1,20}, Number of accepted tokens:", (
        "Draft acceptance rate:<rate>", "Number of accepted tokens:<accepted>", "Number of draft tokens:<drafted>",
    )),
    Form("vllm", "running", "Speculative metrics:", (  # vLLM 0
        "Draft acceptance rate:<rate>", "Number of speculative tokens:<gamma>", r"Number of draft tokens(?: tokens)?:<drafted>",
        r"Number of emitted tokens(?: tokens)?:<emitted>",
    ), (
        "Avg prompt throughput:<prompt_speed>", "Avg generation throughput:<speed>", "Running:<running>", "(?:Waiting|Pending):<waiting>",
        "GPU KV cache usage:<kv_percent>",
    )),
    Form("vllm", "benchmark", r"Acceptance rate \(%\):", (  # vllm bench serve
        r"Acceptance rate \(%\):<rate_percent>", "Acceptance length:<alpha>", "Drafts:<steps>", "Draft tokens:<drafted>",
        "Accepted tokens:<accepted>", r"Position [0-9]{1,4}:<at_percent>",
    ), _BENCHMARK, alone="Serving Benchmark Result"),
    Form("vllm", "benchmark", r"\bnum_drafts:", (  # vLLM's offline inference example
        "num_drafts:<steps>", "num_draft_tokens:<drafted>", "num_accepted_tokens:<accepted>", "mean acceptance length:<alpha>",
        "acceptance at token [0-9]{1,4}:<at>",
    ), ("total_num_output_tokens:<generated>",)),
    Form("sglang", "interval", r"\bDecode batch\b|\baccept len:", (
        "#running-req:<running>", "#(?:full )?token:<held>", "(?<!-allocated )(?:full )?token usage:<kv>", "accept len:<alpha>",
        "accept rate:<rate>", r"gen throughput(?: \(token/s\))?:<speed>", "#queue-req:<waiting>", "#transfer-req:<transfers>",
        r"\bDP<replica>",
    ), keys=True),
    Form("sglang", "request", r"\bFinish: obj=", _json(
        completion_tokens="tokens", spec_accept_length="alpha", spec_accept_rate="rate", spec_verify_ct="steps",
        spec_num_correct_drafts="accepted", spec_num_proposed_drafts="drafted",
    )),
    Form("sglang", "benchmark", "Accept length:", (
        "Accept length:<alpha>", "Spec verify ct:<steps>", r"Mean TPOT \(ms\):<token_ms>",
    ), _BENCHMARK),
    Form("sglang", "benchmark", r"\bacc_length\s*[:=]", (r"acc_length\s*[:=]<alpha>", r"speed\s*[:=]<speed>"), requests=1),  # SGLang's send_one
    Form("sglang", "benchmark", "#questions:", ("Throughput:<speed>", "Acceptance length:<alpha>")),
    Form("dflash", "benchmark", "Average Acceptance length:", (  # z-lab's benchmark
        "Average Acceptance length:<alpha>", r"Acceptance length histogram: \[<histogram>",
    )),
    Form("llama.cpp", "request", r"draft acceptance(?: rate)?\s*=|[0-9] accepted\s*/\s*[0-9]{1,15} generated", (
        r"(?<![0-9.])(?=[0-9]{1,15} accepted)<accepted> accepted\s*/<drafted>",
        r"mean (?:acceptance length|len)\s*=<alpha>", r"per position\s*=\s*\(<rates>",
    ), (
        r"(?<!prompt )eval time\s*=<decode_ms> ms\s*/<tokens>",
    ), alone=r"(?<!prompt )\beval time\s*=\s*[0-9.]{1,20} ms\s*/\s*[0-9]{1,12} (?:tokens|runs)"),
    Form("llama.cpp", "running", r"\bstatistics\s+[\w-]{1,40}:", (
        r"statistics\s+<drafter>", r"#calls\(b,g,a\)\s*=\s*[0-9]{1,12}<calls>", r"#gen drafts\s*=<steps>", r"#acc drafts\s*=<first>", r"#gen tokens\s*=<drafted>",
        r"#acc tokens\s*=<accepted>", r"#mean acc len\s*=<alpha>", r"#acc rate/pos\s*=\s*\(<rates>",
        r"dur\(b,g,a\)\s*=\s*[0-9.]{1,20},<draft_ms>",
    )),
    Form("llama.cpp", "request", r"\bn_draft(?:ed)?\s+=", (  # llama.cpp's examples
        r"n_predict\s*=<written>", r"n_drafted\s*=<drafted>", r"n_accept\s*=<accepted>",
    ), (r"decoded\s+[0-9]{1,12} tokens in<decode> seconds",), keys=True),
    Form("tensorrt-llm", "benchmark", r"\[(?:DAR|AL)\] AVERAGE\s*:", (
        r"\[DAR\] AVERAGE\s*:<rate>", r"\[AL\] AVERAGE\s*:<alpha>",
    ), keys=True),
    # Replies that are not valid JSON, because they were shortened or quoted in prose.
    _of_json("vllm", "num_spec_steps|mean_acceptance_length|num_draft_tokens", completion_tokens="generated", num_spec_steps="steps",
        mean_acceptance_length="alpha", num_accepted_draft_tokens="accepted", num_draft_tokens="drafted", draft_acceptance_rate="rate",
        generation_time_ms="decode_ms", acceptance_histogram="counts"),
    _of_json("sglang", "spec_verify_ct|spec_accept_length|spec_accept_rate", completion_tokens="generated", spec_verify_ct="steps",
        spec_accept_length="alpha", spec_accept_rate="rate", spec_num_correct_drafts="accepted",
        spec_num_proposed_drafts="drafted", spec_correct_drafts_histogram="counts", spec_accept_token_num="accepted",
        spec_draft_token_num="drafted"),
    _of_json("llama.cpp", "predicted_n|draft_n", predicted_n="tokens", predicted_ms="decode_ms", draft_n="drafted",
        draft_n_accepted="accepted"),
)  # fmt: skip
BEGINS = re.compile("|".join(f"({form.begins})" for form in FORMS))
ALONE = {form: re.compile(form.alone) for form in FORMS if form.alone}
SIGNS = (
    "metrics:", "ccept", "acc_length", "draft", "Finish:", "#questions:", "statistics", "[DAR]", "[AL]", "Decode batch", "spec_", "predicted_n",
    "throughput:", "eval time", "Benchmark",
)  # fmt: skip


def begins(line: str) -> Form | None:
    """Returns the form of the row that begins with this line; None if no row begins with it."""
    if not any(sign in line for sign in SIGNS):  # fast test that rejects most lines
        return None
    found = BEGINS.search(line)
    return FORMS[(found.lastindex or 1) - 1] if found else None


def begins_alone(line: str) -> Form | None:
    """Returns the form of the row without drafts that begins with this line; None if no such row begins with it."""
    if not any(sign in line for sign in SIGNS):
        return None
    return next((form for form, pattern in ALONE.items() if pattern.search(line)), None)


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a pattern that matches any of these patterns. A value's group has the name of the value, ``__`` and a number."""

    def group(n: int, name: str) -> str:
        return rf"\s*(?P<{name}__{n}>{WORDS.get(name, NUMBER)})"

    values = (re.sub(r"<(\w+)>", lambda m, n=n: group(n, m[1]), pattern) for n, pattern in enumerate(patterns))  # type: ignore[misc]
    return re.compile("|".join(values) or "(?!)")


PATTERNS = {form: (_any_of(form.fields), _any_of(form.before)) for form in FORMS}


def values(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Returns the names and values that a pattern of ``PATTERNS`` finds, in order."""
    return [
        (name.rpartition("__")[0], value)
        for found in pattern.finditer(text)
        for name, value in found.groupdict().items()
        if value is not None
    ]
