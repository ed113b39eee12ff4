"""Traces: reading, errors that name line and field, the documented format; runs as sent to the viewer; trees as graphs."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from math import log
from pathlib import Path
from typing import get_type_hints

import networkx
import orjson
import pytest
from msgspec import structs

from d2sd import DecodeConfig, InputError, Trace, graph, load_trace
from d2sd.__about__ import HOME
from d2sd.trace import events
from d2sd.trace import trace as module
from d2sd.trace.events import Baseline, to_line
from d2sd.trace.metrics import StepOutcome, instructiveness
from d2sd.trace.run import OUTCOME, RecordedRun, unpack_line
from d2sd.trace.trace import parse_trace
from examples import convert_step_log

RECORDED = Path(__file__).parent.parent / "data" / "schema-1.jsonl.gz"
OPENING = HOME / "assets" / "traces" / "opening.jsonl.gz"


@pytest.fixture(scope="module")
def trace():
    read = load_trace(OPENING)
    return Trace.of(read.header, read.events())


@pytest.fixture(scope="module")
def recorded():
    lines = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    return [line for line in lines if line["event"] != "Baseline"]


def written(lines) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_saved_trace_reads_back_equal(trace, tmp_path, name):
    trace.save(tmp_path / name)
    read = load_trace(tmp_path / name)
    assert read == trace


def test_load_trace_reads_schema_1(recorded):
    assert recorded[0]["schema"] == 1
    assert "base" not in recorded[2]["first_draft"]
    assert load_trace(RECORDED).steps[0].branches[0].base == 0


def test_parse_trace_of_cut_file_keeps_finished_steps(trace):
    raw = "".join(trace.lines()).encode()
    ends = [position for position, byte in enumerate(raw) if byte == ord("\n")]
    for cut in range(ends[2] + 1, ends[3], (ends[3] - ends[2]) // 30):
        assert parse_trace(raw[:cut]).steps == trace.steps[:1]
    assert parse_trace(raw[: ends[3]]).steps == trace.steps[:2]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["nodes"][0].update(depth="deep"), r"line 3: nodes\[0\]\.depth: expected int, got str"),
        (lambda s: s.pop("anchor"), "line 3: object missing required field anchor"),
        (lambda s: s["nodes"][2].update(colour="red"), r"nodes\[2\]: object contains unknown field colour"),
        (lambda s: s.update({"a\r\nb\u2028": 1}), r"^[^\r\n\u2028]*unknown field[^\r\n\u2028]*$"),
        (lambda s: s["nodes"][1].update(state="maybe"), r"nodes\[1\]\.state: invalid enum value 'maybe'"),
        (lambda s: s["nodes"][1].update(drafter_probability=1.5), r"drafter_probability: expected float <= 1"),
        (lambda s: s["first_draft"]["confidence"].__setitem__(0, -0.1), r"confidence\[0\]: expected float >= 0"),
        (lambda s: s["first_draft"]["ids"].__setitem__(0, 2**60), r"first_draft\.ids\[0\]: expected int <="),
        (lambda s: s["nodes"].extend(s["nodes"][-1:] * 5000), "nodes: expected array of length <= 4096"),
        (lambda s: s.update(nodes=[]), "nodes: the anchor, node 0, is missing"),
        (lambda s: s["nodes"][3].update(id=9), r"nodes\[3\]\.id: the nodes are numbered from 0"),
        (lambda s: s["nodes"][0].update(depth=1), r"nodes\[0\]: the anchor has parent -1"),
        (lambda s: s["nodes"][0].update(token=7), r"nodes\[0\]\.token"),
        (lambda s: s["nodes"][4].update(parent=4), r"nodes\[4\]\.parent: it must be an earlier node"),
        (lambda s: s["nodes"][4].update(parent=-1), r"nodes\[4\]\.parent"),
        (lambda s: s["nodes"][4].update(depth=9), r"nodes\[4\]\.depth: it must be 4"),
        (lambda s: s["nodes"][4].update(candidates=[0, 5]), r"nodes\[4\]\.candidates: .* 0 to 4"),
        (lambda s: s["nodes"][-1].update(state="root"), "nodes: only node 0 has the state"),
        (lambda s: s["nodes"][-1].update(state="accepted"), "accepted: it must list every node"),
        (lambda s: s.update(accepted=[999]), r"accepted\[0\]: there is no node 999"),
        (lambda s: s["accepted"].reverse(), r"accepted\[0\]: node \d+ is not a child of node 0"),
        (lambda s: s["accepted"].pop(), "accepted: it must list every node"),
        (lambda s: s.update(committed=[]), "committed: a step commits at least one token"),
        (lambda s: s["committed"][0].update(token=7), r"committed\[0\]\.token: it must be the token of node"),
        (lambda s: s["committed"].insert(0, s["committed"][-1]), "committed: only the last token may have no node"),
        (lambda s: s["choices"][0].update(token=7), r"choices\[0\]\.token"),
        (lambda s: s["choices"].reverse(), "choices: their nodes must be the accepted path"),
        (lambda s: s["first_draft"]["texts"].pop(), r"first_draft\.texts: one for each of the 15 ids"),
        (lambda s: s["branches"][1]["confidence"].pop(), r"branches\[1\]\.confidence: empty, or one"),
        (lambda s: s["branches"][0].update(base=1), r"branches\[0\]\.base: it must be an earlier draft"),
        (lambda s: s["branches"][0].update(prefix=16), r"branches\[0\]\.prefix: draft 0 has only 15 tokens"),
        (lambda s: s.update(tempered=[[0.5] * 6]), "tempered: empty, or one list for each"),
        (lambda s: s.update(tempered=[[0.5], *[[0.5] * 6] * 14]), r"tempered\[0\]: one value for each of 6"),
        (lambda s: s.update(trained=[[0.5] * 3, *[[]] * len(s["branches"])]), r"trained\[0\]: empty, or one for each of the 15 ids"),
        (lambda s: s.update(target_tops=[{"node": len(s["nodes"]), "top": []}]), r"target_tops\[0\]\.node"),
        (lambda s: s["boundary_posterior"].pop(), "boundary_posterior: empty, or one value"),
        (lambda s: s["selected_prefixes"].append(16), "selected_prefixes: only 15 tokens were drafted"),
        (lambda s: s.update(actual_boundary=16), "actual_boundary: only 15 tokens were drafted"),
        (lambda s: s.update(step=1), "step: steps are numbered from 0"),
        (lambda s: s.update(anchor_position=3), "anchor_position: the step follows the token at position"),
    ],
)  # fmt: skip
def test_parse_trace_error_names_line_and_field(recorded, change, sentence):
    step = json.loads(json.dumps(recorded[2]))
    assert len(step["accepted"]) > 1
    change(step)
    with pytest.raises(InputError, match=sentence):
        parse_trace(written([*recorded[:2], step]))


def test_parse_trace_refuses_mismatched_levels(engines):
    trace = engines("llama").generate("the cat", DecodeConfig("eagle3", 6, draft_depth=1, draft_top_k=2))
    header, prefill, step, *_ = (json.loads(line) for line in trace.lines())
    assert parse_trace(written([header, prefill, step])).steps[0].levels == trace.steps[0].levels
    for change, sentence in (
        (lambda first, _: first["scores"].pop(), r"levels\[0\]: every list needs one entry for each of the 2 ids"),
        (lambda _, second: second["parents"].__setitem__(0, 2), r"levels\[1\]\.parents: the previous level has only 2 entries"),
        (lambda first, _: first["nodes"].__setitem__(0, 999), r"levels\[0\]\.nodes: node 999 does not exist"),
        (lambda first, _: first["scores"].__setitem__(0, 0.5), r"levels\[0\]\.scores\[0\]"),
    ):  # fmt: skip
        changed = json.loads(json.dumps(step))
        change(*changed["levels"])
        with pytest.raises(InputError, match=sentence):
            parse_trace(written([header, prefill, changed]))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda t: [t[0], t[1], t[2], t[4]], "line 4: step: steps are numbered from 0"),
        (lambda t: [t[0], t[1], t[2], {**t[3], "anchor": 7, "nodes": [{**t[3]["nodes"][0], "token": 7}, *t[3]["nodes"][1:]]}], "line 4: anchor: the step follows the token with id"),
        (lambda t: [t[0], t[1], t[2], {**t[3], "elapsed": 0}], "line 4: elapsed: it must not be less than in the previous step"),
        (lambda t: [t[0], t[2], t[1]], "line 3: PrefillDone must come once"),
        (lambda t: [t[0], {**t[1], "texts": []}], "line 2: texts: one text per prompt token"),
        (lambda t: [t[0], {**t[1], "committed": 2 * [{"token": 1, "text": "", "proposer": "target", "node": None}]}], "line 2: committed: prefill commits at most one token"),
        (lambda t: [t[0], t[1], t[-1]], "line 3: steps: it must be 0"),
        (lambda t: [*t[:-1], {**t[-1], "token_ids": [1]}], "line 40: token_ids: they must be the tokens"),
        (lambda t: [*t, t[-1]], "line 41: a second Finished"),
        (lambda t: [*t, t[2]], "line 41: a step after Finished"),
        (lambda t: [t[0], t[0]], "line 2: a second header"),
        (lambda t: t[1:], "line 1: not the header"),
        (lambda t: [{**t[0], "schema": 99}], "line 1: this trace has schema 99; this version reads up to 2"),
        (lambda t: [{**t[0], "config": None}], "line 1: config: expected object, got null"),
        (lambda t: [{**t[0], "parts": {"target": 3}}], r"line 1: parts\[...\]: expected object, got int"),
        (lambda t: [{**t[0], "extra": [[[[1]]]]}], "line 1: the header is nested more than 4 levels deep"),
    ],
)  # fmt: skip
def test_parse_trace_refuses_inconsistent_lines(recorded, build, sentence):
    with pytest.raises(InputError, match=sentence):
        parse_trace(written(build(recorded)))


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\n", b"[]\n", b"{}\n", b'{"event":"Header"}\n', b'{"event":"Header"', b"\x00\xff\n", b"[" * 100_000 + b"\n",
        b'{"event":"Header","x":' + b'{"a":' * 100_000, b'{"event":"Header\xff"}\n', b"\xef\xbb\xbf{}\n",
    ],
)  # fmt: skip
def test_parse_trace_refuses_other_content(raw):
    with pytest.raises(InputError):
        parse_trace(raw)


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"null", b'"0.5"', b"true"])
def test_parse_trace_refuses_invalid_probabilities(trace, value):
    lines = [line.encode() for line in trace.lines()]
    share = str(orjson.dumps(trace.steps[0].full_acceptance), "ascii").encode()
    lines[2] = lines[2].replace(b'"full_acceptance":' + share, b'"full_acceptance":' + value)
    with pytest.raises(InputError, match="line 3"):
        parse_trace(b"".join(lines))


def test_parse_trace_refuses_deep_nesting(trace):
    lines = [line.encode() for line in trace.lines()]
    deep = b"[" * 200_000 + b"]" * 200_000
    for line in (
        b'{"event":"Later","x":' + deep + b"}\n",
        lines[2].replace(b'"alternatives":[', b'"alternatives":[' + deep, 1),
    ):
        with pytest.raises(InputError, match="line 3"):
            parse_trace(b"".join([*lines[:2], line]))


def test_parse_trace_skips_later_events_and_empty_lines(trace):
    lines = list(trace.lines())
    lines[2:2] = ['{"event":"Baseline","tokens_per_second":100.0}\n', "\n", "\r\n"]
    assert parse_trace("".join(lines).encode()) == trace
    lone = lines[5].replace('"text":"', r'"text":"\ud800', 1)
    for broken in ('{"event":"Later" oops}\n', lone):
        with pytest.raises(InputError, match="line 3: not JSON"):
            parse_trace("".join([*lines[:2], broken]).encode())


def test_parse_trace_accepts_any_key_order_and_spacing(trace):
    backwards = (dict(reversed(json.loads(line).items())) for line in trace.lines())
    lines = [json.dumps(fields, separators=(" , ", " : ")) for fields in backwards]
    assert parse_trace("\n".join(lines).encode()) == trace


def test_trace_size_limits_are_enforced(trace, tmp_path, monkeypatch):
    trace.save(tmp_path / "run.jsonl.gz")
    raw = "".join(trace.lines()).encode()
    limits = (("MAX_LINE_BYTES", 1 << 10, "longer than"), ("MAX_BYTES", 1 << 12, "larger than"), ("MAX_LINES", 3, "at most 3 lines"))  # fmt: skip
    for limit, value, sentence in limits:
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, value)
            for read, source in ((load_trace, tmp_path / "run.jsonl.gz"), (parse_trace, raw)):
                with pytest.raises(InputError, match=sentence):
                    read(source)


def test_load_trace_limits_memory_of_gzip_bomb(trace, tmp_path):
    import tracemalloc

    blocks = {"zeros": bytes(8 << 20), "spaces": b" " * (8 << 20), "lines": b"\n" * (1 << 20)}
    bombs = {name: gzip.compress(block, mtime=0) * 40 for name, block in blocks.items()}
    for name, bomb in bombs.items():
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress(to_line(trace.header).encode()) + bomb)
        tracemalloc.start()
        try:
            with pytest.raises(InputError):
                load_trace(path)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", ["", "no/such/file", "a-folder", "damaged.jsonl.gz"])
def test_load_trace_refuses_unreadable_file(trace, tmp_path, name):
    (tmp_path / "a-folder").mkdir()
    trace.save(tmp_path / "run.jsonl.gz")
    whole = (tmp_path / "run.jsonl.gz").read_bytes()
    (tmp_path / "damaged.jsonl.gz").write_bytes(whole[:30] + b"\x00\x01\x02" + whole[33:])
    with pytest.raises(InputError, match="cannot read the trace"):
        load_trace(tmp_path / name)


def test_cut_gzip_is_read_up_to_the_cut(trace, tmp_path):
    trace.save(tmp_path / "run.jsonl.gz")
    whole = (tmp_path / "run.jsonl.gz").read_bytes()
    for length in (len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.jsonl.gz").write_bytes(whole[:length])
        cut = load_trace(tmp_path / "cut.jsonl.gz")
        assert cut.header == trace.header
        assert tuple(cut.steps) == tuple(trace.steps)[: len(cut.steps)]
    assert len(cut.steps) >= len(trace.steps) - 1


def opened(run):
    """The lines of a segment after its head, as the viewer reads them."""
    return [line for entry in run.segment().splitlines()[1:] for line in unpack_line(entry).split("\n")]


def test_recorded_run_puts_outcome_before_each_step(trace):
    lines = RecordedRun.of(trace.records()).lines(outcomes=True)
    outcomes = [line for line in lines if line.startswith(OUTCOME)]
    assert outcomes == [to_line(StepOutcome.of(step, trace.header)).rstrip() for step in trace.steps]
    steps = [n for n, line in enumerate(lines) if line.startswith('{"event":"StepDone"')]
    assert all(lines[n - 1].startswith(OUTCOME) for n in steps)


def test_recorded_run_live_and_whole_match_trace(trace):
    live, best = RecordedRun(live=True), 0
    for number, record in enumerate(trace.records(), -2):
        live.append([record])
        if number > 0 and record is not trace.finished:
            best = number if instructiveness(record) > instructiveness(trace.steps[best]) else best
        assert live.instructive == best
        assert live.ended == (record is trace.finished)
    kept = RecordedRun.of(trace.records())
    assert opened(live) == opened(kept)
    assert live.lines() == kept.lines() == [line.rstrip("\n") for line in trace.lines()]
    assert live.trace() == kept.trace() == RecordedRun.read("".join(trace.lines()).encode()).trace() == trace
    assert live.holds(kept)
    heads = [json.loads(run.segment(key="k").partition("\n")[0]) for run in (live, kept)]
    assert heads[0] == heads[1] == {"event": "Segment", "key": "k", "from": 0, "steps": len(trace.steps), "instructive": best}  # fmt: skip


def test_recorded_run_keeps_baseline_speed(trace):
    run = RecordedRun.of([*trace.records(), Baseline(50.0)])
    assert run.lines()[-1] == '{"event":"Baseline","tokens_per_second":50.0}'
    assert RecordedRun.read("\n".join(run.lines()).encode()).baseline == Baseline(50.0)
    assert run.ended
    assert run.trace() == trace


@pytest.fixture(scope="module")
def recorded_steps():
    return load_trace(RECORDED).steps


def path_score(step, node):
    """Sum of the logarithms of drafter probabilities from the anchor to a node."""
    return log(node.drafter_probability) + path_score(step, step.nodes[node.parent]) if node.parent >= 0 else 0.0


def test_graph_of_step_matches_tree(recorded_steps):
    step = recorded_steps[3]
    tree = graph(step)
    assert networkx.is_arborescence(tree)
    assert set(tree.edges) == {(n.parent, n.id) for n in step.nodes if n.id}
    assert networkx.shortest_path_length(tree, 0) == {n.id: n.depth for n in step.nodes}
    node = step.nodes[5]
    assert tree.nodes[5] == {
        "token": node.token, "text": node.text, "depth": node.depth, "proposer": node.proposer, "state": node.state,
        "drafter_probability": node.drafter_probability, "target_probability": node.target_probability,
        "target_rank": node.target_rank, "score": pytest.approx(path_score(step, node)),
    }  # fmt: skip
    assert set(tree.nodes[0]) == {"token", "text", "depth", "proposer", "state"}


@pytest.mark.parametrize(
    "text", ["\x00", "\x1b[2J", "\x7f", "\ufffe", "\ud800", "]]>", "<&\"'", "\u2028", "\x85", "\n", ""]
)
def test_graphml_preserves_any_text(recorded_steps, text, tmp_path):
    step = structs.replace(
        recorded_steps[0], nodes=tuple(structs.replace(n, text=text) for n in recorded_steps[0].nodes)
    )
    networkx.write_graphml(graph(step), tmp_path / "o.graphml")
    read = networkx.read_graphml(tmp_path / "o.graphml").nodes["1"]["text"]
    assert len(read) == len(text)
    assert read.strip("\n") == text.strip("\n") or not text.isprintable()


def test_graph_of_tree_built_by_levels_has_levels(engines):
    config = DecodeConfig("eagle3", 3, draft_depth=2, draft_top_k=4, node_budget=9)
    step = engines("llama").generate("the cat", config).steps[0]
    kept = {node for level in step.levels for node in level.nodes}
    levels = {node: (values["level"], values["kept"]) for node, values in graph(step).nodes(data=True) if node}
    assert levels == {node.id: (node.depth, node.id in kept) for node in step.nodes[1:]}
    assert set(levels.values()) >= {(1, True), (2, True)}


PAGE = (HOME / "docs" / "trace-format.md").read_text(encoding="utf-8")
CLASSES = (
    "PrefillDone", "StepDone", "Finished", "Draft", "DraftLevel", "Node", "Choice", "Committed", "Alternative", "TargetTop",
    "Decision", "Option", "StageSeconds", "Baseline",
)  # fmt: skip


def sample_log() -> list[str]:
    return [line.strip() for line in convert_step_log.__doc__.splitlines() if line.strip().startswith("{")]


@pytest.mark.parametrize("name", CLASSES)
def test_trace_format_page_names_every_field(name):
    missing = [f for f in get_type_hints(getattr(events, name)) if not re.search(rf"[`\"]{f}[`\"]", PAGE)]
    assert missing == []


def test_trace_format_page_example_is_valid():
    (example,) = re.findall(r"```jsonl\n(.*?)```", PAGE, re.DOTALL)
    trace = parse_trace(example.encode())
    assert trace.token_ids == [31]
    assert trace.finished is not None
    assert "".join(trace.lines()).count("\n") == 4


def test_examples_run_as_documented_without_installation(tmp_path):
    for path in (HOME / "examples").glob("*.py"):
        assert f"    python -m examples.{path.stem} " in path.read_text(encoding="utf-8")
    log = sample_log()
    assert len(log) == 4
    (tmp_path / "log.jsonl").write_text("\n".join(log), encoding="utf-8")
    command = re.search(r"python (-m examples\.\S+) LOG\.jsonl RUN\.jsonl", convert_step_log.__doc__)[1]
    files = [tmp_path / "log.jsonl", tmp_path / "run.jsonl"]
    subprocess.run([sys.executable, *command.split(), *files], check=True, cwd=HOME)
    trace = load_trace(files[1])
    assert trace.header["method"] == "vllm"
    assert trace.token_ids == [20, 21, 22, 31, 32, 27, 28]
    assert [s.actual_boundary for s in trace.steps] == [2, 0, 2]
    assert [[n.state[0] for n in s.nodes] for s in trace.steps] == [list("raar"), list("rruu"), list("raa")]
    assert trace.steps[0].boundary_posterior == pytest.approx((0.1, 0.18, 0.432))
    assert trace.totals.mean_acceptance_length == 2


def test_convert_step_log_allows_end_inside_draft():
    request = sample_log()[0]
    rows = ['{"drafted": [], "accepted": 0, "bonus": 5}', '{"drafted": [6, 7, 8], "accepted": 1, "bonus": null}']
    trace = convert_step_log.convert([request, *rows], convert_step_log.Texts())
    assert parse_trace("".join(trace.lines()).encode()) == trace
    assert trace.steps[0].first_draft is None
    assert trace.steps[1].actual_boundary is None
