"""Pasted logs: each format is recognised by its content, whatever precedes it in a line, and answered."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from d2sd import InputError
from d2sd.__main__ import main
from d2sd.cli.common import FAULT_NAMED
from d2sd.logs import Figures, import_log, reading, sources_of
from d2sd.logs.figures import MAX_SOURCES, by_source, joined
from d2sd.logs.sentences import MOST_TRIES, NO_DRAFTED, answers, names_fault, report_lines, sentences, tries

VLLM = (
    "(APIServer pid=7) INFO 06-02 11:40:07 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.40, Accepted throughput: "
    "14.00 tokens/s, Drafted throughput: 50.00 tokens/s, Accepted: 140 tokens, Drafted: 500 tokens, Per-position acceptance rate: "
    "0.700, 0.400, 0.200, 0.080, 0.020, Avg Draft acceptance rate: 28.0%\n"
)
SGLANG = (
    "[2026-05-27 20:14:38 TP0] Decode batch. #running-req: {}, #token: 1024, token usage: 0.01, accept len: {}, accept rate: 0.21, "
    "cuda graph: True, gen throughput (token/s): 400.50, #queue-req: 0\n"
)


def reply(accepted, drafted):
    """A line of vLLM's replies with these numbers of accepted and drafted tokens by step."""
    stats = {
        "acceptance_histogram": [accepted.count(n) for n in range(max(accepted) + 1)],
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
    return json.dumps({"metrics": {"speculative_decoding": stats}}) + "\n"


def imported(tmp_path, text, encoding="utf-8"):
    (tmp_path / "log").write_bytes(text.encode(encoding))
    return list(import_log(tmp_path / "log"))


def test_pasted_log_is_recognised_alone_and_among_other_lines(tmp_path):
    (row,) = imported(tmp_path, VLLM)
    assert (row.engine, row.steps, row.drafted, row.accepted, row.alpha) == ("vllm", 100, 500, 140, 2.4)
    assert row.by_position == (0.7, 0.4, 0.2, 0.08, 0.02)
    noise = "".join(f"[{n}] INFO {{'a': {n}}} loading shard {n} of 80\n" for n in range(80))
    assert imported(tmp_path, f"{noise}{VLLM}{noise}") == [row]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_pasted_log_reads_utf16_bom_and_gzip(tmp_path, encoding):
    assert len(imported(tmp_path, VLLM * 3, encoding)) == 3
    (tmp_path / "log").write_bytes(gzip.compress((VLLM * 3).encode(encoding)))
    assert len(list(import_log(tmp_path / "log"))) == 3


@pytest.mark.parametrize(
    "line",
    [
        "draft acceptance = " + "0" * 16_000,
        "SpecDecoding metrics: Per-position acceptance rate: " + "0.1, " * 4000,
        "SpecDecoding metrics: Per-position acceptance rate: 1.2.3, , ,, 0.5",
        "accept len: " + " " * 18_000 + "x",
        "statistics " + "a" * 18_000,
        "Finish: obj=" + "'spec_accept_length':" * 900,
        "draft acceptance =" + " " * 18_000 + "(" * 900,
        'vllm:spec_decode_num_drafts{model_name="' + 'a="' * 3000 + "} 1e999",
    ],
)
@pytest.mark.timeout(120)
def test_pasted_log_bounds_time_of_hostile_lines(tmp_path, line):
    """With a pattern that takes quadratic time, the test would take minutes."""
    try:
        found = imported(tmp_path, f"{line}\n" * 50 + VLLM)
    except InputError:
        found = []
    assert all(r.accepted is None or r.accepted >= 0 for r in found)


CASES = tomllib.loads((Path(__file__).parents[1] / "data" / "pasted_logs.toml").read_text(encoding="utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_report_answers_pasted_logs(tmp_path, case):
    if case.get("none"):
        with pytest.raises(InputError) as refused:
            imported(tmp_path, case["log"])
        said = str(refused.value)
    else:
        said = "\n".join(report_lines(answers(sources_of(imported(tmp_path, case["log"])))))
    assert [part for part in case["said"] if part not in said] == [], said
    assert [part for part in case.get("wrong", ()) if part in said] == [], said


def timings(ms, tokens, accepted=None, generated=None):
    """llama.cpp's log lines about a request."""
    drafts = "" if accepted is None else f"draft acceptance = 0.5 ({accepted} accepted / {generated} generated)\n"
    return f"prompt eval time =     300.11 ms /    20 tokens\n       eval time = {ms:10.2f} ms / {tokens:5d} tokens\n{drafts}"


def figures(*shares, steps=2000, **fields):
    known = {"engine": "vllm", "stated_alpha": 1 + sum(shares), "steps": steps, "by_position": shares}
    return Figures(**known | fields)


@pytest.mark.parametrize(
    ("found", "named", "sentence", "case"),
    [
        (figures(0.8, 0.65, 0.5, 0.4, 0.3), False, "Acceptance by position looks normal.", ""),
        (figures(0.6, 0.4, 0.25, 0.1, 0.05, *[0.0] * 10), True, "Acceptance ends at position 5 of 15: 10 drafted positions were never accepted. 5 drafted tokens per step (γ = 6)", "vLLM pull request 40898"),
        (figures(0.6, 0.4, 0.25, 0.1, 0.05, *[0.0] * 10, steps=60), True, "a longer log would show", "vLLM pull request 40898"),
        (figures(0.01, 0.001, 0.0), True, "Position 1 is accepted in 1% of the steps: almost never.", "vLLM issue 56792"),
        (figures(0.34, *[0.0] * 14), True, "break off after the first token", "speculators issue 613"),
        (figures(0.8, 0.65, 0.53, 0.1, 0.08, 0.06), True, "Acceptance falls at position 4: 19%", "vLLM pull request 41834"),
        (figures(0.4, 0.25, 0.15), True, "Position 1 is accepted in 40% of the steps, which is low.", "z-lab/dflash issue 133"),
        (figures(stated_alpha=1.01), True, "Almost nothing is accepted: α is 1.01.", "vLLM issue 56792"),
        (figures(stated_alpha=2.0, gamma=15.0), False, "The first 4 of 15 drafted tokens give 94% of the accepted tokens, if all positions are accepted equally often: draft 3 to 4", ""),
        (figures(stated_alpha=1.5, gamma=3.0), True, "α is 1.50 of at most 4, as if every position were accepted 34% of the time. This is low", "z-lab/dflash issue 133"),
        (figures(0.8, 0.65, 0.5, running=(40.0,)), False, "Many requests run at once (40 running)", "tokens/s over all requests"),
        (figures(0.9, 0.8, 0.6), False, "Position 3 is still accepted in 60% of the steps: try a longer draft", ""),
    ],
)  # fmt: skip
def test_sentences_name_only_unusual_acceptance(found, named, sentence, case):
    said = list(sentences(found))
    assert names_fault(said) is named
    assert any(sentence in one.text for one in said)
    assert any(case in one for one in tries(said)) if case else not tries(said)
    assert len(tries(said)) <= MOST_TRIES


PLAIN = Figures(engine="vllm", token_seconds=0.01)
NOISY = tuple((n, 1.0 + (8 if n < 512 else 2) * (n % 2)) for n in (*range(100, 120), *range(600, 620)))


@pytest.mark.parametrize(
    ("found", "sentence", "other"),
    [
        (figures(0.8, 0.65, 0.5, running=(1.0, 1.0, 40.0), waiting=(0.0,) * 3), "looks normal", "run at once"),
        (replace(PLAIN, running=(1.0,), kv_use=(0.1,)), "no draft statistics", "Load"),
        (replace(PLAIN, running=(1.0,), kv_use=(0.6,)), "Load: 1 running, KV cache 60%.", "waiting"),
        (figures(stated_alpha=1.5, gamma=15.0), "are far too many for α 1.50. The first 3 of 15", "another text"),
        (figures(stated_alpha=1.25, gamma=15.0), "draft 2 tokens.", "far fewer"),
        (figures(0.03, *[0.0] * 7, steps=30), "Position 1 is accepted in 3% of the steps, which is low", "far too many"),
        (figures(0.8, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, *[0.005] * 8, drafted=16_000), "different lengths", "The first"),
        (figures(stated_alpha=4.3, gamma=4.0), "Most drafted tokens are accepted: try a longer draft", "far too many"),
        (figures(0.95, 0.9, 0.85, 0.8, unit="interval", alphas=(1.0, 1.0, 4.8)), "In 2 of 3 intervals, nothing is accepted", "try a longer draft"),
        (figures(0.34, *[0.0] * 14, steps=30), "Acceptance ends at position 1 of 15", "break off"),
        (figures(0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.08, 0.0, 0.0, 0.0), "looks normal", "Acceptance ends"),
        (figures(0.8, 0.6, 0.4, 0.0, 0.0), "looks normal", "Acceptance ends"),
        (figures(*[0.0] * 4, steps=10), "Position 1 is accepted in 0% of the steps, which is low", "Acceptance ends"),
        (figures(0.5, 0.2, 0.05, *[0.0] * 4, steps=30), "looks normal", "Acceptance ends"),
        (figures(0.6, *[0.0] * 4, steps=30), "about 11 of 30 steps would accept position 2", "a longer log"),
        (figures(0.8, 0.6, 0.4, 0.01, 0.008, steps=40), "looks normal", "Acceptance falls"),
        (figures(0.8, 0.65, 0.5, by_length=NOISY), "looks normal", "in long texts"),
        (figures(stated_alpha=1.5, gamma=3.0, steps=10), "α is 1.50 of at most 4", "This is low"),
        (figures(stated_alpha=3.0, gamma=15.0), "official drafters had rates of 15%", "This is low"),
        (figures(0.8, 0.65, 0.5, model="org/Qwen3-8B-speculator.eagle3"), "Published for qwen3-8b-speculator.eagle3: α 2.26", "DFlash"),
        (figures(accepted=3000, tokens=5100), "α 2.50", "without a draft"),
        (figures(accepted=3000, tokens=10_000, engine="sglang"), "α 2.50", "without a draft"),
    ],
)  # fmt: skip
def test_sentences_follow_from_figures(found, sentence, other):
    said = "\n".join(one.text for one in sentences(found))
    assert sentence in said
    assert other not in said


@pytest.mark.parametrize(
    ("sources", "part", "there"),
    [
        ([figures(stated_alpha=1.5, replica="engine 1"), figures(stated_alpha=3.0, replica="engine 0")], "far fewer", True),
        ([figures(stated_alpha=2.5, replica="engine 1"), figures(stated_alpha=3.0, replica="engine 0")], "far fewer", False),
        ([figures(stated_alpha=1.5, replica="engine 1"), figures(stated_alpha=3.0, replica="engine 0", model="m")], "far fewer", False),
        ([figures(stated_alpha=1.5, replica="engine 1"), *[figures(stated_alpha=3.0, replica="engine 0")] * 2], "far fewer", False),
        ([figures(stated_alpha=2.0, token_seconds=0.01, model="m"), PLAIN], "with drafts and", True),
        ([figures(stated_alpha=2.0, token_seconds=0.01, model="m"), replace(PLAIN, model="n")], "with drafts and", False),
        ([figures(stated_alpha=2.0, token_seconds=0.01, at_once=2), PLAIN], "with drafts and", False),
        ([figures(stated_alpha=2.0, token_seconds=0.01, unit="interval"), PLAIN], "with drafts and", False),
    ],
)  # fmt: skip
def test_answers_compare_only_similar_sources(sources, part, there):
    assert any(part in one.text for one in answers(sources)[0][1]) is there


def test_report_says_general_sentences_once_and_lists_sources():
    source = figures(stated_alpha=3.0)
    lines = list(report_lines(answers([source, source])))
    assert (lines.count(NO_DRAFTED), lines.count(f"{source}.")) == (1, 2)
    assert sum("tokens/s" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("changes", "sources"),
    [
        ({}, 1), ({"engine": "sglang"}, 2), ({"model": "m"}, 2), ({"drafter": "d"}, 2), ({"replica": "engine 1"}, 2), ({"start": 1}, 2),
        ({"gamma": 4.0}, 2), ({"unit": "interval"}, 2), ({"by_position": (0.5, 0.3)}, 1), ({"stated_alpha": None, "steps": None}, 2),
    ],
)  # fmt: skip
def test_by_source_separates_settings(changes, sources):
    row = figures(stated_alpha=2.0)
    assert len(by_source([row, replace(row, **changes)])) == sources


def test_joined_weights_by_steps_and_uses_steady_times():
    rows = [
        figures(0.8, 0.2, steps=100, accepted=100, tokens_per_second=10.0, remote_prefill=True),
        figures(0.9, steps=300, accepted=900, tokens_per_second=20.0, at_once=4),
        figures(stated_alpha=1.5, steps=10, accepted=5),
    ]
    found = joined(rows)
    assert (found.alpha, found.by_position) == (pytest.approx(1 + 1005 / 410), pytest.approx((0.875, 0.05)))
    assert found.stated_alpha == pytest.approx((200 + 1200 + 15) / 410)
    assert (found.tokens_per_second, found.remote_prefill, found.alphas) == (None, True, (2.0, 4.0))
    assert joined([replace(row, unit="interval") for row in rows]).tokens_per_second == 15

    def intervals(*times):
        return joined([figures(stated_alpha=2.0, unit="interval", at_once=n, token_seconds=s) for n, s in times])

    times = [(1, 0.5), (1, 0.01), (1, 0.02), (1, 0.03), (2, 0.5), (2, 0.001), (2, 0.001), (2, 0.001)]
    assert (intervals(*times).at_once, intervals(*times).token_seconds) == (1, pytest.approx(0.02))
    assert intervals(*((n // 2, 0.01) for n in range(8))).token_seconds is None


def test_sources_of_sorts_and_bounds_sources():
    drafting = [figures(0.5, 0.6, replica=f"engine {n}", unit="benchmark") for n in (1, 0)]
    found = sources_of([replace(PLAIN, unit="benchmark"), *drafting])
    assert [(one.replica, one.by_position) for one in found] == [
        ("engine 0", (0.5, 0.5)),
        ("engine 1", (0.5, 0.5)),
        ("", ()),
    ]
    assert len(sources_of(drafting * MAX_SOURCES)) == MAX_SOURCES


def test_sources_of_steps_leave_out_steps_without_draft(tmp_path):
    (found,) = sources_of(imported(tmp_path, reply([1, 0, 2], [6, 0, 6])))
    assert (found.steps, found.alpha, found.by_position) == (2, 2.5, (1.0, 0.5, 0.0, 0.0, 0.0, 0.0))


def test_figures_far_from_a_row_are_of_another_program(tmp_path):
    far = "INFO loading\n" * 70
    (row,) = imported(tmp_path, f"Max request concurrency: 8\n{far}Accept length: 2.46\n{far}Mean TPOT (ms): 9.5\n")
    assert (row.at_once, row.token_seconds) == (None, None)


def long_texts(alphas, requests=1):
    """A server's lines about one text that grows by 100 tokens per line."""
    return "".join(
        SGLANG.replace("1024", str(100 * n)).format(requests, alpha + 0.1 * (n % 3))
        for n, alpha in enumerate(alphas, 1)
    )


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (long_texts([4.0] * 40 + [1.6] * 40), True),
        (long_texts([4.0] * 40 + [1.6] * 40).replace("#token", "#full token"), True),  # of hybrid models
        (long_texts([4.0] * 40 + [1.6] * 9), False),
        (long_texts([4.0] * 40 + [1.6] * 40, requests=2), False),  # the length of each text is unknown
    ],
)
def test_report_names_fall_in_long_texts(tmp_path, lines, named):
    ((_, said),) = answers(sources_of(imported(tmp_path, lines)))
    assert names_fault(said) is named
    assert any("α is 4.10 in texts up to 4096 tokens and 1.70 in longer ones" in one.text for one in said) is named
    assert any("AEON" in one for one in tries(said)) is named


def test_report_names_fall_in_long_reply(tmp_path):
    ((_, said),) = answers(sources_of(imported(tmp_path, reply([4] * 200 + [1] * 100, [4] * 300))))
    assert any(" up to 1024 tokens and 2.00 in longer ones" in one.text for one in said), said


def test_doctor_log_exits_3_when_cause_is_named(tmp_path, capsys):
    log = tmp_path / "served.log"
    log.write_text(VLLM.replace("0.700, 0.400, 0.200, 0.080", "0.700, 0.200, 0.200, 0.280"), encoding="utf-8")
    assert main(["doctor", "--log", str(log)]) == FAULT_NAMED
    out = capsys.readouterr().out
    assert "drafts break off after the first token" in out
    assert "speculators issue 613" in out
    log.write_text(VLLM, encoding="utf-8")
    assert main(["doctor", "--log", str(log), "--out", str(tmp_path / "o.md")]) == 0
    assert "Acceptance by position looks normal" in (tmp_path / "o.md").read_text(encoding="utf-8")
    assert main(["doctor"]) == 2
    assert "name a target and its drafter, or a server's log with --log" in capsys.readouterr().err


def test_doctor_compares_several_logs(tmp_path, capsys):
    (tmp_path / "with.log").write_text(timings(3200, 100, 70, 145), encoding="utf-8")
    (tmp_path / "without.log").write_text(timings(2500, 100), encoding="utf-8")
    logs = ["--log", str(tmp_path / "with.log"), "--log", str(tmp_path / "without.log")]
    assert main(["doctor", *logs]) == 0
    said = capsys.readouterr().out
    assert "with.log: llama.cpp, 29 steps" in said
    assert "without.log: llama.cpp, no draft statistics, a token takes 25 ms" in said
    assert "drafting takes 1.28 times as long" in said
    assert main(["doctor", *logs, "--json"]) == 0
    drafted, plain = json.loads(capsys.readouterr().out)
    assert drafted["figures"]["step_seconds"] == pytest.approx(3.2 / 100 * (1 + 70 / 29))
    assert (plain["figures"]["drafts"], plain["figures"]["token_seconds"]) == (False, pytest.approx(0.025))


def test_doctor_log_reads_standard_input_without_torch(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from d2sd.__main__ import main; sys.exit(main(['doctor', '--log', '-']))"
    found = subprocess.run([sys.executable, "-c", code], input=VLLM, capture_output=True, encoding="utf-8")
    assert (found.returncode, found.stderr) == (0, "")
    assert "vllm, 100 steps, 5 drafted tokens per step, α 2.40" in found.stdout


def test_log_of_standard_input_ends_at_interrupt(monkeypatch):
    def interrupted():
        yield from (VLLM * 3).encode().splitlines(keepends=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "_line_reader", lambda _: interrupted().__next__)
    with open(os.devnull) as standard:
        monkeypatch.setattr(sys, "stdin", standard)
        assert [row.steps for row in import_log("-")] == [100] * 3


def test_trace_commands_read_logs_or_suggest_import(tmp_path, capsys):
    log, steps = tmp_path / "served.log", tmp_path / "replies.jsonl"
    log.write_text(VLLM, encoding="utf-8")
    steps.write_text(reply([1] * 40, [1] * 40) * 2, encoding="utf-8")
    for command in (["trace", "stats"], ["calibrate", "--traces"]):
        assert main([*command, str(steps)]) == 0
        assert main([*command, str(log)]) == 2
        said = capsys.readouterr().err
        assert "α 2.40" in said
        assert "`d2sd trace import FILE`" in said
    assert main(["compare", "--a", str(steps), "--b", str(steps)]) == 0
