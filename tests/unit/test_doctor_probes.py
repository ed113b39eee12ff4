"""The doctor's drafts over texts: probes, statistics of texts, and the change that repairs a drafter."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from d2sd.calibration.replays import DraftingRun, TextWalk, relative_gain
from d2sd.config import DecodeConfig
from d2sd.doctor import probes
from d2sd.doctor.changes import Variant, weights_of, write_changed
from d2sd.doctor.evidence import UNRELATED, repeated_share, surprise
from d2sd.doctor.examination import drafter_of, generate_texts
from d2sd.doctor.probes import probe, templates
from d2sd.doctor.settings import config_values, set_keys, settings_of, with_setting
from d2sd.doctor.variants import mask_tokens, variants
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.configs import published_config
from d2sd.folders.loading import with_drafter
from d2sd.nets.layouts import read_eagle3, read_form
from d2sd.nets.models import Models
from d2sd.replay.anchors import BlockRedrafter, redrafter
from d2sd.replay.recorded import Text, with_features
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
RAW = {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 4, 7, 10, 13]}}  # of the bundled drafter


@pytest.fixture(scope="module")
def texts(bundled):
    """Texts of the bundled target, with the features that any variant of its drafter reads."""
    target, model = bundled.models.target, bundled.models.first
    config = DecodeConfig("autoregressive", TOKENS)
    layers = {n for v in variants(model, target, 100, RAW) for n in settings_of(v.form)["taps"]} | {
        *model.target_layer_ids
    }
    generated = generate_texts(target, [bundled.encode(p, config) for p in PROMPTS], TOKENS)
    return [with_features(target, t, layers) for t in generated]


@pytest.fixture(scope="module")
def sound(bundled, texts):
    """The bundled drafter's steps over ``texts``."""
    drafter = BlockRedrafter(bundled.models.target, bundled.models.first)
    return drafter.run(map(drafter.steps, texts))


@pytest.mark.parametrize(("name", "method"), [("dflash", "dflash"), ("dspark", "dflash"), ("eagle3", "eagle3")])
def test_walk_matches_decoding_steps(bundled, texts, name, method):
    target = bundled.models.target
    models = with_drafter(Models(target), str(TINY / name), None)
    model, engine = drafter_of(models), Engine(models)
    config = engine.resolve(DecodeConfig(method, TOKENS, inspect=False, draft_top_k=1))
    for known in texts[:2]:
        trace = engine.generate(known.ids[: known.start], config)
        assert list(known.ids[known.start :]) == list(trace.token_ids)
        steps = tuple(len(s.committed) - 1 for s in trace.steps)
        found = redrafter(target, model).steps(with_features(target, known, model.target_layer_ids)).accepted
        assert found[:-1] == steps[:-1]
        # the last step may be cut with or without a bonus token
        assert sum(found) + len(found) - len(steps) - sum(steps) in (0, 1)


def test_block_redrafter_continues_visible_tokens(bundled, texts, monkeypatch):
    target, known = bundled.models.target, texts[0]
    drafter = BlockRedrafter(target, bundled.models.second, visible=2)
    found = drafter.accepted(known, known.anchors)
    assert 0 < max(found) <= bundled.models.second.block_size - 3
    hidden, shown = drafter._hidden, torch.tensor([1, 2])
    monkeypatch.setattr(drafter, "_hidden", lambda block, *rest: hidden(block.index_fill(1, shown, 0), *rest))
    assert sum(drafter.accepted(known, known.anchors)) < 0.9 * sum(found)  # wrong tokens were visible


def test_variants_change_one_thing_each(bundled):
    target, model = bundled.models.target, bundled.models.first
    found = variants(model, target, 100, RAW)
    assert len({v.description for v in found}) == len(found)
    assert model.form not in [v.form for v in found if v.edit_weights is None and v.lag == v.ahead == 0]
    assert {v.kind for v in found} == {"taps", "rope", "attention", "reads", "mask", "rotary", "lag", "ahead"}
    assert all(v.writable == (v.kind not in ("lag", "ahead")) == (v.fix is not None) for v in found)
    assert all(0 <= n < 16 for v in found for n in settings_of(v.form)["taps"])
    assert "dflash_config.target_layer_ids: [2, 5, 8, 11, 14]" in {v.fix for v in found if v.kind == "taps"}
    assert mask_tokens(model.form, target) == [1, 0, 4095, 2]
    common = {v.description.partition(":")[0] for v in found if v.common and v.kind in ("taps", "mask", "rope")}
    assert {"every tap +1", "taps in reverse order", "taps 1 and 4 swapped"} <= common
    assert not any(" instead of " in description for description in common)


@pytest.mark.parametrize("name", ["dflash", "dspark", "eagle3"])
def test_config_values_express_every_setting(bundled, name):
    """Reading the changed config gives the changed form."""
    target, raw = bundled.models.target.config, published_config(str(TINY / name))

    def read(config):
        return read_eagle3(config, target.num_hidden_layers) if name == "eagle3" else read_form(config)

    own = read(raw)
    others = {
        "taps": (2, 8, 11) if name == "eagle3" else (2, 5, 8, 11, 12),
        "mask": 7,
        "rope": {"rope_theta": 5e5, "rope_type": "default"},
        "attention": ((None, 32, 32), (False, True, True)),
        "reads": "next",
        "rows": 8,
        "eps": 0.5,
        "residual": True,
        "output": True,
        "heads": (32, 6, 2),
    }
    for setting in settings_of(own):
        other = with_setting(own, setting, others[setting])
        assert settings_of(other) == {**settings_of(own), setting: others[setting]}
        values = config_values(other, setting, raw)
        if setting == "attention":  # one window and one rule for causal rows in all layers
            other = with_setting(own, setting, ((32,) * 3, (True,) * 3))
            values = config_values(other, setting, raw)
        config = copy.deepcopy(raw)
        set_keys(config, values)
        assert settings_of(read(config)) == settings_of(other), setting


@pytest.mark.parametrize("name", ["norms − 1", "norms + 1", "layer norms + 1", "q and k as GGUF", "eagle3 q and k"])
def test_variants_undo_conversions_of_weights(bundled, tmp_path, name):
    target = bundled.models.target
    sound = weights_of(bundled.models.eagle3 if "eagle3" in name else bundled.models.first)
    model = drafter_of(with_drafter(Models(target), str(WAYS[name].drafter(tmp_path / "d")), None))
    broken = weights_of(model)
    assert any(not torch.equal(w, sound[n]) for n, w in broken.items())
    tried = [v for v in variants(model, target, 100, RAW) if v.kind in WAYS[name].causes.split() and v.common]
    undone = [{**broken, **v.edit_weights(broken)} for v in tried if v.edit_weights]
    assert any(all(torch.allclose(w, sound[n], atol=1e-2) for n, w in one.items()) for one in undone)


@pytest.mark.parametrize("name", ["first", "eagle3"])
def test_lag_moves_features_to_later_positions(bundled, texts, name):
    target, model = bundled.models.target, getattr(bundled.models, name)
    (lag,) = (v for v in variants(model, target, 100, RAW) if v.kind == "lag")
    assert (lag.lag, lag.writable) == (1, False)
    for text in texts[:2]:
        late = replace(text, features={n: torch.cat([f[:1], f[:-1]]) for n, f in text.features.items()})
        expected = redrafter(target, model).accepted(late, text.anchors)
        assert redrafter(target, model, lag=1).accepted(text, text.anchors) == expected
        assert expected != redrafter(target, model).accepted(text, text.anchors)
        assert redrafter(target, model, ahead=1).accepted(text, text.anchors) != redrafter(target, model).accepted(text, text.anchors)  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (lambda form: replace(form, mask_token=77), "mask"),
        (lambda form: replace(form, windows=(12,) * 3, causal=(True,) * 3), "attention"),
    ],
)  # fmt: skip
def test_probe_gains_most_by_undoing_fault(bundled, texts, broken, kind, monkeypatch):
    monkeypatch.setattr(probes, "SCREEN_KEEP", 1)
    monkeypatch.setattr(probes, "SCREEN_EVERY", 2)
    monkeypatch.setattr(probes, "SCREEN_FLOOR", -9.0)
    target, model = bundled.models.target, bundled.models.first
    sick = Variant("", "", broken(model.form)).apply(model)
    drafter = BlockRedrafter(target, sick)
    base = drafter.run(map(drafter.steps, texts))
    tried = [v for v in variants(sick, target, 100, RAW) if v.kind in (kind, "ahead") and v.description != "no window"]
    found = list(probe(target, sick, texts, base, tried))
    assert max((t for t in found if t.helps), key=lambda t: t.gain.value).variant.kind == kind
    # another kind of change is always measured over all texts too, since it might help as much
    assert [t.variant.kind for t in found if len(t.run.walks) == len(texts)] == [kind, "ahead"]


def test_probe_finds_no_help_for_sound_drafter(bundled, texts, sound):
    target, model = bundled.models.target, bundled.models.first
    some = [v for v in variants(model, target, 100, RAW) if v.kind in ("attention", "rotary", "lag")]
    assert not [t for t in probe(target, model, texts, sound, some) if t.helps]


def test_relative_gain_interval_widens_with_trials():
    base = DraftingRun((TextWalk((1,) * 8, 16, (1, 1, 0)),) * 4 + (TextWalk((2,) * 6, 18, (2, 1, 0)),) * 4)
    better = DraftingRun((TextWalk((2,) * 5, 16, (3, 1, 0)),) * 4 + (TextWalk((3,) * 4, 18, (3, 2, 1)),) * 4)
    for compare in (DraftingRun.change, lambda own, base, tests: relative_gain(own.by_anchor, base.by_anchor, tests)):
        one, many = compare(better, base, 1), compare(better, base, 40)
        assert many.low < one.low < one.value < one.high < many.high
    assert relative_gain(base.by_anchor, base.by_anchor).value == 0


def test_templates_omits_templates_without_effect(bundled):
    config = DecodeConfig("autoregressive")
    assert templates(bundled, PROMPTS, config) == {}
    tokenizer = bundled.models.target.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}{% if enable_thinking %}?{% endif %}"
    )
    try:
        assert list(templates(bundled, PROMPTS, config)) == ["the chat template"]
        thinking = replace(config, chat=True, thinking=True)
        assert list(templates(bundled, PROMPTS, thinking)) == ["no chat template", "no thinking"]
        tokenizer.chat_template = "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}"  # thinking changes nothing
        assert list(templates(bundled, PROMPTS, replace(config, chat=True))) == ["no chat template"]
    finally:
        tokenizer.chat_template = None


def test_surprise_and_repeated_share_detect_bad_texts(bundled, texts):
    target = bundled.models.target
    assert surprise(target, texts) < 0.6
    shuffled = [Text((*torch.randint(300, 4000, (t.start,)).tolist(), 5), t.start) for t in texts]
    assert surprise(target, shuffled) >= UNRELATED
    assert repeated_share([Text((1, *[5, 6, 7, 8] * 6), 1)]) > 0.7
    assert repeated_share([Text(tuple(range(30)), 1)]) == 0


@pytest.mark.parametrize("name", ["q and k as GGUF", "eps", "eagle3 residual", "eagle3 head_dim", "fill as next"])
def test_write_changed_saves_repaired_drafter(bundled, texts, tmp_path, name):
    target = bundled.models.target
    folder = WAYS[name].drafter(tmp_path / "d")

    def loaded(source):
        return drafter_of(with_drafter(Models(target), str(source), None))

    model, raw = loaded(folder), published_config(str(folder))
    own = [v for v in variants(model, target, 100, raw) if v.kind in WAYS[name].causes.split()]
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
    found = variants(bundled.models.first, bundled.models.target, 100, RAW)
    displaced = next(v for v in found if v.kind == "lag")
    with pytest.raises(InputError, match="target features one position late"):
        write_changed(str(TINY / "dflash"), [displaced], tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_write_changed_writes_maps_and_leaves_out_removed_tensors(bundled, tmp_path):
    model = bundled.models.eagle3
    ids = torch.arange(0, 4096, 2)
    head = model.lm_head.weight[ids].clone()
    half = Variant("exchange", "half", model.form, {"draft_vocab_size": 2048}, lambda _: {"lm_head.weight": head, "token_ids": ids})  # fmt: skip
    write_changed(str(TINY / "eagle3"), [half], tmp_path / "m")
    written = drafter_of(with_drafter(Models(bundled.models.target), str(tmp_path / "m"), None))
    assert torch.equal(written.token_ids, ids)
    own = {**load_file(TINY / "dflash" / "model.safetensors"), "embed_tokens.weight": torch.ones(4096, 192)}
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "config.json").write_text((TINY / "dflash" / "config.json").read_text())
    save_file(own, tmp_path / "d" / "model.safetensors")
    without = Variant("exchange", "none", bundled.models.first.form, {}, lambda _: {"embed_tokens.weight": None})
    write_changed(str(tmp_path / "d"), [without], tmp_path / "n")
    assert "embed_tokens.weight" not in load_file(tmp_path / "n" / "model.safetensors")
