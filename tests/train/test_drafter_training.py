"""Training of drafters of each kind: masks, weights and priors of the objectives, features, and settings."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from d2sd import DecodeConfig, InputError, load
from d2sd.folders.fingerprint import changes_since
from d2sd.folders.weights import tensor_shapes, weight_files
from d2sd.nets.models import Models
from d2sd.nets.target import ATTENTION, LayerTaps
from d2sd.nets.types import final_logits, text_config
from d2sd.train.block_drafters import (
    DrafterObjective,
    block_mask,
    draw_anchors,
    draw_prefixes,
    mask_id,
    position_weights,
    train_drafter,
)
from d2sd.train.drafters import load_frozen
from d2sd.train.eagle3 import Unrolled, train_eagle3
from d2sd.train.features import read_features
from d2sd.train.loop import load_checkpoint, rate_at, rows_at, save_checkpoint
from d2sd.train.settings import (
    BlockObjective,
    BlockTraining,
    Eagle3Objective,
    Eagle3Training,
    LoopConfig,
    RegenerateConfig,
)
from d2sd.train.text import read_responses, regenerate_responses
from tests.target_nets import PROMPTS, make_typed
from tests.train.texts import prompt_of, save_run, sums

LOOP = {"batch_size": 4, "save_every": 3, "log_every": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A briefly trained target and its responses."""
    out = tmp_path_factory.mktemp("nets")
    save_run(out)
    return out


def settings(folder, out, steps=1, **more):
    """Settings of a small run over the fixture's target and responses."""
    paths = {"target": folder / "target", "responses": folder / "r.jsonl", "out": out}
    return {**paths, "loop": LoopConfig(steps, **LOOP), **more}


def block(folder, out, steps=1, objective=None, **more):
    objective = objective or BlockObjective(anchors=4)
    train_drafter(BlockTraining(**settings(folder, out, steps, objective=objective, **more)))


def drafter(folder, out, steps, **objective):
    block(folder, out, steps, BlockObjective(anchors=4, **objective), layers=2, block_size=6)


def test_read_features_equal_target_wherever_stored(folder, monkeypatch):
    model, tokenizer = load_frozen(folder / "target")
    data = read_responses(folder / "r.jsonl", 64, tokenizer.eos_token_id)
    taps = LayerTaps(model.model.layers)
    taps.add([0, 2])
    stored = read_features(model.model, [0, 2], data, ("features", "hidden"))
    assert data.lengths.unique().numel() > 1
    for row in range(0, len(data.ids), 5):
        ids = data.ids[row : row + 1, : data.lengths[row]].long()
        with torch.no_grad():
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        found = stored.rows(torch.tensor([row]), ids.shape[1], ("features", "hidden"))
        wanted = {"features": taps.features([0, 2], ids.device), "hidden": hidden}
        for name, expected in wanted.items():
            torch.testing.assert_close(found[name], expected.bfloat16(), rtol=0.02, atol=0.02)
    index, half = torch.tensor([17, 2, 11]), int(data.lengths[:11].sum()) * 2 * 128
    # eleven sequences on the device
    monkeypatch.setattr("d2sd.train.features.feature_bytes", lambda _: (half, 1 << 30))
    split = read_features(model.model, [0, 2], data)
    one, two = (store.rows(index, 9, ("features",))["features"] for store in (stored, split))
    assert torch.equal(one, two)
    monkeypatch.setattr("d2sd.train.features.feature_bytes", lambda _: (half, 100))
    assert read_features(model.model, [0, 2], data) is None


def test_block_mask_shows_context_before_anchor_and_block():
    mask = block_mask(torch.tensor([[0, 3]]), context=5, block_size=2)[0, 0]
    assert mask.int().tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 1, 1],
        [1, 1, 1, 0, 0, 0, 0, 1, 1],
    ]


def test_position_weights_equal_hand_calculated_example():
    """The example has probabilities of 1/2 + 1/2 · (1/2, 1, 0) at three scored positions."""
    nll, scored = -torch.tensor([[0.3, 0.5, 1.0, 1e-9]]).log(), torch.tensor([[False, True, True, True]])
    reached = [0.75, 0.75, 0.375]
    expected = [0, sum(reached), sum(reached[1:]), reached[2]]
    assert position_weights(nll, scored)[0].tolist() == pytest.approx(expected)


def test_draw_prefixes_follows_prior_including_zero():
    prefixes = draw_prefixes((200, 200), 6, 0.9, torch.Generator().manual_seed(0)).flatten()
    prior = 0.9 ** torch.arange(5)
    share = torch.bincount(prefixes, minlength=5) / len(prefixes)
    assert share.tolist() == pytest.approx((prior / prior.sum()).tolist(), abs=0.01)


def test_draw_anchors_covers_response_positions():
    anchors = draw_anchors(torch.tensor([3]), torch.tensor([8]), 500, torch.Generator().manual_seed(0))
    assert set(anchors.flatten().tolist()) == {2, 3, 4, 5, 6}


def test_rows_at_reads_whole_shuffled_epochs():
    rows = torch.cat([rows_at(10, i, 4, seed=1) for i in range(5)])
    assert sorted(rows[:10].tolist()) == sorted(rows[10:].tolist()) == list(range(10))
    assert rows[:10].tolist() != rows[10:].tolist()


def test_rate_at_warms_up_and_falls_to_minimum():
    rates = [rate_at(LoopConfig(200, learning_rate=1.0, min_rate=0.1), step) for step in range(200)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == 1
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


def test_training_continues_with_equal_settings_only(folder, tmp_path):
    drafter(folder, tmp_path, 3, variable_prefix=True)
    for steps, variable_prefix, name in ((2, True, "steps"), (3, False, "objective")):
        with pytest.raises(InputError, match=rf"made with other settings \({name}\)"):
            drafter(folder, tmp_path, steps, variable_prefix=variable_prefix)


def test_checkpoint_with_other_names_of_weights_is_refused(tmp_path):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizers = [torch.optim.SGD([weight])]
    save_checkpoint(tmp_path, {"drafter.layer.norm": weight}, optimizers, {"step": 3, "identity": {}})
    assert load_checkpoint(tmp_path, {"drafter.layer.norm": weight}, optimizers, {})["step"] == 3
    with pytest.raises(InputError, match="another version of this program, with other names of the weights; finish"):
        load_checkpoint(tmp_path, {"drafter.layers.0.norm": weight}, optimizers, {})


def test_regeneration_resumes_truncated_file_with_equal_settings_only(folder, tmp_path):
    prompts, config = [[prompt_of(t)] for t in sums(200)[:20]], RegenerateConfig(8, 20)
    regenerate_responses(folder / "target", prompts, tmp_path / "whole.jsonl", config)
    whole, cut = (tmp_path / "whole.jsonl").read_bytes(), tmp_path / "r.jsonl"
    lines = whole.split(b"\n")
    cut.write_bytes(b"\n".join(lines[:8]) + b"\n" + lines[8][:20])
    shutil.copy(tmp_path / "whole.jsonl.settings.json", tmp_path / "r.jsonl.settings.json")
    regenerate_responses(folder / "target", prompts, cut, config)
    assert cut.read_bytes().startswith(b"\n".join(lines[:8]))
    assert sorted(cut.read_bytes().split(b"\n")) == sorted(lines)
    with pytest.raises(InputError, match="written with other settings or by another target"):
        regenerate_responses(folder / "target", prompts, cut, RegenerateConfig(8, 20, temperature=0.5))


def test_extended_training_keeps_metrics_and_measures_checkpoints(folder, tmp_path, monkeypatch):
    tokens = 24
    monkeypatch.setattr("d2sd.train.acceptance.HELD_OUT_TOKENS", tokens)  # fewer than usual, for speed
    prompts = [prompt_of(t) for t in sums(24)[20:]]
    (tmp_path / "held.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    for steps in (2, 4):
        config = LoopConfig(steps, **LOOP | {"save_every": 2}, keep_every=2)
        block(folder, tmp_path / "d", loop=config, block_size=6, held_out=tmp_path / "held.jsonl")
    rows = list(map(json.loads, (tmp_path / "d" / "metrics.jsonl").read_text().splitlines()))
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for step in (2, 4):
        engine = load(target=str(folder / "target"), drafter=str(tmp_path / "d" / f"step-{step}"))
        runs = [engine.generate(p, DecodeConfig("dflash", tokens, inspect=False)).steps for p in prompts]
        counts = [[len(s.committed) for s in run] for run in runs]
        measured = rows[step - 1]
        assert measured["held_out_acceptance_length"] == pytest.approx(
            sum(map(sum, counts)) / sum(map(len, counts)), abs=1e-5
        )
        inner = [n for run in counts for n in run[:-1]]
        # a barely trained drafter may have near ties, so one step may begin with another token
        right = sum(n > 1 for n in inner) / len(inner)
        assert measured["held_out_first_right"] == pytest.approx(right, abs=1 / len(inner) + 1e-5)


def test_mask_id_falls_back_without_tokenizer_mask(folder):
    model, tokenizer = load_frozen(folder / "target")
    special = tokenizer.mask_token
    tokenizer.mask_token = None
    assert mask_id(tokenizer, model, set(), None) == tokenizer.convert_tokens_to_ids(special)
    assert mask_id(tokenizer, model, set(range(500)), None) == 511


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mask_token": "<none>"}, "'<none>' is not a token of this target"),
        ({"mask_token": "<|endoftext|>"}, "ends or pads this target's texts"),
        ({"mask_token": "e"}, "occurs in texts and cannot be the mask; choose an unused token with --mask-token"),
        ({"target_layer_ids": [1, 40]}, "this target has layers 0 to 2, but --target-layers names 1 40"),
        ({"start": "x", "layers": 2, "target_layer_ids": [0]}, "leave out --layers, --target-layers"),
    ],
)
def test_training_refuses_settings_that_do_not_fit(folder, tmp_path, changed, sentence):
    with pytest.raises(InputError, match=sentence):
        block(folder, tmp_path, **changed)


@torch.no_grad()
def test_eagle3_unrolled_loss_equals_cached_chain(bundled):
    """The loss of a row equals the loss of a cached chain of drafts from that row, fed with the text."""
    target, drafter = bundled.models.target, bundled.models.eagle3
    ids, row, steps = torch.arange(2, 14)[None], 4, 3
    target.model.set_attn_implementation("sdpa")
    try:
        objective = Unrolled(drafter, target.model, Eagle3Objective(steps, 0.5, 1))
        loss, _ = objective(ids, torch.tensor([12]), torch.tensor([[row]]))
        logits = target.model(ids).logits[0]
    finally:
        target.model.set_attn_implementation(ATTENTION)
    cache = target.new_cache(16)
    target.forward(ids[0], torch.arange(12), cache, None, None)
    feature = drafter.project(target.features(drafter.target_layer_ids, slice(0, row + 1)))
    expected = 0.0
    for step in range(steps):
        embedding = target.embedding(ids[:, 1 : row + 2 + step])
        places = torch.arange(row + 1 + step)[None]
        causal = partial(scaled_dot_product_attention, is_causal=True, enable_gqa=True)
        hidden = drafter(embedding, feature, places, causal)[:, -1:]
        wanted = logits[row + 1 + step][drafter.token_ids].softmax(-1)
        expected -= 0.5**step * (wanted * drafter.logits(hidden)[0, 0].log_softmax(-1)).sum()
        feature = torch.cat([feature, drafter.following(hidden)], 1)
    assert float(loss) == pytest.approx(float(expected) / 1.75, rel=1e-4)


def test_trained_eagle3_drafter_loads_and_drafts(folder, tmp_path):
    def train(*layers):
        more = {"objective": Eagle3Objective(3, 0.8, 4), "draft_vocab_size": 300, "target_layer_ids": [*layers]}
        train_eagle3(Eagle3Training(**settings(folder, tmp_path, 3, **more)))

    train(0, 0, 0)
    source = str(folder / "target")
    engine = load(target=source, drafter=str(tmp_path))
    assert engine.models.eagle3.form.drafted == 300
    assert changes_since(str(tmp_path), engine.models.eagle3, engine.models.target, source) == ()
    plain = engine.generate("Question: Tom", DecodeConfig("autoregressive", 12))
    assert engine.generate("Question: Tom", DecodeConfig("eagle3", 12)).token_ids == plain.token_ids
    with pytest.raises(InputError, match="must be between 0 and 0"):
        train(0, 1, 2)


def test_trained_drafter_config_is_written_last(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("d2sd.folders.drafters.save_torch_state_dict", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_eagle3(Eagle3Training(**settings(folder, tmp_path, target_layer_ids=[0, 0, 0])))
    assert not (tmp_path / "config.json").exists()


def test_markov_head_and_draft_vocabulary_train_both_roles(folder, tmp_path):
    drafter(folder, tmp_path / "start", 2)
    for name, variable in (("dflash", False), ("vp", True)):
        objective = BlockObjective(variable, anchors=4)
        added = {"markov_rank": 8, "draft_vocab_size": 40}
        block(folder, tmp_path / name, 9, objective, start=tmp_path / "start", **added)
        losses = [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        assert sum(losses[-3:]) < sum(losses[:3])
        assert not any("lm_head" in key for key in tensor_shapes(weight_files(str(tmp_path / name))))
    with pytest.raises(InputError, match="--markov-rank and --draft-vocab-size need"):  # it already has a head
        block(folder, tmp_path / "b", start=tmp_path / "vp", markov_rank=8)
    drafters = {"drafter": str(tmp_path / "dflash"), "second_drafter": str(tmp_path / "vp")}
    engine = load("tiny", target=str(folder / "target"), **drafters)
    first, second, target = engine.models.first, engine.models.second, engine.models.target
    assert [(m.form.markov, m.form.draft_vocabulary) for m in (first, second)] == [("vanilla", 40)] * 2
    assert (first.form.second_role, second.form.second_role) == (False, True)
    assert not second.form.visible_prefixes  # it was also trained without a prefix
    assert "was trained as a second drafter; give it as --second-drafter" in Models(target, second).notes()[0]
    plain = engine.generate("Question: Tom", DecodeConfig("autoregressive", 12))
    assert engine.generate("Question: Tom", DecodeConfig("d2sd", 12)).token_ids == plain.token_ids
    with torch.no_grad():  # give the head an effect on drafts, which it lacks after so few steps
        first.markov_head.markov_w2.weight.normal_(0, 2, generator=torch.Generator().manual_seed(0))
    trace = engine.generate("Question: Tom", DecodeConfig("dflash", 12))
    assert trace.token_ids == plain.token_ids
    known = set(first.token_ids.tolist())
    drafts = [step.first_draft.ids for step in trace.steps]
    assert drafts
    assert all(set(ids) <= known for ids in drafts)
    # the objective counts the tokens that the drafter drafts after its own tokens as correct
    step, prompt = trace.steps[0], trace.prefill.prompt_token_ids
    ids = torch.tensor([[*prompt, step.anchor, *step.first_draft.ids]])
    anchors, lengths = torch.full((1, 1), len(prompt)), torch.tensor([ids.shape[1]])
    objective = DrafterObjective(first, target.model, BlockObjective(anchors=1))
    _, metrics = objective(ids, lengths, anchors, torch.zeros_like(anchors))
    assert float(metrics["draft_length"]) == first.block_size
    strange = next(n for n in range(500) if n not in known)
    ids[0, -1] = strange
    loss, metrics = objective(ids, lengths, anchors, torch.zeros_like(anchors))
    assert float(metrics["draft_length"]) == first.block_size - 1
    assert loss > 0


# Targets with linear attention, experts, sinks or scales.

SHAPE = {"layers": 2, "block_size": 5, "target_layer_ids": [0, 2], "mask_token": "<|mask|>"}


@pytest.fixture(params=["granite", "gpt_oss", "qwen3_next", "gemma4_text"])
def typed(tokenizer, tmp_path, request):
    """A random target of a type, which is also saved in the folder ``target``."""
    target = make_typed(tokenizer, request.param)
    target.model.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    return target


def test_training_features_equal_decoding_features(typed, tmp_path):
    target, ids = typed, torch.arange(2, 22)
    target.taps.add([0, 1])
    with torch.no_grad():
        target.forward(ids, torch.arange(20), target.new_cache(24), None, None)
        decoding = target.features([0, 1], slice(0, 20))
        model, _ = load_frozen(tmp_path / "target")
        hidden = model.model(input_ids=ids[None], use_cache=False, output_hidden_states=True).hidden_states
    torch.testing.assert_close(torch.cat([hidden[1], hidden[2]], -1), decoding, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["granite", "gemma4_text"])
def test_final_logits_equal_target_logits(tokenizer, kind):
    """Granite divides its logits and Gemma caps them; EAGLE-3 drafters learn from the final logits."""
    model, ids = make_typed(tokenizer, kind).model, torch.arange(2, 22)[None]
    with torch.no_grad():
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(final_logits(text_config(model.config), model.lm_head(hidden)), wanted)


@pytest.mark.parametrize("typed", ["gpt_oss", "qwen3_5_text"], indirect=True)
@pytest.mark.usefixtures("typed")
def test_drafters_of_all_kinds_train_and_draft(tmp_path):
    """Trains DFlash, VP-Drafter and EAGLE-3; each drafter loads and drafts without changing the text."""
    text, loop = tmp_path / "r.jsonl", LoopConfig(2, batch_size=2, save_every=1000, log_every=1)
    regenerate_responses(tmp_path / "target", [[p] for p in PROMPTS], text, RegenerateConfig(2, 16))
    folders = {name: str(tmp_path / name) for name in ("target", "dflash", "vp", "eagle3")}

    def settings(name, objective, **more):
        paths = {"target": tmp_path / "target", "responses": text, "out": tmp_path / name}
        return {**paths, "loop": loop, "objective": objective, **more}

    train_drafter(BlockTraining(**settings("dflash", BlockObjective(anchors=4), **SHAPE)))
    train_drafter(BlockTraining(**settings("vp", BlockObjective(True, anchors=4), start=tmp_path / "dflash")))
    train_eagle3(Eagle3Training(**settings("eagle3", Eagle3Objective(2, 0.8, 4), target_layer_ids=[0, 1, 0])))
    plain = None
    for method, drafter in (("autoregressive", "dflash"), ("d2sd", "dflash"), ("eagle3", "eagle3")):
        models = {"drafter": folders[drafter]} | ({"second_drafter": folders["vp"]} if method == "d2sd" else {})
        engine = load("tiny", target=folders["target"], **models)
        ids = engine.generate(PROMPTS[0], DecodeConfig(method, 12)).token_ids
        plain = plain or ids
        assert ids == plain
