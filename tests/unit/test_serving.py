"""Prompts sent to a stub server: it answers as vLLM, SGLang and llama.cpp document, or as a real llama.cpp did."""

from __future__ import annotations

import json

import pytest

from d2sd import InputError
from d2sd.__main__ import main
from d2sd.logs import serving
from d2sd.logs.serving import Server, served_model
from d2sd.trace.trace import read_traces
from tests.stub_server import stub_server
from tests.unit.test_logs import SGLANG, TWO_STEPS

VLLM = {
    "choices": [
        {"text": "abcdef", "token_ids": [5, 6, 7, 8, 9, 10], "prompt_token_ids": [3, 4], "finish_reason": "length"}
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 6},
    "metrics": {"speculative_decoding": TWO_STEPS},
}


def part(token, text, count, milliseconds, drafted, accepted):
    """A part of llama.cpp's stream; it has totals of drafts from the first draft on."""
    timings = {"prompt_n": 2, "prompt_ms": 9.0, "cache_n": 0, "predicted_n": count, "predicted_ms": milliseconds}
    totals = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
    return {"content": text, "tokens": [token], "stop": False, "timings": {**timings, **totals}}


LLAMACPP = [
    part(28, ",", 1, 0.001, 0, 0),
    part(260, " the", 2, 91.0, 4, 1),
    part(2240, " city", 3, 91.0, 4, 1),
    part(282, " of", 4, 120.0, 4, 1),  # nothing was drafted
    part(7, " x", 5, 180.0, 8, 3),
    {**part(8, "", 5, 180.0, 8, 3), "tokens": [], "stop": True, "stop_type": "limit", "model": "/a/b.gguf"},
]
REPLIES = {
    "/v1/models": {"data": [{"id": "some/model"}]},
    "/v1/completions": VLLM,
    "/generate": {"text": "abc", "meta_info": {"completion_tokens": 100, **SGLANG["sglext"]["spec_tokens_details"]}},
    "/completion": b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in LLAMACPP),
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


def test_server_allows_remote_host_if_asked():
    assert Server("http://example.org", allow_remote=True).address == "http://example.org"


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
