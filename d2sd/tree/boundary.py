"""Predicts where the target will reject the first draft, and selects the prefixes to re-draft from.

D²SD, arXiv 2606.04446, section 3: the boundary is i if the first i drafted tokens are accepted and the next one is not. With the
drafter's confidences c as acceptance probabilities, its probability is:

    r(i) = (c_1 · … · c_i) · (1 − c_{i+1})

A prefix that contains an end-of-text token is never selected: nothing can follow it. ``decoding.device_tree`` has the same
functions for tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np


class Boundary(NamedTuple):
    """An estimate of where a draft is first rejected.

    posterior: r(i) for i = 0 … γ−2, the probability that exactly the first i drafted tokens are accepted.
    full_acceptance: the probability that all γ−1 drafted tokens are accepted. Together with all r(i), it sums to 1.
    """

    posterior: tuple[float, ...]
    full_acceptance: float


NOTHING_DRAFTED = Boundary((), 0.0)


def boundary_posterior(confidence: Sequence[float]) -> Boundary:
    """Returns the boundary estimate of one draft from its confidences c_1 … c_{γ−1}."""
    posterior, alive = [], 1.0
    for c in confidence:
        if not 0 <= c <= 1:
            raise ValueError(f"a confidence must be between 0 and 1, not {c}")
        posterior.append(alive * (1 - c))
        alive *= c
    return Boundary(tuple(posterior), alive)


def boundary_posteriors(confidence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the boundary estimates of N drafts: r(i), (N, G), and the probabilities that all tokens are accepted, (N,).

    After the end of a draft, its r(i) are −1.

    confidence: (N, G), where G is the length of the longest draft; NaN after the end of a draft.
    """
    drafted = ~np.isnan(confidence)
    alive = np.cumprod(np.where(drafted, confidence, 1.0), axis=1)
    before = np.concatenate([np.ones((len(confidence), 1)), alive[:, :-1]], axis=1)[:, : confidence.shape[1]]
    posterior = np.where(drafted, before * (1 - np.nan_to_num(confidence)), -1.0)
    return posterior, alive[:, -1] if confidence.shape[1] else np.ones(len(confidence))


def open_prefixes(ids: Sequence[int], end_ids: Collection[int]) -> int:
    """Returns the number of prefixes of the drafted tokens ``ids`` that contain no end-of-text token, including the empty prefix."""
    return next((index for index, token in enumerate(ids) if token in end_ids), len(ids)) + 1


def select_prefixes(posterior: Sequence[float], count: int) -> tuple[int, ...]:
    """Returns the ``count`` prefix lengths i with the largest r(i), likeliest first. Of equally likely ones, the shorter comes
    first.
    """
    order = sorted(range(len(posterior)), key=lambda i: (-posterior[i], i))
    return tuple(order[:count])
