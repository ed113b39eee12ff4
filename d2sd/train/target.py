"""A small Qwen3-type target from text: tokenizer, network, next-token loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class TargetShape:
    """Size of the network. Defaults are the bundled target's (about 7.1M parameters): deep and thin."""

    vocab_size: int = 4096
    hidden_size: int = 192
    layers: int = 16
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 64
    intermediate_size: int = 512
    max_positions: int = 2048


def new_target(shape: TargetShape, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A freshly initialised Qwen3 model with tied embeddings."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def next_logits(model: Qwen3ForCausalLM, ids: Tensor) -> Tensor:
    """(B, S) ids → (B, S, vocabulary) logits of the next token, float32."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return model.lm_head(hidden).float()


class NextToken(nn.Module):
    """Mean cross-entropy of the next token over packed rows, (B, S) ids → (loss in nats, metrics)."""

    def __init__(self, model: Qwen3ForCausalLM):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> tuple[Tensor, dict[str, Any]]:
        logits = next_logits(self.model, ids[:, :-1]).flatten(0, 1)
        return F.cross_entropy(logits, ids[:, 1:].flatten().long()), {}


@torch.no_grad()
def held_out_loss(model: Qwen3ForCausalLM, rows: Tensor, batch_size: int = 16) -> float:
    """Mean next-token loss in nats over held-out packed rows."""
    objective, losses = NextToken(model), []
    for batch in rows.split(batch_size):
        losses.append(float(objective(batch.to(next(model.parameters()).device).long())[0]) * len(batch))
    return sum(losses) / len(rows)
