"""The draft network of EAGLE-3 (arXiv 2503.01840, section 3): one decoder layer over target features and the next tokens.

Row t belongs to position t of the text. Its input is the embedding of token t + 1, concatenated with the feature of position t. Its
logits predict token t + 2. In committed text, the feature is computed from the target's hidden states. In a tree, the feature is
the network's own hidden state of the parent row. ``fc_norm`` and ``norm_output`` are options in configs of later checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRotaryEmbedding

from d2sd.nets.drafter import DraftAttention, layer_shape, rms_norm
from d2sd.nets.layouts import Eagle3Form
from d2sd.nets.lean import KeyValue, LayerAttention
from d2sd.nets.types import target_type


class Eagle3Layer(nn.Module):
    """The decoder layer. Attention reads embedding and feature; the residual stream carries only the feature."""

    def __init__(self, c: Any, form: Eagle3Form):
        super().__init__()
        self.norm_before_residual = form.norm_before_residual
        self.self_attn = DraftAttention(c, 2 * c.hidden_size, form.qk_norm)
        self.mlp = LlamaMLP(c)
        self.input_layernorm = rms_norm(c)
        self.hidden_norm = rms_norm(c)
        self.post_attention_layernorm = rms_norm(c)

    def forward(self, embedding: Tensor, feature: Tensor, cos: Tensor, sin: Tensor, attend: LayerAttention) -> Tensor:
        normed = self.hidden_norm(feature)
        both = torch.cat([self.input_layernorm(embedding), normed], -1)
        x = (normed if self.norm_before_residual else feature) + self.self_attn(both, cos, sin, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3DraftModel(nn.Module):
    """An EAGLE-3 drafter.

    form: sizes and options.
    own: contains "embed_tokens" if the drafter has its own embedding. The LM head is always the drafter's own.
    token_ids: (D,), the target's ids of the draft vocabulary.
    embed_tokens: the drafter's own embedding table; None if it uses the target's.
    """

    token_ids: Tensor
    layers: Any

    def __init__(self, form: Eagle3Form, own: Sequence[str] = ()):
        super().__init__()
        self.form = form
        c: Any = (Qwen3Config if form.qk_norm else LlamaConfig)(**form.shape)
        self.config, taps, width = c, len(form.taps), form.width
        self.fc = nn.Linear(taps * width, c.hidden_size, bias=False)
        self.fc_norm = nn.ModuleList(rms_norm(c, width) for _ in range(taps if form.fc_norm else 0))
        self.layers = nn.ModuleList([Eagle3Layer(c, form)])
        self.norm = rms_norm(c)
        self.lm_head = nn.Linear(c.hidden_size, form.drafted, bias=False)
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size) if "embed_tokens" in own else None
        self.rotary_emb = LlamaRotaryEmbedding(c)
        self.register_buffer("token_ids", torch.arange(form.drafted), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    @property
    def target_layer_ids(self) -> list[int]:
        return list(self.form.taps)

    def project(self, features: Tensor) -> Tensor:
        """Returns features, (B, T, hidden), given the concatenated hidden states of the target's tapped layers, (B, T, taps·width)."""
        if self.form.fc_norm:
            parts = features.unflatten(-1, (len(self.fc_norm), -1)).unbind(-2)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(features)

    def keys_values(self, embedding: Tensor, feature: Tensor, positions: Tensor) -> KeyValue:
        """Returns keys and values of rows, (B, KV heads, R, D) each. For committed rows, nothing else is computed."""
        layer = self.layers[0]
        both = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(feature)], -1)
        return layer.self_attn.keys_values(both, *self.rotary_emb(feature, positions))

    def forward(self, embedding: Tensor, feature: Tensor, positions: Tensor, attend: LayerAttention) -> Tensor:
        """Returns hidden states of rows, (B, R, hidden), before the final norm.

        embedding: embeddings of the tokens after the rows' positions, (B, R, hidden).
        feature: features of the rows' positions, (B, R, hidden).
        positions: (B or 1, R).
        attend: function that computes the attention of the rows to earlier rows and to themselves.
        """
        return self.layers[0](embedding, feature, *self.rotary_emb(feature, positions), attend)

    def following(self, hidden: Tensor) -> Tensor:
        """Returns the features of the rows' children in a tree, from the rows' hidden states."""
        return self.norm(hidden) if self.form.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits over the draft vocabulary for the token two positions after each row, (…, D) float32."""
        return self.lm_head(self.norm(hidden)).float()


def new_eagle3(target: Any, token_ids: Sequence[int], layers: Sequence[int]) -> Eagle3DraftModel:
    """Returns an untrained drafter for a target (a transformers model), initialised from the target's weights.

    These weights are copied: the LM head's rows, the final norm, the norm before the last layer's MLP and, if the target is dense,
    this MLP. For the last tap, the identity is added to ``fc``.

    token_ids: the target's ids of the draft vocabulary, ascending.
    layers: the target's layers that the drafter reads.
    """
    c, count = target.config, len(token_ids)
    shape = {**layer_shape(c), "num_hidden_layers": 1, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}
    drafted = None if count == c.vocab_size else count
    drafter = Eagle3DraftModel(Eagle3Form(shape, c.hidden_size, tuple(layers), drafted))
    drafter.config.name_or_path = "eagle3"
    layer, last, centred = drafter.layers[0], target.model.layers[-1], target_type(c).centred
    ids = torch.tensor(token_ids)
    with torch.no_grad():
        drafter.token_ids.copy_(ids)
        drafter.fc.weight.mul_(0.5)
        layer.self_attn.o_proj.weight.mul_(0.3)
        drafter.fc.weight[:, -c.hidden_size :] += torch.eye(c.hidden_size)
        if hasattr(last.mlp, "gate_proj"):  # not a mixture of experts
            layer.mlp.load_state_dict(last.mlp.state_dict())
        layer.post_attention_layernorm.weight.copy_(last.post_attention_layernorm.weight + centred)
        drafter.norm.weight.copy_(target.model.norm.weight + centred)
        drafter.lm_head.weight.copy_(target.lm_head.weight[ids.to(target.lm_head.weight.device)])
    return drafter.to(target.device)


class Chains:
    """Attention of chains of rows that start at some rows of a text. Each call adds one step to every chain.

    rows: (B, A), the rows at which chains start.
    text_rows: (S,), numbers of the text's rows.
    context: keys and values of the text's rows, (B, KV heads, S, D) each.
    """

    def __init__(self, rows: Tensor, text_rows: Tensor, context: KeyValue):
        self._seen = (text_rows < rows[..., None])[
            :, None
        ]  # (B, 1, A, S): the text's rows before the first row of each chain
        self._context = context
        self._steps: list[KeyValue] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Adds a step to every chain. Returns its attention over the text and over the chain so far, (B, heads, A, D)."""
        self._steps.append((key, value))
        heads, kv_heads = query.shape[1], key.shape[1]
        scale = query.shape[-1] ** -0.5
        (keys, values), *steps = (
            [part.repeat_interleave(heads // kv_heads, 1) for part in pair] for pair in (self._context, *self._steps)
        )
        text_scores = (query @ keys.transpose(-1, -2)).masked_fill(~self._seen, float("-inf"))
        chain_scores = torch.stack([(query * k).sum(-1) for k, _ in steps], -1)
        weights = (torch.cat([text_scores, chain_scores], -1).float() * scale).softmax(-1).to(query.dtype)
        text = keys.shape[2]
        out = weights[..., :text] @ values
        for step, (_, v) in enumerate(steps):
            out = out + weights[..., text + step, None] * v
        return out
