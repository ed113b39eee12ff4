"""With every type of target, all methods write the text of transformers' ``generate`` at temperature 0 in float32."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from d2sd import METHODS, DecodeConfig, Engine, InputError
from d2sd.decoding.verifier import Verifier
from d2sd.doctor.variants import variants
from d2sd.folders.loading import load_target
from d2sd.nets.attention import BACKENDS
from d2sd.nets.dtypes import can_mix, halve
from d2sd.nets.models import Models
from d2sd.nets.passes import Passes
from d2sd.train import writer
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import respond_to
from tests.nets import CHEAP_DRAFTS, make_drafter, stock_greedy, stock_pass, turns
from tests.target_nets import FIXED, PROMPTS, SHAPE, TARGETS, WINDOW, make_typed, make_typed_engine
from tests.unit.drafts import random_tree

TOKENS = 16
SMALL = {"num_branches": 3, "block_size": 6}
SETTINGS = {
    "autoregressive": {}, "draft_model": {"block_size": 4}, "eagle3": {"draft_depth": 3, "draft_top_k": 3, "node_budget": 9},
}  # fmt: skip
# Methods besides D²SD, with each backend. A test runs one of them with a type, so the turns are the whole product.
OTHERS = list(itertools.product([m for m in METHODS if m != "d2sd"], BACKENDS))


@pytest.fixture(scope="module", params=TARGETS)
def typed(request, tokenizer):
    """An engine of each type, the type's index, and a cached function: transformers' tokens after a prompt."""
    engine = make_typed_engine(tokenizer, request.param)

    @cache
    def expected(prompt):
        ids = engine.encode(prompt, DecodeConfig("autoregressive", TOKENS))
        assert len(ids) > 2 * WINDOW
        return stock_greedy(engine.models.target.model, ids, TOKENS)

    return engine, list(TARGETS).index(request.param), expected


@pytest.mark.parametrize("turn", turns(len(OTHERS)))
def test_greedy_text_equals_transformers_generate(typed, turn, monkeypatch):
    """Every type runs D²SD, whose drafts must sometimes be accepted: otherwise wrong caches would go unnoticed."""
    engine, number, expected = typed
    prompt = PROMPTS[(number + turn) % 2]
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    backend = list(BACKENDS)[(number + turn) % len(BACKENDS)]
    trace = engine.generate(prompt, DecodeConfig("d2sd", TOKENS, backend=backend, **SMALL))
    assert trace.token_ids == expected(prompt)
    assert sum(map(bool, (step.accepted for step in trace.steps))) > 1
    method, backend = OTHERS[(2 * number + number % 2 + turn) % len(OTHERS)]
    settings = SETTINGS.get(method, {**SMALL, "cost_aware": (number + turn) % 3 == 0})
    config = DecodeConfig(method, TOKENS, backend=backend, **settings)
    assert engine.generate(prompt, config).token_ids == expected(prompt), config


def stock_logits(model, texts):
    """Transformers' logits after each of these texts, computed in one batch."""
    longest = max(map(len, texts))
    logits = stock_pass(model, [[*text, *[0] * (longest - len(text))] for text in texts]).logits
    return torch.stack([row[len(text) - 1] for row, text in zip(logits, texts, strict=True)])


@pytest.mark.parametrize("turn", turns(len(BACKENDS)))
@torch.inference_mode()
def test_tree_logits_equal_logits_of_each_path(typed, turn):
    """The reference computes paths as rows of a batch. Paths of several lengths are committed."""
    target, rng = typed[0].models.target, random.Random(typed[1])
    backend = list(BACKENDS)[(typed[1] + turn) % len(BACKENDS)]
    verifier = Verifier(target, Passes("eager", backend, 128, target.device))
    text = [rng.randrange(300) for _ in range(2 * WINDOW + 1)]
    verifier.read(text)
    for size in (9, 1, 12, 7):
        tree = random_tree(rng, size, deep=size == 12)  # with paths longer than the windows
        paths = [[0, *tree.path(node)] for node in range(size)]
        wanted = stock_logits(target.model, [[*text, *(tree.tokens[n] for n in path)] for path in paths])
        torch.testing.assert_close(verifier.logits(tree), wanted, atol=2e-4, rtol=1e-4)
        committed = max(paths, key=len) if size == 12 else rng.choice(paths)
        verifier.cache.commit(committed)
        text += [tree.tokens[n] for n in committed]


@pytest.mark.parametrize("turn", turns(2))
def test_respond_to_batch_equals_single_prompts(typed, turn):
    """With two rows, each takes new prompts twice, and writes over the slots of its earlier texts."""
    engine, number, _ = typed
    config = RegenerateConfig(batch_size=(2, 8)[(number + turn) % 2], max_new_tokens=10)
    texts = (*PROMPTS, PROMPTS[0] + " the cat", "cat", PROMPTS[1] + " the")
    prompts = [engine.encode(prompt, DecodeConfig()) for prompt in texts]
    alone = [engine.generate(ids, DecodeConfig("autoregressive", 10)).token_ids for ids in prompts]
    assert respond_to(engine.models.target, prompts, config) == alone


@pytest.mark.skipif(not can_mix(), reason="this machine has no products of float32 rows with float16 weights")
@pytest.mark.parametrize("kind", [kind for kind in TARGETS if kind != "gpt_oss"])  # its linear layers have biases
def test_texts_written_in_bfloat16_have_nearly_exact_logits(kind, tokenizer, monkeypatch):
    target, logits = make_typed_engine(tokenizer, kind).models.target, []
    halve(target.base.layers)
    monkeypatch.setattr(writer, "quick_bfloat16", lambda: True)
    monkeypatch.setattr(writer.Rows, "_choose", lambda _, given: logits.append(given.float()) or given.argmax(-1))
    for exact in (True, False):
        rows = writer.Rows(target, 2, 64, RegenerateConfig(2, 8), exact)
        rows.put([0, 1], [writer.WriterRequest(n, list(range(5 + n, 45 + n))) for n in range(2)])
        with torch.inference_mode():
            rows.advance(38)
    expected, found = torch.stack(logits).chunk(2)
    assert 0 < (found - expected).norm() < 0.3 * expected.norm()  # about .03; .13 if experts are chosen differently


def test_padded_passes_run_or_are_refused_by_type(typed):
    engine, _, expected = typed
    if engine.models.name not in FIXED:
        with pytest.raises(InputError, match="padded passes need a target without linear attention"):
            Engine(engine.models, "padded")
        return
    prompt, config = PROMPTS[typed[1] % 2], DecodeConfig("d2sd", TOKENS, backend="cascade", **SMALL)
    assert Engine(engine.models, "padded").generate(prompt, config).token_ids == expected(prompt)


VISION = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 32}
TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
NESTED = {
    "qwen3_5": ("qwen3_5_text", {"vision_config": VISION}),
    "qwen3_5_moe": ("qwen3_5_moe_text", {"vision_config": VISION}),
    "gemma3": ("gemma3_text", {"vision_config": TOWER}),
    "gemma4": ("gemma4_text", {"vision_config": None, "audio_config": None}),
    "mistral3": ("mistral", {"vision_config": {"model_type": "pixtral", **TOWER}, "tie_word_embeddings": False}),
}


@pytest.mark.parametrize("kind", NESTED)
def test_multimodal_checkpoint_loads_text_part_only(tokenizer, tmp_path, kind):
    text, others = NESTED[kind]
    own = {"model_type": text, "pad_token_id": 0, "tie_word_embeddings": "gemma" in kind}  # as in published checkpoints
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, text_config={**SHAPE, **TARGETS[text], **own}, **others)
    whole = AutoModelForImageTextToText.from_config(config).eval()
    whole.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ids = tokenizer(PROMPTS[0])["input_ids"]
    (wanted,) = whole.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=8, pad_token_id=0)[:, len(ids) :]
    target = load_target(str(tmp_path), "float32", "cpu")
    assert target.config.model_type == text
    assert not any("vis" in name for name, _ in target.model.named_parameters())
    trace = Engine(Models(target)).generate(ids, DecodeConfig("autoregressive", 8))
    assert trace.token_ids == wanted.tolist()


@pytest.mark.parametrize("kind", ["qwen3_5_text", "gpt_oss"])
def test_draft_model_equal_to_target_is_fully_accepted(tokenizer, kind):
    """This shows that its cache returns to the committed text after every step."""
    target, twin = make_typed(tokenizer, kind), make_typed(tokenizer, kind)
    trace = Engine(Models(target, draft_model=twin)).generate(PROMPTS[0], DecodeConfig("draft_model", 21, block_size=5))
    assert [len(step.committed) for step in trace.steps] == [5] * 4


def test_new_drafter_copies_norms_and_ungated_queries(tokenizer):
    target = make_typed(tokenizer, "qwen3_5_text")
    drafter = make_drafter(target, 6, layers=1)
    source, own = target.base.layers[2], drafter.layers[0]
    assert torch.equal(own.input_layernorm.weight, source.input_layernorm.weight + 1)
    assert torch.equal(own.mlp.up_proj.weight, source.mlp.up_proj.weight)
    query = source.self_attn.q_proj.weight
    assert torch.equal(own.self_attn.q_proj.weight, torch.cat([query[32 * n : 32 * n + 16] for n in range(4)]))
    assert set(drafter.config.rope_parameters) == {"rope_type", "rope_theta"}


@pytest.mark.parametrize("kind", ["olmo3", "qwen3_5_text", "gemma4_text"])
def test_doctor_rope_variant_runs_for_target_types(tokenizer, kind):
    """RoPE parameters may be given per type of layer, rotate a part of each head, or include image positions."""
    target = make_typed(tokenizer, kind)
    drafter = make_drafter(target, 6, layers=1)
    own = next(variant for variant in variants(drafter, target, 40, {}) if variant.kind == "rope")
    engine = Engine(Models(target, own.apply(drafter)))
    assert len(engine.generate([5, 6, 7], DecodeConfig("dflash", 3)).token_ids) == 3


FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def random_mxfp4(shape, generator):
    """Random MXFP4 weights: blocks (…, 16) of two per byte, one scale per block, and their values, 32 per block."""
    low, high = (torch.randint(0, 16, (*shape, 16), generator=generator) for _ in range(2))
    scales = torch.randint(123, 127, shape, generator=generator)
    worth = torch.stack([FP4[low], FP4[high]], -1).flatten(-2) * 2.0 ** (scales[..., None] - 127)
    return (low | high << 4).to(torch.uint8), scales.to(torch.uint8), worth.flatten(-2)


def test_mxfp4_weights_are_dequantised_on_load(tokenizer, tmp_path):
    generator, config = torch.Generator().manual_seed(0), {**SHAPE, **TARGETS["gpt_oss"], "intermediate_size": 32}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt_oss", **config))
    tensors, worth = {k: v.clone() for k, v in model.state_dict().items()}, {}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inner, outer = tensors.pop(name).shape
        blocks, scales, worth[name] = random_mxfp4((experts, outer, inner // 32), generator)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    own = {"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict() | own))
    tokenizer.save_pretrained(tmp_path)
    target = load_target(str(tmp_path), "float32", "cpu")
    for name, wanted in worth.items():
        torch.testing.assert_close(target.model.get_parameter(name), wanted.transpose(1, 2), atol=0, rtol=0)
