"""Compares a drafter with a good one over the same texts, and finds by exchange which of its parts lower acceptance.

Parts of the good drafter are put into the examined one until it drafts as well. Delta debugging then removes parts as long as the
others suffice (Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from d2sd.calibration.replays import DraftingRun, relative_gain
from d2sd.calibration.resampling import Estimate
from d2sd.doctor.changes import TOKEN_IDS, Variant, weights_of
from d2sd.doctor.settings import WORDS, Config, Setting, config_values, settings_of, with_setting
from d2sd.replay.anchors import Drafter

DIFFERS = 5e-3  # norm of a tensor's difference ÷ norm of the reference's tensor, above which the tensors differ
RUNS, TEXTS = 60, 10  # largest number of exchanges, and number of texts over which they are tried
CLOSED = 0.97  # share of the lost accepted tokens that the exchanged parts must bring back
RESTORED = 0.95  # share of the expected or the reference's α that a changed drafter must reach
# Tensors that depend on each other are exchanged together: (pattern of names within a layer, kind of the part).
TOGETHER = (
    (r"self_attn\.[qk]_", "q and k"), ("fc", "fc"), ("lm_head|" + TOKEN_IDS, "lm_head"),
    ("markov_head", "Markov head"), ("confidence_head", "confidence head"), ("candidate_selector", "candidate selector"),
)  # fmt: skip
# Kinds of parts to which these settings belong.
WITH_TENSORS: Mapping[Setting, str] = {"taps": "fc", "heads": "q and k"}
MANY_NAMES = 3  # if this many tensors and settings of a part differ, the part is called by its kind
WHOLE_LAYER = 0.75  # if this share of a layer's parts is exchanged, the layer is named instead

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors and settings that are exchanged together.

    kind: which part of the network it is, such as "fc" or "q and k".
    layer: number of its layer; −1 if it is not in a numbered layer.
    words: what differs from the reference; empty if nothing does.
    """

    kind: str
    layer: int
    tensors: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The result of exchanging parts.

    parts: the parts that must come from the reference; empty if no set of parts suffices.
    words: the names of these parts, for a sentence.
    share: these parts as a share of the drafter's parts; only parts with tensors count.
    variant: the drafter with these parts of the reference.
    run: the steps of ``variant`` over all texts.
    restored: whether ``variant`` drafts as well as the reference over all texts.
    runs: number of exchanges that were tried.
    """

    parts: tuple[Part, ...]
    words: str
    share: float
    variant: Variant
    run: DraftingRun
    restored: bool
    runs: int


@dataclass(frozen=True, slots=True)
class Reference:
    """The comparison of the examined drafter with the reference, a good drafter, over the same texts.

    run: the reference's steps over the texts.
    change: α of the reference − α of the examined drafter, with an interval over prompts.
    keys: config keys that differ: (key, value of the examined drafter, value of the reference).
    tensors: names of the tensors that differ, and how they differ (``relation``).
    same_form: whether parts can be exchanged, because both drafters are of the same kind and size.
    exchange: the result of exchanging parts; None if nothing was exchanged.
    """

    run: DraftingRun
    change: Estimate
    keys: tuple[tuple[str, str, str], ...]
    tensors: Mapping[str, str] = field(default_factory=dict)
    same_form: bool = False
    exchange: Exchange | None = None

    @property
    def better(self) -> bool:
        """Whether the reference drafts significantly better."""
        return (self.change.low or 0.0) > 0

    @property
    def explained(self) -> bool:
        """Whether the comparison explains the drafter's α, so that no other change needs to be tried."""
        return self.same_form and (not self.better or bool(self.exchange and self.exchange.restored))


def compared(
    examined: Drafter,
    good: Drafter,
    run: DraftingRun,
    best: DraftingRun,
    configs: tuple[Config, Config],
) -> Reference:
    """Compares a drafter with a reference, without exchanging parts.

    examined, good: the drafter and the reference.
    run, best: steps of the drafter and of the reference over the same texts.
    configs: published configs of the drafter and of the reference.
    """
    one, other = (dict(_flat(config)) for config in configs)
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    comparison = Reference(best, best.change(run), tuple((key, str(one.get(key)), str(other.get(key))) for key in keys))
    if not _same_form(examined, good):
        return comparison
    here, there = weights_of(examined), weights_of(good)
    both = {name: relation(here.get(name), there.get(name)) for name in sorted(here.keys() | there.keys())}
    return replace(comparison, tensors={name: how for name, how in both.items() if how}, same_form=True)


def _flat(config: Config, at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{at}{key}.")
        else:
            yield at + key, value


def _same_form(examined: Drafter, good: Drafter) -> bool:
    def shapes(model: Drafter) -> dict[str, torch.Size]:
        kinds = {n: w.shape for n, w in weights_of(model).items()}
        return {n: s for n, s in kinds.items() if not n.startswith(("fc", "lm_head", "emb", TOKEN_IDS))}

    return type(examined) is type(good) and shapes(examined) == shapes(good)


def relation(tensor: Tensor | None, reference: Tensor | None) -> str:
    """Returns how a tensor differs from the reference's, in a few words; "" if it is the same."""
    if tensor is None or reference is None:
        return f"only in the {'reference' if tensor is None else 'examined drafter'}"
    if tensor.shape != reference.shape:
        return "of another shape"
    values, reference_values = tensor.double(), reference.to(tensor.device).double()
    change = values - reference_values
    if not change.norm() > DIFFERS * reference_values.norm().clamp_min(1e-12):
        return ""
    cosine = float(torch.cosine_similarity(values.flatten(), reference_values.flatten(), dim=0))
    factor, mean = float((values * reference_values).sum() / reference_values.square().sum()), float(change.mean())
    if abs(cosine) > 0.999 and abs(factor - 1) > 0.02:
        return f"the reference's × {factor:.3g}"
    if float(change.std()) < 0.02 * abs(mean):
        return f"the reference's {mean:+.3g}"
    for side, words in ((1, "rows"), (0, "columns")) if values.dim() == 2 else ():
        one, other = values.norm(dim=side), reference_values.norm(dim=side)
        moved, sorts = ((x - y).abs().max() / other.max() for x, y in ((one, other), (one.sort()[0], other.sort()[0])))
        if cosine < 0.9 and moved > 0.01 > sorts:
            return f"{words} in another order"
        changed = int((change.norm(dim=side) > DIFFERS * reference_values.norm(dim=side)).sum())
        if changed < 0.9 * len(one):
            return f"{changed} of {len(one)} {words} differ"
    return f"cosine {cosine:.2f}, best factor {factor:.2f}"


# Exchange.


def exchange(
    examined: Drafter, good: Drafter, raw: Config, run: DraftingRun, reference: Reference,
    drafted: Callable[[Variant, int], DraftingRun],
) -> Exchange | None:  # fmt: skip
    """Returns a set of parts of ``good`` that is as small as possible and with which ``examined`` drafts as well as ``good``.
    Returns None if nothing differs or ``examined`` is no worse.

    raw: the examined drafter's published config.
    run: steps of ``examined``.
    reference: the comparison with ``good``, over the same texts.
    drafted: function that takes a changed drafter and a number n, and returns its steps over the first n texts.
    """
    every = _parts(examined, good, reference.tensors)
    differing = [part for part in every if part.words]
    some = replace(reference.run, walks=reference.run.walks[:TEXTS])
    count = len(some.walks)
    lost = relative_gain(run.by_anchor[:count], some.by_anchor).value or 0.0
    if not differing or lost >= 0:
        return None
    tried: dict[frozenset[Part], bool] = {}

    def works(parts: Sequence[Part]) -> bool:
        key = frozenset(parts)
        if key not in tried:
            if len(tried) >= RUNS:
                return False
            run_with_parts = drafted(exchanged(parts, examined, good, raw), count)
            near = run_with_parts.alpha >= RESTORED * some.alpha
            tried[key] = (
                near and (relative_gain(run_with_parts.by_anchor, some.by_anchor).value or 0.0) >= (1 - CLOSED) * lost
            )
        return tried[key]

    kept = _smallest(differing, works) if works(differing) else []
    words = _named(kept or differing, every)
    variant = exchanged(kept or differing, examined, good, raw, words)
    run_with_parts = drafted(variant, len(reference.run.walks))
    restored = bool(kept) and is_restored(run_with_parts, reference.run)
    share = sum(bool(part.tensors) for part in kept) / sum(bool(part.tensors) for part in every)
    return Exchange(tuple(kept), words, share, variant, run_with_parts, restored, len(tried))


def is_restored(run: DraftingRun, best: DraftingRun) -> bool:
    """Returns whether a drafter reaches ``RESTORED`` of the reference's α, without a significant difference from it."""
    change = best.change(run)
    return run.alpha >= RESTORED * best.alpha and (change.low is None or change.low <= 0)


def _parts(examined: Drafter, good: Drafter, different: Collection[str]) -> list[Part]:
    """Returns all parts of both drafters.

    different: names of the tensors that differ.
    """
    names = sorted(weights_of(examined).keys() | weights_of(good).keys())
    tensors = {place: tuple(group) for place, group in groupby(sorted(names, key=_place), _place)}
    values, good_values = settings_of(examined.form), settings_of(good.form)
    settings: dict[tuple[int, str], list[Setting]] = {}
    for name in values:
        kind = WITH_TENSORS.get(name, WORDS[name])
        if name == "mask" and (-1, "embed_tokens") in tensors:
            kind = "embed_tokens"  # the mask token's row
        layer = next((layer for layer, other in tensors if other == kind), -1)
        settings.setdefault((layer, kind), []).append(name)
    every = []
    for layer, kind in dict.fromkeys([*tensors, *settings]):
        held, fields = tensors.get((layer, kind), ()), tuple(settings.get((layer, kind), ()))
        differing = [_last(name) for name in held if name in different]
        differing += [WORDS[name] for name in fields if values[name] != good_values[name]]
        distinct = list(dict.fromkeys(differing))
        words = " and ".join(distinct) if len(distinct) < MANY_NAMES else kind
        every.append(Part(kind, layer, held, fields, words))
    return every


def _place(name: str) -> tuple[int, str]:
    """Returns the layer (−1 outside of numbered layers) and the kind of part to which a tensor belongs."""
    inside = re.match(r"layers\.(\d+)\.", name)
    rest = name[inside.end() :] if inside else name
    kind = next((kind for pattern, kind in TOGETHER if re.match(pattern, rest)), "")
    layer = int(inside[1]) if inside else -1
    return layer, kind or _last(rest)


def _last(name: str) -> str:
    return "d2t" if name == TOKEN_IDS else re.sub(r"\.(weight|bias)$", "", name).rpartition(".")[2]


def exchanged(parts: Sequence[Part], examined: Drafter, good: Drafter, raw: Config, words: str = "") -> Variant:
    """Returns ``examined`` with the given parts of ``good``.

    raw: published config of ``examined``.
    words: names of the parts, for a sentence.
    """
    weights, theirs, form = weights_of(good), settings_of(good.form), examined.form
    names = [name for part in parts for name in part.tensors]
    values: dict[str, Any] = {}
    if TOKEN_IDS in names and TOKEN_IDS in weights:
        values["draft_vocab_size"] = len(weights[TOKEN_IDS])
    for name in [name for part in parts for name in part.settings]:
        if settings_of(form)[name] != theirs[name]:
            form = with_setting(form, name, theirs[name])
            values |= config_values(form, name, raw) or {}
    fix = f"use the reference's {words}"
    return Variant("exchange", fix, form, values, lambda _: {name: weights.get(name) for name in names}, fix)


def _smallest(differing: Sequence[Part], works: Callable[[Sequence[Part]], bool]) -> list[Part]:
    """Returns a set of parts that suffices, from which no part can be left out.

    First, sufficient sets of whole layers and of whole kinds of parts are found. Then the smaller of the two is reduced part by
    part.

    differing: all parts that differ; together, they must suffice.
    works: returns whether a set of parts suffices.
    """

    candidates = []
    for by_layer in (True, False):
        groups: dict[str | int, list[Part]] = {}
        for part in differing:
            groups.setdefault(part.layer if by_layer and part.layer >= 0 else part.kind, []).append(part)
        needed = minimal(list(groups.values()), lambda some: works([*chain(*some)]))
        candidates.append([*chain(*needed)])
    return minimal(min(candidates, key=len), works)


def minimal(items: Sequence[Item], works: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Returns a subset of the items that suffices, and from which no single item can be left out (delta debugging).

    items: all items; together, they must suffice.
    works: function that returns whether some of the items suffice.
    """
    kept, count = list(items), 2
    while len(kept) > 1:
        bounds = [len(kept) * n // count for n in range(count + 1)]
        rests = (kept[:begin] + kept[end:] for begin, end in pairwise(bounds))
        rest = next((rest for rest in rests if works(rest)), None)
        if rest is not None:
            kept, count = rest, max(count - 1, 2)
        elif count >= len(kept):
            break
        else:
            count = min(2 * count, len(kept))
    return kept


def _named(parts: Sequence[Part], every: Sequence[Part]) -> str:
    """Returns the names of some parts, for a sentence. If a layer has most of its parts among them, only the layer is named.

    every: all parts of the drafter.
    """
    left, words = list(parts), list[str]()
    layers = Counter(part.layer for part in every if part.layer >= 0)
    for layer, count in layers.items():
        if sum(part.layer == layer for part in left) >= WHOLE_LAYER * count:
            words.append(f"layer {layer}")
            left = [part for part in left if part.layer != layer]
    for name in dict.fromkeys(part.words for part in left):
        layers_named = sorted(part.layer for part in left if part.words == name and part.layer >= 0)
        where = (
            " of every layer" if len(layers_named) == len(layers) else f" of layer {', '.join(map(str, layers_named))}"
        )
        words.append(name + where * (bool(layers_named) and len(layers) > 1))
    return ", ".join(words)
