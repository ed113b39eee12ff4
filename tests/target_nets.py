"""Tiny random targets of every supported type: all kinds of layers, windows shorter than the texts, experts, sinks, scales."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from d2sd import Engine
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from tests.nets import make_drafter, make_eagle3
from tests.teaching import disturb, teach

WINDOW = 6
SHAPE: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "tie_word_embeddings": False,
    "initializer_range": 0.25, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
MIXED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": WINDOW}
LINEAR = {
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
YARN = {
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128, "truncate": False,
    }
}  # fmt: skip
SHARED = {"shared_expert_intermediate_size": 24}
MROPE = {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True,
    }
}  # fmt: skip
GEMMA4 = {
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "final_logit_softcapping": 5.0,
}
TARGETS: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3_moe": EXPERTS,
    "mistral": {"sliding_window": WINDOW},
    "ministral": MIXED,
    "olmo3": MIXED,
    "smollm3": {"no_rope_layers": [1, 0, 1, 0]},
    "granite": {
        "embedding_multiplier": 3.0, "residual_multiplier": 0.7, "attention_multiplier": 0.4, "logits_scaling": 2.0,
    },
    "gpt_oss": {**MIXED, "num_local_experts": 4, "num_experts_per_tok": 2, **YARN},
    "qwen3_next": {**LINEAR, **EXPERTS, **SHARED, "decoder_sparse_step": 2},
    "qwen3_5_text": {**LINEAR, **MROPE},
    "qwen3_5_moe_text": {**LINEAR, **EXPERTS, **SHARED, **MROPE},
    "gemma3_text": {**MIXED, "query_pre_attn_scalar": 24},
    "gemma4_text": {
        **MIXED, **GEMMA4, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 300,
        "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24,
    },
    "gemma4_unified_text": {**MIXED, **GEMMA4},
}  # fmt: skip
FIXED = set(TARGETS) - {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text"}  # run in fixed shapes


def make_typed(tokenizer: PreTrainedTokenizerFast, kind: str, **changes: Any) -> Target:
    """A random target of this type, with changes of its config. Biases, sinks and norms are random too, although they begin as zero or one."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE | TARGETS.get(kind, {}) | changes)
    model = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("sinks"):
                weight.normal_(1.0, 1.0)
            elif weight.dim() == 1 and not name.endswith(("A_log", "dt_bias")):
                weight.add_(0.3 * torch.randn_like(weight))
            elif name.endswith("A_log"):
                weight.uniform_(-3.0, 0.0)  # so that states last for some tokens
    return Target(model, tokenizer, f"random-{kind}")


PROMPTS = ("the cat sat on the mat a dog ran to the park", "a dog ran to the park the cat sat on the mat x")


def make_typed_engine(tokenizer: PreTrainedTokenizerFast, kind: str) -> Engine:
    """An engine with all models that methods need; some of their drafts after ``PROMPTS`` are accepted."""
    target, small = make_typed(tokenizer, kind), disturb(make_typed(tokenizer, kind))
    first = teach(make_drafter(target, 6, 1), target, True, PROMPTS)
    second = make_drafter(target, 6, 1)
    second.load_state_dict(first.state_dict())
    return Engine(Models(target, first, second, small, kind, make_eagle3(target)))
