"""Trees, boundaries and walks as tensor operations equal the host's, node by node."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd.decoding.device_tree import accepted_rows, block_rows, first_open, likeliest_prefixes, merge
from d2sd.decoding.device_tree import open_prefixes as open_on_device
from d2sd.tree.boundary import boundary_posterior, open_prefixes, select_prefixes
from d2sd.tree.walk import walk
from tests.unit.drafts import merge_candidates

ANCHOR = 7
tokens = st.integers(0, 2)  # few tokens: many shared prefixes


@st.composite
def candidates(draw):
    """Chains to merge; the first may be shorter than the others."""
    longest = draw(st.integers(1, 6))
    first = draw(st.lists(tokens, min_size=1, max_size=longest))
    others = draw(st.lists(st.lists(tokens, min_size=longest, max_size=longest), max_size=4))
    return [first, *others] if others else [first]


def padded(chains):
    longest = max(map(len, chains))
    return torch.tensor([[*c, *[-1] * (longest - len(c))] for c in chains])


@given(candidates(), st.integers(0, 9))
def test_device_merge_matches_host_tree_and_isolates_padding(chains, extra):
    table = padded(chains)
    tree, rows = merge_candidates(ANCHOR, chains), 1 + table.numel() + extra
    on_device = merge(torch.tensor([ANCHOR]), table, rows)
    count = len(tree)
    assert on_device.tokens[:count].tolist() == list(tree.tokens)
    assert on_device.depths[:count].tolist() == list(tree.depths)
    assert on_device.parents[:count].tolist() == [0, *tree.parents[1:]]
    assert torch.equal(on_device.mask[:count, :count], torch.from_numpy(tree.ancestor_mask()))
    assert torch.equal(on_device.mask[count:], torch.eye(rows, dtype=torch.bool)[count:])
    assert not on_device.mask[:count, count:].any()
    assert not on_device.depths[count:].any()


@given(candidates(), st.data())
def test_accepted_rows_match_host_walk(chains, data):
    table = padded(chains)
    tree, rows = merge_candidates(ANCHOR, chains), 1 + table.numel() + 3
    chosen = data.draw(st.lists(tokens, min_size=rows, max_size=rows))
    accepted = walk(tree, chosen, (), 100).accepted
    depths = table.shape[1] + 1
    found = accepted_rows(merge(torch.tensor([ANCHOR]), table, rows), torch.tensor(chosen), depths)
    expected = [0, *accepted]
    assert found.tolist() == expected + [0] * (depths - len(expected))


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1), min_size=1, max_size=15), st.data())
def test_likeliest_prefixes_match_host_selection(confidence, data):
    count = data.draw(st.integers(1, len(confidence)))
    posterior, _ = boundary_posterior(confidence)
    ids = data.draw(st.lists(tokens, min_size=len(confidence), max_size=len(confidence)))
    ends = data.draw(st.sets(tokens, max_size=2))
    usable = open_on_device(torch.tensor(ids), ends)
    assert usable.tolist() == [open_prefixes(ids, ends)]
    chosen = first_open(likeliest_prefixes(torch.tensor(confidence, dtype=torch.float64)), usable, count).tolist()
    expected = select_prefixes(posterior[: open_prefixes(ids, ends)], count)
    assert chosen == [*expected, *[-1] * (count - len(expected))]


def test_block_rows_hold_anchor_prefix_and_masks():
    rows = block_rows(torch.tensor([7]), torch.tensor([1, 2, 3]), torch.tensor([2, 0, 3]), 99)
    assert rows.tolist() == [[7, 1, 2, 99], [7, 99, 99, 99], [7, 1, 2, 3]]
