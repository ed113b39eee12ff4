"""Tiny real models with fixed seeds: a Qwen3 and a Llama target, drafters for them, and a byte-level tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from d2sd import Engine
from d2sd.costs.machines import Curve, StageCosts
from d2sd.nets.drafter import DFlashDraftModel, drafter_config, start_from_target
from d2sd.nets.eagle3 import Eagle3DraftModel, new_eagle3
from d2sd.nets.models import Models
from d2sd.nets.target import ATTENTION, Target
from tests.teaching import disturb, teach

VOCABULARY = 300
END, MASK = "<|endoftext|>", "<|mask|>"
# Stage costs at which drafting pays off: two drafts cost less than half a plain step.
CHEAP_DRAFTS = StageCosts(Curve(((1, 1e-3),)), Curve(((1, 1e-3),)), Curve(((1, 5e-3), (64, 6e-3))))


def train_tokenizer(documents: Iterable[str], vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with single digits. Token 0 ends a text and also begins it; token 1 is the mask."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A $B", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END, mask_token=MASK, model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer without a start token, like Qwen's; the bundled target's tokenizer has one."""
    made = train_tokenizer(["the cat sat on the mat", "a dog ran to the park"] * 5, VOCABULARY, 512)
    made.backend_tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    made.bos_token = None
    return made


def make_target(tokenizer, kind: str = "qwen3", vocabulary: int = VOCABULARY, seed: int = 0, layers: int = 3) -> Target:
    """A random target whose logits are spread enough that its text is not one repeated token."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "tie_word_embeddings": False,
        "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    model = Qwen3ForCausalLM(Qwen3Config(**shape)) if kind == "qwen3" else LlamaForCausalLM(LlamaConfig(**shape))
    return Target(model, tokenizer, f"random-{kind}")


def make_drafter(target: Target, block_size: int = 16, layers: int = 2, seed: int = 1) -> DFlashDraftModel:
    torch.manual_seed(seed)
    config = drafter_config(target.config, layers=layers, block_size=block_size, mask_token_id=1)
    drafter = DFlashDraftModel(config).eval()
    if target.config.model_type != "llama":
        start_from_target(drafter, target.base)
    return drafter.requires_grad_(False)


def make_eagle3(target: Target, seed: int = 3) -> Eagle3DraftModel:
    """A drafter whose vocabulary is every other token."""
    torch.manual_seed(seed)
    return new_eagle3(target.model, range(0, target.config.vocab_size, 2), [0, 0, 0]).eval().requires_grad_(False)


def make_engine(tokenizer: PreTrainedTokenizerFast, kind: str) -> Engine:
    """An engine with all models that methods need; some of their drafts are accepted."""
    target = make_target(tokenizer, kind)
    small = disturb(make_target(tokenizer, kind))
    first, second = teach(make_drafter(target), target), make_drafter(target)
    second.load_state_dict(first.state_dict())
    teach(second, target, True, steps=10)  # few steps, since it starts from the first drafter
    return Engine(Models(target, first, second, small, "random", make_eagle3(target)))


def save_models(folder: Path, target: Target, **drafters: DFlashDraftModel) -> Path:
    """Save a target and its drafters, named by part, as a folder of models."""
    for part, model in {"target": target.model, **drafters}.items():
        model.save_pretrained(folder / part)
    target.tokenizer.save_pretrained(folder / "target")
    return folder


@contextmanager
def stock_attention(model):
    """Context in which transformers' own attention runs."""
    model.set_attn_implementation("eager")  # all types support it
    try:
        with torch.inference_mode():
            yield
    finally:
        model.set_attn_implementation(ATTENTION)


def stock_pass(model, ids, **options):
    """Output of transformers for rows of ids (N, T), with its own attention and without a cache."""
    with stock_attention(model):
        return model(torch.as_tensor(ids), use_cache=False, **options)


def stock_greedy(model, ids, count):
    """Plain greedy decoding by transformers, with its own attention and caches: the tokens after ``ids``."""
    rows = torch.tensor([ids])
    settings = {"attention_mask": torch.ones_like(rows), "do_sample": False, "pad_token_id": 0}
    with stock_attention(model):
        return model.generate(rows, max_new_tokens=count, **settings)[0, len(ids) :].tolist()


def turns(count):
    """Parameters 0 … ``count`` − 1. Turn 0 of all tests together has every setting at least once; only ``make soak`` runs the
    others."""
    return [0, *(pytest.param(turn, marks=pytest.mark.soak) for turn in range(1, count))]
