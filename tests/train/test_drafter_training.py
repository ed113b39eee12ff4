"""Training of drafters of each kind: masks, weights and priors of the objectives, features, and settings."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from d2sd import DecodeConfig, InputError, load
from d2sd.folders.configs import drafter_form
from d2sd.folders.fingerprint import changes_since
from d2sd.folders.loading import load_target
from d2sd.folders.model_sets import BUNDLED
from d2sd.folders.weights import tensor_shapes, weight_files
from d2sd.nets.models import Models
from d2sd.nets.target import LayerTaps
from d2sd.nets.types import final_logits, text_config
from d2sd.train import features, pair
from d2sd.train.block_drafters import (
    DrafterObjective,
    block_mask,
    drafters_of,
    draw_anchors,
    draw_prefixes,
    mask_id,
    position_weights,
)
from d2sd.train.eagle3 import Unrolled, train_eagle3
from d2sd.train.features import Features
from d2sd.train.loop import load_checkpoint, rate_at, rows_at, save_checkpoint
from d2sd.train.pair import train_pair
from d2sd.train.plan import ANCHORS_PER_TOKEN
from d2sd.train.settings import (
    ANCHORS,
    Eagle3Objective,
    Eagle3Training,
    LoopConfig,
    PairTraining,
    RegenerateConfig,
)
from d2sd.train.text import Responses, read_responses, regenerate_responses
from tests.target_nets import PROMPTS, make_typed
from tests.train.kills import survives
from tests.train.texts import prompt_of, rows, save_run, sums

LOOP = {"batch_size": 4, "save_every": 3, "log_every": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A briefly trained target and its responses."""
    out = tmp_path_factory.mktemp("nets")
    save_run(out)
    return out


def settings(folder, out, steps=1, **more):
    """Settings of a small run of EAGLE-3 over the fixture's target and responses."""
    paths = {"target": folder / "target", "responses": folder / "r.jsonl", "out": out}
    return {**paths, "loop": LoopConfig(steps, **LOOP), **more}


def train(folder, out, steps=1, **more):
    """Trains block drafters over the fixture's target and responses."""
    given = {"target": folder / "target", "responses": folder / "r.jsonl", "out": out, "steps": steps, "batch_size": 4}
    train_pair(PairTraining(**given | more))


def computed(target, drafter, ids, **more):
    """The features that a drafter reads of one text."""
    length = torch.tensor([ids.shape[1]])
    return Features(target, drafter.target_layer_ids, Responses(ids, length // 2, length), store=False, **more).rows(
        torch.tensor([0])
    )


def weights(folder):
    """The weights of all drafters in a folder, by file."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.glob("**/model.safetensors")}


def test_read_features_equal_target_wherever_stored(folder, monkeypatch):
    target = load_target(str(folder / "target"), "float32", batched=True)
    base = target.base
    data = read_responses(folder / "r.jsonl", 64, target.tokenizer.eos_token_id)
    taps = LayerTaps(base.layers)
    stored, computed = (Features(target, [0, 2], data, hidden=True, store=store) for store in (True, False))
    assert stored.stored
    assert not computed.stored
    assert data.lengths.unique().numel() > 1
    for row in range(0, len(data.ids), 5):
        ids = data.ids[row : row + 1, : data.lengths[row]].long()
        with torch.no_grad(), taps.only([0, 2]):
            hidden = base(input_ids=ids, use_cache=False).last_hidden_state
            wanted = {"features": taps.features([0, 2], ids.device), "hidden": hidden}
        for store in (stored, computed):
            found = store.rows(torch.tensor([row]))
            for name, expected in wanted.items():
                torch.testing.assert_close(found[name].bfloat16(), expected.bfloat16(), rtol=0.02, atol=0.02)
    index, half = torch.tensor([17, 2, 11]), int(data.lengths[:11].sum()) * 2 * 128
    # eleven responses on the device
    monkeypatch.setattr("d2sd.train.features.feature_bytes", lambda _: (half, 1 << 30))
    one, two = (store.rows(index)["features"] for store in (stored, Features(target, [0, 2], data)))
    assert one.shape[:2] == (3, data.lengths[index].max())
    assert torch.equal(one, two)
    monkeypatch.setattr("d2sd.train.features.feature_bytes", lambda _: (half, 100))
    assert not Features(target, [0, 2], data).stored


@pytest.mark.parametrize("only", [None, "first"])
def test_features_that_do_not_fit_are_computed_once_per_step(folder, tmp_path, monkeypatch, only):
    passes, compute = [], Features._computed
    monkeypatch.setattr(Features, "_computed", lambda *given: passes.append(1) or compute(*given))
    train(folder, tmp_path / "fits", 5, only=only)
    assert len(passes) == 1  # over all responses, before training
    passes.clear()
    monkeypatch.setattr("d2sd.train.features.feature_bytes", lambda _: (0, 100))
    train(folder, tmp_path / "full", 5, only=only)
    assert len(passes) == 5
    fits, full = (rows(tmp_path / name / "training" / "metrics.jsonl")[-1] for name in ("fits", "full"))
    assert full["loss"] == pytest.approx(fits["loss"], rel=0.2)


def test_block_mask_shows_context_before_anchor_and_block():
    mask = block_mask(torch.tensor([[0, 3]]), context=5, block_size=2)[0, 0]
    assert mask.int().tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 1, 1],
        [1, 1, 1, 0, 0, 0, 0, 1, 1],
    ]


@pytest.mark.parametrize("changed", ["later features", "other block", "earlier features"])
def test_block_reads_only_itself_and_features_before_its_anchor(folder, tmp_path, changed):
    target = load_target(str(folder / "target"), "float32")
    data = read_responses(folder / "r.jsonl", 64, target.tokenizer.eos_token_id)
    _, objective = drafters_of(PairTraining(target="", out=tmp_path, only="second", steps=1), target, data)
    ids, anchors = torch.arange(5, 35)[None], torch.tensor([[10, 12]])
    batch = {"ids": ids, "lengths": torch.tensor([30]), "prefixes": torch.tensor([[1, 2]])}
    features = torch.randn(1, 30, objective.drafter.fc.in_features, generator=torch.Generator().manual_seed(0))
    other = features.clone()
    if changed == "other block":
        found = anchors + torch.tensor([0, 3])
    else:
        found = anchors
        other[:, slice(10, None) if changed == "later features" else 9] += 1
    with torch.no_grad():
        rows = [
            objective._predict(**batch, anchors=where, features=given)[0][: objective.drafter.block_size - 2]
            for where, given in ((anchors, features), (found, other))
        ]
    same = torch.allclose(*rows, atol=1e-4)
    assert same == (changed != "earlier features")


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


def test_training_continues_with_equal_settings_only(folder, tmp_path, capsys):
    train(folder, tmp_path, 3)
    for steps, more, name in ((2, {}, "settings \\(steps\\)"), (3, {"layers": 1}, "settings, prompts or minutes")):
        with pytest.raises(InputError, match=f"made with other {name}"):
            train(folder, tmp_path, steps, **more)
    train(folder, tmp_path, 3)
    assert capsys.readouterr().err.endswith("already contains trained drafters; name another folder to train again.\n")


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
    monkeypatch.setattr("d2sd.train.pair.HELD_OUT_TOKENS", tokens)  # fewer than usual, for speed
    for module in ("pair", "plan"):
        monkeypatch.setattr(f"d2sd.train.{module}.FEWEST_TEXTS", 1)
    prompts = [prompt_of(t) for t in sums(24)[20:]]
    for steps in (2, 4):
        train(folder, tmp_path / "d", steps, block_size=6, held_out=tuple(prompts), keep_every=2)
    measured = rows(tmp_path / "d" / "training" / "metrics.jsonl")
    assert [row["step"] for row in measured] == [1, 2, 3, 4]
    for step in (2, 4):
        first, second = (str(tmp_path / "d" / name / f"step-{step}") for name in ("dflash", "vp"))
        engine = load(target=str(folder / "target"), drafter=first, second_drafter=second)
        for method, field in (("d2sd", "d2sd_acceptance_length"), ("dflash", "held_out_acceptance_length")):
            runs = [engine.generate(p, DecodeConfig(method, tokens, inspect=False)).steps for p in prompts]
            counts = [[len(s.committed) for s in run] for run in runs]
            alpha = sum(map(sum, counts)) / sum(map(len, counts))
            assert measured[step - 1][field] == pytest.approx(alpha, abs=1e-5)
        inner = [n for run in counts for n in run[:-1]]
        # a barely trained drafter may have near ties, so one step may begin with another token
        right = sum(n > 1 for n in inner) / len(inner)
        assert measured[step - 1]["held_out_first_right"] == pytest.approx(right, abs=1 / len(inner) + 1e-5)


def test_extended_training_equals_resumed_training_bit_by_bit(folder, tmp_path):
    train(folder, tmp_path / "whole", 6)
    for number in (8, 20, 40):  # changes of files at which the run is killed
        out = tmp_path / str(number)
        assert not survives(number, partial(train, folder, out, 6))
        train(folder, out, 6)
        assert weights(out) == weights(tmp_path / "whole")


def test_seed_determines_trained_drafters(folder, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(folder, tmp_path / name, 2, seed=seed)
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert a == b != c


def test_training_writes_its_own_text_for_given_steps(folder, tmp_path, monkeypatch):
    prompts, exact, regenerate = tuple(prompt_of(text) for text in sums(60)), {}, pair.regenerate

    def noted(answer, prompts, out, *others):
        exact[out.stem] = answer.keywords["exact"]
        regenerate(answer, prompts, out, *others)

    monkeypatch.setattr(pair, "regenerate", noted)
    train(folder, tmp_path, 3, responses=None, prompts=prompts, held_out=("Question:",), max_new_tokens=8, batch_size=1)
    written = rows(tmp_path / "responses.jsonl")
    tokens = [len(row["prompt_ids"]) + len(row["response_ids"]) for row in written]
    assert sum(tokens[:-1]) < 3 * ANCHORS / ANCHORS_PER_TOKEN <= sum(tokens)  # enough, but no more
    assert exact == {"responses": False, "held-out": True}  # α is measured on what plain decoding writes


def test_mask_id_falls_back_without_tokenizer_mask(folder):
    target = load_target(str(folder / "target"), "float32")
    special, target.tokenizer.mask_token = target.tokenizer.mask_token, None
    assert mask_id(target, set(), None) == target.tokenizer.convert_tokens_to_ids(special)
    assert mask_id(target, set(range(500)), None) == 511


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mask_token": "<none>"}, "'<none>' is not a token of this target"),
        ({"mask_token": "<|endoftext|>"}, "ends or pads this target's texts"),
        ({"mask_token": "e"}, "occurs in texts and cannot be the mask; choose an unused token with --mask-token"),
        ({"target_layer_ids": [1, 40]}, "this target has layers 0 to 2, but --target-layers names 1 40"),
        ({"draft_vocab_size": 600}, "must have 1 to 512 tokens, not 600"),
    ],
)
def test_training_refuses_settings_that_do_not_fit(folder, tmp_path, changed, sentence):
    with pytest.raises(InputError, match=sentence):
        train(folder, tmp_path, **changed)
    assert not (tmp_path / "training").exists()


def test_responses_of_another_target_are_refused(folder, tmp_path):
    (tmp_path / "r.jsonl").write_text('{"prompt_ids": [1, 2], "response_ids": [3, 600]}\n')
    with pytest.raises(InputError, match="does not have; give responses of this target"):
        train(folder, tmp_path / "out", responses=tmp_path / "r.jsonl")


@torch.no_grad()
def test_eagle3_unrolled_loss_equals_cached_chain(bundled, monkeypatch):
    """The loss of a row equals the loss of a cached chain of drafts from that row, fed with the text."""
    monkeypatch.setattr(features, "quick_autocast", nullcontext)
    target, drafter = bundled.models.target, bundled.models.eagle3
    ids, row, steps = torch.arange(2, 14)[None], 4, 3
    objective = Unrolled(drafter, target.model, Eagle3Objective(steps, 0.5, 1))
    given = computed(target, drafter, ids, hidden=True)
    loss, _ = objective(ids, torch.tensor([12]), torch.tensor([[row]]), **given)
    logits = target.model(ids).logits[0]
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


def test_markov_head_and_draft_vocabulary_train_both_roles(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "quick_autocast", nullcontext)
    train(folder, tmp_path, 9, block_size=6, markov_rank=8, draft_vocab_size=40)
    losses = [row["loss"] for row in rows(tmp_path / "training" / "metrics.jsonl")]
    assert losses[-1] < losses[0]
    for name in ("dflash", "vp"):
        assert not any("lm_head" in key for key in tensor_shapes(weight_files(str(tmp_path / name))))
    given = {"drafter": str(tmp_path / "dflash"), "second_drafter": str(tmp_path / "vp")}
    engine = load("tiny", target=str(folder / "target"), **given)
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
    objective = DrafterObjective(first, target.model)
    batch = {"ids": ids, "lengths": lengths, "anchors": anchors, "prefixes": torch.zeros_like(anchors)}
    _, metrics = objective(**batch, **computed(target, first, ids))
    assert float(metrics["draft_length"]) == first.block_size
    strange = next(n for n in range(500) if n not in known)
    ids[0, -1] = strange
    loss, metrics = objective(**batch, **computed(target, first, ids))
    assert float(metrics["draft_length"]) == first.block_size - 1
    assert loss > 0


def form(folder, part):
    return drafter_form(str(folder / part))


def test_plain_drafter_is_trained_alone_in_its_own_layout(folder, tmp_path):
    train(folder, tmp_path / "plain", 2, only="first", markov_rank=0, layers=1)
    assert sorted(path.name for path in (tmp_path / "plain").iterdir() if path.is_dir()) == ["dflash", "training"]
    config = json.loads((tmp_path / "plain" / "dflash" / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    made = form(tmp_path / "plain", "dflash")
    assert (made.draft_vocabulary, made.markov, made.block_size, made.second_role) == (None, None, 8, False)
    card = (tmp_path / "plain" / "README.md").read_text()
    assert "| drafters | dflash: 1 layers, γ = 8" in card
    assert "Markov head of rank 0" in card
    assert "the VP-Drafter sees" not in card
    engine = load(str(tmp_path / "plain"))
    plain = engine.generate("Question: Tom", DecodeConfig("autoregressive", 12))
    assert engine.generate("Question: Tom", DecodeConfig("dflash", 12)).token_ids == plain.token_ids


def test_start_determines_continued_drafters(folder, tmp_path):
    shape = {"layers": 1, "block_size": 5, "markov_rank": 4, "draft_vocab_size": 30, "target_layer_ids": [0, 2]}
    train(folder, tmp_path / "a", 2, **shape)
    train(folder, tmp_path / "b", 1, start=tmp_path / "a")
    for part in ("dflash", "vp"):
        assert form(tmp_path / "b", part) == form(tmp_path / "a", part)
    # the step with the first learning rate of a schedule changes little
    old, new = (load(str(tmp_path / name)).models.first.fc.weight for name in "ab")
    assert 0 < (old - new).norm() < 0.1 * old.norm()
    with pytest.raises(InputError, match="neither dflash/ nor vp/; add --only to continue from"):
        train(folder, tmp_path / "c", start=tmp_path / "a" / "dflash")


def test_drafter_with_confidence_head_is_not_trained_further(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"prompt_ids": [1, 2], "response_ids": [3, 4]}\n')
    given = {"target": "tiny", "responses": tmp_path / "r.jsonl", "steps": 1, "out": tmp_path / "out", "only": "first"}
    with pytest.raises(InputError, match="dspark cannot be trained further: it is no DFlash drafter"):
        train_pair(PairTraining(**given, start=BUNDLED / "tiny" / "dspark"))


def test_missing_drafter_starts_from_the_other(folder, tmp_path):
    train(folder, tmp_path / "one", 1, only="first", block_size=5)
    train(folder, tmp_path / "two", 1, only="second", start=tmp_path / "one" / "dflash")
    train(folder, tmp_path / "both", 1, start=tmp_path / "two")
    assert form(tmp_path / "two", "vp") == replace(form(tmp_path / "one", "dflash"), second_role=True)
    assert [form(tmp_path / "both", part).second_role for part in ("dflash", "vp")] == [False, True]
    card = (tmp_path / "two" / "README.md").read_text()
    assert "α was not measured: it needs a trained DFlash drafter and 10 held-out texts, but 0 held-out" in card
    assert "temperature |" not in card


# Targets with linear attention, experts, sinks or scales.

SHAPE = {"layers": 2, "block_size": 5, "target_layer_ids": [0, 2], "mask_token": "<|mask|>"}


@pytest.fixture(params=["granite", "gpt_oss", "qwen3_next", "gemma4_text"])
def typed(tokenizer, tmp_path, request):
    """A random target of a type, which is also saved in the folder ``target``."""
    target = make_typed(tokenizer, request.param)
    target.model.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    return target


def test_training_features_equal_decoding_features(typed, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "quick_autocast", nullcontext)
    target, ids = typed, torch.arange(2, 22)
    target.taps.add([0, 1])
    with torch.no_grad():
        target.forward(ids, torch.arange(20), target.new_cache(24), None, None)
        decoding = target.features([0, 1], slice(0, 20))
    trained = load_target(str(tmp_path / "target"), "float32", batched=True)
    read = computed(trained, SimpleNamespace(target_layer_ids=[0, 1]), ids[None])["features"]
    torch.testing.assert_close(read, decoding, atol=1e-4, rtol=1e-4)


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
    given = {"target": tmp_path / "target", "responses": text}
    train_pair(PairTraining(**given, out=tmp_path / "pair", steps=2, batch_size=2, **SHAPE))
    train_eagle3(
        Eagle3Training(
            **given,
            out=tmp_path / "eagle3",
            loop=loop,
            objective=Eagle3Objective(2, 0.8, 4),
            target_layer_ids=[0, 1, 0],
        )
    )
    engines = load(str(tmp_path / "pair")), load(target=str(tmp_path / "target"), drafter=str(tmp_path / "eagle3"))
    plain = engines[0].generate(PROMPTS[0], DecodeConfig("autoregressive", 12)).token_ids
    for method, engine in zip(("d2sd", "eagle3"), engines, strict=True):
        assert engine.generate(PROMPTS[0], DecodeConfig(method, 12)).token_ids == plain
