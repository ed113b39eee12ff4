"""The fingerprint of the target beside a drafter: what it notices, its size, and that training writes it."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from d2sd.folders.fingerprint import MOST_BYTES, NAME, changes_since, fingerprint, write_fingerprint
from d2sd.folders.loading import load_target
from tools.breaking import TINY


@pytest.fixture(scope="module")
def drafter(bundled, tmp_path_factory):
    """A drafter's folder with the fingerprint of the bundled target."""
    folder = tmp_path_factory.mktemp("drafter")
    target = bundled.models.target
    write_fingerprint(folder, fingerprint("tiny", target, bundled.models.first))
    return folder


def changed(out, edit=dict, **settings):
    """The bundled target with edited weights and other config keys."""
    shutil.copytree(TINY / "target", out)
    for path in out.glob("*.safetensors"):
        save_file(edit(load_file(path)), path, {"format": "pt"})
    config = json.loads((out / "config.json").read_text()) | settings
    (out / "config.json").write_text(json.dumps(config))
    return out


def edited(ends, change):
    return lambda w: {k: change(v.clone()) if k.endswith(ends) else v for k, v in w.items()}


def reset(w):
    w[1] = w.float().mean(0).to(w.dtype)
    return w


YARN = {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
CHANGES = {
    "nothing": ({}, ()),
    "mask row": ({"edit": edited("embed_tokens.weight", reset)}, ("the embedding of the mask token changed",)),
    "embedding": ({"edit": edited("embed_tokens.weight", lambda w: w.roll(1, 0))}, ("the target's embedding, the embedding of the mask token changed",)),
    "a layer": ({"edit": edited("layers.5.mlp.up_proj.weight", lambda w: w * 2)}, ("layer 5 of the target changed",)),
    "all weights": ({"edit": lambda w: {k: v.float() for k, v in w.items()}}, ("all weights of the target changed: it was trained further, converted or rounded",)),
    "YaRN": ({"rope_parameters": YARN}, (f"the target's RoPE: {{'rope_theta': 10000.0, 'rope_type': 'default'}} in training, {str(YARN)[:120]} now",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changes_since_names_what_changed_in_the_target(bundled, drafter, tmp_path, name):
    how, words = CHANGES[name]
    source = str(changed(tmp_path / "t", **how))
    target = load_target(source, "float32", "cpu")
    assert changes_since(str(drafter), bundled.models.first, target, source) == words


def test_changes_since_names_settings_of_drafter_and_tokenizer(bundled, drafter):
    target = bundled.models.target
    changes = changes_since(str(drafter), bundled.models.eagle3, target, "tiny")
    assert "the drafter's taps: [1, 4, 7, 10, 13] in training, [1, 7, 13] now" in changes
    assert changes_since(str(drafter), bundled.models.first, target, None) == ()  # weights are not compared
    tokenizer = copy.deepcopy(target.tokenizer)
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.backend_tokenizer.post_processor = None
    other = copy.copy(target)
    other.tokenizer = tokenizer
    assert changes_since(str(drafter), bundled.models.first, other, None) == (
        "the target's tokenizer no longer adds a start token", "the target has another chat template",
    )  # fmt: skip


def test_fingerprint_of_target_without_safetensors_leaves_out_weights(bundled, drafter, tmp_path):
    """Targets with other weight files can be trained with too."""
    target = bundled.models.target
    source = changed(tmp_path / "t")
    for path in source.glob("*.safetensors*"):
        path.unlink()
    assert fingerprint(str(source), target, bundled.models.first)["weights"] is None
    assert changes_since(str(drafter), bundled.models.first, target, str(source)) == ()


def test_changes_since_knows_nothing_without_fingerprint(bundled, tmp_path):
    assert changes_since(str(tmp_path), bundled.models.first, bundled.models.target, "tiny") is None
    assert changes_since("owner/name", bundled.models.first, bundled.models.target, "tiny") is None


@pytest.mark.parametrize(
    ("part", "net"), [("dflash", "first"), ("vp", "second"), ("eagle3", "eagle3"), ("dspark", None)]
)
def test_bundled_drafters_have_fingerprint_of_bundled_target(bundled, part, net):
    path, target = TINY / part / NAME, bundled.models.target
    assert path.stat().st_size < MOST_BYTES
    if net:
        fresh = fingerprint("tiny", target, getattr(bundled.models, net))
        assert json.loads(path.read_text()) == fresh
