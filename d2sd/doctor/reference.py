"""Comparison of a drafter with a known good one over the same texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from d2sd.calibration.resampling import Estimate
from d2sd.doctor.changes import weights_of
from d2sd.doctor.probes import change_of_alpha
from d2sd.doctor.redraft import Drafter, TextWalk

EQUAL = 1e-3  # relative difference up to which two tensors count as equal, because of rounding


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that differs from the reference's.

    share: norm of the difference ÷ norm of the reference's tensor; None if only one drafter has the tensor, or the shapes differ.
    """

    name: str
    share: float | None


@dataclass(frozen=True, slots=True)
class Reference:
    """The comparison with a reference: another drafter over the same texts.

    name: folder or hub id.
    walks: the reference's steps over each text.
    change: α of the reference − α of the examined drafter, with an interval over prompts.
    keys: config keys that differ: (key, value of the examined drafter, value of the reference).
    tensors: tensors that differ, largest difference first.
    equal: number of equal tensors.
    """

    name: str
    walks: tuple[TextWalk, ...]
    change: Estimate
    keys: tuple[tuple[str, str, str], ...]
    tensors: tuple[TensorDifference, ...]
    equal: int


def compared(
    name: str, model: Drafter, reference: Drafter, walks: Sequence[TextWalk], others: Sequence[TextWalk],
    configs: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> Reference:  # fmt: skip
    """Returns the comparison with a reference.

    walks, others: steps of the examined drafter and of the reference over the same texts.
    configs: published configs of both.
    """
    own, theirs = weights_of(model), weights_of(reference)
    found, equal = [], 0
    for tensor in sorted(own.keys() | theirs.keys()):
        share = None
        if tensor in own and tensor in theirs and own[tensor].shape == theirs[tensor].shape:
            here, there = own[tensor].float(), theirs[tensor].float()
            share = float(torch.linalg.vector_norm(here - there) / torch.linalg.vector_norm(there).clamp_min(1e-12))
        if share is not None and share <= EQUAL:
            equal += 1
        else:
            found.append(TensorDifference(tensor, share))
    found.sort(key=lambda d: (d.share is not None, -(d.share or 0.0)))
    one, other = (dict(_flat(config)) for config in configs)
    keys = [
        (k, str(one.get(k)), str(other.get(k))) for k in sorted(one.keys() | other.keys()) if one.get(k) != other.get(k)
    ]
    return Reference(name, tuple(others), change_of_alpha(others, walks, 1), tuple(keys), tuple(found), equal)


def _flat(config: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{at}{key}.")
        else:
            yield at + key, value
