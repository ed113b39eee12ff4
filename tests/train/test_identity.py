"""The digest that identifies a network depends on its weights only, not on the number of threads."""

from __future__ import annotations

import torch

from d2sd.folders.weights import weights_digest


def test_weights_digest_depends_on_weights_only():
    torch.manual_seed(0)
    net, threads = torch.nn.Linear(500, 700), torch.get_num_threads()
    before = weights_digest(net)
    assert weights_digest(net.bfloat16().float()) != before
    known = weights_digest(net)
    twin = torch.nn.Linear(500, 700)
    twin.load_state_dict(net.state_dict())
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert weights_digest(twin) == known
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        twin.bias[3] += 1e-3
    assert weights_digest(twin) != known
