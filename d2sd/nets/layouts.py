"""Reads ``config.json`` of drafters: a ``DrafterForm`` for block drafters, an ``Eagle3Form`` for EAGLE-3.

The layout of a block drafter's config is recognised in this order: speculators (vLLM); keys under ``dflash_config`` (z-lab,
SpecForge, JetSpec, this package); all keys at the top level (DeepSpec). docs/drafter-format.md lists the keys and their sources.
Unsupported options are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, cast, get_args

from d2sd.errors import InputError, require
from d2sd.nets.config_checks import (
    BLOCK_OPTIONS,
    EAGLE3_OPTIONS,
    NEEDED,
    ROPES,
    Raw,
    check_config,
    check_token_ids,
    check_values,
    is_whole,
    object_at,
    refuse_options,
    refuse_others,
    short,
)

Kind = Literal["dflash", "dflash2", "dspark"]
Reads = Literal["fill", "next"]
MarkovKind = Literal["vanilla", "gated", "rnn"]


class Layout(NamedTuple):
    """The places of keys in configs of one layout.

    layer: key of the JSON object with the shape of the layers; "" for the top level.
    options: key of the JSON object with all other settings; "" for the top level.
    taps: key of the taps.
    kind: key of the drafter's kind; "" without such a key.
    types: supported values of ``model_type``. The first one is the default if ``layer`` is not "".
    defaults: values of missing keys.
    """

    layer: str
    options: str
    taps: str
    kind: str
    types: tuple[str, ...]
    defaults: Raw


LAYERS = "eagle_aux_hidden_state_layer_ids"
LAYOUTS = {  # in the order in which they are recognised, by the keys layer, options and taps
    "speculators": Layout("transformer_layer_config", "", "aux_hidden_state_layer_ids", "speculators_model_type", ("qwen3", "llama"),
                          {"speculators_model_type": "dflash", "markov_rank": 256, "enable_confidence_head": True, "confidence_head_with_markov": True}),
    "nested": Layout("", "dflash_config", "dflash_config.target_layer_ids", "projector_type", ("qwen3", "gpt_oss"), {}),  # gpt_oss: layers are Qwen3's
    "flat": Layout("", "", "target_layer_ids", "", ("qwen3",), {}),
}  # fmt: skip
# Keys of taps, and the number that stands for the output of layer 0: 1 if layers are numbered by their inputs.
TAPS = {
    "dflash_config.target_layer_ids": 0, "target_layer_ids": 0, "aux_hidden_state_layer_ids": 1, f"dflash_config.{LAYERS}": 1,
    f"eagle_config.{LAYERS}": 0, LAYERS: 1,
}  # fmt: skip
MAX_TAPS = 64
# Keys that define a layer's shape. The other keys of a config are about training, serving or files.
SHAPE = (
    *NEEDED, "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "attention_bias", "hidden_act",
    "num_target_layers", "mlp_bias",
)  # fmt: skip
DEFAULTS = {"attention_bias": False, "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 32768}
ROPE_THETA = 10000.0  # transformers' default
# Supported values of some options. Other values would change a drafter's output in ways that are not implemented.
NEUTRAL: dict[str, Any] = {
    "hidden_act": "silu",
    "quantization_config": None,
    "mask_embedding": None,
    "enable_d2_feature": False,
    "use_aux_hidden_state": True,
    **dict.fromkeys(("logit_scale", "partial_rotary_factor", "pretraining_tp", "attention_value_scale"), 1),
    **dict.fromkeys(("hc_mult", "embedding_multiplier", "residual_multiplier"), 1),
}
# Options of the other kind of drafter are supported only if they change nothing.
BLOCK_NEUTRAL = NEUTRAL | dict.fromkeys(EAGLE3_OPTIONS, False)
EAGLE3_NEUTRAL = NEUTRAL | dict.fromkeys(BLOCK_OPTIONS, False) | {"is_causal": True, "num_hidden_layers": 1}


@dataclass(frozen=True, slots=True)
class Selector:
    """The additions of DFlash 2: convolutions over the block's rows around every sublayer, and a candidate selector.

    The fields have the names of the config's keys.

    selector_rank: rank of the codebooks.
    selector_top_k: number of candidates per row.
    conv_kernel_size: number of rows that a convolution reads.
    conv_group_size: number of channels that share a dynamic kernel.
    output_multiplier: scale of the logits.
    final_logit_softcapping: soft cap of the logits; None or 0 without a cap.
    """

    selector_rank: int = 256
    selector_top_k: int = 16
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """Description of a drafter, independent of the layout of its config.

    shape: keys of a Qwen3 or Llama config, including the rotary embedding as ``rope_parameters``.
    width: width of the target's features.
    taps: decoder layers of the target whose outputs the drafter reads, counted from 0.
    draft_vocabulary: number of tokens that can be drafted; None if all of the target's tokens can be drafted.
    """

    shape: Raw
    width: int
    taps: tuple[int, ...]
    draft_vocabulary: int | None

    @property
    def vocabulary(self) -> int:
        """Size of the target's vocabulary."""
        return self.shape["vocab_size"]

    @property
    def drafted(self) -> int:
        """Number of tokens that can be drafted."""
        return self.draft_vocabulary or self.vocabulary


@dataclass(frozen=True, slots=True)
class DrafterForm(Form):
    """Description of a block drafter.

    All fields except the sizes are independent of the weights. To run the weights under another convention, replace a field and
    apply a variant with the changed form (``d2sd.doctor.changes``).

    rows: number of rows of a drafted block, including the anchor's.
    reads: position that a row predicts. ``fill``: its own position, so a block drafts ``rows`` − 1 tokens. ``next``: the next
        position, so a block drafts ``rows`` tokens.
    windows: for each layer, its window W: a query sees only keys less than W positions before the query; None without a window.
    causal: for each layer, whether attention within the block is causal.
    markov, markov_rank: kind and rank of DSpark's Markov head; None and 0 without this head.
    confidence: inputs of DSpark's confidence head: ``hidden``, a row's hidden state; ``markov``, also the Markov head's embedding
        of the previous token; None without a confidence head.
    embedding_scale: factor of the input embeddings.
    visible_prefixes: whether the drafter was trained without empty prefixes (VP-Drafters of SpecForge).
    second_role: whether the drafter was trained as a second drafter (VP-Drafter); ``d2sd train vp`` writes this.
    """

    layout: str
    kind: Kind
    rows: int
    reads: Reads
    mask_token: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    markov: MarkovKind | None = None
    markov_rank: int = 0
    confidence: Literal["hidden", "markov"] | None = None
    selector: Selector | None = None
    embedding_scale: float = 1.0
    visible_prefixes: bool = False
    second_role: bool = False

    @property
    def shift(self) -> int:
        """Position of the predicted token minus position of the row that predicts it."""
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
        """Whether drafted tokens depend on earlier tokens of the block, or the drafter has a confidence head."""
        return bool(self.markov or self.confidence or self.selector)


@dataclass(frozen=True, slots=True)
class Eagle3Form(Form):
    """Description of an EAGLE-3 drafter.

    qk_norm: whether queries and keys are normed, as in Qwen3.
    norm_before_residual: whether the layer's residual is the normed feature.
    norm_output: whether a row's hidden state passes the final norm before it becomes the feature of child rows in a tree.
    fc_norm: whether every tapped layer's output is normed separately before ``fc``.
    """

    qk_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    fc_norm: bool = False


# Block drafters.


def read_form(raw: Raw) -> DrafterForm:
    """Returns the description of a block drafter that its ``config.json`` gives. Raises ``InputError`` if this file is wrong,
    incomplete or unsupported.
    """
    refuse_others(raw)
    name = next((name for name, at in LAYOUTS.items() if {at.layer, at.options, at.taps} & raw.keys()), "")
    require(
        name,
        "its config.json has no dflash_config, target_layer_ids or transformer_layer_config: it is not a block drafter",
    )
    layout = LAYOUTS[name]
    layer, options = (
        {"model_type": layout.types[0] if layout.layer else None, **object_at(raw, layout.layer)},
        object_at(raw, layout.options),
    )
    check_config(layer, layout.types)
    check_values(raw)
    check_values(options, f"{layout.options}.")
    refuse_options(raw, layer, options, neutral=BLOCK_NEUTRAL)
    options = {**layout.defaults, **_merged(layer, raw, options)}
    shape = _shape(layer)
    hidden, vocabulary = shape["hidden_size"], shape["vocab_size"]
    mask: Any = options.get("mask_token_id")
    check_token_ids(mask, vocabulary, "mask_token_id")
    require(isinstance(mask, int), f"its {layout.options or 'config.json'} has no mask_token_id")
    width = options.get("target_hidden_size") or hidden
    require(width == hidden, f"it reads features of width {width}, but its hidden size is {hidden}; both must be equal")
    rows: Any = _agreed({path: _value(raw, path) for path in ("block_size", "dflash_config.block_size")})
    require(rows is not None, "its config.json has no block_size")
    kind, vp = _kind(layout.kind, raw, options), options.get("training_mode") == "vp_drafter"
    windows, causal = _attention(layer, options, kind)
    markov, rank, confidence = _heads(options) if kind == "dspark" else (None, 0, None)
    return DrafterForm(
        shape, width, _taps(raw) or _even_taps(layout.taps, options), _draft_vocabulary(options, vocabulary), name, kind, rows, _reads(options, rows, kind),
        mask, windows, causal, markov, rank, confidence, _selector(options, hidden) if kind == "dflash2" else None,
        embedding_scale=float(options.get("input_embedding_scale", 1)) if kind == "dflash2" else 1.0,
        visible_prefixes=vp, second_role=vp or options.get("role") == "second",
    )  # fmt: skip


def _kind(key: str, raw: Raw, options: Raw) -> Kind:
    """Returns the kind of a block drafter.

    key: key that names the kind; "" in DeepSpec's layout, whose drafters may have DSpark's heads.
    """
    kinds, named = get_args(Kind), options.get(key) if key else "dspark"
    require(named in (None, *kinds), f"its {key} {short(named)} is not supported; choose {', '.join(kinds)}")
    names = {"dflash2": "DFlash2DraftModel", "dspark": "DSparkDraftModel"}
    return next((cast(Kind, kind) for kind, name in names.items() if kind == named or name in str(raw.get("architectures"))), "dflash")  # fmt: skip


def _merged(*parts: Raw) -> Raw:
    """Returns all keys of the given objects whose value is not null. If a key occurs several times, the last object decides."""
    return {key: value for part in parts for key, value in part.items() if value is not None}


def _value(raw: Raw, path: str) -> Any:
    """Returns the value of a key; None if there is no such key. The path "a.b" is the key b of the object a."""
    outer, _, key = path.rpartition(".")
    return object_at(raw, outer).get(key)


def _agreed(values: Raw, verb: str = "is") -> Any:
    """Returns the value that several keys have in common; None if no key has one. Raises ``InputError`` if two values differ.

    values: values by path of the key.
    verb: verb of the error message.
    """
    held = [(path, value) for path, value in values.items() if value is not None]
    for path, value in held:
        one, first = held[0]
        require(
            value == first, f"its {one} {verb} {short(first)} and its {path} {verb} {short(value)}; make them equal"
        )
    return held[0][1] if held else None


def _taps(raw: Raw) -> tuple[int, ...]:
    """Returns the target layers that a drafter reads, counted from 0; empty if no key names them. Keys that name them must agree."""
    by_path = {}
    for path, first in TAPS.items():
        if (numbers := _value(raw, path)) in (None, []):
            continue
        few = isinstance(numbers, list) and len(numbers) <= MAX_TAPS
        good = few and all(is_whole(number) and number >= first for number in numbers)
        require(good, f"its {path} must be a list of 1 to {MAX_TAPS} layer numbers, counted from {first}; reading the embeddings ({first - 1}) is not supported")  # fmt: skip
        by_path[path] = tuple(number - first for number in numbers)
    taps, layers = _agreed(by_path, "means the layers") or (), raw.get("num_target_layers")
    if taps and layers is not None:
        require(max(taps) < layers, f"it reads target layer {max(taps)}, but its num_target_layers is {layers}")
    return taps


def _even_taps(key: str, options: Raw) -> tuple[int, ...]:
    """Returns z-lab's default taps: evenly spaced from layer 1 to L − 3 for L target layers, or L/2 if the drafter has one layer.

    key: key of the taps, for error messages.
    """
    layers, count = options.get("num_target_layers"), options["num_hidden_layers"]
    if layers is None or not key.startswith("dflash_config"):
        raise InputError(f"its config has no {key}; add the layer numbers that the drafter was trained with")
    require(layers > 3, f"its num_target_layers is {layers}, too few for default taps; add {key}")
    return tuple(default_target_layers(layers, count)) if count > 1 else (layers // 2,)


def default_target_layers(target_layers: int, count: int) -> list[int]:
    """Returns ``count`` evenly spaced target layers, from layer 1 to layer L − 3 of L = ``target_layers`` layers.

    Index n means the output of decoder layer n, counted from 0. For 36 layers and 5 taps: 1, 9, 17, 25, 33.
    """
    first = min(1, target_layers - 1)
    last = max(target_layers - 3, first)
    if count == 1:
        return [last]
    return sorted({round(first + (last - first) * i / (count - 1)) for i in range(count)})


def _reads(options: Raw, rows: int, kind: Kind) -> Reads:
    """Returns which position a row predicts.

    Older DSpark folders of speculators do not say this, but it follows from the number of speculative tokens.
    """
    if "speculators_model_type" not in options:
        return "next" if kind == "dspark" else "fill"
    if kind != "dspark" or "sample_from_anchor" in options:
        return "next" if options.get("sample_from_anchor") else "fill"
    methods = object_at(options, "speculators_config").get("proposal_methods") or [{}]
    count = methods[0].get("speculative_tokens") if isinstance(methods[0], Mapping) else None
    require(
        count in (rows, rows - 1),
        f"its config does not say which token a row predicts: sample_from_anchor is missing, and speculative_tokens is neither "
        f"{rows} nor {rows - 1}; set sample_from_anchor as in training, since almost no token is accepted with a wrong value",
    )
    return "next" if count == rows else "fill"


def _attention(layer: Raw, options: Raw, kind: Kind) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Returns, for each layer, its attention window, and whether attention within the block is causal."""
    supported, swa = ("full_attention", "sliding_attention"), bool(options.get("use_swa"))
    named = layer.get("layer_types") or supported[:1] * layer["num_hidden_layers"]
    for name in named:
        require(
            name in supported, f"its layer_types include {short(name)}; only {' and '.join(supported)} are supported"
        )
    sliding = [swa or name == supported[1] for name in named]
    key = "swa_window_size" if swa else "sliding_window"
    window = (options if swa else layer).get(key)
    require(not any(sliding) or bool(window), f"its {key} is missing")
    causal = False if swa else None  # in all layers; None: only in sliding layers
    if "speculators_model_type" not in options:
        causal = next((options[key] for key in ("is_causal", "causal", "causal_head") if key in options), causal)
    elif options.get("sliding_window_non_causal", kind == "dflash2"):
        causal = False
    windows = tuple(window if slides else None for slides in sliding)
    return windows, tuple(slides if causal is None else causal for slides in sliding)


def _heads(options: Raw) -> tuple[MarkovKind | None, int, Any]:
    """Returns kind and rank of DSpark's Markov head, and the input of its confidence head."""
    rank, kind, kinds = options.get("markov_rank", 0), options.get("markov_head_type", "vanilla"), get_args(MarkovKind)
    require(kind in kinds, f"its markov_head_type {short(kind)} is unknown; known types: {', '.join(kinds)}")
    there = options.get("enable_confidence_head", bool(options.get("confidence_head_alpha")))
    with_markov = options.get("confidence_head_with_markov")
    require(rank > 0 or not (there and with_markov), "its confidence head needs a Markov head, which it does not have (markov_rank is 0)")  # fmt: skip
    return kind if rank else None, rank, ("markov" if with_markov else "hidden") if there else None


def _selector(options: Raw, hidden: int) -> Selector:
    selector = Selector(**{field.name: options[field.name] for field in fields(Selector) if field.name in options})
    group = selector.conv_group_size
    require(hidden % group == 0, f"its conv_group_size {group} does not divide its hidden_size {hidden}")  # fmt: skip
    return selector


# EAGLE-3 drafters.


def is_eagle3(raw: Raw) -> bool:
    """Returns whether a ``config.json`` belongs to an EAGLE-3 drafter. Raises ``InputError`` for unsupported kinds of drafters."""
    refuse_others(raw)
    if (kind := raw.get("speculators_model_type")) is not None:
        return kind == "eagle3"
    keys = {"draft_vocab_size", "eagle_config", LAYERS} & raw.keys()
    return "Eagle3" in str(raw.get("architectures")) or ("dflash_config" not in raw and bool(keys))


def read_eagle3(raw: Raw, target_layers: int) -> Eagle3Form:
    """Returns the description of an EAGLE-3 drafter that its ``config.json`` gives.

    target_layers: number of layers of the target, which determines the default taps.

    Raises ``InputError`` if the config is wrong, incomplete or unsupported.
    """
    layer, eagle = object_at(raw, "transformer_layer_config") or raw, object_at(raw, "eagle_config")
    refuse_options(raw, layer, eagle, neutral=EAGLE3_NEUTRAL)
    given, options = (
        _merged({"model_type": "llama", "num_hidden_layers": 1, "mlp_bias": False}, layer),
        _merged(layer, raw, eagle),
    )
    check_config({**given, "layer_types": None, "eos_token_id": None}, ("llama", "qwen3"))  # both may be the target's
    check_values(options)
    qwen = given["model_type"] == "qwen3" and layer is not raw
    shape = _shape(given, 128 if qwen else None)  # 128: transformers' default
    taps, draft = _taps(raw) or default_eagle3_layers(target_layers), _draft_vocabulary(options, shape["vocab_size"])
    flags = {key: bool(options.get(key)) for key in EAGLE3_OPTIONS}
    return Eagle3Form(shape, options.get("target_hidden_size") or shape["hidden_size"], taps, draft, qwen, **flags)


def default_eagle3_layers(target_layers: int) -> tuple[int, ...]:
    """Returns the target layers that an EAGLE-3 drafter reads if its config names none: an early, a middle and a late one.

    For 36 layers: 1, 17, 32. Raises ``InputError`` if the target has too few layers.
    """
    layers = (1, target_layers // 2 - 1, target_layers - 4)
    too_few = f"the target has only {target_layers} layers, too few for EAGLE-3's default layers; name the layers to read (in training: --target-layers)"
    require(1 < layers[1] < layers[2], too_few)
    return layers


# Keys of all drafters.


def _shape(layer: Raw, head_dim: int | None = None) -> Raw:
    """Returns the config entries that determine the shape of a layer, with defaults for those that are missing.

    head_dim: default head size; None: hidden size ÷ number of heads.
    """
    missing = [key for key in NEEDED if layer.get(key) is None]
    require(not missing, f"its config.json has no {' and no '.join(missing)}")
    heads = layer["num_attention_heads"]
    defaults = DEFAULTS | {"num_key_value_heads": heads, "head_dim": head_dim or layer["hidden_size"] // heads}
    return (
        defaults | {key: layer[key] for key in SHAPE if layer.get(key) is not None} | {"rope_parameters": _rope(layer)}
    )


def _draft_vocabulary(options: Raw, vocabulary: int) -> int | None:
    """Returns the size of the draft vocabulary; None if it is the target's."""
    size = options.get("draft_vocab_size") or vocabulary
    return None if size == vocabulary else size


def _rope(layer: Raw) -> Raw:
    """Returns the drafter's own RoPE parameters, from ``rope_parameters``, or from ``rope_theta`` with ``rope_scaling``."""
    part = next((part for part in ROPES if layer.get(part) is not None), ROPES[0])
    rope = dict(object_at(layer, part))
    for value in rope.values():
        require(not isinstance(value, Mapping), f"its {part} differ by kind of layer, which is not supported")
    partial = rope.get("partial_rotary_factor")
    require(partial in (None, 1), f"its partial_rotary_factor is {short(partial)}; only 1 is supported")
    theta = _agreed({path: _value(layer, path) for path in ("rope_theta", f"{part}.rope_theta")})
    kind = rope.get("rope_type", rope.pop("type", "default"))
    return {**rope, "rope_theta": ROPE_THETA if theta is None else theta, "rope_type": kind}
