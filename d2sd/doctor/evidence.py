"""Evidence that needs no change of the drafter: damaged weights, and texts that point to a fault of the target or the prompts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log
from statistics import median
from typing import Any

import torch
from torch import Tensor

from d2sd.decoding.replay import Text
from d2sd.doctor.changes import weights_of
from d2sd.doctor.redraft import Drafter
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

MIN_SIDE = 32  # matrices with a shorter side below this are not examined
SAMPLE = 64  # rows from which a matrix's typical entry and quantisation grid are estimated
VARIES = 0.05  # standard deviation above which a norm's weights were certainly trained
MANY_EMPTY = 0.1  # share of zero rows or columns that padding to a round size cannot explain
HUGE = 1e4  # largest entry ÷ median entry in a damaged matrix; a few hundred in trained ones
FP8_LARGEST = (448.0, 240.0, 57344.0)  # largest values of float8: e4m3fn, e4m3fnuz, e5m2
CLIPPED = 2e-3  # share of entries with the largest magnitude; a trained matrix has one or two such entries
LIKE_RANDOM, TRAINED = 1.03, 1.15  # prominence: upper bound for random matrices, lower bound for trained ones
ITERATIONS = 40  # of the power method
FEW_BITS = 3  # rounding weights to this many bits or fewer damages them
FETCH = "fetch or convert the weights again"
SCALES = "multiply the weights by their scales, which the quantised checkpoint stores beside them"

Matrices = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class WeightFault:
    """Damage in a drafter's weights.

    sentence: the damage and how it was detected.
    certain: whether this pattern is always a fault. If not, the pattern counts only for a drafter that does not work, since
        training may cause it too.
    cause, fix: see ``Diagnosis``.
    """

    sentence: str
    certain: bool = True
    cause: str = "weights"
    fix: str = FETCH


def weight_faults(model: Drafter, target: Target) -> Iterator[WeightFault]:
    """Yields the damage in a drafter's weights, strongest evidence first."""
    weights = {n: w for n, w in weights_of(model).items() if w.is_floating_point()}
    matrices = {n: w for n, w in weights.items() if w.dim() == 2 and min(w.shape) >= MIN_SIDE}
    layers = {n: w for n, w in matrices.items() if n.startswith("layer")}
    if (bits := grid_bits(list(layers.values()))) and bits <= FEW_BITS:
        sentence = f"Most likely its weights were rounded too coarsely: most matrices of its layers are quantised to {bits} bits."
        yield WeightFault(sentence, fix="use the weights before they were rounded")
    yield from _wrong_entries(matrices, layers)
    yield from _borrowed_head(model, target)
    yield from _lost_norms({n: w for n, w in weights.items() if n.endswith("norm.weight") and w.numel() > 1})
    if isinstance(model, DFlashDraftModel):
        own = [{n: w for n, w in layers.items() if n.startswith(f"layers.{at}.")} for at in range(len(model.layers))]
        yield from _untrained([{n.split(".", 2)[2]: w for n, w in layer.items()} for layer in own])


def _wrong_entries(matrices: Matrices, layers: Matrices) -> Iterator[WeightFault]:
    damaged = "Most likely its weights were damaged:"
    for name, w in matrices.items():
        if not bool(w.any()):
            yield WeightFault(f"{damaged} {name} holds only zeros.")
    scaled = [n for n, w in layers.items() if float(w.abs().max()) in FP8_LARGEST]
    if 2 * len(scaled) > len(layers):
        sentence = f"Most likely its weights are 8-bit floats whose scales were dropped: the largest entry of {scaled[0]} and of {len(scaled) - 1} other matrices is the largest value of an 8-bit format."
        yield WeightFault(sentence, fix=SCALES)
    inner = {**layers, **{n: w for n, w in matrices.items() if n == "fc.weight"}}
    for name, w in inner.items():
        if is_huge(w):
            yield WeightFault(f"{damaged} {name} has an entry of {float(w.abs().max()):.3g}, far larger than all others, as after a flipped bit.")  # fmt: skip
    empty = [(*part, name) for name, w in inner.items() if (part := empty_part(w))]
    if empty:
        share, words, name = max(empty, key=lambda part: part[0])
        also = f", and so do rows or columns of {len(empty) - 1} other matrices" if len(empty) > 1 else ""
        yield WeightFault(f"{damaged} {share:.0%} {words} of {name} hold only zeros{also}.", share >= MANY_EMPTY)
    for name, w in matrices.items():
        if bool(w.any()) and float((w.abs() == w.abs().max()).float().mean()) > CLIPPED:
            yield WeightFault(f"{damaged} {name} was clipped: many of its entries have the same, largest magnitude.")


def empty_part(weight: Tensor) -> tuple[float, str] | None:
    """Returns the share of zero rows or of zero columns, whichever is larger, and its description; None if this share is 0 or 1."""
    filled = weight != 0
    shares = {"of the rows": ~filled.any(1), "of the columns": ~filled.any(0)}
    share, words = max((float(empty.float().mean()), words) for words, empty in shares.items())
    return None if share in (0.0, 1.0) else (share, words)


def is_huge(weight: Tensor) -> bool:
    """Returns whether an entry is so much larger than the median entry that a bit of its exponent must have flipped."""
    some = weight[:SAMPLE].float().abs()
    usual = float(some[some > 0].median()) if bool(some.any()) else 0.0
    return usual > 0 and float(weight.abs().max()) > HUGE * usual


def _borrowed_head(model: Drafter, target: Target) -> Iterator[WeightFault]:
    """Finds an LM head equal to the target's embedding. A block drafter may use the target's head; EAGLE-3 trains its own head."""
    if model.lm_head is None or target.embedding.weight.is_meta:
        return
    own, ids = model.lm_head.weight, model.token_ids

    def same(table: Tensor) -> bool:
        rows = table if ids is None else table[ids.to(table.device)]
        return rows.shape == own.shape and torch.allclose(rows.to(own), own, rtol=1e-2, atol=1e-6)

    embedding, head = same(target.embedding.weight), same(target.head.weight)
    if embedding and not head:
        yield WeightFault("Most likely its lm_head was replaced: it equals the target's embedding, although the target has another head.", True, "tables")  # fmt: skip
    elif embedding and not isinstance(model, DFlashDraftModel):
        yield WeightFault("Most likely its lm_head was lost or never trained: it equals the target's head, which is also its embedding.", False, "tables")  # fmt: skip


def _lost_norms(norms: Mapping[str, Tensor]) -> Iterator[WeightFault]:
    """Finds norms whose weights are all equal although a comparable norm was trained.

    These norms are comparable: ``q_norm`` and ``k_norm`` of a layer, a norm in several layers, and ``hidden_norm`` with any norm.
    """
    varying = {n for n, w in norms.items() if float(w.float().std()) > VARIES}
    for name, w in norms.items():
        others = {name.replace("q_norm", "k_norm"), name.replace("k_norm", "q_norm")}
        others |= {n for n in norms if re.sub(r"\d+", "", n) == re.sub(r"\d+", "", name) or n.endswith("hidden_norm.weight")}  # fmt: skip
        if bool((w == w[0]).all()) and varying & others - {name}:
            sentence = (
                f"Most likely the weights of {name} were lost: all are equal, although comparable norms were trained."
            )
            yield WeightFault(sentence, cause="norms")


def _untrained(layers: Sequence[Matrices]) -> Iterator[WeightFault]:
    """Finds layers that are copies, layers that look random, and single matrices that look random.

    In trained drafters, some matrices look random in every layer. A matrix is therefore compared with the same matrix of the
    other layers.
    """
    for one, other in combinations(range(len(layers)), 2):
        if layers[one] and all(torch.equal(w, layers[other][n]) for n, w in layers[one].items()):
            yield WeightFault(f"Most likely its weights were damaged: layer {other} is a copy of layer {one}.")
    found = [{n: prominence(w) for n, w in layer.items()} for layer in layers]
    why = "damaged or were never trained:"
    for at, values in enumerate(found):
        if values and max(values.values()) < TRAINED:
            yield WeightFault(f"Most likely the weights of layer {at} are {why} all of its matrices look like random numbers.", False)  # fmt: skip
        for n, value in values.items():
            others = [other[n] for other in found if other is not values]
            if value < LIKE_RANDOM and others and min(others) >= TRAINED:
                yield WeightFault(f"Most likely some weights are {why} layers.{at}.{n} looks like random numbers, unlike the same matrix of every other layer.", False)  # fmt: skip


def prominence(weight: Tensor) -> float:
    """Returns a matrix's largest singular value ÷ the largest singular value of a random matrix.

    A random (m, n) matrix whose entries have standard deviation σ has a largest singular value of about σ·(√m + √n)
    (Marchenko–Pastur). The result is about 1 for a random matrix or for shuffled entries of a trained one. Training raises it.
    """
    entries = weight.float()
    generator = torch.Generator(entries.device).manual_seed(0)
    vector = torch.randn(entries.shape[1], generator=generator, dtype=torch.float32, device=entries.device)
    for _ in range(ITERATIONS):
        vector = entries.T @ (entries @ (vector / vector.norm()))
    rows, columns = entries.shape
    return float(vector.norm().sqrt() / (entries.std() * (rows**0.5 + columns**0.5)).clamp_min(1e-12))


GRIDS = {bits: (2 ** (bits - 1) - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 0.5) for bits in (2, 3, 4, 8)}  # by bits: possible numbers of grid steps from 0 to the largest entry  # fmt: skip
GROUPS = (32, 64, 128)  # numbers of consecutive entries that may share a scale


def quantised_bits(target: Target) -> int | None:
    layers: Any = target.base.layers
    return grid_bits([w for at in (0, len(layers) // 2) for w in layers[at].parameters() if w.dim() == 2])


def grid_bits(matrices: Sequence[Tensor]) -> int | None:
    """Returns b if the values of most of these matrices lie on a b-bit grid, whatever their dtype; else None."""
    if not matrices or any(not w.is_floating_point() or w.element_size() < 2 for w in matrices):
        return 8 if matrices else None
    grids = (next((bits for bits in GRIDS if any(_on_grid(r, bits) for r in _groups(w))), None) for w in matrices)
    bits, count = Counter(grids).most_common(1)[0]
    return bits if 2 * count > len(matrices) else None


def _groups(weight: Tensor) -> list[Tensor]:
    """Returns the matrix in several arrangements. In each of them, the entries of a row may share a scale."""
    entries = weight.detach().float()
    some = entries[:SAMPLE]
    whole = torch.cat([some.flatten(), entries.amin()[None], entries.amax()[None]])
    parts = [some, entries.T[:SAMPLE], whole[None]]
    return parts + [some.unflatten(1, (-1, size)).flatten(0, 1) for size in GROUPS if not some.shape[1] % size]


def _on_grid(rows: Tensor, bits: int) -> bool:
    """Returns whether the entries of every row lie on a grid. Its step follows from the row's largest magnitude or range."""
    largest = rows.abs().amax(1, keepdim=True).clamp_min(1e-12)
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    between = (rows - low) / (high - low).clamp_min(1e-12) * (2**bits - 1)
    return any(_whole(rows * (levels / largest)) for levels in GRIDS[bits]) or _whole(between)


def _whole(steps: Tensor) -> bool:
    """Returns whether ``steps`` are nearly integers. Magnitudes above 32 do not count: bfloat16 is too coarse for them."""
    near = steps[(steps.abs() < 32) & (steps.abs() > 0.5)]
    return len(near) > 32 and float((near - near.round()).abs().mean()) < 0.08


def moved_by_training(model: DFlashDraftModel) -> tuple[float, float]:
    """Returns how far training moved the weights from their initial values.

    The first figure is the standard deviation of ``fc`` ÷ its initial value, as a median over taps. The second is the median
    distance of the weights of ``hidden_norm`` from 1.
    """
    width, spread = model.config.hidden_size, getattr(model.config, "initializer_range", 0.02) or 0.02
    parts = [float(part.std()) / spread for part in model.fc.weight.float().split(width, 1)]
    return median(parts), float((model.hidden_norm.weight.float() - 1).abs().median())


# Evidence from the texts.


UNRELATED = 0.9  # surprise from which the prompts look random to the target
MANY_REPEATED = 0.5  # share of 4-token sequences that occur earlier in their text
GRAM = 4


@torch.inference_mode()
def surprise(target: Target, texts: Sequence[Text]) -> float | None:
    """Returns the target's mean loss on the prompts' tokens ÷ log V. The first token of a prompt does not count."""
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([text.ids[: text.start]], device=target.device)
        if ids.shape[1] < 2:
            continue
        hidden = target.base(input_ids=ids).last_hidden_state[:, :-1]
        log_probs = target.logits(hidden)[0].float().log_softmax(-1)
        total -= float(log_probs.gather(1, ids[0, 1:, None]).sum())
        count += ids.shape[1] - 1
    return total / count / log(target.config.vocab_size) if count else None


def is_unusable(text: Text) -> bool:
    """Returns whether a text is empty or mostly repeats itself."""
    return not text.anchors or (repeated_share([text]) or 0.0) > MANY_REPEATED


def repeated_share(texts: Sequence[Text]) -> float | None:
    """Returns the share of generated 4-token sequences that occur earlier in the same text; None if there are none."""
    count = distinct = 0
    for text in texts:
        ids = text.ids[text.start :]
        grams = list(zip(*(ids[n:] for n in range(GRAM)), strict=False))
        count, distinct = count + len(grams), distinct + len(set(grams))
    return 1 - distinct / count if count else None
