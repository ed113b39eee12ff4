"""``python -m d2sd trace``: every action, its exit codes, and hostile token text on a terminal and in XML."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import networkx
import pytest
from msgspec import structs

import d2sd
from d2sd.__main__ import main
from d2sd.logs.steps import NOT_KNOWN, chain_step
from d2sd.trace.checks import SCHEMA
from d2sd.trace.description import MARKS, draw_tree
from d2sd.trace.trace import Trace, write_traces

RECORDED = Path(__file__).parent.parent / "data" / "schema-1.jsonl.gz"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\u2066\x00\ufffe</data><x>&\ud7ff"


@pytest.fixture(scope="module")
def trace():
    return d2sd.load_trace(RECORDED)


@pytest.fixture
def hostile(trace, tmp_path) -> Path:
    """The recorded run, with every text replaced by an attack on terminals and XML."""

    def step(s):
        return structs.replace(
            s,
            anchor_text=HOSTILE,
            first_draft=structs.replace(s.first_draft, texts=(HOSTILE,) * len(s.first_draft.ids)),
            branches=tuple(structs.replace(b, texts=(HOSTILE,) * len(b.ids)) for b in s.branches),
            nodes=tuple(structs.replace(n, text=HOSTILE) for n in s.nodes),
            choices=tuple(structs.replace(c, text=HOSTILE) for c in s.choices),
            committed=tuple(structs.replace(c, text=HOSTILE) for c in s.committed),
        )  # fmt: skip

    header = {**trace.header, "method": HOSTILE, "prompt": HOSTILE, "models": {HOSTILE: HOSTILE}}
    bad = replace(trace, header=header, steps=tuple(map(step, trace.steps)))
    bad.save(tmp_path / "hostile.jsonl")
    return tmp_path / "hostile.jsonl"


def test_trace_show_and_stats_mark_missing_times(tmp_path, capsys):
    step = chain_step(0, NOT_KNOWN, 5, [NOT_KNOWN] * 3, 1, NOT_KNOWN)
    header = {"event": "Header", "schema": SCHEMA, "run": "r", "method": "vllm", "config": {}, "models": {}, "versions": {}, "hardware": {},
              "prompt": "Hi", "missing": ["confidence", "tokens", "times"]}  # fmt: skip
    Trace.of(header, [step]).save(path := tmp_path / "log.jsonl")
    assert main(["trace", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "not in this log: tokens, confidences, times of steps; ▯ marks an unknown token" in out
    assert "    1       2      4       –" in out
    assert main(["trace", "stats", str(path)]) == 0
    out = capsys.readouterr().out
    assert "tokens per second        –" in out
    assert "verify" not in out
    assert main(["trace", "show", "--step", "1", str(path)]) == 0
    assert "4 nodes verified\n" in capsys.readouterr().out


def test_draw_tree_marks_every_node_with_its_state(trace):
    step = trace.steps[20]
    drawn = [stem + words for stem, words, _ in draw_tree(step)]
    for state, mark in MARKS.items():
        lines = sum(f"{mark} " in line for line in drawn)
        nodes = [n for n in step.nodes if n.state == state]
        assert lines == len(nodes) if state != "unreached" else lines <= len(nodes)
    grouped = sum(int(n) for line in drawn for n in re.findall(r"  \((\d+) nodes, [\w ]+ drafter\)", line))
    alone = sum("○" in line and "drafter)" not in line for line in drawn)
    assert grouped + alone == sum(n.state == "unreached" for n in step.nodes)


def test_trace_validate_and_show_print_expected_text(capfd):
    assert main(["trace", "validate", str(RECORDED)]) == 0
    assert capfd.readouterr().out == "valid: schema 1, method d2sd, 37 steps, 141 tokens, end_token\n"
    assert main(["trace", "show", "--step", "4", str(RECORDED)]) == 0
    out = capfd.readouterr().out
    for words in (
        "0.654 ██████████        0.3112  #2         ← rejected here",
        "✗ ␣the  first drafter 0.654, target 0.000 (rank 10); the target chose ,",
        "◆ ,  target 1.000",
        "draft 4: second drafter, after the first 4 tokens of the first draft",
    ):
        assert words in out


def test_draw_tree_handles_very_deep_trees(trace):
    step = trace.steps[0]
    deep = [structs.replace(step.nodes[1], id=i, parent=i - 1, depth=i, state="unreached") for i in range(1, 4096)]
    assert len(list(draw_tree(structs.replace(step, nodes=(step.nodes[0], *deep))))) >= 2
    comb = [structs.replace(n, parent=max(0, n.id - 1 - n.id % 2), depth=1) for n in deep]
    assert (
        max(len(stem + words) for stem, words, _ in draw_tree(structs.replace(step, nodes=(step.nodes[0], *comb))))
        < 400
    )


@pytest.mark.parametrize("arguments", [["show"], ["show", "--step", "3"], ["stats"], ["validate"]])
def test_trace_commands_escape_token_texts(capfd, hostile, arguments):
    assert main(["trace", *arguments, str(hostile)]) == 0
    out = capfd.readouterr().out
    assert not [c for c in out if not (c.isprintable() or c == "\n")]
    assert "\\x1b]0;owned" in out
    assert out.count("\n") < 60


def test_trace_stats_match_totals(capfd, trace):
    assert main(["trace", "stats", str(RECORDED), "--json"]) == 0
    figures = json.loads(capfd.readouterr().out)
    assert figures["mean_acceptance_length"] == trace.totals.mean_acceptance_length
    assert figures["nodes"] == sum(len(s.nodes) for s in trace.steps)
    assert sum(figures["tokens_by_proposer"].values()) == figures["tokens"] == len(trace.token_ids)
    depths = figures["acceptance_by_depth"]
    assert depths[0] == {"depth": 1, "reached": 37, "accepted": sum(bool(s.accepted) for s in trace.steps) / 37}
    assert sum(round(d["reached"] * d["accepted"]) for d in depths) == sum(len(s.accepted) for s in trace.steps)
    assert main(["trace", "stats", str(RECORDED)]) == 0
    out = capfd.readouterr().out
    assert "boundary among prefixes  91.7%" in out


def test_trace_to_graphml_writes_step_or_run(trace, tmp_path):
    out = tmp_path / "o.graphml"
    assert main(["trace", "to-graphml", str(RECORDED), "--step", str(len(trace.steps)), "-o", str(out)]) == 0
    graph = networkx.read_graphml(out, node_type=int)
    assert {n: graph.nodes[n]["token"] for n in graph} == {n.id: n.token for n in trace.steps[-1].nodes}
    assert main(["trace", "to-graphml", str(RECORDED), "-o", str(out), "--force"]) == 0
    forest = networkx.read_graphml(out)
    assert networkx.is_forest(forest)
    assert networkx.number_weakly_connected_components(forest) == len(trace.steps)
    assert forest.nodes["3.1"]["step"] == 3
    assert forest.nodes["3.1"]["token"] == trace.steps[2].nodes[1].token


@pytest.mark.parametrize("step", ["0", "38"])
def test_trace_step_option_refuses_missing_step(capfd, step, tmp_path):
    for action in (["show"], ["to-graphml", "-o", str(tmp_path / "o")]):
        assert main(["trace", *action, str(RECORDED), "--step", step]) == 2
        assert f"there is no step {step}; this trace has steps 1 to 37" in capfd.readouterr().err


def test_trace_to_html_is_complete_and_self_contained(trace, tmp_path):
    out = tmp_path / "o.html"
    assert main(["trace", "to-html", str(RECORDED), "-o", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?http|@import|url\((?!#|"data:)""", page)
    assert page.count("</script>") == 2
    assert "default-src 'none'" in page


def test_trace_commands_handle_files_of_many_runs(trace, tmp_path, capsys):
    many = tmp_path / "many.jsonl"
    write_traces(many, [trace, trace, trace])
    assert main(["trace", "validate", str(many)]) == 0
    steps = len(trace.steps)
    assert f"valid: 3 runs, {3 * steps} steps" in capsys.readouterr().out
    assert main(["trace", "stats", str(many), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["all"]["steps"] == 3 * steps
    assert [r["run"] for r in figures["runs"]] == [1, 2, 3]
    assert main(["trace", "to-html", str(many), "-o", str(tmp_path / "o.html")]) == 2
    assert "this file contains several runs; name one with --run N" in capsys.readouterr().err
    assert main(["trace", "to-html", str(many), "--run", "2", "-o", str(tmp_path / "o.html")]) == 0
    assert "many.jsonl, run 2: " in (tmp_path / "o.html").read_text(encoding="utf-8")
    assert main(["trace", "show", str(many), "--run", "4"]) == 2
    assert "there is no run 4" in capsys.readouterr().err
    write_traces(tmp_path / "one.jsonl.gz", [trace])
    assert main(["calibrate", "--traces", str(tmp_path), "--json"]) == 0  # all files of a folder
    report = json.loads(capsys.readouterr().out)["all"]
    assert (report["runs"], report["steps"]) == (4, 4 * steps)
    (tmp_path / "none").mkdir()
    assert main(["compare", "--a", str(tmp_path / "none"), "--b", str(many)]) == 2
    assert "contains no traces" in capsys.readouterr().err
