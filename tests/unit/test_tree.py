"""The token tree, and the walk through it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2sd.tree.walk import first_draft_boundary, walk
from tests.unit.drafts import merge_candidates

TOKENS = st.integers(0, 2)
CANDIDATES = st.lists(st.lists(TOKENS, max_size=6), max_size=6)
DRAFTED = st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=6)
WANTED = st.lists(TOKENS, min_size=8, max_size=8)  # the target's tokens by depth


@given(CANDIDATES)
def test_token_tree_has_one_node_per_prefix(candidates):
    tree = merge_candidates(9, candidates)
    assert (tree.tokens[0], tree.parents[0]) == (9, -1)
    paths = [tuple(tree.tokens[m] for m in tree.path(n)) for n in range(len(tree))]
    assert len(set(paths)) == len(tree)
    assert set(paths) == {tuple(c[:n]) for c in candidates for n in range(len(c) + 1)} | {()}
    for node, path in enumerate(paths):
        assert list(tree.candidates[node]) == [i for i, c in enumerate(candidates) if tuple(c[: len(path)]) == path]


@given(CANDIDATES)
def test_token_tree_ancestor_mask_shows_path(candidates):
    tree = merge_candidates(9, candidates)
    mask = tree.ancestor_mask()
    for node in range(len(tree)):
        assert set(mask[node].nonzero()[0].tolist()) == {0, *tree.path(node)}
        if node:
            assert tree.parents[node] < node
            assert tree.depths[node] == tree.depths[tree.parents[node]] + 1 == len(tree.path(node))


def committed(tree, outcome):
    return [tree.tokens[n] for n in outcome.accepted] + ([] if outcome.bonus is None else [outcome.bonus])


@given(DRAFTED, WANTED)
def test_walk_commits_longest_agreeing_candidate_and_bonus(candidates, wanted):
    tree = merge_candidates(9, candidates)
    chosen = [wanted[d] for d in tree.depths]
    outcome = walk(tree, chosen, (), limit=100)
    agreed = [next((i for i, t in enumerate(c) if t != wanted[i]), len(c)) for c in candidates]
    assert committed(tree, outcome) == wanted[: max(agreed) + 1]
    assert outcome.visited == (0, *outcome.accepted)
    assert first_draft_boundary(tree, candidates[0], chosen, outcome) == agreed[0]


@pytest.mark.parametrize("ends", [(), (2,)])
@given(candidates=DRAFTED, wanted=WANTED, limit=st.integers(1, 8))
def test_walk_stops_at_limit_and_end_token(ends, candidates, wanted, limit):
    tree = merge_candidates(9, candidates)
    chosen = [wanted[d] for d in tree.depths]
    whole = committed(tree, walk(tree, chosen, (), limit=100))
    outcome = walk(tree, chosen, ends, limit)
    stop = next((at for at, token in enumerate(whole, 1) if token in ends), len(whole))
    assert committed(tree, outcome) == whole[: min(stop, limit)]
    assert outcome.ended == any(token in ends for token in whole[:limit])


def test_first_draft_boundary_unknown_after_cut_walk():
    tree = merge_candidates(9, [[1, 1, 1, 1]])
    outcome = walk(tree, [1] * len(tree), (), limit=2)
    assert first_draft_boundary(tree, [1, 1, 1, 1], [1] * len(tree), outcome) is None
