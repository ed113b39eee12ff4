"""The draft network of DFlash, also used for D²SD's variable-prefix drafter, with the additions of DSpark and DFlash 2.

The network is a small Qwen3-style stack that uses the target's embedding and LM head. By default, every layer attends to
projected target features of the committed context, and to the whole block without a causal mask (DFlash, arXiv 2602.06036,
section 3; D²SD, arXiv 2606.04446, section 3.2). Parameters have their published names (docs/drafter-format.md), so that published
folders load unchanged. Untrained drafters are initialised from the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RotaryEmbedding

from d2sd.nets.dtypes import product
from d2sd.nets.layouts import DrafterForm, Selector, default_target_layers, read_form
from d2sd.nets.lean import Attend, Kernels, KeyValue, LayerAttention, MergedLayers, Product, merged_layers
from d2sd.nets.packed import PackedLayers
from d2sd.nets.types import TargetType, head_shape, target_type

# Decoder layers.


def rms_norm(config: Any, size: int | None = None) -> nn.RMSNorm:
    """Returns a norm over the last dimension, which has ``size`` entries; None: the hidden size."""
    return nn.RMSNorm(size or config.hidden_size, eps=config.rms_norm_eps)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns queries or keys ``x`` (B, heads, R, D) after RoPE.

    cos, sin: cosines and sines of the rows' positions, (B or 1, R, D).
    """
    a, b = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]


class DraftAttention(nn.Module):
    """Grouped-query attention of a drafter's rows.

    config: a Llama or Qwen3 config.
    width: size of the inputs.
    qk_norm: whether queries and keys are normed, as in Qwen3.
    """

    def __init__(self, config: Any, width: int, qk_norm: bool = True):
        super().__init__()
        self.head_dim = config.head_dim
        queries, keys = config.num_attention_heads * self.head_dim, config.num_key_value_heads * self.head_dim
        linear = partial(nn.Linear, bias=config.attention_bias)
        self.q_proj, self.k_proj, self.v_proj = linear(width, queries), linear(width, keys), linear(width, keys)
        self.o_proj = linear(queries, config.hidden_size)
        self.q_norm, self.k_norm = (rms_norm(config, self.head_dim) if qk_norm else nn.Identity() for _ in range(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> KeyValue:
        """Returns keys and values, (B, KV heads, T, head_dim) each, of rows ``x`` (B, T, width)."""
        key = self.k_norm(self._heads(self.k_proj(x)))
        return apply_rope(key, cos, sin), self._heads(self.v_proj(x))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: LayerAttention) -> Tensor:
        query = apply_rope(self.q_norm(self._heads(self.q_proj(x))), cos, sin)
        out = attend(query, *self.keys_values(x, cos, sin))
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class GroupedConvolution(nn.Module):
    """Mixes each row with earlier rows of its block (DFlash 2). One convolution runs before a sublayer and one after it.

    y_t = Σ_k (base_k + dynamic_{t,k}) · x_{t−k}. The kernel is the sum of a learned base and of dynamic weights, which are computed
    from the sublayer's input. The channels of a group share the dynamic weights.
    """

    def __init__(self, hidden: int, form: Selector):
        super().__init__()
        self.kernel, self.group = form.conv_kernel_size, form.conv_group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, self.kernel, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * self.kernel * hidden // self.group, bias=False)

    def dynamic(self, x: Tensor) -> Tensor:
        """Returns the dynamic weights of both convolutions, (2, …, R, kernel, H / group), given the normed input of the sublayer,
        (…, R, H).
        """
        return self.kernel_projection(x).unflatten(-1, (2, self.kernel, -1)).movedim(-3, 0)

    def forward(self, x: Tensor, dynamic: Tensor, side: int) -> Tensor:
        """Returns the rows ``x`` (…, R, H) mixed with earlier rows of their block.

        dynamic: the result of the method ``dynamic``.
        side: which convolution: 0 for the one before the sublayer, 1 for the one after it.
        """
        out = torch.zeros_like(x)
        for k in range(min(self.kernel, x.shape[-2])):
            earlier = F.pad(x, (0, 0, k, 0))[..., : x.shape[-2], :]
            kernel = self.base_kernel[side, k] + dynamic[side, ..., k, :].repeat_interleave(self.group, -1)
            out = out + kernel * earlier
        return out


class DraftLayer(nn.Module):
    """Pre-norm attention and SwiGLU MLP. DFlash 2 adds a convolution before and after each of the two."""

    def __init__(self, config: Any, form: DrafterForm):
        super().__init__()
        self.self_attn = DraftAttention(config, config.hidden_size)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = rms_norm(config)
        self.post_attention_layernorm = rms_norm(config)
        self.attention_conv, self.mlp_conv = (
            GroupedConvolution(config.hidden_size, form.selector) if form.selector else None for _ in range(2)
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: LayerAttention) -> Tensor:
        attention = partial(self.self_attn, cos=cos, sin=sin, attend=attend)
        x = x + _between(self.attention_conv, self.input_layernorm(x), attention)
        return x + _between(self.mlp_conv, self.post_attention_layernorm(x), self.mlp)


def _between(convolution: GroupedConvolution | None, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    if convolution is None:
        return sublayer(x)
    dynamic = convolution.dynamic(x)
    return convolution(sublayer(convolution(x, dynamic, 0)), dynamic, 1)


# Heads that condition a token on previous tokens.


class MarkovHead(nn.Module):
    """Corrects a row's logits, given the previous token (DSpark, arXiv 2607.05147).

    The kind ``vanilla`` uses only this token, ``gated`` also the row's hidden state, and ``rnn`` also the hidden state and all
    earlier tokens of the block.
    """

    def __init__(self, config: Any, form: DrafterForm):
        super().__init__()
        self.kind, self.rank = form.markov, form.markov_rank
        self.markov_w1 = nn.Embedding(config.vocab_size, self.rank)
        self.markov_w2 = nn.Linear(self.rank, form.drafted, bias=False)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(config.hidden_size + self.rank, self.rank)
        elif self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * self.rank + config.hidden_size, 3 * self.rank)

    def start(self, hidden: Tensor) -> Tensor:
        """Returns the initial state, (…, r), for rows with hidden states (…, hidden)."""
        return hidden.new_zeros(*hidden.shape[:-1], self.rank)

    def forward(self, before: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the corrections of the logits, (…, drafted), and the next state, (…, r). Arguments as for ``inputs``."""
        e, state = self.inputs(before, hidden, state)
        return self.markov_w2(e), state

    def inputs(self, before: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what ``markov_w2`` multiplies, (…, r), and the next state, (…, r).

        before: the previous token of each row, (…).
        hidden: hidden states of the rows, (…, hidden).
        state: the state before these rows, (…, r).
        """
        e = self.markov_w1(before)
        if self.kind == "gated":
            e = torch.sigmoid(self.gate_proj(torch.cat([hidden, e], -1))) * e
        elif self.kind == "rnn":
            gate, new, out = self.joint_proj(torch.cat([state, e, hidden], -1)).chunk(3, -1)
            gate = torch.sigmoid(gate)
            state, e = gate * state + (1 - gate) * torch.tanh(new), torch.tanh(out)
        return e, state


class ConfidenceHead(nn.Module):
    """Predicts the probability that a row's token is accepted if all earlier tokens of the block are accepted (DSpark).

    Its input is the row's hidden state and, in some drafters, the Markov head's embedding of the previous token. The row's own
    token is not an input.
    """

    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, before: Tensor | None) -> Tensor:
        """Returns the logit of this probability, (…) float32.

        hidden: hidden states of the rows, (…, hidden).
        before: the Markov head's embeddings of the previous tokens, (…, r); None if they are no input.
        """
        read = hidden if before is None else torch.cat([hidden, before], -1)
        return self.proj(read)[..., 0].float()


class CandidateSelector(nn.Module):
    """Scores a row's most likely tokens for each possible previous token (DFlash 2)."""

    def __init__(self, config: Any, form: Selector):
        super().__init__()
        self.form = form
        self.predecessor_codebook, self.successor_codebook = (
            nn.Parameter(torch.zeros(config.vocab_size, form.selector_rank)) for _ in range(2)
        )
        self.hidden_projection = nn.Linear(config.hidden_size, form.selector_rank, bias=False)

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns scores and indices of the most likely tokens, best first, (…, C) each, given the LM head's logits (…, V)."""
        scores = logits.float() * self.form.output_multiplier
        if cap := self.form.final_logit_softcapping:
            scores = cap * torch.tanh(scores / cap)
        best = scores.topk(min(self.form.selector_top_k, scores.shape[-1]), -1)
        return best.values, best.indices

    def forward(self, scores: Tensor, tokens: Tensor, hidden: Tensor, before: Tensor) -> Tensor:
        """Returns the scores of C candidates after each of P possible previous tokens, (…, P, C).

        scores: scores of the candidates, from ``candidates``, (…, C).
        tokens: the candidates, (…, C).
        hidden: hidden states of the rows, (…, hidden).
        before: the possible previous tokens, (…, P).
        """
        read = self.predecessor_codebook[before] * self.hidden_projection(hidden)[..., None, :]
        return scores[..., None, :] + (read @ self.successor_codebook[tokens].transpose(-1, -2)).float()


# The network.


class DFlashDraftModel(PreTrainedModel):
    """A block drafter.

    config: a Qwen3 config with ``block_size`` and ``dflash_config``. The latter holds ``mask_token_id`` and ``target_layer_ids``,
        as in the published folders.
    form: description of a drafter with another layout (``d2sd.nets.layouts``); None: it is read from ``config``.
    own: parts that the drafter has itself, out of ``embed_tokens`` and ``lm_head``; the other parts are the target's.
    """

    config_class = Qwen3Config
    config: Any
    layers: Any
    base_model_prefix = ""
    _supports_sdpa = True

    def __init__(self, config: Any, form: DrafterForm | None = None, own: Sequence[str] = ()):
        super().__init__(config)
        self.form = form = form or read_form(config.to_dict())
        hidden = config.hidden_size
        self.fc = nn.Linear(len(form.taps) * hidden, hidden, bias=False)
        self.hidden_norm = rms_norm(config)
        self.layers = nn.ModuleList(DraftLayer(config, form) for _ in range(config.num_hidden_layers))
        self.norm = rms_norm(config)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden) if "embed_tokens" in own else None
        self.lm_head = nn.Linear(hidden, form.drafted, bias=False) if "lm_head" in own else None
        self.markov_head = MarkovHead(config, form) if form.markov else None
        width = hidden + (form.markov_rank if form.confidence == "markov" else 0)
        self.confidence_head = ConfidenceHead(width) if form.confidence else None
        self.candidate_selector = CandidateSelector(config, form.selector) if form.selector else None
        self.token_ids: Tensor | None  # the target's ids of the draft vocabulary; None if all tokens can be drafted
        self.register_buffer("token_ids", None, persistent=False)
        self._packed: PackedLayers | None = None
        self._merged: dict[Kernels, MergedLayers] = {}
        self._rows: tuple[Tensor, Tensor, Product] | None = None
        self.mixed = False  # whether packed layers keep their weights in float16
        self.post_init()

    @property
    def block_size(self) -> int:
        """γ in training: the number of tokens in a block, which are the anchor and γ − 1 drafted tokens."""
        return self.form.block_size

    @property
    def mask_token_id(self) -> int:
        """The token id that is the input at every position to be drafted."""
        return self.form.mask_token

    @property
    def target_layer_ids(self) -> list[int]:
        return list(self.form.taps)

    def packed(self) -> PackedLayers | None:
        """Returns packed copies of the layers; None if packing is not possible. They are created at the first call with frozen
        weights.
        """
        if self._packed is not None and not self._packed.frozen:
            self._packed = None  # weights that are not frozen may change
        elif self._packed is None and not self.form.masked and self.form.selector is None:
            possible = PackedLayers.possible(self.layers, self.config)
            self._packed = PackedLayers(self, self.mixed) if possible else None
        return self._packed

    def merged(self, kernels: Kernels) -> MergedLayers | None:
        """Returns the layers with merged weights, for fixed-shape passes; None if merging is not possible."""
        if self.form.selector is not None:
            return None
        return merged_layers(self._merged, kernels, self, self.layers, contexts=True)

    def rows_of_head(self, weight: Tensor) -> Product:
        """Returns the LM head of a drafter that has a draft vocabulary but no head: the rows of the target's head for the draft
        vocabulary.

        weight: the target's LM head, (V, hidden). Its rows are copied at the first call.
        """
        ids = self.token_ids
        assert ids is not None
        if self._rows is None or self._rows[0] is not weight or self._rows[1] is not ids:
            rows = weight.detach()[ids.to(weight.device)]
            plain = rows.device.type == "cpu" and rows.dtype == torch.float32
            self._rows = weight, ids, product(rows, self.mixed) if plain else partial(F.linear, weight=rows)
        return self._rows[2]

    def project_context(self, features: Tensor, position_ids: Tensor) -> list[KeyValue]:
        """Returns the keys and values of context tokens, for each layer, (B, KV heads, T, head_dim) each.

        features: the target's features, (B, T, taps·hidden).
        position_ids: positions of the tokens in the text, (B, T).
        """
        context = self.hidden_norm(self.fc(features))
        cos, sin = self.rotary_emb(context, position_ids)
        return [layer.self_attn.keys_values(context, cos, sin) for layer in self.layers]

    def forward(self, block: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        """Returns the hidden states of B blocks of R tokens after the final norm, (B, R, hidden).

        block: embedded tokens of the blocks, (B, R, hidden).
        position_ids: positions of the rows in the text, (B or 1, R).
        attend: computes the attention of a layer's rows to the layer's context and to the block.
        """
        cos, sin = self.rotary_emb(block, position_ids)
        for index, layer in enumerate(self.layers):
            block = layer(block, cos, sin, partial(attend, index))
        return self.norm(block)


def attention_mask(
    form: DrafterForm, layer: int, start: Tensor | int, context: int, rows: int, device: torch.device
) -> Tensor:
    """Returns the mask of a layer, (R, C + R) bool: which context slots and which rows of its block each row sees.

    start: position of the first row. For A blocks, ``start`` has shape (A, 1, 1) and the mask (A, R, C + R).
    context: C, the number of slots. Slot n has position n, and slots before ``start`` are filled.
    rows: R, the number of rows of the block.
    """
    query = torch.arange(rows, device=device)[:, None] + start
    slots = torch.arange(context, device=device)[None]
    block = torch.arange(rows, device=device)[None] + start
    filled = (slots < start).expand(*query.shape[:-1], -1)
    seen = torch.cat([filled, (block <= query) | (not form.causal[layer])], -1)
    window = form.windows[layer]
    if window is not None:
        seen = seen & torch.cat([query - slots < window, query - block < window], -1)
    return seen


# Untrained drafters: config for a target, and initialisation from the target's weights.


def drafter_config(
    target: Any,
    *,
    layers: int,
    block_size: int,
    mask_token_id: int,
    target_layer_ids: list[int] | None = None,
) -> Qwen3Config:
    """Returns the config of a new drafter, in the published format.

    target: the target's text config.
    layers: number of layers of the drafter.
    """
    taps = target_layer_ids or default_target_layers(target.num_hidden_layers, layers)
    settings = layer_shape(target) | {
        "num_hidden_layers": layers,
        "num_target_layers": target.num_hidden_layers,
        "block_size": block_size,
        "dflash_config": {"mask_token_id": mask_token_id, "target_layer_ids": taps},
    }
    return Qwen3Config(**settings)


def layer_shape(target: Any) -> dict[str, Any]:
    """Returns the layer settings of a new drafter.

    If the target has no ``intermediate_size`` (mixtures of experts), the width of the drafter's MLP is 3 × the hidden size.

    target: the target's text config.
    """
    heads, kv_heads, head_dim = head_shape(target)
    return {
        **{
            key: getattr(target, key)
            for key in ("vocab_size", "hidden_size", "max_position_embeddings", "rms_norm_eps")
        },
        "intermediate_size": getattr(target, "intermediate_size", None) or 3 * target.hidden_size,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "rope_parameters": plain_rope(target),
        "tie_word_embeddings": False,
    }


def plain_rope(target: Any) -> dict[str, Any]:
    """Returns the RoPE parameters of a new drafter: the target's parameters for full attention, without those for partial rotation
    and images.
    """
    rope = dict(target.rope_parameters)
    rope = dict(rope.get("full_attention") or rope)
    if rope.get("rope_type") == "proportional":  # rotates only a part of each head
        rope["rope_type"] = "default"
    return {key: value for key, value in rope.items() if key != "partial_rotary_factor" and "mrope" not in key}


def start_from_target(drafter: Any, target: Any) -> None:
    """Initialises a drafter from the target, in place.

    The target's last attention layers (if their shapes agree) and its final norm are copied. For the last tap, the identity is
    added to ``fc``. The drafter then learns clearly faster than from random weights (measured on ``tiny``:
    assets/models/tiny/PROVENANCE.md).
    """
    kind, count = target_type(target.config), len(drafter.layers)
    with torch.no_grad():
        sources = [layer for layer in target.layers if hasattr(layer, "self_attn")][-count:]
        for layer, source in zip(drafter.layers[count - len(sources) :], sources, strict=True):
            state, weights = layer.state_dict(), _plain_weights(source, kind)
            state |= {name: w for name, w in weights.items() if name in state and w.shape == state[name].shape}
            layer.load_state_dict(state)
        drafter.norm.weight.copy_(target.norm.weight + kind.centred)
        hidden = drafter.config.hidden_size
        drafter.fc.weight[:, -hidden:] += torch.eye(hidden, device=drafter.fc.weight.device)


def _plain_weights(layer: Any, kind: TargetType) -> dict[str, Tensor]:
    """Returns the weights of a target's layer as Qwen3 stores them: queries without output gates, and norm weights without an
    offset.
    """
    weights = layer.state_dict()
    if kind.gated:
        query = weights["self_attn.q_proj.weight"]
        heads = query.view(-1, 2, layer.self_attn.head_dim, query.shape[1])
        weights["self_attn.q_proj.weight"] = heads[:, 0].flatten(0, 1)
    if kind.centred:
        weights = {name: w + 1 if "norm" in name else w for name, w in weights.items()}
    return weights
