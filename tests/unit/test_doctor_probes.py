"""The doctor's drafts over texts: probes, what the texts tell of a drafter, and the change that repairs it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from d2sd.calibration.resampling import Estimate
from d2sd.config import DecodeConfig
from d2sd.decoding.replay import Text, with_features
from d2sd.doctor import probes
from d2sd.doctor.changes import Variant, weights_of, write_changed
from d2sd.doctor.evidence import UNRELATED, repeated_share, surprise
from d2sd.doctor.examination import best_of, drafter_of
from d2sd.doctor.probes import MIN_RISE, Trial, change_of_alpha, is_clear, probe, relative_gain, score_masks, templates
from d2sd.doctor.redraft import BlockRedrafter, TextWalk, generate_texts, redrafter, walk_text
from d2sd.doctor.variants import mask_tokens, variants, with_mask
from d2sd.doctor.weight_edits import weight_variants
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.loading import load_drafter, with_drafter
from d2sd.nets.models import Models
from tools.breaking import TINY
from tools.broken_ways import WAYS

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
    """What the bundled target generates, with the features that any variant of its drafter reads."""
    target, model = bundled.models.target, bundled.models.first
    config = DecodeConfig("autoregressive", TOKENS)
    layers = {n for v in variants(model, target, 100, True) for n in v.taps} | {*model.target_layer_ids}
    generated = generate_texts(target, [bundled.encode(p, config) for p in PROMPTS], TOKENS)
    return [with_features(target, t, layers) for t in generated]


@pytest.fixture(scope="module")
def walks(bundled, texts):
    """The bundled drafter over them."""
    return [walk_text(BlockRedrafter(bundled.models.target, bundled.models.first), t) for t in texts]


@pytest.mark.parametrize("name", ["dflash", "dspark", "eagle3"])
def test_walk_matches_decoding_steps(bundled, texts, name):
    target = bundled.models.target
    if name == "eagle3":
        model = bundled.models.eagle3
        engine, settings = Engine(Models(target, eagle3=model)), {"draft_top_k": 1}
    else:
        model = load_drafter(str(TINY / name), torch.float32, "cpu", target)
        engine, settings = Engine(Models(target, model)), {}
    config = engine.resolve(DecodeConfig("eagle3" if settings else "dflash", TOKENS, inspect=False, **settings))
    for known in texts[:2]:
        trace = engine.generate(known.ids[: known.start], config)
        assert list(known.ids[known.start :]) == list(trace.token_ids)
        steps = tuple(len(s.committed) - 1 for s in trace.steps)
        found = walk_text(redrafter(target, model), with_features(target, known, model.target_layer_ids)).accepted
        assert found[:-1] == steps[:-1]
        # the last step is cut with or without a bonus token
        assert sum(found) + len(found) - len(steps) - sum(steps) in (0, 1)


def test_block_redrafter_continues_visible_tokens(bundled, texts, monkeypatch):
    target, known = bundled.models.target, texts[0]
    drafter = BlockRedrafter(target, bundled.models.second, visible=2)
    found = drafter.accepted(known, known.anchors)
    assert 0 < max(found) <= bundled.models.second.block_size - 3
    blocks = drafter._blocks
    monkeypatch.setattr(drafter, "_blocks", lambda *args: blocks(*args).index_fill(1, torch.tensor([1, 2]), 0))
    assert sum(drafter.accepted(known, known.anchors)) < 0.9 * sum(found)  # other tokens were shown


def test_variants_change_one_thing_each(bundled):
    target, model = bundled.models.target, bundled.models.first
    found = variants(model, target, 100, True)
    assert len({v.description for v in found}) == len(found)
    assert model.form not in [v.form for v in found if v.edit_weights is None]
    assert {v.kind for v in found} == {
        "taps", "rope", "window", "causal", "reads", "rows", "layer", "sublayer", "rotary", "swapped", "transposed", "order",
    }  # fmt: skip
    assert all(v.writable == (v.left_out is None) for v in found)
    assert all(0 <= n < 16 for v in found for n in v.taps)
    assert "dflash_config.target_layer_ids: [2, 5, 8, 11, 14]" in {v.fix for v in found if v.kind == "taps"}
    assert mask_tokens(model.form, target) == [0, 4095, 2]


UNDONE = [
    "fc by feature", "fc column by column", "all column by column", "o × 8 in a layer", "down × 16 in a layer", "v × 8",
    "o transposed", "norms − 1", "layer norms + 1", "layers 0 and 2", "layers rotated", "hidden_norm × 3",
]  # fmt: skip


@pytest.mark.parametrize("name", UNDONE)
def test_weight_variants_undo_conversion_errors(bundled, tmp_path, name):
    target, sound = bundled.models.target, weights_of(bundled.models.first)
    model = load_drafter(str(WAYS[name].drafter(tmp_path / "d")), torch.float32, "cpu", target)
    broken = weights_of(model)
    assert any(not torch.equal(w, sound[n]) for n, w in broken.items())
    tried = [
        {**broken, **v.edit_weights(broken)} for v in weight_variants(model, target) if v.kind in WAYS[name].causes
    ]
    assert any(all(torch.allclose(w, sound[n], atol=1e-2) for n, w in one.items()) for one in tried)


def test_weight_variants_change_norms_only_towards_usual(bundled):
    """More or less of a norm helps many damaged drafters: only what leads nearer to usual weights is tried."""
    model, target = bundled.models.first, bundled.models.target
    assert [v.description for v in weight_variants(model, target) if v.kind == "norms"] == []


def trial(description, gain, left_out=None):
    variant = Variant("layer" if left_out else "swapped", description, None, None, left_out=left_out)
    return Trial(variant, Estimate(gain, gain / 2, gain * 2), True)


def test_best_of_requires_clear_gain_over_removed_layer():
    swapped, removed = trial("swapped", 0.6), trial("layer 1 left out", 0.5, "layer 1")
    assert best_of([swapped, removed]) is removed
    assert best_of([trial("swapped", 4.0), removed]).variant.description == "swapped"
    assert best_of([]) is None


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (lambda form: replace(form, mask_token=77), "mask"),
        (lambda form: replace(form, reads="next"), "reads"),
        (lambda form: replace(form, shape={**form.shape, "rope_parameters": {"rope_theta": 3e7, "rope_type": "default"}}), "rope"),
        (lambda form: replace(form, windows=(12,) * 3, causal=(True,) * 3), "window"),
    ],
)  # fmt: skip
def test_probe_gains_most_by_undoing_fault(bundled, texts, broken, kind, monkeypatch):
    monkeypatch.setattr(probes, "SCREEN_KEEP", 1)
    monkeypatch.setattr(probes, "SCREEN_EVERY", 2)
    target, model = bundled.models.target, bundled.models.first
    sick = model.reformed(broken(model.form))
    base = [walk_text(BlockRedrafter(target, sick), t) for t in texts]
    tried = [
        v for v in variants(sick, target, 100, True) if v.kind in (kind, "layer") and v.description[-6:] != "causal"
    ]
    if kind == "mask":
        tokens = mask_tokens(sick.form, target)
        best = max(zip(score_masks(target, sick, 0, texts, tokens), tokens, strict=True))[1]
        tried = [with_mask(sick.form, best, "<|mask|>")]
    found = list(probe(target, sick, 0, texts, base, tried, len(tried)))
    assert max((t for t in found if t.helps), key=lambda t: t.gain.value).variant.kind == kind
    assert [t.variant.kind for t in found if len(t.walks) == len(texts)] == [kind]


def test_probe_finds_no_help_for_sound_drafter(bundled, texts, walks):
    target, model = bundled.models.target, bundled.models.first
    some = [v for v in variants(model, target, 100, True) if v.kind in ("window", "rows", "rotary")]
    assert not [t for t in probe(target, model, 0, texts, walks, some, 150) if t.helps]


def test_is_clear_needs_positive_interval_and_minimum_size():
    assert is_clear(Estimate(0.1, 0.01, 0.2), 0.02)
    assert not is_clear(Estimate(0.1, -0.01, 0.2), 0.02)
    assert not is_clear(Estimate(0.015, 0.01, 0.02), 0.02)
    assert not is_clear(Estimate(0.1), 0.02)


def test_relative_gain_interval_widens_with_trials():
    base = [TextWalk((1,) * 8, 16, (1, 1, 0))] * 4 + [TextWalk((2,) * 6, 18, (2, 1, 0))] * 4
    better = [TextWalk((2,) * 5, 16, (3, 1, 0))] * 4 + [TextWalk((3,) * 4, 18, (3, 2, 1))] * 4
    for compare in (relative_gain, change_of_alpha):
        one, many = compare(better, base, 1), compare(better, base, 40)
        assert many.low < one.low < one.value < one.high < many.high
    assert relative_gain(base, base, 1).value == 0


def test_templates_omits_templates_without_effect(bundled):
    config = DecodeConfig("autoregressive")
    assert templates(bundled, PROMPTS, config) == []
    tokenizer = bundled.models.target.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}{% if enable_thinking %}?{% endif %}"
    )
    try:
        assert [t.fix for t in templates(bundled, PROMPTS, config)] == ["--chat"]
        found = templates(bundled, PROMPTS, replace(config, chat=True))
        assert [(t.fix, t.min_rise) for t in found] == [("leave out --chat", MIN_RISE), ("--thinking", MIN_RISE)]
        tokenizer.chat_template = "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}"  # thinking changes nothing
        assert [t.fix for t in templates(bundled, PROMPTS, replace(config, chat=True))] == ["leave out --chat"]
    finally:
        tokenizer.chat_template = None


def test_surprise_and_repeated_share_detect_bad_texts(bundled, texts):
    target = bundled.models.target
    assert surprise(target, texts) < 0.6
    shuffled = [Text((*torch.randint(300, 4000, (t.start,)).tolist(), 5), t.start) for t in texts]
    assert surprise(target, shuffled) >= UNRELATED
    assert repeated_share([Text((1, *[5, 6, 7, 8] * 6), 1)]) > 0.7
    assert repeated_share([Text(tuple(range(30)), 1)]) == 0


@pytest.mark.parametrize("name", ["q and k as GGUF", "eps", "eagle3 residual", "eagle3 d2t", "eagle3 head_dim"])
def test_write_changed_saves_repaired_drafter(bundled, texts, tmp_path, name):
    target = bundled.models.target
    folder = WAYS[name].drafter(tmp_path / "d")

    def loaded(source):
        return drafter_of(with_drafter(Models(target), str(source), None))

    model = loaded(folder)
    own = [v for v in variants(model, target, 100, True) if v.kind in WAYS[name].causes.split()]
    some = [with_features(target, t, model.target_layer_ids) for t in texts[:2]]

    def accepted(one):
        return sum(sum(redrafter(target, one).accepted(t, t.anchors[::3])) for t in some)

    scores = [accepted(v.apply(model)) for v in own]
    best = own[max(range(len(own)), key=scores.__getitem__)]
    assert max(scores) > 1.2 * accepted(model)
    write_changed(str(folder), [best], tmp_path / "m")
    assert accepted(loaded(tmp_path / "m")) == max(scores)
    with pytest.raises(InputError, match="already exists"):
        write_changed(str(folder), [best], tmp_path / "m")


def test_write_changed_refuses_inexpressible_change(bundled, tmp_path):
    found = variants(bundled.models.first, bundled.models.target, 100, True)
    without_layer = next(v for v in found if v.kind == "layer")
    with pytest.raises(InputError, match="layer 0 left out"):
        write_changed(str(TINY / "dflash"), [without_layer], tmp_path / "m")
    assert not (tmp_path / "m").exists()
