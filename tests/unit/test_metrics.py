"""What came of the predicted boundaries, and totals over steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from d2sd.trace.events import Committed, Draft, Node, StageSeconds, StepDone
from d2sd.trace.metrics import boundary_hit, closed_from, instructiveness, tokens_gained, totals, verdict


def step(boundary: int | None, selected: tuple[int, ...], added: int) -> StepDone:
    """A first draft of 3 tokens of which ``boundary`` are accepted; one re-draft then adds ``added`` tokens."""
    kept = boundary or 0
    nodes = [Node(0, -1, 0, 1, "", (0, 1), "target", "root", None, None, None)]
    for depth in range(1, kept + added + 1):
        first = depth <= kept
        nodes.append(
            Node(
                depth,
                depth - 1,
                depth,
                1,
                "a",
                (0, 1) if first else (1,),
                "first" if first else "second",
                "accepted",
                0.5,
                0.5,
                0,
            )
        )
    accepted = tuple(range(1, kept + added + 1))
    draft = Draft("first", 0, (1, 1, 1), ("a", "a", "a"), (0.5, 0.5, 0.5), ())
    committed = (*(Committed(1, "a", "first", n) for n in accepted), Committed(2, "b", "target", None))
    redraft = replace(draft, drafter="second", prefix=kept)
    return StepDone(0, 1, "", 0, draft, (0.5, 0.25, 0.125), 0.125, selected, (redraft,), tuple(nodes), (), accepted, committed, boundary, StageSeconds(), 1.0)  # fmt: skip


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
def test_a_found_boundary_is_not_yet_a_gain(made, expected):
    assert verdict(made) == expected
    assert boundary_hit(made) == {"repaired": True, "found": True, "missed": False}.get(expected)


def test_totals_count_repairs_and_what_a_redraft_brings():
    run = [step(1, (1,), 2), step(1, (1,), 0), step(1, (0,), 0), step(3, (1,), 0)]
    figures = totals(run)
    assert figures.boundary_hit_rate == pytest.approx(2 / 3)
    assert figures.repaired_rate == pytest.approx(1 / 3)
    assert figures.tokens_per_redraft == pytest.approx(2 / 4)
    assert [tokens_gained(s) for s in run] == [2, 0, 0, 0]
    nothing = totals([])
    assert nothing.repaired_rate is nothing.tokens_per_redraft is None


def test_places_that_were_passed_over_are_behind_a_drafted_end_of_text():
    passed = replace(step(1, (2,), 0), boundary_posterior=(0.1, 0.4, 0.2))
    assert closed_from(passed, "d2sd") == 1
    assert closed_from(passed, "random_prefix") is None
    assert closed_from(replace(passed, selected_prefixes=(1, 2)), "d2sd") is None
    assert closed_from(replace(passed, selected_prefixes=()), "d2sd") is None


def test_the_step_that_shows_the_idea_keeps_some_tokens_and_gains_some():
    best, one_kind, ended = step(2, (2,), 2), step(0, (0,), 7), step(2, (2,), 2)
    ended = replace(ended, committed=ended.committed[:-1])
    found = step(2, (2,), 0)
    assert instructiveness(best) > instructiveness(one_kind) > instructiveness(ended) == instructiveness(found) == ()
