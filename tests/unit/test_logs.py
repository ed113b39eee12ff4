"""Import of server logs and of answers to recorded prompts, as traces or totals; inconsistent figures give an error."""

from __future__ import annotations

import json
import re

import pytest

from d2sd import InputError, load_trace
from d2sd.__main__ import main
from d2sd.calibration import calibrate, read_report
from d2sd.logs import import_log, serving
from d2sd.logs.serving import Server, served_model
from d2sd.logs.steps import UNKNOWN
from d2sd.trace.trace import parse_trace, read_traces
from tests.stub_server import stub_server

# From the documentation: vLLM's detailed level and summary, SGLang's details, LLAMA_SPEC_DUMP's pull request.
DETAILED = {
    "mean_acceptance_length": 3.25, "draft_acceptance_rate": 0.5625, "acceptance_histogram": [1, 1, 2, 3, 1],
    "num_spec_steps": 8, "num_accepted_draft_tokens": 18, "num_draft_tokens": 32, "num_spec_tokens": 4,
    "per_step_accepted": [2, 3, 1, 4, 2, 0, 3, 3], "per_step_drafted": [4, 4, 4, 4, 4, 4, 4, 4],
}  # fmt: skip
SUMMARY = {
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
}
TWO_STEPS = {
    "mean_acceptance_length": 2.5, "draft_acceptance_rate": 0.5, "acceptance_histogram": [0, 1, 1, 0], "num_spec_steps": 2,
    "num_accepted_draft_tokens": 3, "num_draft_tokens": 6, "num_spec_tokens": 3, "per_step_accepted": [1, 2],
    "per_step_drafted": [3, 3],
}  # fmt: skip
VLLM = {"metrics": {"speculative_decoding": DETAILED}}
SGLANG = {
    "sglext": {
        "spec_tokens_details": {
            "spec_accept_rate": 0.2987012987012987, "spec_accept_length": 3.0303030303030303, "spec_num_correct_drafts": 69,
            "spec_num_proposed_drafts": 231, "spec_verify_ct": 33, "spec_correct_drafts_histogram": [4, 10, 7, 7, 3, 1, 0, 1],
        }
    }
}  # fmt: skip
LLAMACPP = {
    "content": " a cat",
    "timings": {"predicted_n": 12, "predicted_ms": 600.0, "draft_n": 16, "draft_n_accepted": 9},
}
DUMP = {
    "step": 1, "seq": 3, "n_draft": 3, "n_accepted": 2, "pmin_drop": 0,
    "pos": [
        {"i": 0, "tok": 292, "p": 0.97, "logp": -0.02, "acc": True, "top": [{"tok": 292, "p": 0.97}]},
        {"i": 1, "tok": 11, "p": 0.8, "acc": True, "top": [{"tok": 11, "p": 0.8}]},
        {"i": 2, "tok": 12, "p": 0.4, "acc": False, "top": [{"tok": 12, "p": 0.4}, {"tok": 13, "p": 0.3}]},
    ],
}  # fmt: skip


def imported(tmp_path, *records, **options):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return list(import_log(tmp_path / "log.jsonl", **options))


def changed(record, path, value):
    """A copy with one field changed, or removed if the value is None."""
    copy = json.loads(json.dumps(record))
    *way, last = path
    inner = copy
    for key in way:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return copy


def test_import_log_step_counts_become_boundaries(tmp_path):
    (run,) = imported(tmp_path, VLLM)
    assert parse_trace("".join(run.lines()).encode()) == run
    assert [s.actual_boundary for s in run.steps] == DETAILED["per_step_accepted"]
    assert run.totals.mean_acceptance_length == 3.25
    assert run.missing == ("confidence", "tokens", "times")
    assert {n.text for s in run.steps for n in s.nodes} == {UNKNOWN}
    with pytest.raises(InputError, match="20 output tokens, but the steps wrote at least 24"):
        imported(tmp_path, {**VLLM, "usage": {"completion_tokens": 20}})


def test_import_log_splits_output_ids_into_steps(tmp_path):
    reply = {
        "choices": [{"text": "abcde", "token_ids": [5, 6, 7, 8, 9], "finish_reason": "length"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 5},
        "prompt_token_ids": [3, 4],
        "metrics": {"speculative_decoding": TWO_STEPS, "generation_time_ms": 50.0},
    }
    (run,) = imported(tmp_path, {"prompt": "Hi", "response": reply})
    assert parse_trace("".join(run.lines()).encode()) == run
    assert run.prompt == "Hi"
    assert [[c.token for c in s.committed] for s in run.steps] == [[6, 7], [8, 9]]  # the limit cut off the bonus token
    assert run.missing == ("confidence", "rejected", "times")
    assert run.steps[0].nodes[3].text == UNKNOWN
    assert run.finished.stop_reason == "max_new_tokens"
    assert run.totals.tokens_per_second == pytest.approx(80)


def test_import_log_spec_dump_has_confidences(tmp_path, capsys):
    later = changed(changed(DUMP, ["step"], 2), ["seq"], 4)
    runs = imported(tmp_path, DUMP, later, changed(DUMP, ["step"], 2))
    assert [len(r.steps) for r in runs] == [2, 1]
    step = runs[0].steps[0]
    assert step.first_draft.confidence == (0.97, 0.8, 0.4)
    assert step.boundary_posterior == pytest.approx((0.03, 0.194, 0.4656))
    assert step.actual_boundary == 2
    assert [a.id for a in step.first_draft.alternatives[2]] == [12, 13]
    assert calibrate(runs).positions == 9


def test_import_log_totals_say_what_is_unknown(tmp_path):
    (named,) = imported(tmp_path, LLAMACPP | {"model": "/models/x.gguf"})
    assert named.model == "x.gguf"
    *histograms, row = imported(tmp_path, SGLANG, {"metrics": {"speculative_decoding": SUMMARY}}, LLAMACPP)
    assert [len(totals.by_position) for totals in histograms] == [7, 3]
    assert all("not in this log: the order of the steps" in totals.unknown for totals in histograms)
    assert str(row) == "llama.cpp, 2 steps, 8 drafted tokens per step, α 5.50"
    assert (row.tokens, row.accepted, row.rate, row.token_seconds) == (12, 9, 9 / 16, pytest.approx(0.05))
    assert row.unknown.startswith("not in this log: acceptance by position")
    assert [one.requests for one in (*histograms, row)] == [1, 1, 1]
    details = SGLANG["sglext"]["spec_tokens_details"] | {"completion_tokens": 102, "e2e_latency": 2.04}
    (timed,) = imported(tmp_path, {"sglext": {"spec_tokens_details": details}})
    assert (timed.tokens, timed.token_seconds) == (102, pytest.approx(0.02))


@pytest.mark.parametrize(
    ("record", "path", "value", "sentence"),
    [
        (VLLM, ["per_step_accepted", 2], 5, "per_step_accepted[2]: 5 tokens accepted of 4 drafted"),
        (VLLM, ["per_step_accepted", 2], 2, "per_step_accepted has 19 accepted tokens, but 18 are reported"),
        (VLLM, ["per_step_drafted"], None, "per_step_drafted has 0 steps, but 8 are reported"),
        (VLLM, ["per_step_drafted", 0], 4096, "per_step_drafted[0]: expected `int` <= 4095"),
        (VLLM, ["acceptance_histogram"], [1, 0, 4, 2, 1], "the histogram does not match per_step_accepted"),
        (VLLM, ["num_spec_steps"], 9, "mean_acceptance_length: 3.25, but the counts give 3"),
        (VLLM, ["num_draft_tokens"], -1, "num_draft_tokens: expected `int` >= 0"),
        (VLLM, ["acceptance_histogram"], {"0": 8, "x": 1}, "acceptance_histogram: expected `int`, got `str`"),
        (SGLANG, ["spec_verify_ct"], 34, "the histogram has 33 steps, but 34 are reported"),
        (LLAMACPP, ["draft_n_accepted"], 17, "17 tokens, but the output has 12"),
        (DUMP, ["n_accepted"], 1, "acc must be true only in the first n_accepted = 1"),
        (DUMP, ["n_draft"], 4, "pos: it must have n_draft = 4 entries"),
        (DUMP, ["pos", 1, "i"], 2, "i must count from 0"),
        (DUMP, ["pos", 1, "p"], 1.5, "pos[1].p: expected `float` <= 1.0"),
    ],
)  # fmt: skip
def test_import_log_refuses_inconsistent_figures(tmp_path, record, path, value, sentence):
    roots = (["metrics", "speculative_decoding"], ["sglext", "spec_tokens_details"], ["timings"])
    root = next((r for r in roots if r[0] in record), [])
    with pytest.raises(InputError, match=re.escape(sentence.replace("`", ""))) as found:
        imported(tmp_path, record, changed(record, [*root, *path], value))
    assert str(found.value).startswith("line 2: ")


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "the log is empty"),
        (b"[1]", "entry 1: not a JSON object"),
        (b'{"a": 1}', "line 1: unknown log format (fields: a)"),
        (b'{"metrics": null}', "it is missing; start the server with --per-request-spec-decode-metrics detailed"),
        (b'{"metrics": ', "not valid JSON, and no figures of speculative decoding"),
        (b'{"error": {"message": "no"}}', "the server answered with an error; --skip-bad skips"),
        (b"data: {\n", "line 1: not JSON"),
        (b'{"timings": {"predicted_n": 1, "predicted_ms": 1}}', "nothing was drafted"),
        (b'{"timings": {}, "parts": 5}', "line 1: parts: expected array, got int"),
        (b'{"sglext": {}}', 'send "return_spec_tokens_details": true'),
        (b'{"event": "Header"}', "this is a line of a trace"),
    ],
)
def test_import_log_refuses_other_files(tmp_path, raw, sentence):
    (tmp_path / "log").write_bytes(raw)
    with pytest.raises(InputError, match=re.escape(sentence)):
        list(import_log(tmp_path / "log"))


def test_trace_import_writes_all_runs_to_one_file(tmp_path, capsys):
    (tmp_path / "log.json").write_text(json.dumps([VLLM, {"metrics": {}}], indent=1), encoding="utf-8")
    assert main(["trace", "import", str(tmp_path / "log.json"), "-o", str(tmp_path / "o.jsonl")]) == 2
    assert not list(tmp_path.glob("*o.jsonl*"))
    (tmp_path / "log.json").write_text(json.dumps([VLLM, VLLM], indent=1), encoding="utf-8")
    assert main(["trace", "import", str(tmp_path / "log.json"), "-o", str(tmp_path / "o.jsonl")]) == 0
    assert "2 runs, 16 steps, 54 tokens; not in this log: tokens, confidences" in capsys.readouterr().out
    assert [len(t.steps) for t in read_traces(tmp_path / "o.jsonl")] == [8, 8]
    with pytest.raises(InputError, match="a trace holds one run"):
        load_trace(tmp_path / "o.jsonl")


def test_calibrate_counts_acceptance_without_confidences(tmp_path):
    (run,) = imported(tmp_path, VLLM)
    report = calibrate([run])
    assert report.positions == 0
    assert [(p.count, p.confidence) for p in report.by_position] == [(8, None), (7, None), (6, None), (4, None)]
    assert report.gains.sources[0].tokens.value == 2.25
    assert "of 8 steps with a known outcome" in read_report(report)[0].text


def test_import_log_joins_captured_stream(tmp_path):
    parts = [
        {"id": "a", "choices": [{"index": 0, "text": "x", "token_ids": [7], "prompt_token_ids": [3, 4]}]},
        {"id": "a", "choices": [{"index": 0, "text": "yz", "token_ids": [8, 9], "finish_reason": "length"}]},
        {"id": "a", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}, "metrics": {"speculative_decoding": {
            "acceptance_histogram": [0, 1], "num_spec_steps": 1, "num_accepted_draft_tokens": 1, "num_draft_tokens": 1,
            "per_step_accepted": [1], "per_step_drafted": [1]}}},
    ]  # fmt: skip
    stream = "".join(f"data: {json.dumps(p)}\n\n" for p in parts) + "data: [DONE]\n"
    (tmp_path / "log").write_text(": ping\n" + stream + stream, encoding="utf-8")
    one, other = import_log(tmp_path / "log")
    assert [c.token for s in one.steps for c in s.committed] == [8, 9]
    assert one.prefill.prompt_token_ids == (3, 4)
    assert "rejected" not in one.missing  # nothing was
    assert one.steps == other.steps


def test_trace_import_skips_bad_records_and_reads_domain(tmp_path, capsys):
    lines = [json.dumps({"error": "busy"}), json.dumps({"response": VLLM, "prompt": "Hi", "domain": "sums"}),
             json.dumps({"metrics": None}), "[1]", json.dumps(VLLM)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "o.jsonl"
    assert main(["trace", "import", str(tmp_path / "log.jsonl"), "-o", str(out)]) == 2
    assert "--skip-bad skips such records" in capsys.readouterr().err
    assert main(["trace", "import", str(tmp_path / "log.jsonl"), "--skip-bad", "-o", str(out)]) == 0
    assert "3 records skipped; the first: line 1: the server answered with an error" in capsys.readouterr().err
    assert [t.header.get("domain") for t in read_traces(out)] == ["sums", None]


# Prompts sent to a stub server, which answers as vLLM, SGLang and llama.cpp document, or as a real llama.cpp did.

SERVED_BY_VLLM = {
    "choices": [
        {"text": "abcdef", "token_ids": [5, 6, 7, 8, 9, 10], "prompt_token_ids": [3, 4], "finish_reason": "length"}
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 6},
    "metrics": {"speculative_decoding": TWO_STEPS},
}


def llamacpp_part(token, text, count, milliseconds, drafted, accepted):
    """A part of llama.cpp's stream; it has totals of drafts from the first draft on."""
    timings = {"prompt_n": 2, "prompt_ms": 9.0, "cache_n": 0, "predicted_n": count, "predicted_ms": milliseconds}
    totals = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
    return {"content": text, "tokens": [token], "stop": False, "timings": {**timings, **totals}}


LLAMACPP_PARTS = [
    llamacpp_part(28, ",", 1, 0.001, 0, 0),
    llamacpp_part(260, " the", 2, 91.0, 4, 1),
    llamacpp_part(2240, " city", 3, 91.0, 4, 1),
    llamacpp_part(282, " of", 4, 120.0, 4, 1),  # nothing was drafted
    llamacpp_part(7, " x", 5, 180.0, 8, 3),
    {**llamacpp_part(8, "", 5, 180.0, 8, 3), "tokens": [], "stop": True, "stop_type": "limit", "model": "/a/b.gguf"},
]
REPLIES = {
    "/v1/models": {"data": [{"id": "some/model"}]},
    "/v1/completions": SERVED_BY_VLLM,
    "/generate": {"text": "abc", "meta_info": {"completion_tokens": 100, **SGLANG["sglext"]["spec_tokens_details"]}},
    "/completion": b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in LLAMACPP_PARTS),
    "/moved": 302,
    "/tokenize": {"tokens": [{"id": 3, "piece": "Once"}, {"id": 4, "piece": " upon"}]},
}


@pytest.fixture
def server():
    requests = []

    def answer(path, sent):
        requests.append((path, sent))
        return REPLIES[path]

    with stub_server(answer) as address:
        yield address, requests


def record(tmp_path, address, engine):
    (tmp_path / "p.jsonl").write_text('{"prompt": "Once upon"}\n', encoding="utf-8")
    options = ["--engine", engine, "--prompts", str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "o.jsonl")]
    assert main(["trace", "record", "--from-server", address, "--max-new-tokens", "5", *options]) == 0
    return list(read_traces(tmp_path / "o.jsonl")) if (tmp_path / "o.jsonl").exists() else []


def test_trace_record_llamacpp_keeps_every_step(tmp_path, server):
    address, requests = server
    (run,) = record(tmp_path, address, "llamacpp")
    assert requests[1][1] | {"n_predict": 5, "temperature": 0, "timings_per_token": True} == requests[1][1]
    assert (run.prompt, run.prefill.texts) == ("Once upon", ("Once", " upon"))
    assert run.finished.text == ", the city of x"
    assert [[c.token for c in s.committed] for s in run.steps] == [[260, 2240], [282], [7]]
    assert [s.actual_boundary for s in run.steps] == [1, None, 2]
    assert [s.elapsed for s in run.steps] == [0.091, 0.12, 0.18]
    assert run.header["models"] == {"target": "b.gguf"}
    assert run.missing == ("confidence", "rejected")


def test_trace_record_vllm_keeps_token_ids(tmp_path, server):
    address, requests = server
    (run,) = record(tmp_path, address, "vllm")
    assert requests[1] == (
        "/v1/completions",
        requests[1][1] | {"model": "some/model", "max_tokens": 5, "return_token_ids": True},
    )
    assert [[c.token for c in s.committed] for s in run.steps] == [[6, 7], [8, 9, 10]]
    assert run.prefill.prompt_token_ids == (3, 4)


def test_trace_record_sglang_gives_totals(tmp_path, server, capsys):
    assert record(tmp_path, server[0], "sglang") == []
    said = capsys.readouterr().out
    assert "sglang, 33 steps, 7 drafted tokens per step, α 3.09" in said
    assert "69 of 231 drafted tokens accepted" in said


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ftp://127.0.0.1", "is not the address of a server"),
        ("127.0.0.1:80", "is not the address of a server"),
        ("http://user:secret@127.0.0.1", "is not the address of a server"),
        ("http://", "is not the address of a server"),
        ("http://192.168.0.2:80", "--allow-remote"),
        ("http://localhost.example.org", "--allow-remote"),
    ],
)
def test_server_refuses_invalid_and_remote_addresses(address, sentence):
    with pytest.raises(InputError, match=sentence):
        Server(address)
    assert "allow" not in sentence or Server(address, allow_remote=True).address == address


def test_server_refuses_unusable_replies(server, monkeypatch):
    asked = Server(server[0])
    with pytest.raises(InputError, match="answered 302"):
        asked.request("/moved")
    with pytest.raises(InputError, match="does not answer"):
        Server("http://127.0.0.1:9").request("/")
    monkeypatch.setitem(REPLIES, "/v1/models", {"data": []})
    with pytest.raises(InputError, match="/v1/models: no model is listed"):
        served_model(asked)
    monkeypatch.setattr(serving, "MAX_REPLY", 8)
    with pytest.raises(InputError, match="/v1/models: the reply is larger than"):
        asked.request("/v1/models")
