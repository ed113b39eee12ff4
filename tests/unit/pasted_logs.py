"""Logs with figures from public threads, and phrases that the answer to each must and must not contain.

Each case names its thread. The lines are generated from the figures, in the format of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass


def spec(alpha, accepted, drafted, *rates):
    """vLLM's log line about drafts."""
    shares = ", ".join(f"{rate:.3f}" for rate in rates)
    return (
        f"INFO 05-02 20:46:59 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {alpha:.2f}, Accepted throughput: 9.40 tokens/s, "
        f"Drafted throughput: 15.10 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {shares}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%\n"
    )


def engine(speed, running=1, waiting=0, kv=0.1, number=0, external=None, prompt=0.1):
    """vLLM's log line about its load."""
    handed = "" if external is None else f", External prefix cache hit rate: {external:.1f}%"
    return (
        f"INFO 05-02 20:46:59 [loggers.py:271] Engine {number:03d}: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation "
        f"throughput: {speed:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {kv:.1f}%, "
        f"Prefix cache hit rate: 0.0%{handed}\n"
    )


def served(speed, *figures, **load):
    return engine(speed, **load) + spec(*figures)


def version_0(gamma, drafted, emitted, accepted, efficiency, twice=" tokens"):
    """The two lines of vLLM 0: load and drafts."""
    return (
        "INFO metrics.py:406] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 110.4 tokens/s, Running: 2 reqs, Swapped: 0 "
        "reqs, Pending: 0 reqs, GPU KV cache usage: 0.3%, CPU KV cache usage: 0.0%.\n"
        f"INFO metrics.py:422] Speculative metrics: Draft acceptance rate: {accepted / drafted:.3f}, System efficiency: {efficiency:.3f}, "
        f"Number of speculative tokens: {gamma}, Number of accepted tokens: {accepted}, Number of draft tokens{twice}: {drafted}, "
        f"Number of emitted tokens{twice}: {emitted}.\n"
    )


def bench(tpot, speed, concurrency=None, drafts=None):
    """The report of ``vllm bench serve``; drafts: α, steps, drafted, accepted, percentages by position."""
    lines = ["============ Serving Benchmark Result ============"]
    lines += [f"Maximum request concurrency:  {concurrency}"] if concurrency else []
    lines += [f"Output token throughput (tok/s):  {speed}", "Peak concurrent requests:  99.00"]
    lines += [f"P{n} TTFT (ms):  1.0" for n in range(30)] + [f"Mean TPOT (ms):  {tpot}"]
    if drafts:
        alpha, steps, drafted, accepted, *rates = drafts
        lines += [
            f"Acceptance rate (%):  {100 * accepted / drafted:.2f}",
            f"Acceptance length:  {alpha}",
            f"Drafts:  {steps}",
        ]
        lines += [f"Draft tokens:  {drafted}", f"Accepted tokens:  {accepted}", "Per-position acceptance (%):"]
        lines += [f"  Position {n}:  {rate}" for n, rate in enumerate(rates)]
    return "\n".join([*lines, "=" * 50, ""])


def decode(alpha, rate, speed, running=1, queue=0, usage=0.01, dp="", extra=""):
    """SGLang's log line; alpha is None if it does not draft."""
    drafts = (
        "" if alpha is None else f"accept len: {alpha:.2f}, " + ("" if rate is None else f"accept rate: {rate:.2f}, ")
    )
    return (
        f"[2026-05-31 10:00:00{dp} TP0] Decode batch, #running-req: {running}, #token: 900, token usage: {usage:.2f}, {drafts}{extra}"
        f"cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: {queue}\n"
    )


def timings(ms, tokens, accepted=None, generated=None, tail=""):
    """llama.cpp's log lines about a request."""
    drafts = (
        ""
        if accepted is None
        else f"draft acceptance = {accepted / generated:.5f} ({accepted} accepted / {generated} generated){tail}\n"
    )
    return (
        "prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)\n"
        f"       eval time = {ms:10.2f} ms / {tokens:5d} tokens ({ms / tokens:8.2f} ms per token, {1000 * tokens / ms:.2f} tokens per second)\n"
        f"      total time = {ms + 300.11:10.2f} ms / {tokens + 20:5d} tokens\n{drafts}"
    )


def statistics(drafter, calls, drafts, some, generated, accepted, ms):
    return (
        f"statistics {drafter}: #calls(b,g,a) = 1 {calls} {drafts}, #gen drafts = {drafts}, #acc drafts = {some}, #gen tokens = {generated}, "
        f"#acc tokens = {accepted}, dur(b,g,a) = 0.005, {ms:.3f}, 0.114 ms\n"
    )


def counters(number, steps, drafted=None, accepted=None, model="m", pipe=""):
    """vLLM's metrics page."""
    return "".join(
        f'vllm:spec_decode_num_{what}_total{{engine="{number}",model_name="{model}"}} {pipe}{value}\n'
        for what, value in (("drafts", steps), ("draft_tokens", drafted), ("accepted_tokens", accepted))
        if value is not None
    )


@dataclass(frozen=True)
class Case:
    """A log, fragments that its answer must contain, and fragments that it must not contain.

    none: the log holds no figures, so the answer is an error.
    """

    log: str
    said: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    none: bool = False


LOW = "which is low"
LONGER = "try a longer draft"
REPEATS = "text that repeats itself"
FULL = "The server is full"
CASES = {
    # vLLM
    "vllm issue 6768": Case(
        version_0(16, 42272, 2642, 0, 0.059) + version_0(16, 51056, 3191, 0, 0.059),
        ("3191 steps, 16 drafted tokens per step, α 1.00", "Almost nothing is accepted"),
        ("93328", "5833 steps", LOW),
    ),
    "vllm issue 9539": Case(version_0(3, 13311, 10616, 7500, 0.598, twice=""), ("4437 steps", "α 2.39")),
    "vllm 0, two drafters one after another": Case(
        version_0(5, 248165, 190541, 197711, 0.640, twice="") + version_0(10, 396390, 193355, 300000, 0.443, twice=""),
        ("5 drafted tokens per step, α 3.84", "10 drafted tokens per step, α 4.88"),
    ),
    "vllm pull request 48892": Case(
        bench(5, 200, drafts=(1.83, 26407, 26407, 22021, 83.39)) + bench(4, 250, drafts=(4.50, 11043, 88344, 38611, *[76.17, 61.58, 51.25, 42.43, 36.40, 30.94, 27.22, 23.65])),
        ("α 1.83", "α 4.50", "8 drafted tokens per step"),
        ("α 2.62", "37450 steps", "draft 1"),
    ),
    "club-3090 issue 34": Case(
        served(35.2, 4, 264, 264, 1, 1, 1, kv=56.1) + served(34.8, 4, 261, 261, 1, 1, 1, kv=56.1) + engine(35.2, kv=56.1),
        (REPEATS, "A step takes 115 ms"),
        (LONGER, "26.4", FULL),
    ),
    "vllm-ascend issue 12521": Case(
        served(43.3, 2.87, 282, 453, 0.821, 0.609, 0.437, number=2, external=100) + served(45.0, 2.98, 299, 453, 0.821, 0.675, 0.483, number=4, external=100),
        ("engine 2", "engine 4", "α 2.87", "α 2.98", "A step takes 66.", "Acceptance by position looks normal"),
        ("302 steps", LOW, "9.4 "),
    ),
    "vllm-ascend issue 13665": Case(
        served(900, 1.22, 666, 15360, 0.207, 0.009, 0, 0, 0, running=128, external=99.4),
        ("break off after the first token", "Prompts are processed on another server"),
    ),
    "qwen36-27b-single-3090 issue 1": Case(
        served(63.8, 5.14, 513, 620, 0.960, 0.863, 0.823, 0.782, 0.710) + served(116.0, 4.94, 925, 1175, 0.945, 0.877, 0.8, 0.694, 0.621)
        + engine(134.0) + spec(5.93, 1114, 1130).partition(", Per-position")[0] + "\n",
        ("585 steps", "α 5.36", "A step takes 42.6 ms"),
        ("6.84", "80.6 ms", LOW),
    ),
    "vllm pull request 24344": Case(
        "total_num_output_tokens: 5376\nnum_drafts: 993\nnum_draft_tokens: 4960\nnum_accepted_tokens: 3562\nmean acceptance length: 4.59\n"
        + "".join(f"acceptance at token {n}: {rate}\n" for n, rate in enumerate((0.81, 0.74, 0.70, 0.68, 0.66))),
        ("α 4.59", "821 of 5376 tokens come from steps without a draft", "2.96 tokens"),
    ),
    "llama-swap issue 1032": Case(
        '{\n  "id": "x", "choices": [ ... ],\n  "metrics": {"speculative_decoding": {\n    "mean_acceptance_length": 1.2326,\n    "num_spec_steps": 43,\n'
        '    "num_accepted_draft_tokens": 10,\n    "num_draft_tokens": 129,\n    "acceptance_histogram": [39, 1, 0, 3],\n    "per_step_accepted": [ ... ]\n  }}\n}\n',
        ("43 steps, 3 drafted tokens per step, α 1.23, accepted up to position 1: 9%, 2: 7%, 3: 7%", LOW, "only 43 steps"),
    ),
    "vllm pull request 24049": Case(
        "".join(counters(n, steps, pipe="| ") for n, steps in enumerate((22, 15, 29))) + 'vllm:spec_decode_num_drafts_created{engine="0"} | 1756736798.7\n',
        ("engine 2, 29 steps", "neither α nor acceptance by position"),
        ("α 1", "1756736798", "almost nothing"),
    ),
    "metrics of two engines of one model": Case(
        counters(0, 1000, 3000, 2550) + counters(1, 1000, 3000, 150), ("engine 1 accepts far fewer tokens than engine 0".capitalize(), "α 1.15 compared with 3.55"), ("2.35",)
    ),
    "metrics before and after a restart": Case(
        counters(0, 1000, 3000, 1500) + counters(0, 100, 300, 240), ("1000 steps", "100 steps", "α 2.50", "α 3.40"), ("1100 steps",)
    ),
    "metrics, twice": Case(counters(0, 1000, 3000, 1500) + counters(0, 2000, 6000, 3200), ("2000 steps", "α 2.60"), ("3000 steps",)),
    "vllm issue 43295": Case(
        "".join(served(200 + n, 2.5, 1500, 3000, 0.7, 0.5, 0.3, running=9, waiting=55, kv=94 + n) for n in range(4)),
        (FULL, "9 running, 55 waiting, KV cache 94 to 97%"),
        (LOW,),
    ),
    "vllm issue 19254": Case(
        "".join(served(3399, 2.83, 5306, 8703, 0.7, 0.6, 0.53, running=600 + n, waiting=0, kv=17) for n in range(2)),
        ("Many requests run at once (600 to 601 running",),
        (FULL,),
    ),
    "vllm issue 36748": Case(
        engine(1157.2, running=51, waiting=117, kv=100).strip() + " " + engine(809.3, running=31, waiting=108, kv=98.6, number=1),
        ("engine 0, no draft statistics", "engine 1, no draft statistics", "51 running, 117 waiting, KV cache 100%"),
        ("α 1",),
    ),
    "tt-inference-server issue 3359": Case(
        "".join(engine(speed, running=9, kv=63) for speed in (4.8, 7.2, 5.7)), ("no draft statistics",), ("α 1", "almost nothing", "draft 1")
    ),
    "vllm issue 18115": Case(engine(240, running=8, kv=91) + engine(241, running=8, kv=92), ("no draft statistics, a token takes 33.2 ms", "KV cache 91 to 92%"), (FULL, "α")),
    "speculators issue 613": Case(
        "Mean acceptance length: 1.04, Accepted throughput: 2.20 tokens/s, Drafted throughput: 921 tokens/s, Accepted: 22 tokens, Drafted: 9210 tokens, "
        "Per-position acceptance rate: 0.036, " + "0.000, " * 14 + "Avg Draft acceptance rate: 0.2%\n",
        ("α 1.04", "almost never"),
    ),
    "vllm suffix decoding": Case(
        spec(1.78, 364, 1190, *[0.339, 0.146, 0.071, 0.039, 0.03, 0.02, *[0.0] * 18]), ("467 steps, 2.55 drafted tokens per step", "different lengths"), ("never accepted", LOW)
    ),
    "DFlash with 15 drafted tokens on a finetune": Case(
        "".join(served(29.8, 2.64, 184, 1680, *[0.70, 0.45, 0.25, 0.13, 0.06, 0.03, *[0.0021] * 9]) for _ in range(3)),
        ("The first 4 of 15 drafted tokens give",),
        (LONGER,),
    ),
    "vllm bench serve with and without": Case(
        bench(4.40, 1070, 8) + bench(3.58, 1201, 8, drafts=(2.82, 11360, 22720, 20675, 95.5, 86.5)),
        ("With 8 requests at once, a token takes 3.58 ms with drafts and 4.4 ms without: drafting is 1.23 times as fast", "only if machine, model and prompts were the same", LONGER),
    ),
    "vllm bench serve at two loads": Case(
        bench(4.40, 157, 1) + bench(9.58, 1201, 8, drafts=(2.82, 11360, 22720, 20675, 95.5, 86.5)), ("α 2.82",), ("with drafts and",)
    ),
    "vllm issue 41789": Case(
        served(90, 1.03, 25, 3652, 0.027, 0, 0, 0, running=3) + served(43, 1.03, 15, 1724, 0.035, 0, 0, 0, running=3), ("1344 steps, 4 drafted tokens", "almost never"), (FULL, "draft 1")
    ),
    "vllm issue 19254, its lines": Case(
        engine(826.0, running=629, waiting=226, kv=16.3) + spec(2.46, 725, 1488, 0.615, 0.464, 0.383).replace("9.40", "72.50")
        + engine(3399.1, running=610, kv=17.6) + spec(2.83, 5306, 8703, 0.73, 0.60, 0.5).replace("9.40", "530.60").partition("0.600, ")[0] + "0.6",
        ("3395 steps, 3 drafted tokens per step", "1.17 tokens", "come from steps without a draft", "Many requests run at once"),
        (FULL, LONGER),
    ),
    "vllm-ascend issue 9803": Case(
        "".join(
            served(speed, *figures, running=8, kv=32.9).replace("INFO", f"(APIServer pid={pid}) INFO").replace("Engine 000:", "1 Engines Aggregated:")
            for speed, pid, figures in ((68.2, 2523786, (3.28, 474, 624, 0.938, 0.769, 0.572)), (60.2, 2523785, (3.24, 418, 561, 0.877, 0.749, 0.610)))
        ),
        ("process 2523785, 187 steps", "process 2523786, 208 steps", "A step takes 385 ms with 8 requests"),
        ("395 steps", LOW),
    ),
    "vllm pull request 51742": Case(
        bench(2.38, 371.88, 1).replace("Mean TPOT (ms):  2.38", "Mean TPOT (ms):  2.38\nMean ITL (ms):  8.23\nAcceptance rate (%):  31.16"),
        ("α 3.46", "A step takes 8.23 ms"),
        ("α 1.31",),
    ),
    "vllm-ascend pull request 7290": Case(
        "num_drafts: 675\nnum_draft_tokens: 2025\nnum_accepted_tokens: 1722\nmean acceptance length: 3.55\n"
        + "".join(f"acceptance at token {n}: {rate}\n" for n, rate in enumerate((0.85, 0.85, 0.85, 0, 0, 0))),
        ("3 drafted tokens per step, α 3.55",),
        ("6 drafted tokens", "Acceptance ends"),
    ),
    "vllm issue 55605": Case("Mean acceptance length: 5.00\nPer-position acceptance rate: 1.000, 1.000, 1.000, 1.000\n", ("4 drafted tokens per step, α 5.00", REPEATS), (LONGER,)),
    "vllm issue 8439": Case("tokens per second: 69.8\nwith [ngram]: 61.8\n", ("no figures",), none=True),
    "vllm, positions that collapse": Case(
        bench(47.9, 651, 32, drafts=(1.94, 1055610, 3166830, 992000, 83.6, 7.3, 3.1)), ("break off after the first token", "draft 1"), (LONGER,)
    ),
    "vllm, a queue and a KV cache with room": Case(
        "".join(served(12, 3.21, 82, 111, 0.88, 0.73, 0.60) for _ in range(4)) + served(58.4, 3.23, 402, 540, 0.872, 0.744, 0.617, running=14, waiting=28, kv=47.9),
        ("A step takes 268 ms with 1 request", "1 to 14 running, 0 to 28 waiting"),
        (FULL, LOW),
    ),
    "vllm pull request 24243": Case("Mean acceptance length: 2.47\nSpeedup: 1.62\n\nMean acceptance length: 2.44\n", ("α 2.47", "α 2.44"), ("2.46",)),
    "qwen38-27b-rtx3090 issue 147": Case(
        served(17.0, 3.29, 119, 156, 0.865, 0.769, 0.654, kv=13, prompt=764.8), ("52 steps, 3 drafted tokens per step, α 3.29", "only 52 steps"), ("A step takes", LOW, FULL)
    ),
    "vllm-ascend pull request 11431": Case(
        served(0.6, 2.29, 9, 35, 0.57, 0.43, 0.29, 0, 0, running=3, waiting=7, kv=19, prompt=6400) + served(2.0, 2.11, 10, 45, 0.556, 0.333, 0.222, 0, 0, running=3, waiting=7, kv=20, prompt=6390),
        ("16 steps", "7 waiting", "only 16 steps"),
        ("A step takes", FULL, LOW),
    ),
    "DFlash with 8 drafted tokens that accepts its first alone": Case(
        served(72, 1.10, 70, 5480, 0.102, 0, 0, 0, 0, 0, 0, 0) + served(77, 1.09, 58, 5448, 0.085, 0, 0, 0, 0, 0, 0, 0), ("break off after the first token", LOW), ("draft 1",)
    ),
    "vllm-ascend issue 13640": Case(
        spec(2.92, 150, 546, 0.705, 0.436, 0.346, 0.179, 0.128, 0.077, 0.051), ("78 steps, 7 drafted tokens per step, α 2.92", "draft 4 to 5"), (LOW, "A step takes")
    ),
    "gpt-oss, none accepted, in a paragraph": Case(
        "It printed " + spec(1.00, 0, 1464, 0, 0, 0).strip() + " and then nothing.", ("488 steps, 3 drafted tokens per step, α 1.00", "almost never"), ("draft 1",)
    ),
    # SGLang
    "sglang issue 4759": Case(
        "[2025-03-25 TP0] Prefill batch. #new-seq: 1, #new-token: 100, #queue-req: 68\n" + decode(2.54, None, 39.33, 32, 68), ("α 2.54", "32 running, 68 waiting"), ("A step takes", FULL)
    ),
    "sglang pull request 16974": Case(
        "".join(decode(alpha, rate, 0, dp=f" DP{n}").replace("#running-req: 1, ", "") for n, alpha, rate in ((0, 1.52, 0.51), (1, 1.42, 0.47), (0, 2.20, 0.73), (1, 2.34, 0.78))),
        ("2 drafted tokens per step, α 1.52", "2 drafted tokens per step, α 2.34"),
        ("far less", "α 1.8"),
    ),
    "sglang pull request 13376": Case(
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 32\nBackend:  sglang\nMax request concurrency:  256\nOutput token throughput (tok/s):  6148.70\n"
        "Concurrency:  142.34\nAccept length:  5.86\n",
        ("α 5.86", "142 requests at once"),
        ("256 requests", "draft 1"),
    ),
    "sglang pull request 30393": Case(
        "".join(decode(alpha, rate, speed, 3, extra="pre-allocated usage: 0.22, #prealloc-req: 0, #transfer-req: 1, ") for alpha, rate, speed in ((1.67, 0.13, 183), (1.71, 0.14, 182), (1.73, 0.15, 186))),
        ("5 drafted tokens per step", "A step takes 27.9 ms with 3 requests", "This is low", "Prompts are processed on another server"),
        (FULL,),
    ),
    "sglang pull request 13754": Case(
        '12,2379],"meta_info":{"id":"a","prompt_tokens":171,"completion_tokens":200,"spec_accept_rate":0.0117,"spec_accept_length":1.0638,"spec_verify_ct":188,'
        '"spec_accept_token_num":11,"spec_draft_token_num":940,"e2e_latency":1.7',
        ("188 steps, 5 drafted tokens per step, α 1.06", "Almost nothing is accepted"),
    ),
    "sglang pull request 4951": Case(
        "python3 send_one.py\nacc_length=1.00\nspeed=84.82 token/s\n\n--speculative-num-draft-tokens 4\nacc_length=2.20\nspeed=125.59 token/s\n",
        ("3 drafted tokens per step, α 2.20", "A step takes 17.5 ms with 1 request", "drafting is 1.48 times as fast"),
        ("Almost nothing", "4 drafted tokens"),
    ),
    "sglang, two days in prose": Case(
        "good: `accept len: 1.96, accept rate: 0.49, gen throughput: 2294 tok/s`\nbad: `accept len: 1.01, accept rate: 0.25, gen throughput: 1184 tok/s`\n",
        ("3 drafted tokens per step, α 1.96", "3 drafted tokens per step, α 1.01", "Almost nothing is accepted"),
        ("1.49",),
    ),
    "sglang, a line that was wrapped": Case(
        decode(3.82, 0.56, 3446, 32).replace("accept len", "\naccept len"), ("5 drafted tokens per step, α 3.82", "A step takes 35.5 ms with 32 requests"), (LOW,)
    ),
    "sglang issue 11948": Case(
        decode(2.17, 0.54, 0.39) + decode(1.95, 0.49, 178.86) + decode(1.80, 0.45, 165.41) + decode(2.05, 0.51, 188.68) + decode(1.80, 0.45, 165.59),
        ("3 drafted tokens per step", "A step takes 10.9 ms with 1 request", "of at most 4"),
        ("4 drafted tokens", FULL, "0.39"),
    ),
    "sglang pull request 6081": Case(
        "".join(decode(alpha, None, speed, running=8, usage=0.12, dp=f" DP{n}") for n, alpha, speed in ((0, 2.90, 171.01), (6, 2.86, 168.28), (7, 2.65, 155.80))),
        ("engine 0, α 2.90", "engine 7, α 2.65", "A step takes 136 ms with 8 requests at once", "neither the number of drafted tokens per step nor"),
        ("drafted tokens per step,", "far less"),
    ),
    "sglang pull request 33518": Case(
        'One request with `return_spec_tokens_details`:\n\n```json\n{"spec_accept_rate": 0.293, "spec_accept_length": 2.4651,\n "spec_num_correct_drafts": 63, '
        '"spec_num_proposed_drafts": 215,\n "spec_verify_ct": 43, "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3]}\n```\n',
        ("43 steps, 5 drafted tokens per step, α 2.47, accepted up to position 1: 74%, 2: 42%",),
        ("α 3.47",),
    ),
    "sglang pull request 17098": Case(
        "python -m sglang.launch_server --speculative-num-steps 4 --speculative-num-draft-tokens 5\nBackend:  sglang\nMax request concurrency:  8\n"
        "Output token throughput (tok/s):  183.80\nConcurrency:  7.01\nAccept length:  2.14\n",
        ("4 drafted tokens per step, α 2.14",),
        ("5 drafted tokens", "α 3.14"),
    ),
    "sglang, accept rate of newer versions": Case(decode(2.62, 0.54, 90) + decode(2.16, 0.39, 80) + decode(2.58, 0.53, 92), ("3 drafted tokens per step",)),
    "sglang issue 34285": Case(
        decode(1.06, 0.02, 40, extra="pre-allocated usage: 0.00, #prealloc-req: 0, #transfer-req: 0, ") * 3, ("Prompts are processed on another server",)
    ),
    "sglang without drafts": Case(decode(None, None, 0.47) + decode(None, None, 58.1) * 3, ("no draft statistics, a token takes 17.2 ms",), ("α",)),
    # llama.cpp
    "llama.cpp pull request 23279": Case(timings(469700, 35716, 24673, 33126), ("11042 steps, 3 drafted tokens per step, α 3.23", "more than 13.2 ms")),
    "llama.cpp pull request 12603": Case(
        '{"content": "...", "timings": {"prompt_n": 1, "predicted_n": 200, "predicted_ms": 11080.0, "draft_n": 347, "draft_n_accepted": 65, ...}}',
        ("134 steps", "α 1.49", "more than 55.4 ms"),
        ("α 3.08", "347 drafted tokens"),
    ),
    "llama.cpp, started again with another cache": Case(
        timings(4092.97, 516, 374, 564) + statistics("draft-mtp", 141, 141, 114, 564, 374, 663) + timings(35100, 428, 300, 508) + statistics("draft-mtp", 127, 127, 98, 508, 300, 3429),
        ("α 3.65", "(4.7 ms of it in the drafter)", "α 3.36", "(27 ms of it in the drafter)"),
        ("α 3.50", "α 3.51"),
    ),
    "llama.cpp issue 23544": Case(
        timings(156700, 1793, 1093, 1717) + statistics("draft-simple", 699, 470, 362, 1717, 1093, 40300),
        ("Drafts have different lengths", "(57.7 ms of it in the drafter)", "α 2.5"),
        ("of at most 3", "α 4.65", "85.7"),
    ),
    "llama.cpp pull request 19164": Case(
        timings(7850, 1000) + timings(24420, 3000, 12, 384) + statistics("ngram_mod", 2988, 6, 6, 384, 12, 1.0), ("Few steps have a draft", "times as long"), ("α 3",)
    ),
    "llama.cpp pull request 10455": Case(
        "decoded  371 tokens in   34.430 seconds, speed:   10.776 t/s\n\nn_draft   = 16\nn_predict = 371\nn_drafted = 912\nn_accept  = 313\naccept    = 34.320%\n",
        ("58 steps", "α 6.40", "A step takes 594 ms"),
        (LOW,),
    ),
    "llama.cpp issue 27151": Case(timings(9650, 212, 1, 633), ("α 1.0", "Almost nothing is accepted"), ("draft 1",)),
    "beellama.cpp issue 27": Case(
        timings(15640, 353, 178, 2625) + statistics("dflash", 754, 750, 454, 11250, 844, 6870),
        ("174 steps, 15.1 drafted tokens per step, α 2.02, accepted up to position 1: 61%", "(9.11 ms of it in the drafter)", "draft 3 to 4"),
        ("α 2.13", "924 steps"),
    ),
    "llama.cpp, progress alone": Case("slot print_timing: id 0 | task 0 | n_decoded = 770, tg = 16.71 t/s, tg_3s = 9.10 t/s\n", ("no figures",), none=True),
    "llama.cpp, plain request alone": Case(timings(355800, 5047), ("no draft statistics, a token takes 70.5 ms",), ("α",)),
    "llama.cpp pull request 24536": Case(
        timings(2296.72, 256, 167, 259, ", mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)")
        + statistics("draft-eagle3", 87, 87, 70, 259, 167, 325.555),
        ("α 2.92, accepted up to position 1: 81%, 2: 63%, 3: 48%", "(3.74 ms of it in the drafter)", "more than 8.9", "only 8"),
        ("334", "174 steps"),
    ),
    "llama.cpp pull request 22673": Case(
        timings(172447.71, 4120, 3646, 7568) + statistics("mtp", 826, 825, 761, 13200, 5935, 45748.6),
        ("473 steps, 16 drafted tokens per step, α 8.71, accepted up to position 1: 92%", "(55.4 ms of it in the drafter)", "more than 41.9 ms"),
        ("α 8.19", "1298 steps", LOW),
    ),
    "llama.cpp pull request 23269": Case(
        timings(14323.78, 192, 118, 144) + statistics("ngram-map-k", 730, 0, 0, 0, 0, 1.5) + statistics("ngram-mod", 730, 3, 3, 192, 43, 2.0)
        + statistics("draft-mtp", 727, 727, 632, 1447, 1135, 30384.9),
        ("73 steps", "(41.8 ms of it in the drafter)", "draft-mtp, 727 steps, 1.99 drafted tokens per step, α 2.56, accepted up to position 1: 87%"),
        ("416 ms", "ngram-map-k"),
    ),
    "llama.cpp, a short text that ends within a draft": Case(
        timings(900, 63, 60, 60) + statistics("draft-dflash", 4, 4, 4, 60, 60, 100), ("4 steps, 15 drafted tokens per step",), ("2 steps", "30 drafted tokens")
    ),
    "llama.cpp issue 5877": Case(
        "llama_perf_context_print:        eval time =   27636.04 ms /   898 runs   (   30.78 ms per token,    32.49 tokens per second)\n"
        "decoded  673 tokens in   12.132 seconds, speed:   55.473 t/s\n\nn_draft   = 5\nn_predict = 673\nn_drafted = 730\nn_accept  = 526\naccept    = 72.055%\n\ndraft:\n\n"
        "llama_perf_context_print:        eval time =    5000.00 ms /   600 runs   (    8.33 ms per token,   120.00 tokens per second)\n",
        ("α 4.58", "token takes 18 ms with drafts and 30.8 ms without: drafting is 1.71 times as fast"),
        ("8.33",),
    ),
    "llama.cpp, requests with and without drafts": Case(
        timings(3200, 100) + timings(3390, 106, 76, 145), ("A token takes 32 ms with drafts and 32 ms without", "drafting is 1.00 times as fast", "valid only if the requests were alike")
    ),
    "llama.cpp, three contexts": Case(
        timings(2962, 200, 95, 208) + timings(2990, 200, 106, 184) + timings(3320, 200, 107, 182) + timings(2800, 200),
        ("1.99 drafted tokens per step, α 2.07", "valid only if the requests were alike"),
    ),
    "llama.cpp, slower with drafts": Case(
        timings(2500, 100) + timings(3200, 100, 70, 145), ("drafting takes 1.28 times as long", "as much as 4.37 plain steps and commits 3.41 tokens")
    ),
    "llama.cpp issue 25792": Case("accepted were 51 accepted / 171 generated, so 0.298\n", ("30% of the drafted tokens accepted, steps unknown",), ("α 1",)),
    "llama.cpp pull request 27342": Case(
        "draft acceptance = 0.98444 (  886 accepted /   900 generated), mean len =  4.94\n", (REPEATS, "accepted completely"), (LONGER, "900 drafted tokens")
    ),
    "llama.cpp, hybrid model": Case(
        "draft acceptance rate = 1.00000 (  115 accepted /   115 generated)\nstatistics draft: #calls(b,g,a) = 1 82 33, #gen drafts = 81, #acc drafts = 33,\n"
        "       #gen tokens = 214, #acc tokens = 115, dur(b,g,a) = 0.001, 999.634, 0.005 ms\n",
        ("81 steps, 2.64 drafted tokens per step, α 2.42, accepted up to position 1: 41%", "accepted completely"),
    ),
    "llama.cpp, draft statistics alone": Case(statistics("draft-mtp", 760, 750, 454, 2250, 900, 3000), ("750 steps, 3 drafted tokens per step, α 2.20, accepted up to position 1: 61%",)),
    "tabbyAPI pull request 478": Case(
        'get_timings returns\n"timings": {\n  "cache_n": 900, "prompt_n": 100, "prompt_ms": 60.0,\n  "predicted_n": 50, "predicted_ms": 1200.0,\n'
        '  "draft_n": 48, "draft_n_accepted": 40\n}\n',
        ("9 steps", "more than 24 ms"),
        ("48 drafted tokens",),
    ),
    "an example of llama.cpp without its prediction": Case("n_drafted = 634\nn_accept  = 68\naccept    = 10.726%\n", ("11% of the drafted tokens accepted, steps unknown",)),
    # Others
    "ds4 issue 695": Case("mtp: cycles 88 drafted 44 accepted 31 (70.5%)\n", ("no figures",), none=True),
    "FastDeploy pull request 5952": Case('{\n  "choices": [ ... "speculate_metrics": {"accepted_tokens": 128, "accept_ratio": 0.53}\n]\n}\n', ("no figures of speculative decoding",), none=True),
    "TensorRT-LLM, lines without their heading": Case("[AL] MINIMUM: 1.50\n[AL] AVERAGE: 2.35\n", ("tensorrt-llm, α 2.35",)),
    "TensorRT-LLM issue 2155": Case("Accepted tokens: [1, 3, 1, 2, 5, 1],\n", ("no figures of speculative decoding were recognised", "vLLM", "TensorRT-LLM"), none=True),
    "ik_llama.cpp pull request 2369": Case("| code | 37.42 ± 1.48 | 92.15 | 3.76 | 5 |\n", ("no figures",), none=True),
    "mlx-omni-server issue 21": Case('INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\ngeneration_tps=18.384\n', ("no figures",), none=True),
    "ollama issue 18541": Case(r"sed -n 's/.*draft acceptance = \([^ ]*\).*/\1/p'" + "\n| 0.33.2 | 108.63 | 0.93925 |\n", ("no figures",), none=True),
    "a drafter with a published α": Case(
        "non-default args: {'model': 'meta-llama/Llama-3.1-8B-Instruct', 'speculative_config': {'model': 'RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3', "
        "'num_speculative_tokens': 3}}\n" + spec(2.27, 380, 900, 0.64, 0.39, 0.24),
        ("Published for llama-3.1-8b-instruct-speculator.eagle3: α 2.60",),
    ),
}  # fmt: skip
