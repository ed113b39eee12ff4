"""Gated delta nets over trees against the recurrence along every path."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2sd.nets.caches import DeltaRows, LinearState
from d2sd.nets.linear_attention import tree_delta
from d2sd.nets.tree_attention import PassRows

CPU = torch.device("cpu")
PARENTS = st.integers(1, 14).flatmap(lambda n: st.tuples(*(st.integers(0, max(0, i - 1)) for i in range(n))))


def tree_rows(parents):
    """Rows of a tree, the root first, at positions from 20 on."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for row, parent in enumerate(parents[1:], 1):
        mask[row] |= mask[parent]
    return PassRows(20 + mask.sum(-1) - 1, mask)


def recurrence(state, key, value, g, beta):
    """The state after one more row, by the definition."""
    state = state * g.exp()[..., None, None]
    update = beta[..., None] * (value - (state * key[..., None]).sum(-2))
    return state + key[..., None] * update[..., None, :]


@settings(max_examples=25, deadline=None)
@given(PARENTS, st.integers(0, 10**6))
def test_tree_delta_and_commit_match_recurrence(parents, seed):
    generator, count = torch.Generator().manual_seed(seed), len(parents)
    query, key = (torch.randn(2, 3, count, 4, generator=generator) / 2 for _ in range(2))
    value, first = torch.randn(2, 3, count, 5, generator=generator), torch.randn(2, 3, 4, 5, generator=generator)
    g, beta = -torch.rand(2, 3, count, generator=generator) * 3, torch.rand(2, 3, count, generator=generator)
    rows = tree_rows(parents)
    out, update, total = tree_delta(query, key, value, g, beta, first, rows.mask)
    states = []
    for row, parent in enumerate(parents):
        before = states[parent] if row else first
        states.append(recurrence(before, key[:, :, row], value[:, :, row], g[:, :, row], beta[:, :, row]))
        wanted = (states[row] * query[:, :, row, :, None]).sum(-2)
        assert torch.allclose(out[:, :, row], wanted, atol=1e-4, rtol=1e-4)
    for row, wanted in enumerate(states):
        state = LinearState(torch.zeros(2, 1, 3), first)
        inputs, places = torch.arange(3.0 + count).expand(2, 1, -1), rows.convolved(4, CPU)
        state.rows = DeltaRows(inputs, places, key, update, total, rows.mask)
        state.commit(row)
        assert torch.allclose(state.matrix, wanted, atol=1e-4, rtol=1e-4)
        path = [row]
        while path[0]:
            path.insert(0, parents[path[0]])
        assert state.inputs[0, 0].tolist() == [0.0, 1.0, 2.0, *(3.0 + node for node in path)][-3:]


def test_tree_delta_stable_under_strong_decay():
    rows = PassRows.chain(40, CPU)
    key = torch.nn.functional.normalize(torch.randn(1, 1, 40, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    g, beta, value = torch.full((1, 1, 40), -60.0), torch.ones(1, 1, 40), torch.ones(1, 1, 40, 5)
    out, _, _ = tree_delta(key, key, value, g, beta, torch.ones(1, 1, 4, 5), rows.mask)
    torch.testing.assert_close(out, torch.ones(1, 1, 40, 5))  # with unit keys, each row reads its own value back
