"""Fixed shapes for passes that are captured as CUDA graphs: every size is rounded up to one of a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from d2sd.tree.tree import TokenTree

ROWS = (1, 8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 513, 1024, 2048)
MIN_CONTEXT = 256  # least context, and what it grows by at first


def row_shape(rows: int) -> int:
    """Returns the smallest fixed number of rows ≥ the given one; for numbers above any tree's, the number itself."""
    return next((shape for shape in ROWS if shape >= rows), rows)


def context_shape(slots: int) -> int:
    """Returns the smallest fixed number of cache slots ≥ the given one: at most a quarter, or 255 slots, more."""
    step = max(MIN_CONTEXT, 1 << max(0, (slots - 1).bit_length() - 3))
    return max(MIN_CONTEXT, -(-slots // step) * step)


def padded_tree(tree: TokenTree, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens (rows,), depths (rows,) and visibility (rows, rows) of a tree with rows added that see only themselves."""
    count = len(tree)
    tokens, depths = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    tokens[:count], depths[:count] = tree.tokens, tree.depths
    mask = np.eye(rows, dtype=bool)
    mask[:count, :count] = tree.ancestor_mask()
    return tokens, depths, mask
