"""Prefix selection, merging of drafts and the walk as tensor operations of fixed shapes, without loops or copies to the host.

They give the same nodes as ``d2sd.tree.boundary.select_prefixes``, ``d2sd.tree.tree.merge_drafts`` and ``d2sd.tree.walk.walk`` on
the host, and can be captured as CUDA graphs (``d2sd.decoding.device_cycle``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor


class DeviceTree(NamedTuple):
    """A token tree, padded to N rows. Node 0 is the anchor. Padding rows have depth 0, and see only themselves.

    tokens, parents, depths: (N,) int64; the anchor's parent is 0.
    mask: (N, N) bool; mask[n, m] is True if m is n or an ancestor of n.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    mask: Tensor


def posterior(confidence: Tensor) -> Tensor:
    """Returns r(i) = (c_1 · … · c_i) · (1 − c_{i+1}) for the confidences c (γ−1,), see ``d2sd.tree.boundary``; (γ−1,) float64."""
    c = confidence.double()
    alive = torch.cat([torch.ones_like(c[:1]), c[:-1]]).cumprod(0)
    return alive * (1 - c)


def likeliest_prefixes(confidence: Tensor) -> Tensor:
    """Returns the prefix lengths in descending order of r(i), (γ−1,) int64. Of equally likely ones, the shorter comes first."""
    return posterior(confidence).argsort(descending=True, stable=True)


def open_prefixes(chain: Tensor, end_ids: Collection[int]) -> Tensor:
    """Returns the number of prefixes of a chain (M,) that contain no end-of-text token, including the empty prefix; (1,) int64."""
    ended = torch.zeros_like(chain)
    for end in sorted(end_ids):  # Python numbers, because a captured graph could outlive a tensor of them
        ended = ended + (chain == end)
    return 1 + (ended.cumsum(0) == 0).sum(0, keepdim=True)


def first_open(order: Tensor, usable: Tensor, count: int) -> Tensor:
    """Returns the first ``count`` prefix lengths that can be re-drafted from, (count,) int64, padded with −1.

    order: prefix lengths in order of preference.
    usable: (1,) number of prefixes without an end token; longer prefix lengths are left out.
    """
    closed = (order >= usable).int()
    open_first = closed.argsort(stable=True)
    return torch.where(closed.gather(0, open_first).bool(), -1, order.gather(0, open_first))[:count]


def block_rows(anchor: Tensor, chain: Tensor, prefixes: Tensor, mask_token: int) -> Tensor:
    """Returns the input tokens of B drafts, (B, 1 + M) int64: the anchor, a prefix of the chain, then mask tokens.

    anchor: (1,) token.
    chain: (M,) drafted tokens.
    prefixes: (B,) prefix lengths.
    """
    in_prefix = torch.arange(len(chain), device=chain.device) < prefixes[:, None]
    rows = torch.where(in_prefix, chain, mask_token)
    return torch.cat([anchor.expand(len(prefixes), 1), rows], 1)


def merge(anchor: Tensor, chains: Tensor, rows: int) -> DeviceTree:
    """Returns the tree of all candidates. Candidates with equal prefixes share the nodes of these prefixes.

    Nodes are numbered by candidate, then by depth.

    anchor: (1,) token.
    chains: (C, M) tokens of the candidates below the anchor, padded with −1.
    rows: N, the number of rows of the tree; larger than the number of distinct prefixes in ``chains``.
    """
    count, length = chains.shape
    device = chains.device
    used = chains >= 0
    equal = (chains[:, None] == chains[None]) & used[:, None]
    same = equal.int().cumprod(-1).bool()  # [c, other, d]: equal up to and at depth d + 1
    candidates = torch.arange(count, device=device)
    owner = torch.where(same, candidates[:, None], count).amin(1)  # the first candidate with this prefix
    fresh = used & (owner == candidates[:, None])
    number = fresh.flatten().cumsum(0).view(count, length)
    node = number.gather(0, owner.clamp_max(count - 1))
    path = torch.cat([torch.zeros_like(node[:, :1]), node], 1)  # (C, 1 + M): the anchor and the nodes below it

    dump = rows  # an extra row, for duplicates and padding
    place = torch.where(fresh, node, dump).flatten()

    def scattered(values: Tensor) -> Tensor:
        out = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        return out.scatter(0, place, values.flatten())[:rows]

    tokens = torch.cat([anchor, scattered(chains)[1:]])
    depths = scattered(torch.arange(1, length + 1, device=device).expand(count, length))
    parents = scattered(path[:, :-1])
    descendant = torch.where(fresh, node, dump)[:, :, None]  # (C, M, 1)
    ancestors = path[:, None, :].expand(count, length, length + 1)
    above = torch.ones(length, length + 1, dtype=torch.bool, device=device).tril()  # depth d + 1 has d + 1 ancestors
    cells = torch.where(above, descendant * (rows + 1) + ancestors, (rows + 1) ** 2 - 1)
    flat = torch.eye(rows + 1, dtype=torch.bool, device=device).flatten()
    mask = flat.scatter(0, cells.flatten(), True).view(rows + 1, rows + 1)[:rows, :rows].contiguous()
    return DeviceTree(tokens, parents, depths, mask)


def accepted_rows(tree: DeviceTree, chosen: Tensor, depths: int) -> Tensor:
    """Returns the node numbers of the anchor and the accepted path, (depths,) int64, padded with 0.

    chosen: (N,) the target's token after every node.
    depths: 1 + the largest depth of the tree.
    """
    matches = tree.tokens == chosen[tree.parents]
    matches[:1].fill_(True)  # an assignment would copy from the host's memory
    reached = (matches | ~tree.mask).all(1) & tree.mask[:, 0]  # padding rows do not see the anchor
    deepest = torch.where(reached, tree.depths, -1).argmax(0, keepdim=True)
    path = tree.mask.index_select(0, deepest)[0]
    place = torch.where(path, tree.depths, depths)
    rows = torch.arange(len(path), device=path.device)
    return torch.zeros(depths + 1, dtype=torch.int64, device=path.device).scatter(0, place, rows)[:depths]
