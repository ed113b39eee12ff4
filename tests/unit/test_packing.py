"""Arrays that travel in one vector come out as they went in."""

from __future__ import annotations

import torch

from d2sd.decoding.device_cycle import Packing


def test_arrays_come_out_under_their_names_with_their_shapes():
    shapes = {"ids": (2,), "nothing": (0, 3), "table": (2, 3), "cube": (2, 1, 2)}
    arrays = {name: torch.rand(shape) for name, shape in shapes.items()} | {"ids": torch.tensor([2**40, 7])}
    packing = Packing(shapes)
    vector = packing.pack(dict(reversed(arrays.items())))
    assert vector.dtype == torch.float64
    found = packing.unpack(vector.numpy())
    assert list(found) == list(shapes)
    for name, array in arrays.items():
        assert found[name].shape == shapes[name]
        assert found[name].tolist() == array.double().tolist()
