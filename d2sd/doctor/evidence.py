"""Measurements that need no changed drafter: remarks on its weights, and statistics of the texts that the target writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import log

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from d2sd.doctor.changes import weights_of
from d2sd.nets.target import Target
from d2sd.replay.anchors import Drafter
from d2sd.replay.recorded import Text

MIN_SIDE = 32  # matrices with a shorter side below this are not examined
MANY_ZEROS = 0.05  # share of zeros in a matrix from which it is remarked on
HUGE = 1e4  # largest entry ÷ median entry; a few hundred in trained matrices
SAMPLE = 64  # rows from which the median entry is estimated
FP8_LARGEST = (448.0, 240.0, 57344.0)  # largest values of float8: e4m3fn, e4m3fnuz, e5m2


def weight_remarks(model: Drafter) -> Iterator[str]:
    """Yields a sentence about each unusual property of a drafter's weights. Sound drafters may have unusual weights too."""
    names_by_remark: dict[str, list[str]] = {}
    layers: dict[str, dict[str, Tensor]] = {}
    for name, w in weights_of(model).items():
        part, number, inner = [*name.split(".", 2), "", ""][:3]
        if part == "layers":
            layers.setdefault(number, {})[inner] = w
        for words in _unusual(name, w):
            names_by_remark.setdefault(words, []).append(name)
    for words, names in names_by_remark.items():
        yield f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {words}"
    for one, other in combinations(layers, 2):
        if all(torch.equal(w, layers[other][n]) for n, w in layers[one].items()):
            yield f"layers {one} and {other} are equal"


def _unusual(name: str, weight: Tensor) -> Iterator[str]:
    if name.endswith("norm.weight") and weight.numel() > 1 and bool((weight == 1).all()):
        yield "all weights are 1, as before training or after folding"
    if weight.dim() != 2 or min(weight.shape) < MIN_SIDE:
        return
    empty, largest, some = float((weight == 0).float().mean()), float(weight.abs().max()), weight[:SAMPLE].float().abs()
    if empty >= MANY_ZEROS:
        yield f"{empty:.0%} of the entries are zeros"
    if largest in FP8_LARGEST:
        yield f"the largest entry is {largest:g}, as in 8-bit floats without their scales"
    if bool(some.any()) and largest > HUGE * float(some[some > 0].median()):
        yield f"the largest entry is {largest:.3g}, over {HUGE:g} times the median, as after a flipped bit"


UNRELATED = 0.9  # surprise from which the prompts look random to the target
MANY_REPEATED = 0.5  # share of 4-token sequences that occur earlier in their text
GRAM = 4


@torch.inference_mode()
def surprise(target: Target, texts: Sequence[Text]) -> float | None:
    """Returns the target's mean loss on the tokens of the prompts (except the first of each) ÷ log V, the loss of a uniform guess."""
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([text.ids[: text.start]], device=target.device)
        if ids.shape[1] < 2:
            continue
        hidden = target.base(input_ids=ids).last_hidden_state[:, :-1]
        total += float(cross_entropy(target.logits(hidden)[0].float(), ids[0, 1:], reduction="sum"))
        count += ids.shape[1] - 1
    return total / count / log(target.config.vocab_size) if count else None


def is_unusable(text: Text) -> bool:
    """Returns whether a text is empty or mostly repeats itself."""
    return not text.anchors or (repeated_share([text]) or 0.0) > MANY_REPEATED


def repeated_share(texts: Sequence[Text]) -> float | None:
    """Returns the share of generated 4-token sequences that occur earlier in the same text; None if no text is long enough."""
    count = distinct = 0
    for text in texts:
        ids = text.ids[text.start :]
        grams = list(zip(*(ids[n:] for n in range(GRAM)), strict=False))
        count, distinct = count + len(grams), distinct + len(set(grams))
    return 1 - distinct / count if count else None
