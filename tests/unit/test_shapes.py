"""Sizes are rounded up to a few; padded trees mean the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2sd.config import MAX_NODES
from d2sd.nets.passes import ROWS, context_shape, padded_tree, row_shape
from tests.unit.drafts import merge_candidates


@given(st.integers(1, MAX_NODES + 1))
def test_a_tree_of_any_budget_fits_a_fixed_shape(rows):
    shape = row_shape(rows)
    assert shape >= rows
    assert shape in ROWS
    assert all(other < rows for other in ROWS if other < shape)


def test_plain_decoding_is_not_padded():
    assert row_shape(1) == 1


@given(st.integers(1, 1 << 18))
def test_contexts_grow_by_at_most_a_quarter(slots):
    shape = context_shape(slots)
    assert slots <= shape <= max(slots + 255, slots * 1.25)
    assert context_shape(shape) == shape


def test_few_context_shapes_cover_a_long_text():
    assert len({context_shape(n) for n in range(1, 32769)}) <= 32


@pytest.mark.parametrize("rows", [6, 8, 16])
def test_padding_sees_only_itself_and_is_seen_by_none(rows):
    tree = merge_candidates(7, [[1, 2, 3], [1, 4], [5]])
    tokens, depths, mask = padded_tree(tree, rows)
    count = len(tree)
    assert tuple(tokens[:count]) == tree.tokens
    assert tuple(depths[:count]) == tree.depths
    assert np.array_equal(mask[:count, :count], tree.ancestor_mask())
    assert np.array_equal(mask[count:], np.eye(rows, dtype=bool)[count:])
    assert not mask[:count, count:].any()
