from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.drafts import merge_candidates

TOKENS = st.integers(0, 2)
CANDIDATES = st.lists(st.lists(TOKENS, max_size=6), max_size=6)


@given(CANDIDATES)
def test_every_distinct_prefix_is_one_node(candidates):
    tree = merge_candidates(9, candidates)
    prefixes = {tuple(c[:n]) for c in candidates for n in range(len(c) + 1)} | {()}
    paths = {tuple(tree.tokens[m] for m in tree.path(n)) for n in range(len(tree))}
    assert paths == prefixes
    assert len(tree) == len(prefixes)


@given(CANDIDATES)
def test_parents_come_first_and_depths_count_from_the_anchor(candidates):
    tree = merge_candidates(9, candidates)
    assert tree.tokens[0] == 9
    assert tree.parents[0] == -1
    for node in range(1, len(tree)):
        assert tree.parents[node] < node
        assert tree.depths[node] == tree.depths[tree.parents[node]] + 1 == len(tree.path(node))


@given(CANDIDATES)
def test_mask_shows_exactly_the_path(candidates):
    tree = merge_candidates(9, candidates)
    mask = tree.ancestor_mask()
    for node in range(len(tree)):
        assert set(mask[node].nonzero()[0].tolist()) == {0, *tree.path(node)}


@given(CANDIDATES)
def test_nodes_know_the_candidates_that_run_through_them(candidates):
    tree = merge_candidates(9, candidates)
    for node in range(len(tree)):
        prefix = [tree.tokens[n] for n in tree.path(node)]
        assert list(tree.candidates[node]) == [i for i, c in enumerate(candidates) if c[: len(prefix)] == prefix]
