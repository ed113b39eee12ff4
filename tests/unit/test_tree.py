"""Token trees, boundaries and walks: on the host, and node by node the same as tensor operations on a device."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2sd.calibration.boundaries import ranks
from d2sd.decoding import device_tree
from d2sd.tree.boundary import boundary_posterior, boundary_posteriors, open_prefixes, select_prefixes
from d2sd.tree.walk import first_draft_boundary, walk
from tests.unit.drafts import merge_candidates

TOKENS = st.integers(0, 2)  # few tokens: many shared prefixes
CANDIDATES = st.lists(st.lists(TOKENS, max_size=6), max_size=6)
DRAFTED = st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=6)
WANTED = st.lists(TOKENS, min_size=8, max_size=8)  # the target's tokens by depth
CONFIDENCE = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1), min_size=1, max_size=15)  # ties


@given(CANDIDATES)
def test_token_tree_has_one_node_per_prefix_and_masks_its_path(candidates):
    tree = merge_candidates(9, candidates)
    assert (tree.tokens[0], tree.parents[0]) == (9, -1)
    paths, mask = [tuple(tree.tokens[m] for m in tree.path(n)) for n in range(len(tree))], tree.ancestor_mask()
    assert len(set(paths)) == len(tree)
    assert set(paths) == {tuple(c[:n]) for c in candidates for n in range(len(c) + 1)} | {()}
    for node, path in enumerate(paths):
        assert list(tree.candidates[node]) == [i for i, c in enumerate(candidates) if tuple(c[: len(path)]) == path]
        assert set(mask[node].nonzero()[0].tolist()) == {0, *tree.path(node)}
        assert tree.parents[node] < node
        assert tree.depths[node] == len(path)


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
    length = next((count for count, token in enumerate(whole, 1) if token in ends), len(whole))
    assert committed(tree, outcome) == whole[: min(length, limit)]
    assert outcome.ended == any(token in ends for token in whole[:limit])


def test_first_draft_boundary_unknown_after_cut_walk():
    tree = merge_candidates(9, [[1, 1, 1, 1]])
    outcome = walk(tree, [1] * len(tree), (), limit=2)
    assert first_draft_boundary(tree, [1, 1, 1, 1], [1] * len(tree), outcome) is None


def test_boundary_posterior_matches_worked_example():
    posterior, full = boundary_posterior([0.95, 0.84, 0.62, 0.70, 0.42])
    assert [round(r, 3) for r in posterior] == [0.050, 0.152, 0.303, 0.148, 0.201]
    assert select_prefixes(posterior, 4) == (2, 4, 1, 3)
    assert math.isclose(full, 0.95 * 0.84 * 0.62 * 0.70 * 0.42)
    with pytest.raises(ValueError, match="between 0 and 1"):
        boundary_posterior([0.5, 1.2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_boundary_posterior_matches_enumeration(confidence):
    expected = [0.0] * (len(confidence) + 1)
    for outcome in itertools.product([True, False], repeat=len(confidence)):
        weight = math.prod(c if ok else 1 - c for c, ok in zip(confidence, outcome, strict=True))
        expected[(*outcome, False).index(False)] += weight
    posterior, full = boundary_posterior(confidence)
    assert [*posterior, full] == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)  # the first example starts torch
@given(CONFIDENCE, st.integers(0, 3), st.data())
def test_boundaries_agree_with_batch_and_device(confidence, absent, data):
    count = data.draw(st.integers(1, len(confidence)))
    boundary = boundary_posterior(confidence)
    selected = select_prefixes(boundary.posterior, count)
    assert selected == tuple(sorted(range(len(confidence)), key=lambda i: (-boundary.posterior[i], i))[:count])

    on_device = torch.tensor(confidence, dtype=torch.float64)
    assert device_tree.posterior(on_device).tolist() == pytest.approx(boundary.posterior, abs=1e-12)
    ids = data.draw(st.lists(TOKENS, min_size=len(confidence), max_size=len(confidence)))
    ends = data.draw(st.sets(TOKENS, max_size=2))
    usable = device_tree.open_prefixes(torch.tensor(ids), ends)
    assert usable.tolist() == [open_prefixes(ids, ends)]
    chosen = device_tree.first_open(device_tree.likeliest_prefixes(on_device), usable, count).tolist()
    expected = select_prefixes(boundary.posterior[: open_prefixes(ids, ends)], count)
    assert chosen == [*expected, *[-1] * (count - len(expected))]

    rows = np.array([[*confidence, *[np.nan] * absent]])
    posteriors, full = boundary_posteriors(rows)
    assert posteriors.tolist() == [[*boundary.posterior, *[-1.0] * absent]]
    assert full.tolist() == [boundary.full_acceptance]
    place = [int(ranks(rows, np.array([i]))[0]) for i in range(len(confidence))]
    assert tuple(sorted((i for i in range(len(confidence)) if place[i] < count), key=place.__getitem__)) == selected


@st.composite
def chains_to_merge(draw):
    """Chains of tokens; the first may be shorter than the others."""
    longest = draw(st.integers(1, 6))
    first = draw(st.lists(TOKENS, min_size=1, max_size=longest))
    return [first, *draw(st.lists(st.lists(TOKENS, min_size=longest, max_size=longest), max_size=4))]


@given(chains_to_merge(), st.integers(0, 9), st.data())
def test_device_merge_and_accepted_rows_match_host(chains, extra, data):
    longest = max(map(len, chains))
    table = torch.tensor([[*c, *[-1] * (longest - len(c))] for c in chains])
    tree, rows = merge_candidates(7, chains), 1 + table.numel() + extra
    on_device = device_tree.merge(torch.tensor([7]), table, rows)
    count = len(tree)
    assert on_device.tokens[:count].tolist() == list(tree.tokens)
    assert on_device.depths[:count].tolist() == list(tree.depths)
    assert on_device.parents[:count].tolist() == [0, *tree.parents[1:]]
    assert torch.equal(on_device.mask[:count, :count], torch.from_numpy(tree.ancestor_mask()))
    # rows of padding see only themselves
    assert torch.equal(on_device.mask[count:], torch.eye(rows, dtype=torch.bool)[count:])
    assert not on_device.mask[:count, count:].any()
    assert not on_device.depths[count:].any()

    chosen = data.draw(st.lists(TOKENS, min_size=rows, max_size=rows))
    expected = [0, *walk(tree, chosen, (), 100).accepted]
    accepted = device_tree.accepted_rows(on_device, torch.tensor(chosen), longest + 1)
    assert accepted.tolist() == expected + [0] * (longest + 1 - len(expected))


def test_block_rows_hold_anchor_prefix_and_masks():
    rows = device_tree.block_rows(torch.tensor([7]), torch.tensor([1, 2, 3]), torch.tensor([2, 0, 3]), 99)
    assert rows.tolist() == [[7, 1, 2, 99], [7, 99, 99, 99], [7, 1, 2, 3]]
