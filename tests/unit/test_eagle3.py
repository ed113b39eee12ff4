"""Drafts of EAGLE-3 folders in every published form match the definition; folders that do not fit are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from d2sd import DecodeConfig, Engine, InputError
from d2sd.folders.drafters import save_eagle3
from d2sd.folders.loading import load_drafter
from d2sd.nets.layouts import default_eagle3_layers, is_eagle3
from d2sd.nets.models import Models
from tests.nets import make_eagle3, make_target, stock_pass
from tests.unit.reference_eagle3 import KEY, best_nodes, write_folder

FORMS = ["specforge", "angelslim", "speculators"]


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def target(request, tokenizer):
    return make_target(tokenizer, request.param, layers=10)


def tapped(target, ids, layers):
    """Outputs of decoder layers for all tokens but the last, computed by transformers itself."""
    out = stock_pass(target.model, [ids[:-1]], output_hidden_states=True)
    return torch.stack([out.hidden_states[n + 1][0] for n in layers], 1)


def paths(step):
    """Token paths of a step's nodes with their log probabilities in the drafter."""
    found, scores = {0: ()}, {0: 0.0}
    for node in step.nodes[1:]:
        found[node.id] = (*found[node.parent], node.token)
        scores[node.id] = scores[node.parent] + torch.tensor(node.drafter_probability).double().log().item()
    return {found[n]: scores[n] for n in found if n}


FLAGS = {
    "plain": {},
    "cut": {"draft_vocab": 40, "layers": (0, 2, 5)},
    "normed residual": {"norm_before_residual": True},
    "3.1": {"norm_output": True, "fc_norm": True},
}


@pytest.mark.parametrize(("form", "flags"), [(form, flags) for form in FORMS for flags in FLAGS])
@torch.inference_mode()
def test_eagle3_drafts_match_definition_in_every_form(target, tmp_path, form, flags):
    # alternate: for each target, every form and every set of flags runs with both
    odd = FORMS.index(form) + list(FLAGS).index(flags) + (target.config.model_type == "llama")
    passes, flags = ("eager", "padded")[odd % 2], FLAGS[flags]
    definition = write_folder(tmp_path / "d", form, target, **flags)
    drafter = load_drafter(str(tmp_path / "d"), torch.float32, "cpu", target)
    assert drafter.target_layer_ids == list(flags.get("layers", (1, 4, 6)))
    engine = Engine(Models(target, eagle3=drafter), passes)
    config = DecodeConfig("eagle3", 8, draft_depth=2, draft_top_k=3, node_budget=9)
    trace = engine.generate("the cat sat", config)
    ids = [*trace.prefill.prompt_token_ids, trace.prefill.committed[0].token]
    for step in trace.steps[:3]:
        taps = tapped(target, ids, drafter.target_layer_ids)
        expected = best_nodes(definition, ids, taps, 2, 3, 9)
        found = paths(step)
        assert found.keys() == expected.keys()
        assert list(found.values()) == pytest.approx([expected[p] for p in found], abs=2e-3)
        ids += [c.token for c in step.committed]


def test_eagle3_top_k_one_drafts_a_chain(engine):
    trace = engine.generate("the cat", DecodeConfig("eagle3", 12, draft_depth=3, draft_top_k=1))
    for step in trace.steps:
        assert [n.parent for n in step.nodes] == [-1, 0, 1, 2, 3]
        assert step.draft_passes == len(step.levels) == 4


def test_eagle3_layer_numbers_depend_on_eagle_config(target, tmp_path):
    write_folder(tmp_path / "d", "specforge", target, layers=(1, 4, 6))
    path = tmp_path / "d" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {KEY: [2, 5, 7]}))  # both keys, which agree
    assert load_drafter(str(path.parent), torch.float32, "cpu", target).target_layer_ids == [1, 4, 6]
    del config["eagle_config"]
    path.write_text(json.dumps(config | {KEY: [1, 4, 6]}))
    assert load_drafter(str(path.parent), torch.float32, "cpu", target).target_layer_ids == [0, 3, 5]


def test_default_eagle3_layers_match_paper():
    assert default_eagle3_layers(36) == (1, 17, 32)
    with pytest.raises(ValueError, match="6 layers"):
        default_eagle3_layers(6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hidden_size": 32}, "features of width 32, but the target's hidden size is 64"),
        ({"vocab_size": 200}, "a vocabulary of 200 tokens, but the target has 300"),
        ({"eagle_config": {KEY: [1, 4, 10]}}, r"output of target layer 10, but the target has 10 layers \(0 to 9\)"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
        (
            {KEY: [1, 4, 6], "eagle_config": {KEY: [1, 4, 6]}},
            r"means the layers \(1, 4, 6\) and its eagle_aux_hidden_state_layer_ids means the layers \(0, 3, 5\)",
        ),
        ({"parallel_drafting": True}, "sets parallel_drafting, which this version does not know"),
        ({"num_hidden_layers": 2}, "num_hidden_layers to 2"),
        ({"use_swa": True}, "sets use_swa to True, which is not supported here"),
        ({"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
        ({"draft_vocab_size": 20}, r"lm_head.weight has shape \[300, 64\], and its config needs \[20, 64\]"),
        ({"fc_norm": True}, "fc_norm.0.weight is missing"),
        ({"model_type": "gemma3"}, "its model_type is 'gemma3'; it must be llama or qwen3"),
    ],
    ids=lambda x: x[:24] if isinstance(x, str) else None,
)
def test_load_eagle3_refuses_unfitting_config(target, tmp_path, changes, sentence):
    write_folder(tmp_path / "d", "specforge", target)
    path = tmp_path / "d" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=f"cannot load the drafter.*{sentence}"):
        load_drafter(str(path.parent), torch.float32, "cpu", target)


def test_load_eagle3_ignores_layer_types_and_end_of_the_target(target, tmp_path):
    write_folder(tmp_path / "d", "specforge", target)
    path = tmp_path / "d" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"layer_types": ["full_attention"] * 9, "eos_token_id": 10**6}))
    assert load_drafter(str(path.parent), torch.float32, "cpu", target).form.taps


def test_load_eagle3_refuses_unknown_contradictory_or_pickled_weights(target, tmp_path):
    write_folder(tmp_path / "d", "specforge", target, draft_vocab=40)
    path = tmp_path / "d" / "model.safetensors"
    whole = load_file(path)
    for changes, sentence in (
        (
            {"mask_hidden": torch.zeros(3)},
            r"its weights hold mask_hidden \(a P-EAGLE drafter's mask\), which this version does not read",
        ),
        ({"t2d": torch.zeros(300, dtype=torch.bool)}, "d2t and its t2d contradict"),
        ({"d2t": torch.full((40,), 299)}, "does not map to 40 different tokens"),
        ({"d2t": -torch.arange(40)}, "does not map to 40 different tokens"),
        ({"d2t": torch.full((40,), -1)}, "does not map to 40 different tokens"),
    ):
        save_file(whole | changes, path)
        with pytest.raises(InputError, match=sentence):
            load_drafter(str(path.parent), torch.float32, "cpu", target)
    path.unlink()
    (path.parent / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(
        InputError, match=r"pickle files.*convert them in their folder with python -c .*model\.safetensors"
    ):
        load_drafter(str(path.parent), torch.float32, "cpu", target)


def test_save_eagle3_round_trips_in_published_form(target, tmp_path):
    made = make_eagle3(target)
    save_eagle3(made, tmp_path / "d")
    config = json.loads((tmp_path / "d" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert is_eagle3(config)
    assert is_eagle3({"architectures": ["Qwen3ForCausalLMEagle3"]})
    assert not is_eagle3({"architectures": ["Qwen3DSparkModel"]})
    assert {"d2t", "t2d", "midlayer.self_attn.q_proj.weight", "fc.weight"} < set(
        load_file(tmp_path / "d" / "model.safetensors")
    )
    loaded = load_drafter(str(tmp_path / "d"), torch.float32, "cpu", target)
    assert loaded.form == replace(made.form, shape=loaded.form.shape)
    config = DecodeConfig("eagle3", 12)
    one, other = (Engine(Models(target, eagle3=d)).generate("a dog", config) for d in (made, loaded))
    assert [paths(s).keys() for s in one.steps] == [paths(s).keys() for s in other.steps]
