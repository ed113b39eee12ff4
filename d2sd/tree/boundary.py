"""Where will the target reject the first draft? Confidences → boundary posterior → selected prefixes.

D²SD, arXiv 2606.04446, section 3: the boundary is at i when the first i drafted tokens are accepted and the next
is not; with the drafter's confidences taken as acceptance probabilities,
r(i) = (c_1 · … · c_i) · (1 − c_{i+1}).
A prefix that holds a drafted end-of-text token is never selected: nothing can follow it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def boundary_posterior(confidence: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """r(i) for i = 0 … γ−2 and the mass of full acceptance, from c_1 … c_{γ−1}; together they sum to 1."""
    posterior, alive = [], 1.0
    for c in confidence:
        if not 0 <= c <= 1:
            raise ValueError(f"a confidence must be between 0 and 1, not {c}")
        posterior.append(alive * (1 - c))
        alive *= c
    return tuple(posterior), alive


def open_prefixes(ids: Sequence[int], end_ids: Collection[int]) -> int:
    """How many of the prefix lengths 0, 1, … of these drafted tokens hold no end-of-text token; at least 1."""
    return next((at for at, token in enumerate(ids) if token in end_ids), len(ids)) + 1


def select_prefixes(posterior: Sequence[float], count: int) -> tuple[int, ...]:
    """The ``count`` prefix lengths with the largest r(i), best first; on ties the shorter prefix first."""
    order = sorted(range(len(posterior)), key=lambda i: (-posterior[i], i))
    return tuple(order[:count])
