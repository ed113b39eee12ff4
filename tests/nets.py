"""Tiny real models with fixed seeds: a Qwen3 and a Llama target, drafters for them, and a byte-level tokenizer."""

from __future__ import annotations

import torch
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from d2sd import Engine
from d2sd.models.beginnings import start_from_target
from d2sd.models.drafter import DFlashDraftModel, drafter_config
from d2sd.models.eagle3 import Eagle3DraftModel, new_eagle3
from d2sd.models.models import Models
from d2sd.models.target import ATTENTION, Target
from d2sd.train.data import train_tokenizer
from tests.teaching import disturb, teach

VOCABULARY = 300


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Without a start token, as Qwen's is; the bundled target's has one."""
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
    """A drafter of half the vocabulary, every other token of it."""
    torch.manual_seed(seed)
    return new_eagle3(target.model, range(0, target.config.vocab_size, 2), [0, 0, 0]).eval().requires_grad_(False)


def make_engine(tokenizer: PreTrainedTokenizerFast, kind: str) -> Engine:
    """Models of every kind that a method asks for; what they draft is taken now and then."""
    target = make_target(tokenizer, kind)
    small = disturb(make_target(tokenizer, kind))
    first, second = teach(make_drafter(target), target), make_drafter(target)
    second.load_state_dict(first.state_dict())
    teach(second, target, True, steps=10)  # of what the first one learned most is right here too
    return Engine(Models(target, first, second, small, "random", make_eagle3(target)))


@torch.inference_mode()
def stock_greedy(model, ids, count):
    """Plain greedy decoding by transformers, with its own attention and caches: the tokens after ``ids``."""
    model.set_attn_implementation("eager")  # the one that all types have
    try:
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids)),
            do_sample=False,
            max_new_tokens=count,
            pad_token_id=0,
        )
    finally:
        model.set_attn_implementation(ATTENTION)
    return out[0, len(ids) :].tolist()
