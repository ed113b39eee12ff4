from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from d2sd.tree.walk import first_draft_boundary, walk
from tests.unit.drafts import merge_candidates

TOKENS = st.integers(0, 2)
CANDIDATES = st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=6)
NEVER = frozenset()


def committed(tree, outcome):
    return [tree.tokens[n] for n in outcome.accepted] + ([] if outcome.bonus is None else [outcome.bonus])


@given(CANDIDATES, st.lists(TOKENS, min_size=8, max_size=8))
def test_walk_commits_the_longest_agreeing_candidate_and_one_bonus(candidates, wanted):
    tree = merge_candidates(9, candidates)
    chosen = [wanted[d] for d in tree.depths]
    outcome = walk(tree, chosen, NEVER, limit=100)
    agreed = max(next((i for i, t in enumerate(c) if t != wanted[i]), len(c)) for c in candidates)
    assert committed(tree, outcome) == wanted[: agreed + 1]
    assert outcome.visited == (0, *outcome.accepted)


@given(CANDIDATES, st.lists(TOKENS, min_size=8, max_size=8), st.integers(1, 8))
def test_walk_never_exceeds_the_limit(candidates, wanted, limit):
    tree = merge_candidates(9, candidates)
    chosen = [wanted[d] for d in tree.depths]
    tokens = committed(tree, walk(tree, chosen, NEVER, limit))
    whole = committed(tree, walk(tree, chosen, NEVER, 100))
    assert tokens == whole[:limit]


@given(CANDIDATES, st.lists(TOKENS, min_size=8, max_size=8))
def test_walk_stops_with_the_first_end_token(candidates, wanted):
    tree = merge_candidates(9, candidates)
    chosen = [wanted[d] for d in tree.depths]
    outcome = walk(tree, chosen, {2}, limit=100)
    whole = committed(tree, walk(tree, chosen, NEVER, 100))
    end = whole.index(2) + 1 if 2 in whole else len(whole)
    assert committed(tree, outcome) == whole[:end]
    assert outcome.ended == (2 in whole)


@given(CANDIDATES, st.lists(TOKENS, min_size=8, max_size=8))
def test_boundary_counts_the_agreeing_first_draft_tokens(candidates, wanted):
    tree = merge_candidates(9, candidates)
    chosen = [wanted[d] for d in tree.depths]
    outcome = walk(tree, chosen, NEVER, limit=100)
    first = candidates[0]
    agreed = next((i for i, t in enumerate(first) if t != wanted[i]), len(first))
    assert first_draft_boundary(tree, first, chosen, outcome) == agreed


def test_boundary_is_unknown_where_the_walk_was_cut():
    tree = merge_candidates(9, [[1, 1, 1, 1]])
    outcome = walk(tree, [1] * len(tree), NEVER, limit=2)
    assert first_draft_boundary(tree, [1, 1, 1, 1], [1] * len(tree), outcome) is None
