from __future__ import annotations

import json

import pytest

from d2sd import DecodeConfig, InputError, load_trace
from d2sd.trace import parse_trace, to_line


@pytest.fixture(scope="module")
def trace(engine):
    return engine.generate("the cat sat", DecodeConfig("d2sd", 12))


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_saved_trace_reads_back_equal(trace, tmp_path, name):
    trace.save(tmp_path / name)
    assert load_trace(tmp_path / name) == trace


def test_a_killed_run_leaves_every_finished_step(trace):
    raw = "".join(trace.lines()).encode()
    steps = raw.split(b"\n")[2 : 2 + len(trace.steps)]
    cut = raw[: raw.index(steps[-1]) + 40]
    assert parse_trace(cut).steps == trace.steps[:-1]


def test_the_line_and_field_at_fault_are_named(trace):
    lines = list(trace.lines())
    step = json.loads(lines[2])
    step["nodes"][0]["depth"] = "deep"
    with pytest.raises(InputError, match=r"line 3, nodes, depth: int is needed"):
        parse_trace("".join([*lines[:2], json.dumps(step) + "\n"]).encode())
    del step["anchor"]
    with pytest.raises(InputError, match=r"line 3: missing or unknown fields: anchor"):
        parse_trace("".join([*lines[:2], json.dumps(step) + "\n"]).encode())


@pytest.mark.parametrize("raw", [b"", b"[]\n", b"{}\n", b'{"event":"Header"}\n', b"\x00\xff\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_trace_is_refused(raw):
    with pytest.raises(InputError):
        parse_trace(raw)


def test_a_newer_schema_is_refused(trace):
    with pytest.raises(InputError, match="schema 99"):
        parse_trace(to_line({**trace.header, "schema": 99}).encode())


def test_text_that_no_encoding_holds_is_replaced():
    assert to_line({"event": "Header", "text": "a\ud800b"}) == '{"event":"Header","text":"a?b"}\n'
