"""Evidence of faults that needs no change of the drafter: in its weights, in the target's, and in what it drafts over the texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import Scores, auroc
from d2sd.doctor.changes import weights_of
from d2sd.doctor.redraft import BlockRedrafter, Drafter, Text, Walk
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

MOST_RANDOM = 1.15  # prominence: no matrix of a layer that looks random is above it
RANDOM = 1.03  # prominence up to which a single matrix looks random
ITERATIONS = 40
MIN_SIDE = 32  # of a matrix that is looked at
HEADS = ("q_norm.weight", "k_norm.weight")
VARIES = 0.05  # standard deviation of the weights of a norm that surely were trained
MANY_EMPTY = 0.1  # share of a matrix's rows or columns that no padding to a round size explains
HUGE = 1e4  # of a matrix's median entry: trained ones have entries of some hundred times it
FP8_LARGEST = (448.0, 240.0, 57344.0)  # largest numbers of e4m3, of its variant without infinities, and of e5m2
CLIPPED = 2e-3  # share of a matrix's entries that are its largest one: in trained ones it is one entry, or two


@dataclass(frozen=True, slots=True)
class WeightFindings:
    """Findings from a drafter's weights alone.

    random_layers: layers whose matrices all look random.
    constant_norms: norms whose weights are all the same number.
    lost_norms: of these, those whose counterpart has weights that surely were trained: of queries or keys, or of another layer.
        Also, of the odd ones, those of queries and keys, and all of them if ``hidden_norm``, which begins as ones, was trained.
    odd_norms: of these, those that the target has too, while another norm surely was trained.
    zero_matrices: matrices of zeros.
    empty_parts: other matrices with rows or columns of zeros: the name, which part, and its share of the rows or columns.
    huge_matrices: matrices with an entry far larger than all usual ones, and that entry, as after flipped bits.
    unscaled: matrices of the layers whose largest entry is the largest number of a format of 8 bits, if most are so.
    borrowed_head: "embedding" if its LM head is the target's embedding, although the target's head is another table; "head" if
        that of an EAGLE-3 drafter, which is trained, is the target's head, which is its embedding too.
    clipped_matrices: matrices with many entries as large as the largest.
    copied_layers: pairs of layers with the same matrices.
    random_matrices: matrices that do not stand out from random numbers while the same matrix of every other layer does.
    bits: of the grid on which most matrices of its layers lie; None if there is none.
    moved: how far training has moved what begins the same in every drafter: by how many times the spread of the part of ``fc`` for
        most taps differs from that of its initialization, and by how much the weights of ``hidden_norm`` differ from 1; None if
        that is not known.
    """

    random_layers: tuple[int, ...] = ()
    constant_norms: tuple[str, ...] = ()
    lost_norms: tuple[str, ...] = ()
    odd_norms: tuple[str, ...] = ()
    zero_matrices: tuple[str, ...] = ()
    empty_parts: tuple[tuple[str, str, float], ...] = ()
    huge_matrices: tuple[tuple[str, float], ...] = ()
    unscaled: tuple[str, ...] = ()
    borrowed_head: Literal["embedding", "head"] | None = None
    clipped_matrices: tuple[str, ...] = ()
    copied_layers: tuple[tuple[int, int], ...] = ()
    random_matrices: tuple[str, ...] = ()
    bits: int | None = None
    moved: tuple[float, float] | None = None


def examine_weights(model: Drafter, target: Target) -> WeightFindings:
    """Returns all findings for a drafter of either kind."""
    weights = {n: w for n, w in weights_of(model).items() if w.is_floating_point()}
    matrices = {n: w for n, w in weights.items() if w.dim() == 2 and min(w.shape) >= MIN_SIDE}
    norms = {n: w for n, w in weights.items() if n.endswith("norm.weight") and w.numel() > 1}
    block = model if isinstance(model, DFlashDraftModel) else None
    layers = layer_prominences(block) if block else []
    constant = tuple(n for n, w in norms.items() if bool((w == w[0]).all()))
    varies = any(float(w.float().std()) > VARIES for w in norms.values())
    known = {n.split(".")[-2] for n, w in target.base.named_parameters() if n.endswith("norm.weight")}
    odd = tuple(n for n in constant if n.split(".")[-2] in known) if varies else ()
    moving = any(n.endswith("hidden_norm.weight") and float(w.float().std()) > VARIES for n, w in norms.items())
    layers_of: Any = block.layers if block else [model.layer]
    inner = {n: w for n, w in matrices.items() if n.startswith(("layer", "fc."))}
    return WeightFindings(
        random_layers=tuple(random_layers(layers)),
        constant_norms=constant,
        lost_norms=tuple(
            n for n in constant if _counterpart_varies(n, norms) or (n in odd and (moving or n.endswith(HEADS)))
        ),
        odd_norms=odd,
        zero_matrices=tuple(n for n, w in matrices.items() if not bool(w.any())),
        empty_parts=tuple(
            (n, *part)
            for n, w in inner.items()
            if (part := empty_part(w, model.target_layer_ids if n == "fc.weight" else ()))
        ),
        huge_matrices=tuple((n, float(w.abs().max())) for n, w in inner.items() if is_huge(w)),
        unscaled=tuple(unscaled({n: w for n, w in inner.items() if n != "fc.weight"})),
        borrowed_head=_borrowed_head(model, target),
        clipped_matrices=tuple(
            n
            for n, w in matrices.items()
            if bool(w.any()) and float((w.abs() == w.abs().max()).float().mean()) > CLIPPED
        ),
        copied_layers=tuple(_copied_layers(matrices, len(block.layers))) if block else (),
        random_matrices=tuple(random_matrices(layers)),
        bits=grid_bits([w for layer in layers_of for w in layer.parameters() if w.dim() == 2]),
        moved=_moved(block) if block else None,
    )


def _counterpart_varies(name: str, norms: Mapping[str, Tensor]) -> bool:
    """Whether the norm of keys next to that of queries, or the reverse, or the same norm of another layer varies."""
    others = {name.replace("q_norm", "k_norm"), name.replace("k_norm", "q_norm")}
    others |= {n for n in norms if re.sub(r"\d+", "", n) == re.sub(r"\d+", "", name)}
    return any(float(norms[n].float().std()) > VARIES for n in others - {name} if n in norms)


def empty_part(weight: Tensor, taps: Sequence[int] = ()) -> tuple[str, float] | None:
    """Returns which rows or columns of a matrix hold only zeros, and their share; None if none do, or all.

    taps: target layers that equal parts of the columns read, of which one may be missing.
    """
    filled = weight != 0
    parts = [("of the rows", ~filled.any(1)), ("of the columns", ~filled.any(0))]
    shares = {words: float(empty.float().mean()) for words, empty in parts}
    words, share = max(shares.items(), key=lambda item: item[1])
    if share in (0.0, 1.0):
        return None
    lost = [tap for tap, part in zip(taps, parts[1][1].chunk(len(taps) or 1), strict=False) if bool(part.all())]
    if lost:
        words = f"of the columns, all that read layer {' and '.join(map(str, lost))} among them,"
    return words, share


def is_huge(weight: Tensor) -> bool:
    """Returns whether some entries are so much larger than the median one that a bit of their exponent was flipped."""
    some = weight[:SAMPLE].float().abs()
    usual = float(some[some > 0].median()) if bool(some.any()) else 0.0
    return usual > 0 and float(weight.abs().max()) > HUGE * usual


def unscaled(matrices: Mapping[str, Tensor]) -> list[str]:
    """Returns matrices whose largest entry is the largest number of a format of 8 bits, as in a file whose scales were dropped,
    if most are so."""
    found = [n for n, w in matrices.items() if float(w.abs().max()) in FP8_LARGEST]
    return found if 2 * len(found) > len(matrices) else []


def _borrowed_head(model: Drafter, target: Target) -> Literal["embedding", "head"] | None:
    if model.lm_head is None or target.embedding.weight.is_meta:
        return None
    own, ids = model.lm_head.weight, model.token_ids

    def same(table: Tensor) -> bool:
        rows = table if ids is None else table[ids.to(table.device)]
        return rows.shape == own.shape and torch.allclose(rows.to(own), own, rtol=1e-2, atol=1e-6)

    if not same(target.embedding.weight):
        return None
    if not same(target.head.weight):
        return "embedding"
    return None if isinstance(model, DFlashDraftModel) else "head"


def _moved(model: DFlashDraftModel) -> tuple[float, float]:
    width, spread = model.config.hidden_size, getattr(model.config, "initializer_range", 0.02) or 0.02
    parts = [float(part.std()) / spread for part in model.fc.weight.float().split(width, 1)]
    return median(parts), float((model.hidden_norm.weight.float() - 1).abs().median())


def _copied_layers(matrices: Mapping[str, Tensor], layers: int) -> list[tuple[int, int]]:
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


def layer_prominences(model: DFlashDraftModel) -> list[dict[str, float]]:
    """Returns the prominence of every matrix of every layer, by its name."""
    return [
        {n: prominence(w) for n, w in layer.named_parameters() if w.dim() == 2 and min(w.shape) >= MIN_SIDE}
        for layer in model.layers
    ]


def random_layers(layers: Sequence[Mapping[str, float]]) -> list[int]:
    """Returns layers none of whose matrices stands out from random numbers of its size.

    layers: see ``layer_prominences``.
    """
    return [number for number, of in enumerate(layers) if of and max(of.values()) < MOST_RANDOM]


def random_matrices(layers: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns matrices that look random where the same one of every other layer surely does not.

    Among trained drafters, some matrices never stand out in any layer; so one says nothing without the others.

    layers: see ``layer_prominences``.
    """
    if len(layers) < 2:
        return []
    named = ((n, [of[n] for of in layers]) for n in layers[0])
    return [
        f"layers.{at}.{name}"
        for name, values in named
        for at, value in enumerate(values)
        if value < RANDOM and min(values[:at] + values[at + 1 :]) >= MOST_RANDOM
    ]


# A quantised target: most matrices lie on a grid.


GRIDS = {
    bits: (2 ** (bits - 1) - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 0.5) for bits in (2, 3, 4, 8)
}  # by bits: steps from 0 to the largest entry
GROUPS = (32, 64, 128)  # entries in a row that may share a scale
SAMPLE = 64  # rows of a matrix that are compared with a grid


def quantised_bits(target: Target) -> int | None:
    """Returns the bits of the grid on which most matrices of the target's layers lie, although stored in a wider dtype; None
    if there is no grid."""
    layers: Any = target.base.layers
    matrices = [w for layer in (layers[0], layers[len(layers) // 2]) for w in layer.parameters() if w.dim() == 2]
    return grid_bits(matrices)


def grid_bits(matrices: Sequence[Tensor]) -> int | None:
    """Returns the bits of the grid on which most of these matrices lie; None if there is none."""
    if any(not w.is_floating_point() or w.element_size() < 2 for w in matrices):
        return 8
    grids = (next((bits for bits in GRIDS if any(_on_grid(r, bits) for r in _groups(w))), None) for w in matrices)
    bits, count = Counter(grids).most_common(1)[0]
    return bits if 2 * count > len(matrices) else None


def _groups(weight: Tensor) -> list[Tensor]:
    """The entries that may share a scale, as rows: of a row, of a column, of the matrix, or so many in a row."""
    entries = weight.detach().float()
    parts = [entries[:SAMPLE], entries.T[:SAMPLE], entries.flatten()[None]]
    some = entries[:SAMPLE]
    return parts + [some.unflatten(1, (-1, size)).flatten(0, 1) for size in GROUPS if not some.shape[1] % size]


def _on_grid(rows: Tensor, bits: int) -> bool:
    """Whether rows are whole multiples of a step that their largest entry, or the distance of their ends, gives."""
    largest = rows.abs().amax(1, keepdim=True).clamp_min(1e-12)
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    between = (rows - low) / (high - low).clamp_min(1e-12) * (2**bits - 1)
    return any(_whole(rows * (levels / largest)) for levels in GRIDS[bits]) or _whole(between)


def _whole(steps: Tensor) -> bool:
    """Looks at entries within 32 steps of 0, where rounding to bfloat16 still leaves whole steps apart."""
    near = steps[(steps.abs() < 32) & (steps.abs() > 0.5)]
    return len(near) > 32 and float((near - near.round()).abs().mean()) < 0.08


# Evidence from the texts: the role that the drafter was trained for, its confidence, its Markov tables, and the texts themselves.


SHOWN = 2  # tokens after the anchor that a drafter is shown, to see whether it gains by them
SHOWN_EVERY = 4  # of the positions of a text, where only the next token counts
FEWEST = 60  # positions that a comparison needs
VP_RATIO = 1.15  # from which on a drafter gains by tokens that it is shown, as a VP-Drafter does
INVERTED = 0.4  # AUROC of the confidence below which it is inverted; 0.5 is chance
UNRELATED = 0.9  # of the surprise of random tokens
MANY_REPEATED = 0.5  # share of 4-token sequences that occur earlier in their text
GRAM = 4


@dataclass(frozen=True, slots=True)
class TextFindings:
    """Findings from the texts; each is None if it was not examined or is inconclusive.

    shown_ratio: accepted tokens from position 3 on, with two tokens shown, over those where it drafted the same two itself.
    shown_first: share of positions at which it drafts the next token correctly, without tokens that it is shown and with two.
    confidence_auroc: AUROC of the confidence head at position 1: 1 is perfect, 0.5 chance, 0 inverted.
    surprise: of the prompts' tokens to the target, over that of random tokens.
    repeated: share of 4-token sequences that occur earlier in their text.
    markov_gain: log-likelihood of the texts' pairs of tokens by the Markov tables, less that with the two tables exchanged, in
        nats per token.
    """

    shown_ratio: float | None = None
    shown_first: tuple[float, float] | None = None
    confidence_auroc: float | None = None
    surprise: float | None = None
    repeated: float | None = None
    markov_gain: Estimate | None = None


def examine_texts(
    target: Target, model: Drafter, texts: Sequence[Text], walks: Sequence[Walk], visible: int
) -> TextFindings:
    """Returns the findings about a drafter from texts and its walks over them.

    visible: number of tokens after the anchor that the drafter was shown.
    """
    found = TextFindings(surprise=surprise(target, texts), repeated=repeated_share(texts))
    if not isinstance(model, DFlashDraftModel):
        return found
    return replace(
        found,
        shown_ratio=None if visible else shown_ratio(target, model, texts, walks),
        shown_first=None if visible else shown_first(target, model, texts, walks),
        confidence_auroc=None if model.confidence_head is None else confidence_auroc(target, model, texts, walks),
        markov_gain=markov_gain(model, texts),
    )


def shown_ratio(target: Target, model: DFlashDraftModel, texts: Sequence[Text], walks: Sequence[Walk]) -> float | None:
    """Returns accepted tokens from position 3 on when two tokens are shown, relative to those when it drafts the same two itself.

    A drafter that was trained on masks alone gains nothing from being shown tokens that it drafted correctly.
    """
    drafter = BlockRedrafter(target, model, SHOWN)
    positions, own, with_shown = 0, 0, 0
    for text, walked in zip(texts, walks, strict=True):
        right = [n for n, count in enumerate(walked.by_anchor) if count >= SHOWN]
        if right:
            positions += len(right)
            own += sum(walked.by_anchor[n] - SHOWN for n in right)
            with_shown += sum(drafter.accepted(text, [text.anchors[n] for n in right]))
    return with_shown / max(own, 1) if positions >= FEWEST else None


def shown_first(
    target: Target, model: DFlashDraftModel, texts: Sequence[Text], walks: Sequence[Walk]
) -> tuple[float, float] | None:
    """Returns at which share of some positions it drafts the next token correctly, without and with two tokens shown before it."""
    drafter = BlockRedrafter(target, model, SHOWN)
    own: list[int] = []
    shown: list[int] = []
    for text, walked in zip(texts, walks, strict=True):
        if some := range(0, len(text.anchors) - SHOWN, SHOWN_EVERY):
            own += [walked.by_anchor[n] for n in some]
            shown += drafter.accepted(text, [text.anchors[n] for n in some])
    if len(own) < FEWEST:
        return None
    return sum(n > 0 for n in own) / len(own), sum(n > 0 for n in shown) / len(shown)


@torch.inference_mode()
def confidence_auroc(
    target: Target, model: DFlashDraftModel, texts: Sequence[Text], walks: Sequence[Walk]
) -> float | None:
    """Returns the AUROC of the confidence head at position 1; None for too few accepted or rejected tokens."""
    drafter = BlockRedrafter(target, model)
    confidence = torch.cat([drafter.confidence_logits(text, text.anchors) for text in texts]).cpu().numpy()
    accepted = np.array([count > 0 for w in walks for count in w.by_anchor])
    if min(accepted.sum(), (~accepted).sum()) < FEWEST:
        return None
    unit = np.repeat(np.arange(len(texts)), [len(text.anchors) for text in texts])
    first, row = np.ones(len(unit), int), np.arange(len(unit))
    return auroc(Scores(confidence, accepted, first, row, unit), Resampler(len(texts))).value


@torch.inference_mode()
def markov_gain(model: DFlashDraftModel, texts: Sequence[Text]) -> Estimate | None:
    """Returns the gain in log-likelihood of its Markov tables over the exchanged ones, with its interval over texts.

    A row of the first table times the second one is the logits that a token adds to those after it. None for other kinds of
    Markov heads, and for tables that differ in shape, so that nobody can have exchanged them.
    """
    if model.markov_head is None or model.markov_head.kind != "vanilla":
        return None
    before, after = model.markov_head.markov_w1.weight.float(), model.markov_head.markov_w2.weight.float()
    if before.shape != after.shape:
        return None
    gains = []
    for text in texts:
        ids = torch.tensor(text.ids, device=before.device)
        own, exchanged = (
            (rows[ids[:-1]] @ columns.T).log_softmax(-1).gather(1, ids[1:, None]).sum()
            for rows, columns in ((before, after), (after, before))
        )
        gains.append(float(own - exchanged))
    counts = np.array([len(text.ids) - 1 for text in texts], float)
    return Resampler(len(texts)).ratio(np.array(gains), counts, np.arange(len(texts)))


@torch.inference_mode()
def surprise(target: Target, texts: Sequence[Text]) -> float | None:
    """Returns the mean surprise of the prompts' tokens to the target, divided by log V, without the first token of each."""
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
