"""Outcomes, work and totals of steps, and differences between runs in weights, names and settings."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from d2sd import DecodeConfig, Engine, Trace, load_trace
from d2sd.__about__ import HOME
from d2sd.methods import unused
from d2sd.nets.models import Models
from d2sd.trace.checks import read_header
from d2sd.trace.events import Committed, Node, StepDone, to_line
from d2sd.trace.metrics import (
    Work,
    boundary_hit,
    instructiveness,
    shortest_excluded_prefix,
    tokens_gained,
    totals,
    verdict,
    what_differs,
)
from tests.nets import make_drafter, make_target
from tests.unit.steps import made_step


def step(boundary: int | None, selected: tuple[int, ...], added: int) -> StepDone:
    """A first draft of 3 tokens of which ``boundary`` are accepted; one re-draft then adds ``added`` tokens."""
    made, kept = made_step([0.5] * 3, boundary, selected), boundary or 0
    gained = [
        Node(depth, depth - 1, depth, 1, "a", (1,), "second", "accepted", 0.5, 0.5, 0)
        for depth in range(kept + 1, kept + added + 1)
    ]
    committed = (*made.committed[:-1], *(Committed(1, "a", "second", n.id) for n in gained), made.committed[-1])
    redraft = replace(made.first_draft, drafter="second", prefix=kept)
    nodes, accepted = (*made.nodes[: kept + 1], *gained), tuple(range(1, kept + added + 1))
    return replace(made, branches=(redraft,), nodes=nodes, accepted=accepted, committed=committed, elapsed=1.0)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (step(1, (0, 1), 2), "repaired"),
        (step(1, (0, 1), 0), "found"),
        (step(1, (0, 2), 0), "missed"),
        (step(1, (0, 2), 1), "missed"),  # another re-draft happened to be right
        (step(3, (0, 1), 0), "all"),
        (step(3, (), 0), "all"),
        (step(None, (0, 1), 0), None),
        (step(1, (), 0), None),
    ],
)
def test_verdict_distinguishes_repaired_found_and_missed(made, expected):
    assert verdict(made) == expected
    assert boundary_hit(made) == {"repaired": True, "found": True, "missed": False}.get(expected)


def test_totals_count_repairs_and_redraft_tokens():
    run = [step(1, (1,), 2), step(1, (1,), 0), step(1, (0,), 0), step(3, (1,), 0)]
    figures = totals(run)
    assert figures.boundary_hit_rate == pytest.approx(2 / 3)
    assert figures.repaired_rate == pytest.approx(1 / 3)
    assert figures.tokens_per_redraft == pytest.approx(2 / 4)
    assert [tokens_gained(s) for s in run] == [2, 0, 0, 0]
    nothing = totals([])
    assert nothing.repaired_rate is nothing.tokens_per_redraft is None


def test_excluded_prefix_detects_drafted_end_of_text():
    passed = replace(step(1, (2,), 0), boundary_posterior=(0.1, 0.4, 0.2))
    assert shortest_excluded_prefix(passed, "d2sd") == 1
    assert shortest_excluded_prefix(passed, "random_prefix") is None
    assert shortest_excluded_prefix(replace(passed, selected_prefixes=(1, 2)), "d2sd") is None


def test_instructiveness_prefers_steps_with_kept_and_gained_tokens():
    best, only_gained, only_kept = step(2, (2,), 2), step(0, (0,), 7), step(2, (2,), 0)
    ended = replace(best, committed=best.committed[:-1])
    assert instructiveness(best) > instructiveness(only_gained) > instructiveness(ended)
    assert instructiveness(ended) == instructiveness(only_kept) == ()


def test_work_counts_rows_of_computed_passes():
    config = {"block_size": 4, "second_block_size": 6, "draft_depth": 5}
    drafted = step(1, (0, 1), 2)
    redraft = drafted.branches[0]
    third = replace(drafted, branches=(redraft, redraft, replace(redraft, base=1)))
    bare = replace(drafted, first_draft=None, branches=(), selected_prefixes=())
    works = [
        Work.of(made, {"method": method, "config": config})
        for made, method in (
            (third, "d2sd_three_level"),
            (replace(third, selected_prefixes=()), "dflash_resample"),
            (bare, "eagle3"),
            (replace(bare, nodes=bare.nodes[:1]), "eagle3"),
        )
    ]
    assert works == [Work(4, (12, 6), 4), Work(4, (), 4), Work(7, (), 4), Work(0, (), 1)]
    assert Work.of(bare, {"config": {"block_size": "4"}}) == Work(0, (), 4)


def headers(tokenizer, seed, **settings):
    target = make_target(tokenizer)
    engine = Engine(Models(target, make_drafter(target, block_size=6, seed=seed)))
    return engine.header(engine.request("the cat", DecodeConfig("dflash", 4, **settings)))


def test_header_names_parts_and_is_readable(tokenizer):
    header = headers(tokenizer, 1)
    assert read_header(to_line(header).encode())["parts"] == header["parts"]
    drafter = header["parts"]["first_drafter"]
    assert (drafter["block_size"], drafter["mask_token_id"], drafter["dtype"]) == (6, 1, "float32")
    assert drafter["weights"] != header["parts"]["target"]["weights"]


def test_what_differs_names_weights_and_settings(tokenizer):
    a, b, fewer = headers(tokenizer, 1), headers(tokenizer, 2), headers(tokenizer, 1, block_size=4)
    assert what_differs([a], [a]) == "No recorded model, method or setting differs."
    assert what_differs([a], [b, b]) == "What differs: first drafter (different weights)."
    assert what_differs([a], [fewer]) == "What differs: γ (6 → 4), γ₂ (6 → 4)."
    one, two = ({"method": "dflash", "config": {"num_branches": k, "block_size": 8 * k}} for k in (1, 2))
    assert what_differs([one], [two], unused) == "What differs: γ (8 → 16)."
    assert what_differs([one], [two | {"method": "d2sd"}], unused) == "What differs: γ (8 → 16)."
    assert "K (1 → 2)" in what_differs([one | {"method": "another"}], [two | {"method": "another"}], unused)


def test_what_differs_compares_headers_of_other_engines():
    older = {"models": {"target": "x", "first_drafter": "a/b"}, "config": {"num_branches": 4}}
    newer = {"models": {"target": "x", "first_drafter": "c\x1b/d"}, "config": {"num_branches": 8}}
    expected = "What differs: first drafter (a/b → c\\x1b/d), K (4 → 8)."
    assert what_differs([older], [newer, {"models": {}}]) == expected


@pytest.fixture(scope="module")
def trace():
    return load_trace(HOME / "assets" / "traces" / "opening.jsonl.gz")


def test_trace_rows_are_flat_and_match_steps(trace):
    rows = trace.rows()
    assert [row["step"] for row in rows] == list(range(len(trace.steps)))
    assert all(isinstance(value, str | int | float | None) for row in rows for value in row.values())
    assert len({tuple(row) for row in rows}) == 1  # all have the same columns
    assert "".join(row["text"] for row in rows) == "".join(c.text for s in trace.steps for c in s.committed)
    assert sum(row["committed"] for row in rows) == len(trace.token_ids) - len(trace.prefill.committed)
    row, step = rows[0], trace.steps[0]
    assert (row["drafted"], row["redrafts"]) == (len(step.first_draft.ids), len(step.branches))
    assert row["nodes"] == len(step.nodes) < row["draft_nodes"]
    assert (row["outcome"], row["accepted"]) == (verdict(step), len(step.accepted))
    assert row["seconds"] == pytest.approx(sum(v for k, v in row.items() if k.startswith("seconds_")))


def test_trace_rows_predict_likeliest_boundary_and_count_distinct_nodes():
    surely = replace(made_step([0.9] * 3, 3), boundary_posterior=(0.1, 0.09, 0.081), full_acceptance=0.729)
    early = replace(surely, boundary_posterior=(0.2, 0.5, 0.2), full_acceptance=0.1)
    unsure = replace(surely, boundary_posterior=(), full_acceptance=0.0)
    rows = Trace({}, None, (surely, early, unsure, step(1, (1,), 0)), None).rows()
    assert [row["predicted_boundary"] for row in rows[:3]] == [3, 1, None]
    assert [row["draft_nodes"] for row in rows] == [4, 4, 4, 5]  # the re-draft shares all but its last token


def test_trace_text_is_generated_text_also_of_unfinished_run(trace):
    assert trace.text == trace.finished.text
    assert Trace(trace.header, trace.prefill, trace.steps, None).text == trace.text
    assert Trace({}, None, (), None).text == ""
