"""Evidence that needs no change of the drafter: damage in its weights, and texts that say something of the target or the prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

import torch
from torch import Tensor

from d2sd.decoding.replay import Text
from d2sd.doctor.changes import weights_of
from d2sd.doctor.redraft import Drafter
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

MIN_SIDE = 32  # of a matrix that is looked at
VARIES = 0.05  # standard deviation of the weights of a norm that surely were trained
SAMPLE = 64  # rows of a matrix from which its usual entry is taken
MANY_EMPTY = 0.1  # share of a matrix's rows or columns that no padding to a round size explains
HUGE = 1e4  # of a matrix's median entry: trained ones have entries of some hundred times it
FP8_LARGEST = (448.0, 240.0, 57344.0)  # largest numbers of e4m3, of its variant without infinities, and of e5m2


@dataclass(frozen=True, slots=True)
class WeightFindings:
    """Findings from the weights alone.

    lost_norms: norms whose weights are all the same number, while those of their counterpart (of queries or keys, or of another
        layer) or of ``hidden_norm`` surely were trained.
    zero_matrices: matrices of zeros.
    empty_parts: other matrices with rows or columns of zeros: the name, which part, and its share of the rows or columns.
    huge_matrices: matrices with an entry far larger than all usual ones, and that entry, as after flipped bits.
    unscaled: matrices of the layers whose largest entry is the largest number of a format of 8 bits, if most are so.
    moved: how far training has moved what begins the same in every drafter: by how many times the spread of the part of ``fc`` for
        most taps differs from that of its initialization, and by how much the weights of ``hidden_norm`` differ from 1; None if
        that is not known.
    """

    lost_norms: tuple[str, ...] = ()
    zero_matrices: tuple[str, ...] = ()
    empty_parts: tuple[tuple[str, str, float], ...] = ()
    huge_matrices: tuple[tuple[str, float], ...] = ()
    unscaled: tuple[str, ...] = ()
    moved: tuple[float, float] | None = None


def examine_weights(model: Drafter) -> WeightFindings:
    """Returns all findings for a drafter of either kind."""
    weights = {n: w for n, w in weights_of(model).items() if w.is_floating_point()}
    matrices = {n: w for n, w in weights.items() if w.dim() == 2 and min(w.shape) >= MIN_SIDE}
    norms = {n: w for n, w in weights.items() if n.endswith("norm.weight") and w.numel() > 1}
    block = model if isinstance(model, DFlashDraftModel) else None
    inner = {n: w for n, w in matrices.items() if n.startswith(("layer", "fc."))}
    return WeightFindings(
        lost_norms=tuple(n for n, w in norms.items() if bool((w == w[0]).all()) and _others_vary(n, norms)),
        zero_matrices=tuple(n for n, w in matrices.items() if not bool(w.any())),
        empty_parts=tuple((n, *part) for n, w in inner.items() if (part := empty_part(w))),
        huge_matrices=tuple((n, float(w.abs().max())) for n, w in inner.items() if is_huge(w)),
        unscaled=tuple(unscaled({n: w for n, w in inner.items() if n != "fc.weight"})),
        moved=_moved(block) if block else None,
    )


def _others_vary(name: str, norms: Mapping[str, Tensor]) -> bool:
    """Whether the weights of a norm's counterparts vary, or those of ``hidden_norm``."""
    others = {name.replace("q_norm", "k_norm"), name.replace("k_norm", "q_norm")}
    others |= {
        n for n in norms if re.sub(r"\d+", "", n) == re.sub(r"\d+", "", name) or n.endswith("hidden_norm.weight")
    }
    return any(float(norms[n].float().std()) > VARIES for n in others - {name} if n in norms)


def empty_part(weight: Tensor) -> tuple[str, float] | None:
    """Returns whether rows or columns of a matrix hold only zeros, and their share; None if none do, or all."""
    filled = weight != 0
    shares = {"of the rows": ~filled.any(1), "of the columns": ~filled.any(0)}
    words, share = max(((words, float(empty.float().mean())) for words, empty in shares.items()), key=lambda s: s[1])
    return None if share in (0.0, 1.0) else (words, share)


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


def _moved(model: DFlashDraftModel) -> tuple[float, float]:
    width, spread = model.config.hidden_size, getattr(model.config, "initializer_range", 0.02) or 0.02
    parts = [float(part.std()) / spread for part in model.fc.weight.float().split(width, 1)]
    return median(parts), float((model.hidden_norm.weight.float() - 1).abs().median())


# Evidence from the texts.


UNRELATED = 0.9  # of the surprise of random tokens
MANY_REPEATED = 0.5  # share of 4-token sequences that occur earlier in their text
GRAM = 4


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
