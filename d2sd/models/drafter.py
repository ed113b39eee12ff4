"""The draft network of DFlash and of D²SD's variable-prefix drafter (same shape for both).

A small Qwen3-style stack without embedding and LM head of its own: it borrows the target's. Every layer attends
to projected target features of the committed context and, without a causal mask, to the whole block
(DFlash, arXiv 2602.06036, section 3; D²SD, arXiv 2606.04446, section 3.2). Parameter names follow the published
``DFlashDraftModel`` folders, so that those load unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RotaryEmbedding, apply_rotary_pos_emb

from d2sd.attention import KeyValue
from d2sd.models.beginnings import dense_width, plain_rope
from d2sd.models.form import DrafterForm
from d2sd.models.heads import CandidateSelector, ConfidenceHead, GroupedConvolution, MarkovHead
from d2sd.models.layouts import read_form
from d2sd.models.lean import LeanLayers, Product, product
from d2sd.models.types import head_shape

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def default_target_layers(target_layers: int, count: int) -> list[int]:
    """Evenly spaced decoder layers to tap, from layer 1 to layer L-3 (L = ``target_layers``).

    Index n means the output of decoder layer n. For 36 layers and 5 taps: 1, 9, 17, 25, 33.
    """
    first, last = min(1, target_layers - 1), max(target_layers - 3, min(1, target_layers - 1))
    if count == 1:
        return [last]
    return sorted({round(first + (last - first) * i / (count - 1)) for i in range(count)})


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies RoPE to queries or keys alone, (B, heads, R, D); cos, sin: (B or 1, R, D)."""
    a, b = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]


class DraftAttention(nn.Module):
    """Grouped-query attention whose keys and values come from the context and from the block."""

    def __init__(self, config: Any):
        super().__init__()
        self.head_dim = config.head_dim
        queries, keys = config.num_attention_heads * self.head_dim, config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=config.attention_bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=config.attention_bias)
        self.q_norm = nn.RMSNorm(self.head_dim, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(self.head_dim, eps=config.rms_norm_eps)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> KeyValue:
        """Keys and values of context rows, (B, T, hidden) → two tensors (B, KV heads, T, head_dim)."""
        key = self.k_norm(self._heads(self.k_proj(x)))
        return rotated(key, cos, sin), self._heads(self.v_proj(x))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, context: KeyValue, attend: Attend) -> Tensor:
        query = self.q_norm(self._heads(self.q_proj(x)))
        key = self.k_norm(self._heads(self.k_proj(x)))
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        out = attend(query, context[0], context[1], key, self._heads(self.v_proj(x)))
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class DraftLayer(nn.Module):
    """Pre-norm attention and SwiGLU block, each between convolutions where the drafter has them (DFlash 2)."""

    def __init__(self, config: Any, form: DrafterForm):
        super().__init__()
        self.self_attn = DraftAttention(config)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.attention_conv: GroupedConvolution | None = None
        self.mlp_conv: GroupedConvolution | None = None
        if form.selector is not None:
            self.attention_conv = GroupedConvolution(config.hidden_size, form.selector)
            self.mlp_conv = GroupedConvolution(config.hidden_size, form.selector)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, context: KeyValue, attend: Attend) -> Tensor:
        def attention(rows: Tensor) -> Tensor:
            return self.self_attn(rows, cos, sin, context, attend)

        x = x + _between(self.attention_conv, self.input_layernorm(x), attention)
        return x + _between(self.mlp_conv, self.post_attention_layernorm(x), self.mlp)


def _between(convolution: GroupedConvolution | None, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    if convolution is None:
        return sublayer(x)
    dynamic = convolution.dynamic(x)
    return convolution(sublayer(convolution(x, dynamic, 0)), dynamic, 1)


class DFlashDraftModel(PreTrainedModel):
    """A block drafter. ``config`` is a Qwen3 config with ``block_size`` and ``dflash_config`` added.

    ``dflash_config`` holds ``mask_token_id`` and ``target_layer_ids``, as in the published folders.

    form: what the folder says where its layout is another one (``d2sd.models.layouts``).
    own: which of ``embed_tokens`` and ``lm_head`` it does not borrow from the target.
    """

    config_class = Qwen3Config
    config: Any
    layers: Any
    base_model_prefix = ""
    _supports_sdpa = True

    def __init__(self, config: Any, form: DrafterForm | None = None, own: Sequence[str] = ()):
        super().__init__(config)
        self.form = form = form or read_form(config.to_dict())
        hidden, drafted = config.hidden_size, form.draft_vocabulary or config.vocab_size
        self.fc = nn.Linear(len(form.taps) * hidden, hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(config, form) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden) if "embed_tokens" in own else None
        self.lm_head = nn.Linear(hidden, drafted, bias=False) if "lm_head" in own else None
        self.markov_head: MarkovHead | None = None
        if form.markov is not None:
            self.markov_head = MarkovHead(form.markov, form.markov_rank, hidden, config.vocab_size, drafted)
        self.confidence_head: ConfidenceHead | None = None
        if form.confidence is not None:
            self.confidence_head = ConfidenceHead(hidden + (form.markov_rank if form.confidence == "markov" else 0))
        self.candidate_selector: CandidateSelector | None = None
        if form.selector is not None:
            self.candidate_selector = CandidateSelector(form.selector, hidden, config.vocab_size)
        self.token_ids: Tensor | None  # the target's ids of the tokens that it can draft, where they are not all
        self.register_buffer("token_ids", None, persistent=False)
        self._lean: LeanLayers | None = None
        self._rows: tuple[Tensor, Tensor, Product] | None = None
        self.mixed = False  # whether lean layers keep their weights in float16
        self.post_init()

    @property
    def block_size(self) -> int:
        """γ the drafter was trained with: the anchor and γ−1 drafted positions."""
        return self.form.block_size

    @property
    def mask_token_id(self) -> int:
        """Token id at every position to be drafted."""
        return self.form.mask_token

    @property
    def target_layer_ids(self) -> list[int]:
        """Decoder layers of the target whose outputs condition this drafter."""
        return list(self.form.taps)

    def reformed(self, form: DrafterForm) -> DFlashDraftModel:
        """Returns a model that shares these weights under another form: other taps, rows, windows, mask token or RoPE."""
        other = copy.copy(self)
        other.__dict__["_modules"] = dict(self._modules)
        other.form, other._lean, other._rows = form, None, None
        if form.shape["rope_parameters"] != self.form.shape["rope_parameters"]:
            config = copy.deepcopy(self.config)
            config.rope_parameters = dict(form.shape["rope_parameters"])
            other.rotary_emb = Qwen3RotaryEmbedding(config).to(self.device)
        return other

    def lean(self) -> LeanLayers | None:
        """Returns its lean layers if possible, created at the first call after the weights are frozen; else None."""
        if self._lean is not None and not self._lean.frozen:
            self._lean = None  # they may change
        elif self._lean is None and self._plain and LeanLayers.possible(self.layers, self.config):
            self._lean = LeanLayers(self.layers, self.rotary_emb, self.config, self.mixed)
        return self._lean

    def rows_of_head(self, weight: Tensor) -> Product:
        """Returns the LM head of a drafter with a draft vocabulary and no head of its own: the target's rows of these tokens.

        weight: (V, hidden) of the target's LM head. The rows are copied at the first call.
        """
        ids = self.token_ids
        assert ids is not None
        if self._rows is None or self._rows[0] is not weight or self._rows[1] is not ids:
            rows = weight.detach()[ids.to(weight.device)]
            plain = rows.device.type == "cpu" and rows.dtype == torch.float32
            self._rows = weight, ids, product(rows, self.mixed) if plain else partial(F.linear, weight=rows)
        return self._rows[2]

    @property
    def _plain(self) -> bool:
        """Whether every row sees all of the context and of its block, and layers are as in Qwen3."""
        return not self.form.masked and self.form.selector is None

    def project_context(self, features: Tensor, position_ids: Tensor) -> list[KeyValue]:
        """Keys and values of context tokens, once per committed token.

        features: (B, T, taps·hidden) target features; position_ids: (B, T) absolute positions.
        Returns per layer a pair of (B, KV heads, T, head_dim).
        """
        context = self.hidden_norm(self.fc(features))
        cos, sin = self.rotary_emb(context, position_ids)
        return [layer.self_attn.keys_values(context, cos, sin) for layer in self.layers]

    def forward(
        self,
        block: Tensor,
        position_ids: Tensor,
        context: list[KeyValue],
        attend: Attend | Sequence[Attend],
    ) -> Tensor:
        """Hidden states of every block row, ready for the target's LM head.

        block: (B, R, hidden) embedded with the target's table; position_ids: (B or 1, R) absolute positions;
        context: per layer keys and values, (B or 1, KV heads, T, head_dim); ``attend`` joins the two levels, by layer where
        layers differ in what they see.
        """
        cos, sin = self.rotary_emb(block, position_ids)
        ways = attend if isinstance(attend, Sequence) else [attend] * len(self.layers)
        for layer, keys_values, way in zip(self.layers, context, ways, strict=True):
            block = layer(block, cos, sin, keys_values, way)
        return self.norm(block)


def attention_mask(
    form: DrafterForm, layer: int, start: Tensor | int, context: int, rows: int, device: torch.device
) -> Tensor:
    """What a layer's rows see, (R, C + R) bool: of ``context`` slots, whose numbers are their positions and of which those
    before ``start`` are filled, and of the block's own rows at ``start`` and after it.

    start: of one block, or of many as (A, 1, 1), which gives (A, R, C + R).
    """
    query = torch.arange(rows, device=device)[:, None] + start
    slots = torch.arange(context, device=device)[None]
    own = torch.arange(rows, device=device)[None] + start
    filled = (slots < start).expand(*query.shape[:-1], -1)
    seen = torch.cat([filled, (own <= query) | (not form.causal[layer])], -1)
    window = form.windows[layer]
    if window is not None:
        seen = seen & torch.cat([query - slots < window, query - own < window], -1)
    return seen


def drafter_config(
    target: Any,
    *,
    layers: int,
    block_size: int,
    mask_token_id: int,
    target_layer_ids: list[int] | None = None,
) -> Qwen3Config:
    """A drafter's config for a target's text config, in the published form."""
    heads, kv_heads, head_dim = head_shape(target)
    taps = target_layer_ids or default_target_layers(target.num_hidden_layers, layers)
    settings: dict[str, Any] = {
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "intermediate_size": dense_width(target),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": target.max_position_embeddings,
        "rms_norm_eps": target.rms_norm_eps,
        "rope_parameters": plain_rope(target),
        "num_target_layers": target.num_hidden_layers,
        "block_size": block_size,
        "dflash_config": {"mask_token_id": mask_token_id, "target_layer_ids": taps},
        "tie_word_embeddings": False,
    }
    return Qwen3Config(**settings)
