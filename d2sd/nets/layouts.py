"""Reads ``config.json`` of block drafters. Each layout of the config has a reader; all readers return a ``DrafterForm``.

Layouts are recognised in this order: speculators (vLLM), keys under ``dflash_config`` (z-lab, SpecForge, JetSpec, this package),
all keys at the top level (DeepSpec). docs/drafter-format.md lists the keys and their sources. Unsupported options are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from d2sd.errors import InputError
from d2sd.methods.base import MAX_BLOCK
from d2sd.nets.config_checks import (
    ENGINES,
    check_config,
    check_number,
    check_taps,
    check_token_ids,
    check_whole,
    refuse_options,
    refuse_others,
    require,
    short,
)

Raw = Mapping[str, Any]
Layout = Literal["nested", "flat", "speculators"]
Kind = Literal["dflash", "dflash2", "dspark"]
Reads = Literal["fill", "next"]
MarkovKind = Literal["vanilla", "gated", "rnn"]

MARKOV_HEADS = get_args(MarkovKind)
# Keys that define a layer's shape. The other keys of a config are about training, serving or files.
SHAPE = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "max_position_embeddings", "rms_norm_eps", "attention_bias", "hidden_act", "num_target_layers",
)  # fmt: skip
DEFAULTS = {"attention_bias": False, "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 32768}
ROPE_THETA = 10000.0  # transformers' default
# Options besides ``FLAGS_OF_DRAFTERS`` that block drafters may set to true.
FLAGS = frozenset(
    {"is_causal", "causal", "causal_head", "use_swa", "use_sliding_window", "enable_confidence_head", "confidence_head_with_markov",
     "sample_from_anchor", "sliding_window_non_causal", "gradient_checkpointing", "scale_loss"}
)  # fmt: skip
# Supported values of options that are not in ``config_checks.NEUTRAL``; these values do not change the output.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_value_scale": (1,), "mask_embedding": (), "hc_mult": (1,), "attention_dropout": (0,), "embedding_multiplier": (1,),
    "residual_multiplier": (1,), "enable_d2_feature": (False,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selector:
    """The additions of DFlash 2: convolutions over the block's rows around every sublayer, and a candidate selector.

    kernel: number of rows that a convolution reads.
    group: number of channels that share a dynamic kernel.
    rank: rank of the codebooks.
    top: number of candidates per row.
    multiplier: scale of the logits.
    cap: soft cap of the logits; None without a cap.
    """

    rank: int = 256
    top: int = 16
    kernel: int = 2
    group: int = 16
    multiplier: float = 1.0
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class DrafterForm:
    """Description of a block drafter.

    All fields except the sizes are independent of the weights. To run the weights under another convention, replace a field and
    pass the changed form to ``DFlashDraftModel.reformed``.

    shape: keys of a Qwen3 config, including the rotary embedding as ``rope_parameters``.
    taps: decoder layers of the target whose outputs the drafter reads, counted from 0.
    rows: number of rows of a drafted block, including the anchor's.
    reads: position that a row predicts. ``fill``: its own position, so a block drafts ``rows`` − 1 tokens. ``next``: the next
        position, so a block drafts ``rows`` tokens.
    windows: for each layer, its window W: a query sees only keys less than W positions before the query; None without a window.
    causal: for each layer, whether attention within the block is causal.
    markov, markov_rank: kind and rank of DSpark's Markov head; None and 0 without this head.
    confidence: inputs of DSpark's confidence head: ``hidden``, a row's hidden state; ``markov``, also the Markov head's embedding
        of the previous token; None without a confidence head.
    draft_vocabulary: number of tokens that can be drafted; None if all of the target's tokens can be drafted.
    embedding_scale: factor of the input embeddings.
    visible_prefixes: whether the drafter was trained without empty prefixes (VP-Drafters of SpecForge).
    second_role: whether the drafter was trained as a second drafter (VP-Drafter); ``d2sd train vp`` writes this.
    """

    layout: Layout
    kind: Kind
    shape: Mapping[str, Any]
    taps: tuple[int, ...]
    rows: int
    reads: Reads
    mask_token: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    markov: MarkovKind | None = None
    markov_rank: int = 0
    confidence: Literal["hidden", "markov"] | None = None
    selector: Selector | None = None
    draft_vocabulary: int | None = None
    embedding_scale: float = 1.0
    visible_prefixes: bool = False
    second_role: bool = False

    @property
    def shift(self) -> int:
        """Position of a predicted token minus the position of its row."""
        return int(self.reads == "next")

    @property
    def block_size(self) -> int:
        return self.rows + self.shift

    @property
    def masked(self) -> bool:
        """Whether some layer is causal within the block or has an attention window."""
        return any(self.causal) or any(w is not None for w in self.windows)

    @property
    def walked(self) -> bool:
        """Whether drafted tokens depend on earlier tokens of the block, or there is a confidence head."""
        return bool(self.markov or self.confidence or self.selector)


def layout_of(raw: Raw) -> Layout:
    """Returns the layout of a config; raises ``InputError`` if the config is not a block drafter's."""
    if "speculators_model_type" in raw or "transformer_layer_config" in raw:
        return "speculators"
    if "dflash_config" in raw:
        return "nested"
    if "target_layer_ids" in raw:
        return "flat"
    raise InputError(
        "its config.json has no dflash_config, target_layer_ids or transformer_layer_config: it is not a block drafter"
    )


def read_form(raw: Raw) -> DrafterForm:
    """Returns the form that a ``config.json`` describes; raises ``InputError`` if this file is wrong, incomplete or unsupported."""
    refuse_others(raw)
    layout = layout_of(raw)
    return {"speculators": _speculators, "nested": _nested, "flat": _flat}[layout](raw)


def _nested(raw: Raw) -> DrafterForm:
    """Reads the layout of z-lab, SpecForge, JetSpec and this package: the drafter's own keys under ``dflash_config``."""
    check_config(raw, ["qwen3", "gpt_oss"])  # drafters for gpt-oss state gpt_oss, but have Qwen3 layers
    inner = raw["dflash_config"]
    require(isinstance(inner, Mapping), "its dflash_config is not a JSON object")
    _refuse_options(raw, inner)
    own = {**raw, **inner}
    kind = _kind(raw, inner)
    causal = raw.get("is_causal")
    if causal is None:
        causal = inner.get("causal", inner.get("causal_head"))
    taps = inner.get("target_layer_ids") if "target_layer_ids" in inner else _even_taps(raw)
    other = inner.get("eagle_aux_hidden_state_layer_ids", raw.get("eagle_aux_hidden_state_layer_ids"))
    return _form(
        "nested", kind, raw, own, _taps(taps, raw, other, "dflash_config.target_layer_ids"), _rows(raw, inner),
        "next" if kind == "dspark" else "fill", causal, inner.get("mask_token_id"), "dflash_config.mask_token_id",
    )  # fmt: skip


def _flat(raw: Raw) -> DrafterForm:
    """Reads DeepSpec's layout: all keys at the top level. A row predicts the next token, even without a Markov head."""
    check_config(raw, ["qwen3"])
    _refuse_options(raw, {})
    taps = _taps(raw["target_layer_ids"], raw, None, "target_layer_ids")
    return _form(
        "flat", "dspark", raw, raw, taps, _rows(raw, {}), "next", raw.get("is_causal"), raw.get("mask_token_id")
    )


def _speculators(raw: Raw) -> DrafterForm:
    """Reads speculators' layout. ``transformer_layer_config`` has the layers' shape; tap n means the input of layer n."""
    inner = raw.get("transformer_layer_config")
    require(isinstance(inner, Mapping), "its transformer_layer_config is not a JSON object")
    layer = dict(cast(Raw, inner))
    layer.setdefault("model_type", "qwen3")
    check_config(layer, ["qwen3", "llama"])
    _refuse_options(raw, layer)
    named = raw.get("speculators_model_type", "dflash")
    kind = named if named in ("dflash", "dflash2", "dspark") else None
    require(
        kind is not None, f"its speculators_model_type {short(named)} is not supported; choose dflash, dflash2, dspark"
    )
    numbered = raw.get("aux_hidden_state_layer_ids")
    require(
        numbered is not None,
        "its config has no aux_hidden_state_layer_ids; add the layer numbers that the drafter was trained with",
    )
    whole = isinstance(numbered, list) and all(isinstance(n, int) for n in numbered)
    numbered = [n - 1 for n in cast(list[int], numbered)] if whole else numbered
    taps = _taps(numbered, {}, None, "aux_hidden_state_layer_ids")
    if (width := raw.get("target_hidden_size")) is not None and width != layer.get("hidden_size"):
        raise InputError(f"it reads features of width {short(width)}, but its hidden size is {layer.get('hidden_size')}; both must be equal")  # fmt: skip
    rows = _rows(raw, {})
    reads = "fill" if kind != "dspark" and not raw.get("sample_from_anchor") else _reads(raw, rows)
    causal = None if not raw.get("sliding_window_non_causal", kind == "dflash2") else False
    draft = raw.get("draft_vocab_size")
    if draft is not None:
        check_whole(raw, "draft_vocab_size", 1, layer["vocab_size"])
    return _form(
        "speculators", cast(Kind, kind), layer, {**layer, **raw}, taps, rows, reads, causal, raw.get("mask_token_id"),
        draft=None if draft == layer["vocab_size"] else draft,
    )  # fmt: skip


def _reads(raw: Raw, rows: int) -> str:
    """Returns which position a row predicts. Older folders of speculators state only the number of speculative tokens."""
    at_anchor = raw.get("sample_from_anchor")
    if isinstance(at_anchor, bool):
        return "next" if at_anchor else "fill"
    methods = (raw.get("speculators_config") or {}).get("proposal_methods") or [{}]
    count = methods[0].get("speculative_tokens") if isinstance(methods[0], Mapping) else None
    require(
        count in (rows, rows - 1),
        f"its config does not say which token a row predicts: sample_from_anchor is missing, and speculative_tokens is neither "
        f"{rows} nor {rows - 1}; set sample_from_anchor as in training, since almost no token is accepted with a wrong value",
    )
    return "next" if count == rows else "fill"


def _form(
    layout: Layout, kind: Kind, layer: Raw, own: Raw, taps: tuple[int, ...], rows: int, reads: str, causal: Any, mask: Any,
    mask_name: str = "mask_token_id", draft: int | None = None,
) -> DrafterForm:  # fmt: skip
    """Returns the form. ``layer``: config with the layers' shape; ``own``: config with the drafter's own keys."""
    shape: dict[str, Any] = DEFAULTS | {name: layer[name] for name in SHAPE if layer.get(name) is not None}
    missing = [n for n in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads") if n not in shape]  # fmt: skip
    require(not missing, f"its config.json has no {' and no '.join(missing)}")
    check_token_ids(mask, shape["vocab_size"], mask_name)
    require(isinstance(mask, int), f"its {mask_name.rpartition('.')[0] or 'config.json'} has no mask_token_id")
    shape.setdefault("num_key_value_heads", shape["num_attention_heads"])
    shape.setdefault("head_dim", shape["hidden_size"] // shape["num_attention_heads"])
    shape["rope_parameters"] = _rope(layer)
    windows, in_block = _attention(layer, own, causal)
    markov, rank, confidence = _heads(own) if kind == "dspark" else (None, 0, None)
    return DrafterForm(
        layout, kind, shape, taps, rows, cast(Any, reads), mask, windows, in_block, markov, rank, confidence,
        selector=_selector(own, shape["hidden_size"]) if kind == "dflash2" else None,
        draft_vocabulary=draft,
        embedding_scale=_real(own, "input_embedding_scale", 1.0) if kind == "dflash2" else 1.0,
        visible_prefixes=own.get("training_mode") == "vp_drafter",
        second_role=own.get("training_mode") == "vp_drafter" or own.get("role") == "second",
    )  # fmt: skip


def _refuse_options(*parts: Raw) -> None:
    if any(p.get("quantization_config") is not None for p in parts):
        raise InputError(
            f"its weights are quantised, which is not supported for drafters; run this drafter with {ENGINES}"
        )
    refuse_options(*parts, flags=FLAGS, neutral=NEUTRAL)


def _kind(raw: Raw, inner: Raw) -> Kind:
    names, projector = raw.get("architectures") or [], inner.get("projector_type")
    require(
        projector in (None, "dflash", "dflash2", "dspark"), f"its projector_type {short(projector)} is not supported"
    )
    if "DFlash2DraftModel" in names or projector == "dflash2":
        return "dflash2"
    return "dspark" if "DSparkDraftModel" in names or projector == "dspark" else "dflash"


def _even_taps(raw: Raw) -> list[int]:
    """Returns z-lab's default taps: evenly spaced from 1 to L − 3 for L target layers; L/2 if the drafter has one layer."""
    target, layers = raw.get("num_target_layers"), raw.get("num_hidden_layers")
    require(isinstance(target, int), "its config has neither dflash_config.target_layer_ids (a list of layer numbers) nor num_target_layers")  # fmt: skip
    check_whole(raw, "num_target_layers", 4, 2**10)
    check_whole(raw, "num_hidden_layers", 1, 2**10)
    if layers == 1:
        return [cast(int, target) // 2]
    last, steps = cast(int, target) - 3, cast(int, layers) - 1
    return [round(1 + i * (last - 1) / steps) for i in range(steps + 1)]


def _taps(taps: Any, raw: Raw, by_inputs: Any, name: str) -> tuple[int, ...]:
    """Returns the tapped layers. ``by_inputs``: the config's second list, which numbers layer n's output n + 1; None without it."""
    check_taps(taps, raw, name)
    if by_inputs is not None and by_inputs != [n + 1 for n in taps]:
        raise InputError(f"its {name} {taps} and its eagle_aux_hidden_state_layer_ids {short(by_inputs)} contradict each other; every number in the second list must be higher by one")  # fmt: skip
    return tuple(taps)


def _rows(raw: Raw, inner: Raw) -> int:
    there = {name: part for name, part in (("block_size", raw), ("dflash_config.block_size", inner)) if part.get("block_size") is not None}  # fmt: skip
    require(bool(there), "its config.json has no block_size")
    for part in there.values():
        check_whole(part, "block_size", 2, MAX_BLOCK)
    sizes = {part["block_size"] for part in there.values()}
    require(len(sizes) == 1, f"its block_size is {raw.get('block_size')} and its dflash_config.block_size is {inner.get('block_size')}; make them equal")  # fmt: skip
    return cast(int, sizes.pop())


def _rope(layer: Raw) -> dict[str, Any]:
    """Returns the drafter's own RoPE parameters, from ``rope_parameters`` or from ``rope_theta`` with ``rope_scaling``."""
    named, theta = layer.get("rope_parameters"), layer.get("rope_theta")
    nested = named is not None and any(isinstance(part, Mapping) for part in named.values())
    require(not nested, "its rope_parameters differ by kind of layer, which is not supported")
    rope = dict(named if named is not None else layer.get("rope_scaling") or {})
    if theta is not None and rope.setdefault("rope_theta", theta) != theta:
        raise InputError(
            f"its rope_theta is {theta} and its rope_parameters.rope_theta is {rope['rope_theta']}; make them equal"
        )
    rope.setdefault("rope_theta", ROPE_THETA)
    rope.setdefault("rope_type", rope.get("type", "default"))
    partial = rope.get("partial_rotary_factor")
    require(partial in (None, 1), f"its partial_rotary_factor is {short(partial)}; only 1 is supported")
    return {key: value for key, value in rope.items() if key != "type"}


def _attention(layer: Raw, own: Raw, causal: Any) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Returns, for each layer, its attention window, and whether attention within the block is causal.

    causal: the config's setting for all layers; None if only sliding layers are causal.
    """
    count = layer["num_hidden_layers"]
    require(causal is None or isinstance(causal, bool), f"its causal is {short(causal)}; it must be true or false")
    if own.get("use_swa"):
        check_whole(own, "swa_window_size", 1, 2**27)
        return (own["swa_window_size"],) * count, (bool(causal),) * count
    kinds = layer.get("layer_types") or ["full_attention"] * count
    unknown = [k for k in kinds if k not in ("full_attention", "sliding_attention")]
    require(not unknown, f"its layer_types include {short(unknown[0] if unknown else None)}; only full_attention and sliding_attention are supported")  # fmt: skip
    sliding = [k == "sliding_attention" for k in kinds]
    if any(sliding):
        check_whole({"sliding_window": layer.get("sliding_window")}, "sliding_window", 1, 2**27)
    windows = tuple(layer["sliding_window"] if s else None for s in sliding)
    return windows, tuple(s if causal is None else causal for s in sliding)


def _heads(own: Raw) -> tuple[MarkovKind | None, int, Any]:
    """Returns kind and rank of DSpark's Markov head, and the input of its confidence head."""
    speculators = bool(own.get("speculators_model_type"))
    named = own.get("markov_rank")
    rank: int = (256 if speculators else 0) if named is None else named
    check_whole({"markov_rank": rank}, "markov_rank", 0, 2**14)
    kind = own.get("markov_head_type") or "vanilla"
    require(
        kind in MARKOV_HEADS, f"its markov_head_type {short(kind)} is unknown; known types: {', '.join(MARKOV_HEADS)}"
    )
    there = own.get("enable_confidence_head")
    there = (speculators or bool(own.get("confidence_head_alpha"))) if there is None else there
    with_markov = own.get("confidence_head_with_markov")
    with_markov = speculators if with_markov is None else with_markov
    require(
        rank > 0 or not (there and with_markov),
        "its confidence head needs a Markov head, which it does not have (markov_rank is 0)",
    )
    reads = ("markov" if with_markov else "hidden") if there else None
    return (cast(MarkovKind, kind) if rank else None), rank, reads


def _selector(own: Raw, hidden: int) -> Selector:
    default = Selector()
    names = {"selector_rank": 2**14, "selector_top_k": 2**10, "conv_kernel_size": 64, "conv_group_size": hidden}
    whole = dict(zip(names, (default.rank, default.top, default.kernel, default.group), strict=True))
    whole |= {name: own[name] for name in names if own.get(name) is not None}
    for name, most in names.items():
        check_whole(whole, name, 1, most)
    require(hidden % whole["conv_group_size"] == 0, f"its conv_group_size {whole['conv_group_size']} does not divide its hidden_size {hidden}")  # fmt: skip
    cap = None if not own.get("final_logit_softcapping") else _real(own, "final_logit_softcapping", 0.0)
    rank, top, kernel, group = whole.values()
    return Selector(rank, top, kernel, group, _real(own, "output_multiplier", 1.0), cap)


def _real(own: Raw, name: str, default: float) -> float:
    check_number(own, name, 0, float("inf"))
    return default if own.get(name) is None else float(own[name])
