"""The doctor: what a folder says, drafting again over texts, probes, shapes, weights, and the sentence that comes of them."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from d2sd.__main__ import main
from d2sd.calibration.resampling import Estimate
from d2sd.cli.doctor import load_checked
from d2sd.config import DecodeConfig
from d2sd.doctor import examination, probes
from d2sd.doctor.changes import mask_tokens, tapped, undoings, variants, weights_of, with_mask
from d2sd.doctor.diagnosis import Findings, diagnose
from d2sd.doctor.examination import Examination, examine
from d2sd.doctor.folder_checks import Check, check_folder
from d2sd.doctor.probes import (
    Cure,
    Position,
    Tried,
    Walked,
    change_of_alpha,
    clear,
    gain,
    positions,
    probe,
    score_masks,
    shape,
    walk,
)
from d2sd.doctor.redraft import ChainRedrafter, Redrafter
from d2sd.doctor.report import code, markdown, mend, text
from d2sd.doctor.signs import FURTHER, Signs, follows, further, repeated, surprise
from d2sd.doctor.subject import Subject
from d2sd.doctor.texts import WORTH, Asked, Template, Text, study, templates, write
from d2sd.doctor.weights import (
    Weighed,
    fresh_taps,
    odd_matrices,
    prominence,
    prominences,
    random_layers,
    rounded_to,
)
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.loading import load_drafter
from d2sd.nets.models import Models
from d2sd.trace.events import StepDone
from tests.nets import make_drafter, make_target
from tools.broken_ways import KEPT_OUT, SOUND, TINY, WAYS, copied, inner, outer, renamed, rope, window

PROMPTS = [
    "One day, Lily and Max went to the park with their mom. They saw",
    "Once upon a time there was a little dog. The dog",
    "Tom had a red ball. He",
    "Question: What is 3 + 4?",
    "The sun was warm and Anna",
]
TOKENS = 24


@pytest.fixture(scope="module")
def texts(bundled):
    """What the bundled target writes, with the features that any variant of its drafter reads."""
    target, model = bundled.models.target, bundled.models.first
    config = DecodeConfig("autoregressive", TOKENS)
    written = write(target, [bundled.encode(p, config) for p in PROMPTS], TOKENS)
    wanted = tapped(variants(model, target, 100, True), model.form)
    return [study(target, t, wanted) for t in written]


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_a_text_is_walked_as_decoding_walks_it(bundled, texts, name):
    target = bundled.models.target
    model = load_drafter(str(TINY / name), torch.float32, "cpu", target)
    engine = Engine(Models(target, model))
    config = engine.resolve(DecodeConfig("dflash", TOKENS, inspect=False))
    for known in texts[:2]:
        trace = engine.generate(known.ids[: known.start], config)
        assert list(known.ids[known.start :]) == list(trace.token_ids)
        steps = tuple(len(s.committed) - 1 for s in trace.steps if isinstance(s, StepDone))
        found = walk(Redrafter(target, model), known).accepted
        assert found[:-1] == steps[:-1]
        assert sum(found) + len(found) - len(steps) - sum(steps) in (
            0,
            1,
        )  # the last step is cut with or without a bonus


def test_a_drafter_that_is_shown_tokens_drafts_what_follows_them(bundled, texts, monkeypatch):
    target, known = bundled.models.target, texts[0]
    shown = Redrafter(target, bundled.models.second, visible=2)
    found = shown.accepted(known, known.anchors)
    assert 0 < max(found) <= bundled.models.second.block_size - 3
    monkeypatch.setattr(
        shown, "_wanted", lambda *asked: Redrafter._wanted(shown, *asked).index_fill(1, torch.tensor([1, 2]), 0)
    )
    assert sum(shown.accepted(known, known.anchors)) < 0.9 * sum(found)  # other tokens were shown


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (lambda form: replace(form, mask_token=77), "mask"),
        (lambda form: replace(form, reads="next"), "reads"),
        (lambda form: replace(form, shape={**form.shape, "rope_parameters": {"rope_theta": 3e7, "rope_type": "default"}}), "rope"),
        (lambda form: replace(form, windows=(12,) * 3, causal=(True,) * 3), "window"),
    ],
)  # fmt: skip
def test_the_probe_that_undoes_a_fault_helps_most(bundled, texts, broken, kind, monkeypatch):
    monkeypatch.setattr(probes, "ROUNDS", ((4, 1, -0.2),))  # the best of four texts alone goes on to all
    monkeypatch.setattr(probes, "LOOK_EVERY", 2)
    target, model = bundled.models.target, bundled.models.first
    sick = model.reformed(broken(model.form))
    base = [walk(Redrafter(target, sick), t) for t in texts]
    tried = [v for v in variants(sick, target, 100, True) if v.kind in (kind, "layer") and v.said[-6:] != "causal"]
    if kind == "mask":
        tokens = mask_tokens(sick.form, target)
        best = max(zip(score_masks(target, sick, texts, tokens), tokens, strict=True))[1]
        tried = [with_mask(sick.form, best, "<|mask|>")]
    found = list(probe(Subject(target).draft, sick, texts, base, tried, len(tried)))
    helped = [t for t in found if t.helps]
    assert max(helped, key=lambda t: t.change.value).variant.kind == kind
    assert [t.variant.kind for t in found if t.texts == len(texts)] == [kind]


def test_a_variant_that_loses_most_in_the_first_text_is_not_looked_at_in_the_others(bundled, texts):
    target, model = bundled.models.target, bundled.models.first
    base = [walk(Redrafter(target, model), t) for t in texts]
    found = {v.said: v for v in variants(model, target, 100, True)}
    worst, same = found["a row is about the position after it (next)"], found["RoPE base 100000, unscaled"]
    looks = list(probe(Subject(target).draft, model, texts, base, [worst, same], 2))[:2]
    assert [t.texts for t in looks] == [1, probes.LOOK_TEXTS]


def test_features_that_a_text_has_are_not_read_again(bundled, texts, monkeypatch):
    monkeypatch.setattr(bundled.models.target, "base", None)
    assert study(bundled.models.target, texts[0], (1, 4)) is texts[0]


def test_mask_tokens_are_compared_over_contexts_that_are_read_once(bundled, texts, monkeypatch):
    target, model, read = bundled.models.target, bundled.models.first, []
    project = type(model).project_context
    monkeypatch.setattr(type(model), "project_context", lambda *asked: read.append(1) or project(*asked))
    ours, other = score_masks(target, model, texts, [model.form.mask_token, 77])
    assert ours > other
    assert len(read) == len(texts)


def test_a_sound_drafter_is_helped_by_nothing(bundled, texts):
    target, model = bundled.models.target, bundled.models.first
    base = [walk(Redrafter(target, model), t) for t in texts]
    some = [v for v in variants(model, target, 100, True) if v.kind in ("window", "rows", "rotary")]
    found = list(probe(Subject(target).draft, model, texts, base, some, 150))
    assert not [t for t in found if t.helps]


def test_a_change_is_clear_where_its_whole_interval_is_above_0_and_it_is_worth_saying():
    assert clear(Estimate(0.1, 0.01, 0.2), 0.02)
    assert not clear(Estimate(0.1, -0.01, 0.2), 0.02)
    assert not clear(Estimate(0.015, 0.01, 0.02), 0.02)
    assert not clear(Estimate(0.1), 0.02)


def test_variants_change_one_thing_each_and_none_is_the_drafter_itself(bundled):
    target, model = bundled.models.target, bundled.models.first
    found = variants(model, target, 100, True)
    assert len({v.said for v in found}) == len(found)
    assert model.form not in [v.form for v in found if v.edit is None]
    assert {v.kind for v in found} == {
        "taps", "rope", "window", "causal", "reads", "rows", "layer", "sublayer", "rotary", "swapped", "transposed", "norms", "order",
    }  # fmt: skip
    assert all(v.writable == (v.without is None) for v in found)
    assert all(0 <= n < 16 for n in tapped(found, model.form))
    lines = {v.mend for v in found if v.kind == "taps"}
    assert "dflash_config.target_layer_ids: [2, 5, 8, 11, 14]" in lines
    half = copy.deepcopy(model).bfloat16()
    assert "dtype" in {v.kind for v in variants(half, target, 100, True)}
    assert mask_tokens(model.form, target) == [0, 4095, 2]


def test_intervals_hold_for_everything_that_was_tried():
    base = [Walked((1,) * 8, 16, (1, 1, 0))] * 4 + [Walked((2,) * 6, 18, (2, 1, 0))] * 4
    better = [Walked((2,) * 5, 16, (3, 1, 0))] * 4 + [Walked((3,) * 4, 18, (3, 2, 1))] * 4
    for compare in (gain, change_of_alpha):
        one, many = compare(better, base, 1), compare(better, base, 40)
        assert many.low < one.low < one.value < one.high < many.high
    assert gain(base, base, 1).value == 0


FOLDERS = {
    "tap missing": (inner(target_layer_ids=[1, 4, 13]), dict, "taps", "reads 5 layers of width 192, and the config names 3", "dflash_config.target_layer_ids: [1, 4, 7, 10, 13]"),
    "misnamed": (dict, renamed("norm.weight", "final_norm.weight"), "tensors", "final_norm.weight, of the same shape, is not known: it is misnamed", "rename final_norm.weight to norm.weight"),
    "surplus": (dict, lambda w: {**w, "layers.0.self_attn.sinks": torch.zeros(3)}, "tensors", "attention sinks", None),
    "shape": (outer(intermediate_size=256), dict, "tensors", "mlp.down_proj.weight is", None),
    "outside": (outer(num_target_layers=40, dflash_config={"mask_token_id": 1, "target_layer_ids": [1, 4, 7, 10, 30]}), dict, "taps", "it reads layer 30, and the target has layers 0 to 15", None),
    "other target": (outer(num_target_layers=20), dict, "target", "its num_target_layers is 20, and the target has 16", "num_target_layers: 16"),
    "contradiction": (inner(block_size=8), dict, "folder", "its block_size is 16 and its dflash_config.block_size 8", None),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_fault_of_the_folder_is_named_with_what_mends_it(bundled, tmp_path, name):
    config, weights, kind, said, mend = FOLDERS[name]
    checks = check_folder(str(copied(tmp_path / "d", config, weights)), bundled.models.target)
    wrong = next(c for c in checks if c.state == "fault")
    assert (wrong.kind, said in wrong.said) == (kind, True), wrong
    assert mend is None or (wrong.mend or "").startswith(mend)


NOTES = {
    "late": (inner(target_layer_ids=[1, 4, 7, 10, 15]), "taps", "published ones read none after layer 13"),
    "reversed": (inner(target_layer_ids=[13, 10, 7, 4, 1]), "taps", "not in ascending order"),
    "end": (inner(mask_token_id=0), "mask token", "which ends a text"),
    "word": (inner(mask_token_id=300), "mask token", "an ordinary token"),
    "rope": (rope(5e5), "RoPE", "the target's are 10000 and default"),
    "window": (window(512), "window", "3 of 3 layers see only [512] positions back, causal in the block"),
    "eos": (outer(eos_token_id=5), "end tokens", "its config names [5], the target ends with [0]"),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_may_be_meant_so_is_a_note(bundled, tmp_path, name):
    config, what, said = NOTES[name]
    checks = check_folder(str(copied(tmp_path / "d", config)), bundled.models.target)
    (note,) = [c for c in checks if c.state == "note"]
    assert (note.what, said in note.said) == (what, True), note


@pytest.mark.parametrize("part", ["dflash", "vp", "dspark", "eagle3"])
def test_sound_folders_have_neither(bundled, part):
    assert {c.state for c in check_folder(str(TINY / part), bundled.models.target)} == {"good"}


def test_a_folder_that_cannot_be_read_is_a_fault(bundled, tmp_path):
    (tmp_path / "config.json").write_text("{")
    (check,) = check_folder(str(tmp_path), bundled.models.target)
    assert check.state == "fault"


def at(*shares, steps=200):
    return [Position(n, steps, round(share * steps)) for n, share in enumerate(shares, 1)]


def test_three_shapes_of_acceptance_by_position():
    assert shape(at(0.9, 0.85, 0.8, 0.8)) == ("smooth", None)
    assert shape(at(0.3, 0.2, 0.2)) == ("low", None)
    assert shape(at(0.9, 0.85, 0.2, 0.2)) == ("cliff", 3)
    assert shape(at(0.9, 0.5, steps=10)) == ("unclear", None)
    assert positions([Walked((2, 0, 1), 6), Walked((1,), 2)], 3) == [
        Position(1, 2, 1),
        Position(2, 1, 1),
        Position(3, 1, 0),
    ]


def test_shuffled_layers_look_like_random_numbers_and_trained_ones_do_not(bundled):
    model = copy.deepcopy(bundled.models.first)
    assert random_layers(prominences(model)) == []
    assert odd_matrices(prominences(model)) == []
    for w in model.layers[1].parameters():
        w.data = w.data.flatten()[torch.randperm(w.numel(), generator=torch.Generator().manual_seed(0))].view_as(w)
    assert random_layers(prominences(model)) == [1]
    assert prominence(torch.randn(200, 300, generator=torch.Generator().manual_seed(0))) == pytest.approx(1, abs=0.05)


def test_one_random_matrix_is_told_from_the_same_one_of_other_layers(bundled):
    layers = prominences(bundled.models.first)
    name = "self_attn.q_proj.weight"
    assert odd_matrices([{**layers[0], name: 0.98}, *layers[1:]]) == [f"layers.0.{name}"]
    small = "self_attn.v_proj.weight"  # it stands out in no layer
    assert odd_matrices([{**layers[0], small: 0.98}, *layers[1:]]) == []
    assert odd_matrices(layers[:1]) == []
    found = Weighed(odd=(f"layers.0.{name}",))
    assert concluded(weighed=found, found=at(0.2), shape="low").cause == "weights"
    assert not concluded(weighed=found).accuses


def test_exchanged_markov_tables_describe_what_precedes_a_token(bundled, texts):
    model = load_drafter(str(TINY / "dspark"), torch.float32, "cpu", bundled.models.target)
    assert not Signs(follows=follows(model, texts)).backwards
    head = model.markov_head
    head.markov_w1.weight, head.markov_w2.weight = head.markov_w2.weight, head.markov_w1.weight
    sign = Signs(follows=follows(model, texts))
    assert sign.backwards
    assert concluded(signs=sign).cause == "swapped"
    assert follows(bundled.models.first, texts) is None  # it has none


def test_a_drafter_that_was_hardly_trained_still_has_its_first_random_numbers(bundled, tokenizer):
    assert fresh_taps(bundled.models.first) == []
    assert len(fresh_taps(make_drafter(make_target(tokenizer, layers=8), layers=4))) >= 2


def test_a_target_that_is_on_no_grid_is_not_called_rounded(bundled):
    assert rounded_to(bundled.models.target) is None


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [None, 32])
def test_a_target_on_a_grid_is_told_with_its_bits(bundled, bits, group):
    layers = copy.deepcopy(bundled.models.target.base.layers[:1])
    for w in layers.parameters():
        if w.dim() == 2:
            rows = w.data if group is None else w.data.unflatten(1, (-1, group)).flatten(0, 1)
            step = rows.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            w.data = ((rows / step).round() * step).view_as(w).bfloat16().float()
    assert rounded_to(SimpleNamespace(base=SimpleNamespace(layers=layers))) == bits


def concluded(**found):
    return diagnose(Findings(**({"checks": [], "found": at(0.9, 0.9), "shape": "smooth"} | found)))


def walked(accepted, count=30):
    """Texts of steps that accept so many tokens on average, each of them with the same chance."""
    rng = np.random.default_rng(0)
    drawn = [tuple((rng.geometric(1 / (accepted + 1), 10) - 1).tolist()) for _ in range(count)]
    return tuple(Walked(steps, sum(steps) + len(steps), steps) for steps in drawn)


def cure(bundled, kind, accepted, before=0, clean=True):
    """A change of this kind, after which a step accepts so many tokens."""
    variant = next(v for v in variants(bundled.models.first, bundled.models.target, 100, True) if v.kind == kind)
    tried = Tried(variant, accepted + 1, before + 1, Estimate(1.0, 0.5, 1.5), 30, True, walked(accepted))
    return Cure((tried,), walked(before), clean, 16)


def test_one_cause_is_named_the_strongest_evidence_first(bundled):
    asked = [Asked(Template("the chat template", "--chat", ()), 3.0, Estimate(1.0, 0.5, 1.5), 30, True)]
    everything = {
        "checks": [Check("fc", "fault", "it is wrong", "tensors", "this")],
        "signs": Signs(surprise=1.1),
        "cure": cure(bundled, "taps", 3),
        "weighed": Weighed(random=(1,)),
        "asked": asked,
        "bits": 8,
    }
    order = []
    for part in everything:
        order.append(concluded(**everything).cause)
        everything[part] = {"checks": [], "signs": Signs(), "weighed": Weighed()}.get(part)
        everything["asked"] = everything["asked"] or []
    assert order == ["tensors", "tokenizer", "taps", "weights", "template", "rounding"]
    assert concluded(cure=cure(bundled, "rope", 3), weighed=Weighed(random=(1,))).cause == "weights"
    assert concluded(cure=cure(bundled, "layer", 3)).cause == "weights"
    for found, cause in (
        ({"weighed": Weighed(fresh=(1,))}, "training"),
        ({"weighed": Weighed(constant=("norm.weight",)), "found": at(0.3), "shape": "low"}, "norms"),
        ({"weighed": Weighed(fresh=(1,), constant=("norm.weight",)), "found": at(0.3), "shape": "low"}, "training"),
        ({"weighed": Weighed(copies=((0, 1),))}, "weights"),
        ({"signs": Signs(further=1.3)}, "role"),
        ({"signs": Signs(ranks=0.2)}, "confidence"),
    ):
        assert concluded(**found).cause == cause
        assert concluded(**found).accuses
    assert not concluded().accuses
    kept = concluded(weighed=Weighed(constant=("norm.weight",)))  # as after training in bfloat16
    assert not kept.accuses
    assert "norm.weight holds one number alone" in kept.said
    assert not concluded(bits=8).accuses
    assert "about 30 prompts" in concluded(shape="unclear").said
    unknown = concluded(found=at(0.3), shape="low")
    assert (unknown.cause, unknown.accuses, "Unknown" in unknown.said) == ("unknown", False, True)


def test_a_change_is_the_cause_only_where_a_working_drafter_comes_of_it(bundled):
    assert cure(bundled, "taps", 3).proved  # position 1 is accepted as by a trained drafter
    assert not cure(bundled, "taps", 0).proved
    assert not cure(bundled, "window", 3, before=2, clean=False).proved  # something else would still help
    assert cure(bundled, "window", 3, before=2, clean=True).proved
    assert not replace(cure(bundled, "rope", 3), before=walked(3)).proved  # no gain at all
    assert not cure(bundled, "norms", 3, before=2, clean=False).proved  # another scale helps where others are off, too
    little = concluded(cure=cure(bundled, "window", 3, before=2, clean=False))
    assert (little.cause, little.accuses) == ("little", False)
    assert "helps a little (α 3.00 → 4.00) and does not explain it" in little.said


def test_a_vp_drafter_goes_on_further_from_tokens_that_it_is_shown(bundled, texts):
    target = bundled.models.target
    found = {}
    for model in (bundled.models.first, bundled.models.second):
        walks = [walk(Redrafter(target, model), t) for t in texts]
        found[model] = further(target, model, texts, walks)
    first, second = found.values()
    assert first < FURTHER < second


def test_prompts_that_mean_nothing_and_texts_that_repeat_are_seen(bundled, texts):
    target = bundled.models.target
    assert surprise(target, texts) < 0.6
    shuffled = [Text((*torch.randint(300, 4000, (t.start,)).tolist(), 5), t.start) for t in texts]
    assert Signs(surprise=surprise(target, shuffled)).garbled
    assert repeated([Text((1, *[5, 6, 7, 8] * 6), 1)]) > 0.7
    assert repeated([Text(tuple(range(30)), 1)]) == 0


def test_an_eagle3_drafter_is_drafted_again_as_decoding_drafts_it(bundled, texts):
    target, model = bundled.models.target, bundled.models.eagle3
    engine = Engine(Models(target, eagle3=model))
    config = engine.resolve(DecodeConfig("eagle3", TOKENS, draft_top_k=1, inspect=False))
    wanted = [study(target, t, model.target_layer_ids) for t in texts[:2]]
    for known in wanted:
        trace = engine.generate(known.ids[: known.start], config)
        steps = [len(s.committed) - 1 for s in trace.steps]
        assert walk(ChainRedrafter(target, model, config.draft_depth + 1), known).accepted[:-1] == tuple(steps[:-1])


def test_one_added_to_the_layers_own_norms_is_undone_exactly(bundled):
    model = bundled.models.first
    given = {n: w + 1 if n.endswith("layernorm.weight") else w for n, w in weights_of(model).items()}
    (undo,) = (v for v in undoings(model, bundled.models.target) if "-1" in v.said and "input and post" in v.said)
    found = {**given, **undo.edit(given)}
    assert all(torch.allclose(found[n], w, atol=1e-6) for n, w in weights_of(model).items())
    assert not any(torch.equal(given[n], w) for n, w in weights_of(model).items() if n.endswith("layernorm.weight"))


@pytest.mark.parametrize("name", ["q and k as GGUF", "eagle3 residual", "eagle3 d2t", "eagle3 head_dim"])
def test_what_a_probe_undoes_is_mended_in_the_folder(bundled, texts, tmp_path, name):
    target = bundled.models.target
    folder = WAYS[name].drafter(tmp_path / "d")
    models = Models(target)
    engine = load_checked(models, None, Examination(str(folder), "t", []))
    model = engine.models.first or engine.models.eagle3
    subject = Subject(target)
    own = [v for v in subject.variants(model, 100, True) if v.kind in WAYS[name].causes.split()]
    some = [study(target, t, model.target_layer_ids) for t in texts[:2]]

    def accepted(one):
        return sum(sum(subject.draft(one).accepted(t, t.anchors[::3])) for t in some)

    scores = [accepted(v.of(model)) for v in own]
    best = own[max(range(len(own)), key=scores.__getitem__)]
    assert max(scores) > 1.2 * accepted(model)
    mend(str(folder), [best], tmp_path / "m")
    mended = load_checked(models, None, Examination(str(tmp_path / "m"), "t", [])).models
    assert accepted(mended.first or mended.eagle3) == max(scores)
    with pytest.raises(InputError, match="is there already"):
        mend(str(folder), [best], tmp_path / "m")


def test_a_whole_examination_fills_the_report_and_can_be_closed(tokenizer, monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 12)
    target = make_target(tokenizer)
    engine = Engine(Models(target, make_drafter(target)))
    config = DecodeConfig("autoregressive")
    found = Examination("a/drafter", "a/target", [Check("layout", "good", "nested")])
    drafted, seen = Redrafter._hidden, []

    def hidden(*asked):
        assert engine.lock.locked()
        return drafted(*asked)

    monkeypatch.setattr(Redrafter, "_hidden", hidden)
    for progress in examine(engine, PROMPTS[:3], config, found):
        assert not engine.lock.locked()  # others may use the models in between
        seen.append(progress.said)
    assert seen.count("mask tokens") == found.masks > 1
    assert list(dict.fromkeys(seen)) == ["write the texts", "read and draft them", "mask tokens", "probes"]
    report = markdown([found])
    assert found.diagnosis is not None
    assert "| position | 1" in report
    assert "γ counts the anchor" in report
    stopped = Examination("a", "b", [Check("layout", "good", "nested")])
    run = examine(engine, PROMPTS[:3], config, stopped)
    while next(run).said != "probes":
        pass
    run.close()
    assert "Stopped before the end" in markdown([stopped])


def test_names_and_tokens_of_others_are_never_markup():
    assert code("a`<b>|\n") == "`aˋ<b>¦\\n`"
    assert text("<img> [x](y) |") == r"\<img\> \[x\](y) \|"
    found = Examination("`</code><script>", "t", [Check("mask token", "good", "'<script>' | *")])
    assert r"| '\<script\>' \| \* |" in markdown([found])


def test_templates_are_other_ways_to_ask_the_same(bundled):
    config = DecodeConfig("autoregressive")
    assert templates(bundled, PROMPTS, config) == []
    tokenizer = bundled.models.target.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}{% if enable_thinking %}?{% endif %}"
    )
    try:
        assert [t.mend for t in templates(bundled, PROMPTS, config)] == ["--chat"]
        asked = templates(bundled, PROMPTS, replace(config, chat=True))
        assert [(t.mend, t.worth) for t in asked] == [("leave out --chat", WORTH), ("--thinking", WORTH)]
        tokenizer.chat_template = "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}"  # thinking changes nothing
        assert [t.mend for t in templates(bundled, PROMPTS, replace(config, chat=True))] == ["leave out --chat"]
    finally:
        tokenizer.chat_template = None


def test_the_command_ends_with_1_where_a_cause_is_named(tmp_path, capsys):
    drafter = copied(tmp_path / "d", inner(target_layer_ids=[1, 4, 13]))
    assert main(["doctor", "tiny", str(drafter), "--out", str(tmp_path / "r.md")]) == 1
    out = capsys.readouterr().out
    assert "To mend: `dflash_config.target_layer_ids: [1, 4, 7, 10, 13]`" in out
    assert (tmp_path / "r.md").read_text(encoding="utf-8").strip() == out.strip()


def fewer_tokens(config):
    """The bundled drafter as speculators publish one that drafts 64 tokens of the vocabulary."""
    own = config["dflash_config"]
    return {
        "speculators_model_type": "dflash", "block_size": config["block_size"], "sample_from_anchor": False,
        "transformer_layer_config": {k: v for k, v in config.items() if k != "dflash_config"},
        "aux_hidden_state_layer_ids": [n + 1 for n in own["target_layer_ids"]],
        "mask_token_id": own["mask_token_id"], "draft_vocab_size": 64,
    }  # fmt: skip


def sharded(folder, part):
    """Its weights as a large model's are published: in files that an index names."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "backup.safetensors")  # another file, which the index does not name
    files = {name: f"model-{n % 2 + 1}-of-2.safetensors" for n, name in enumerate(sorted(weights))}
    for file in sorted(set(files.values()))[:part]:
        save_file({n: w for n, w in weights.items() if files[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return str(folder)


def test_of_a_folder_with_an_index_the_files_count_that_it_names(bundled, tmp_path):
    target = bundled.models.target
    source = sharded(copied(tmp_path / "d", weights=lambda w: {**w, "norm.weight": w["norm.weight"] * 2}), 2)
    save_file({"norm.weight": torch.ones(3), "sinks": torch.ones(3)}, tmp_path / "d" / "backup.safetensors")
    assert {c.state for c in check_folder(source, target)} == {"good"}
    loaded = load_drafter(source, torch.float32, "cpu", target)
    assert torch.equal(loaded.norm.weight, 2 * bundled.models.first.norm.weight)
    checks = check_folder(sharded(copied(tmp_path / "e"), 1), target)
    assert [c.said for c in checks if c.state == "fault"] == [
        "some of the safetensors files that its index names are missing"
    ]


UNLOADABLE = {
    "NaN": (dict, lambda w: {**w, "norm.weight": w["norm.weight"] * torch.nan}, "fault: its weight norm.weight holds NaN", "dflash"),
    "no d2t": (fewer_tokens, lambda w: {**w, "lm_head.weight": torch.ones(64, 192)}, "has no d2t", "dflash"),
    "EAGLE-3": (dict, lambda w: {k: v for k, v in w.items() if k != "fc.weight"}, "lack fc.weight", "eagle3"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLOADABLE)
def test_what_keeps_a_drafter_from_being_loaded_is_a_fault(bundled, tmp_path, name):
    config, weights, said, part = UNLOADABLE[name]
    found = Examination(str(copied(tmp_path / "d", config, weights, part)), "t", [])
    assert load_checked(Models(bundled.models.target), None, found) is None
    assert found.diagnosis.accuses
    assert said in found.diagnosis.said


def test_a_fault_of_one_drafter_leaves_the_next_one_to_be_looked_at(bundled, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.cli.doctor.load_models", lambda *_, **__: bundled.models)
    config, weights, *_ = UNLOADABLE["NaN"]
    broken = copied(tmp_path / "d", config, weights)
    other = copied(tmp_path / "vp", FOLDERS["contradiction"][0])
    assert main(["doctor", "tiny", str(broken), "--vp", str(other)]) == 1
    out = capsys.readouterr().out
    assert out.index("holds NaN") < out.index("its dflash\\_config.block\\_size 8")


def test_where_a_check_is_a_fault_nothing_is_run(bundled):
    found = Examination("d", "t", [Check("fc", "fault", "it is wrong")])
    assert list(examine(bundled, PROMPTS, DecodeConfig("autoregressive"), found)) == []
    assert found.diagnosis.said == "The folder has a fault: it is wrong."


def test_stopped_early_the_command_says_what_it_did_not_look_at(bundled, monkeypatch, capsys):
    monkeypatch.setattr("d2sd.cli.doctor.load_models", lambda *_, **__: bundled.models)

    def stopped(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("d2sd.cli.doctor.examine", stopped)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--vp", str(TINY / "vp")]) == 130
    first, second = capsys.readouterr().out.split("\n## ")[1:3]
    assert "Stopped before the end" in first
    assert "Not examined" in second
    assert "| check |" not in second


def test_every_way_of_breaking_is_a_folder_or_a_target(tmp_path):
    for number, way in enumerate({**WAYS, **KEPT_OUT, **SOUND}.values()):
        folder = way.drafter(tmp_path / str(number))
        assert json.loads((folder / "config.json").read_text())
    assert len(WAYS) + len(KEPT_OUT) >= 60
    assert len(SOUND) >= 8
    assert 10 * len(KEPT_OUT) >= len(WAYS)
