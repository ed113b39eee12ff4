"""The exchange of parts with a reference: which tensors and settings belong together, how they differ, and the smallest set."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from itertools import combinations

import pytest
import torch

from d2sd.calibration.replays import DraftingRun, TextWalk
from d2sd.doctor.changes import Variant
from d2sd.doctor.exchange import _named, _parts, compared, exchange, exchanged, is_restored, minimal, relation
from d2sd.doctor.settings import settings_of
from d2sd.folders.configs import published_config
from d2sd.folders.loading import load_drafter
from tools.breaking import TINY

RAW = published_config(str(TINY / "dflash"))


def parts_of(own, good):
    """All parts of a drafter, and those that differ from the reference's."""
    every = _parts(own, good, compared(own, good, walks(1), walks(1), ({}, {})).tensors)
    return every, [part for part in every if part.words]


def exchange_of(own, good, run, best, drafted):
    return exchange(own, good, RAW, run, compared(own, good, run, best, ({}, {})), drafted)


def test_minimal_finds_every_set_of_needed_items():
    items = list(range(9))
    for size in (1, 2, 3, 9):
        for needed in combinations(items, size):
            assert minimal(items, lambda some, needed=needed: set(needed) <= set(some)) == list(needed)
    assert minimal([1], lambda _: True) == [1]


RELATIONS = {
    "the reference's × 0.5": lambda w: w / 2,
    "the reference's × -1": lambda w: -w,
    "the reference's +1": lambda w: w + 1,
    "rows in another order": lambda w: w.roll(1, 0),
    "columns in another order": lambda w: w.roll(1, 1),
    "8 of 48 rows differ": lambda w: torch.cat([torch.ones(8, 64), w[8:]]),
    "16 of 64 columns differ": lambda w: torch.cat([torch.ones(48, 16), w[:, 16:]], 1),
    "cosine 0.00, best factor 0.00": torch.zeros_like,
    "of another shape": lambda w: w[:3],
    "only in the reference": lambda w: None,
}


@pytest.mark.parametrize("words", RELATIONS)
def test_relation_tells_how_a_tensor_differs(words):
    good = torch.randn(48, 64, generator=torch.Generator().manual_seed(0)) * torch.linspace(1, 2, 64) * torch.linspace(1, 2, 48)[:, None]  # fmt: skip
    assert relation(RELATIONS[words](good), good) == words
    assert relation(good, None) == "only in the examined drafter"
    other = torch.randn(48, 64, generator=torch.Generator().manual_seed(1))
    assert relation(other, good).startswith("cosine ")


def test_parts_hold_every_tensor_and_setting_once_and_what_belongs_together(bundled):
    dspark = load_drafter(str(TINY / "dspark"), torch.float32, "cpu", bundled.models.target)
    for model in (bundled.models.first, bundled.models.eagle3, dspark):
        every, differing = parts_of(model, model)
        assert differing == []
        tensors = [name for part in every for name in part.tensors]
        assert sorted(tensors) == sorted({*dict(model.named_parameters()), *(["token_ids"] if model.token_ids is not None else [])})  # fmt: skip
        assert sorted(s for part in every for s in part.settings) == sorted(settings_of(model.form))
        together = {name: part for part in every for name in part.tensors}
        assert together["fc.weight"].settings == ("taps",)
        assert together["layers.0.self_attn.q_proj.weight"] is together["layers.0.self_attn.k_proj.weight"]
        if model is bundled.models.eagle3:
            assert together["lm_head.weight"] is together["token_ids"]
        if model is dspark:
            assert together["markov_head.markov_w1.weight"] is together["markov_head.markov_w2.weight"]


def changed(model, *edits, **form):
    other = copy.deepcopy(model)
    for name in edits:
        w = other.get_parameter(name)
        w.data = -w.data
    return Variant("", "", replace(other.form, **form)).apply(other) if form else other


def everything(model):
    return [name for name, _ in model.named_parameters()]


NAMES = {
    "o_proj of every layer": r"layers\.\d\.self_attn\.o_proj",
    "k_norm and q_norm of layer 0, 2": r"layers\.[02]\..*[qk]_norm",
    "layer 1": r"layers\.1\.",
    "q and k of layer 1": r"layers\.1\..*[qk]_(proj|norm)",
    "fc, norm": r"(fc|norm)\.weight",
}


@pytest.mark.parametrize("words", NAMES)
def test_parts_are_named_by_what_differs(bundled, words):
    good = bundled.models.first
    every, differing = parts_of(changed(good, *(n for n in everything(good) if re.match(NAMES[words], n))), good)
    assert sorted(_named(differing, every).split(", ")) == sorted(words.split(", "))


def test_exchanged_variant_equals_reference_in_these_parts_only(bundled):
    good = bundled.models.first
    own = changed(good, "fc.weight", "norm.weight", taps=(2, 5, 8, 11, 14), mask_token=7)
    _, differing = parts_of(own, good)
    assert len(differing) == 3
    variant = exchanged([part for part in differing if part.kind == "fc"], own, good, RAW, "fc")
    applied = variant.apply(own)
    assert torch.equal(applied.fc.weight, good.fc.weight)
    assert torch.equal(applied.norm.weight, own.norm.weight)
    assert (applied.form.taps, applied.form.mask_token) == (good.form.taps, 7)
    assert variant.values == {"dflash_config.target_layer_ids": [1, 4, 7, 10, 13]}
    assert torch.equal(own.fc.weight, -good.fc.weight)  # nothing is written into the examined drafter


def test_exchanged_removes_and_adds_borrowed_tables(bundled):
    good = bundled.models.first
    own = copy.deepcopy(good)
    own.lm_head = torch.nn.Linear(192, 4096, bias=False)
    _, (part,) = parts_of(own, good)
    assert exchanged([part], own, good, RAW).apply(own).lm_head is None
    _, (part,) = parts_of(good, own)
    added = exchanged([part], good, own, RAW).apply(good)
    assert torch.equal(added.lm_head.weight, own.lm_head.weight)
    assert good.lm_head is None


def walks(*counts):
    return DraftingRun(tuple(TextWalk((n,) * 3 if n else (), 10, (n,) * 10) for n in counts))


def drafted_by(good, needed, missing):
    """Drafts of 4 tokens if all ``needed`` tensors are the reference's, else of 1 token."""
    seen = []

    def drafted(variant, count):
        seen.append(count)
        model = variant.apply(missing)
        whole = all(torch.equal(model.get_parameter(n), good.get_parameter(n)) for n in needed)
        return walks(*([4] if whole else [1]) * count)

    return drafted, seen


@pytest.mark.parametrize(
    ("needed", "differing", "most"),
    [
        (["layers.1.self_attn.q_proj.weight"], ["layers.0.mlp.up_proj.weight", "norm.weight"], 60),
        (["fc.weight", "layers.2.mlp.up_proj.weight"], ["layers.1.mlp.gate_proj.weight", "hidden_norm.weight"], 60),
        ([f"layers.1.{part}.weight" for part in ("self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "input_layernorm")], None, 35),
        ([f"layers.{n}.mlp.down_proj.weight" for n in range(3)], None, 20),
        (["layers.1.self_attn.q_proj.weight"], None, 15),
    ],
)  # fmt: skip
def test_exchange_finds_needed_parts_among_differing_ones(bundled, needed, differing, most):
    """differing: None if every tensor differs; then, searching by layer and by kind keeps the number of runs small."""
    good = bundled.models.first
    own = changed(good, *(everything(good) if differing is None else needed + differing))
    drafted, seen = drafted_by(good, needed, own)
    swap = exchange_of(own, good, walks(*[1] * 12), walks(*[4] * 12), drafted)
    assert {n for part in swap.parts for n in part.tensors} >= set(needed)
    assert len(swap.parts) == len(needed)
    assert (swap.restored, seen[-1]) == (True, 12)  # confirmed on all texts
    assert set(seen[:-1]) == {10}
    assert swap.runs == len(seen) - 1 <= most


@pytest.mark.parametrize(
    ("nearly", "named"),
    [
        (TextWalk((4,) * 3, 10, (4,) * 8 + (3, 3)), ["fc.weight", "norm.weight"]),  # nine tenths of the lost tokens, all of α
        (TextWalk((1,) * 5, 10, (4,) * 10), ["fc.weight", "norm.weight"]),  # all lost tokens, but not α
        (TextWalk((4,) * 3, 10, (4,) * 10), ["fc.weight"]),
    ],
)  # fmt: skip
def test_exchange_names_parts_that_bring_back_little(bundled, nearly, named):
    """With only one of two faulty parts exchanged, each text is drafted like ``nearly``."""
    good = bundled.models.first
    needed = ["fc.weight", "norm.weight"]
    own = changed(good, *needed)

    def drafted(variant, count):
        model = variant.apply(own)
        whole = [torch.equal(model.get_parameter(n), good.get_parameter(n)) for n in needed]
        if whole[0] and not whole[1]:
            return replace(walks(), walks=(nearly,) * count)
        return walks(*[4 if all(whole) else 1] * count)

    swap = exchange_of(own, good, walks(*[1] * 10), walks(*[4] * 10), drafted)
    assert sorted(n for part in swap.parts for n in part.tensors) == named


def test_is_restored_needs_both_level_and_interval():
    def of(*accepted):
        return DraftingRun(tuple(TextWalk(steps, sum(steps) + len(steps)) for steps in accepted))

    good = of(*[(4,) * 10] * 8)
    assert is_restored(good, good)
    assert not is_restored(of(*[(3,) * 10] * 4, *[(4,) * 10] * 4), good)  # 4.5 of 5
    other = of(*[(3,) * 10] * 4, *[(9,) * 4] * 4)
    worse = of(*[(7,) * 5] * 4, *[(3,) * 10] * 4)
    assert other.change(worse).low < 0
    assert not is_restored(worse, other)  # below 95%, although the interval contains 0


def test_exchange_searches_nothing_if_reference_is_not_better(bundled):
    good = bundled.models.first
    own = changed(good, "fc.weight")
    assert exchange_of(own, good, walks(4, 4), walks(4, 4), lambda *_: pytest.fail("nothing is drafted")) is None
    none = exchange_of(own, good, walks(*[1] * 4), walks(*[4] * 4), lambda _, count: walks(*[1] * count))
    assert (none.parts, none.restored, none.words) == ((), False, "fc")


def test_compared_lists_configs_of_other_kinds_and_tensors_of_the_same(bundled):
    first, eagle3 = bundled.models.first, bundled.models.eagle3
    both = compared(first, eagle3, walks(1, 1, 1, 1), walks(4, 4, 4, 4), ({"a": {"b": 1}}, {"a": {"b": 2}}))
    assert (both.same_form, both.tensors, both.keys) == (False, {}, (("a.b", "1", "2"),))
    own = changed(first, "norm.weight")
    same = compared(own, first, walks(1, 1, 1, 1), walks(4, 4, 4, 4), ({}, {}))
    assert (same.same_form, dict(same.tensors)) == (True, {"norm.weight": "the reference's × -1"})
    with torch.no_grad():
        own.norm.weight.copy_(first.norm.weight * 1.002)  # within rounding
    assert compared(own, first, walks(1), walks(4), ({}, {})).tensors == {}
