from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd.nets.caches import KeyValueCache


@given(st.lists(st.sets(st.integers(0, 7), min_size=1).map(sorted), max_size=5))
def test_commit_keeps_the_chosen_rows_in_order(steps):
    cache = KeyValueCache.uniform(2, 1, 3, capacity=64, dtype=torch.float32, device=torch.device("cpu"))
    expected = torch.zeros(0)
    for number, rows in enumerate(steps):
        fresh = torch.arange(8.0) + 100 * number
        for layer in range(2):
            keys, values = cache.update(fresh.view(1, 1, 8, 1).expand(1, 1, 8, 3), -fresh.view(1, 1, 8, 1), layer)
            assert keys.shape[2] == values.shape[2] == len(expected) + 8
        cache.commit(rows)
        expected = torch.cat([expected, fresh[rows]])
        for layer in range(2):
            keys, values = cache.layer(layer)
            assert torch.equal(keys[0, 0, :, 0], expected)
            assert torch.equal(values[0, 0, :, 1], -expected)


def test_writing_past_the_capacity_is_refused():
    cache = KeyValueCache.uniform(1, 1, 2, capacity=4, dtype=torch.float32, device=torch.device("cpu"))
    with pytest.raises(ValueError, match="5 cache slots"):
        cache.update(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2), 0)


def test_every_card_holds_its_own_layers():
    homes = {layer: torch.device(name) for layer, name in enumerate(("cpu", "meta", "cpu"))}
    cache = KeyValueCache(dict.fromkeys(homes, (1, 2)), capacity=8, dtype=torch.float32, homes=homes)
    for layer, home in homes.items():
        rows = torch.full((1, 1, 3, 2), float(layer), device=home)
        keys, values = cache.update(rows, rows, layer)
        assert keys.device == values.device == home
    cache.commit([0, 2])
    assert cache.layer(0)[0].eq(0).all()
    assert cache.layer(2)[0].eq(2).all()
    assert cache.layer(1)[1].shape == (1, 1, 2, 2)
