"""Findings from weights alone: layers that look random, inputs that were hardly trained, a quantised target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from d2sd.doctor.changes import weights_of
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

RANDOM = 1.15  # largest singular value against that of random entries: no matrix of a layer is above it
ITERATIONS = 40
FRESH_SPREAD, FRESH_VALUE = 0.06, 1.03
SAMPLE = 64  # rows of a matrix whose values are held against a grid
GRIDS = {4: (7, 8, 7.5), 8: (127, 128, 127.5)}  # steps from 0 to the largest entry
GROUPS = (32, 64, 128)
CLIPPED = 2e-3  # share of a matrix's entries that are its largest one: of trained ones it is one entry, or two


@dataclass(frozen=True, slots=True)
class Weighed:
    """Findings from a drafter's weights alone.

    random: layers whose matrices all look random.
    fresh: taps whose part of ``fc`` still looks like its random initialization.
    constant: norms whose weights are all the same number.
    empty: matrices of zeros.
    clipped: matrices with many entries as large as the largest.
    copies: pairs of layers with the same matrices.
    odd: matrices that do not stand out from random numbers while the same matrix of every other layer does.
    """

    random: tuple[int, ...] = ()
    fresh: tuple[int, ...] = ()
    constant: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    clipped: tuple[str, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    odd: tuple[str, ...] = ()


def weigh(model: Any) -> Weighed:
    """Returns all findings for a drafter of either kind."""
    weights = {n: w for n, w in weights_of(model).items() if w.is_floating_point()}
    matrices = {n: w for n, w in weights.items() if w.dim() == 2 and min(w.shape) >= 32}
    norms = {n: w for n, w in weights.items() if n.endswith("norm.weight") and w.numel() > 1}
    block = isinstance(model, DFlashDraftModel)
    layers = prominences(model) if block else []
    return Weighed(
        tuple(random_layers(layers)),
        tuple(fresh_taps(model)) if block else (),
        tuple(n for n, w in norms.items() if bool((w == w[0]).all())),
        tuple(n for n, w in matrices.items() if not bool(w.any())),
        tuple(n for n, w in matrices.items() if bool(w.any()) and float((w.abs() == w.abs().max()).float().mean()) > CLIPPED),
        tuple(_copies(matrices, len(model.layers))) if block else (),
        tuple(odd_matrices(layers)),
    )  # fmt: skip


def _copies(matrices: Mapping[str, Tensor], layers: int) -> list[tuple[int, int]]:
    """Returns layers that are equal in every matrix."""

    def of(n: int) -> list[Tensor]:
        return [w for name, w in matrices.items() if name.startswith(f"layers.{n}.")]

    pairs = ((a, b) for b in range(layers) for a in range(b))
    return [(a, b) for a, b in pairs if of(a) and all(torch.equal(x, y) for x, y in zip(of(a), of(b), strict=True))]


def prominence(weight: Tensor) -> float:
    """Returns the largest singular value of an (m, n) matrix, divided by σ·(√m + √n), that of random entries (Marchenko–Pastur).

    It is about 1 for random numbers, also for shuffled trained ones. Training makes some directions larger.
    """
    entries = weight.float()
    generator = torch.Generator(entries.device).manual_seed(0)
    vector = torch.randn(entries.shape[1], generator=generator, dtype=torch.float32, device=entries.device)
    size = torch.tensor(0.0, dtype=torch.float32)
    for _ in range(ITERATIONS):
        vector = entries.T @ (entries @ (vector / vector.norm()))
        size = vector.norm().sqrt()
    rows, columns = entries.shape
    return float(size / (entries.std() * (rows**0.5 + columns**0.5)).clamp_min(1e-12))


def prominences(model: DFlashDraftModel) -> list[dict[str, float]]:
    """Returns the prominence of every matrix of every layer, by its name."""
    return [
        {n: prominence(w) for n, w in layer.named_parameters() if w.dim() == 2 and min(w.shape) >= 32}
        for layer in model.layers
    ]


def random_layers(layers: Sequence[Mapping[str, float]]) -> list[int]:
    """Returns layers none of whose matrices stands out from random numbers of its size.

    layers: see ``prominences``.
    """
    return [number for number, of in enumerate(layers) if of and max(of.values()) < RANDOM]


def odd_matrices(layers: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns matrices that look random where the same one of every other layer surely does not.

    Among trained drafters, some matrices never stand out in any layer; so one says nothing without the others.
    """
    if len(layers) < 2:
        return []
    named = ((n, [of[n] for of in layers]) for n in layers[0])
    return [
        f"layers.{at}.{name}"
        for name, values in named
        for at, value in enumerate(values)
        if value < FRESH_VALUE and min(values[:at] + values[at + 1 :]) >= RANDOM
    ]


def fresh_taps(model: DFlashDraftModel) -> list[int]:
    """Returns the taps whose part of ``fc`` still has the spread and spectrum of its random initialization, if they are at
    least half of all taps."""
    width, begun = model.config.hidden_size, getattr(model.config, "initializer_range", 0.02) or 0.02
    found = []
    for tap, part in zip(model.form.taps, model.fc.weight.float().split(width, 1), strict=True):
        if abs(float(part.std()) / begun - 1) < FRESH_SPREAD and prominence(part) < FRESH_VALUE:
            found.append(tap)
    return found if 2 * len(found) >= len(model.form.taps) else []


def rounded_to(target: Target) -> int | None:
    """Returns the bits of the grid on which most matrices of the target's layers lie, although stored in a wider dtype; None
    if there is no grid."""
    counts: dict[int, int] = {}
    layers: Any = target.base.layers
    matrices = [w for layer in (layers[0], layers[len(layers) // 2]) for w in layer.parameters() if w.dim() == 2]
    for weight in matrices:
        if not weight.is_floating_point() or weight.element_size() < 2:
            return 8
        for bits in GRIDS:
            if any(_on_grid(rows, bits) for rows in _groups(weight)):
                counts[bits] = counts.get(bits, 0) + 1
                break
    return next((bits for bits, count in counts.items() if 2 * count > len(matrices)), None)


def _groups(weight: Tensor) -> list[Tensor]:
    """The entries that may share a scale, as rows: of a row, of a column, of the matrix, or so many in a row."""
    entries = weight.detach().float()
    parts = [entries[:SAMPLE], entries.T[:SAMPLE], entries.flatten()[None]]
    some = entries[:SAMPLE]
    return parts + [some.unflatten(1, (-1, size)).flatten(0, 1) for size in GROUPS if not some.shape[1] % size]


def _on_grid(rows: Tensor, bits: int) -> bool:
    """Whether rows are whole multiples of a step that their largest entry, or the distance of their ends, gives."""
    largest = rows.abs().amax(1, keepdim=True).clamp_min(1e-12)
    return any(_whole(rows * (levels / largest)) for levels in GRIDS[bits]) or _whole_between(rows, bits)


def _whole_between(rows: Tensor, bits: int) -> bool:
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    return _whole((rows - low) / (high - low).clamp_min(1e-12) * (2**bits - 1))


def _whole(steps: Tensor) -> bool:
    """Entries within 32 steps of 0, where a rounding to bfloat16 still leaves whole steps apart."""
    near = steps[(steps.abs() < 32) & (steps.abs() > 0.5)]
    return len(near) > 32 and float((near - near.round()).abs().mean()) < 0.08
