"""Reads and writes drafter folders in their published forms: block drafters (``d2sd.nets.layouts``) and EAGLE-3 drafters.

EAGLE-3 folders may have the form of SpecForge, SGLang, AngelSlim or speculators. docs/drafter-format.md lists keys and tensor
names. Weights must be complete and in safetensors files. No code of a folder is run. Unsupported drafters are refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedConfig, Qwen3Config

from d2sd.errors import InputError
from d2sd.folders.store import check_place, hub_answers
from d2sd.folders.weights import read_weights, tensor_shapes, weight_files
from d2sd.nets.config_checks import check_config, check_finite, check_weights, refuse_options
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3Config, Eagle3DraftModel, default_eagle3_layers
from d2sd.nets.layouts import DrafterForm, read_form

if TYPE_CHECKING:
    from d2sd.nets.target import Target

log = logging.getLogger(__name__)
SHARD = "9MB"  # per file; the limit of a Space without large-file storage
BORROWED = ("embed_tokens", "lm_head")  # parts that a block drafter takes from the target if its folder has none
MAPS = ("d2t", "t2d")
ARCHITECTURES = frozenset(
    {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaEagle3DraftModel", "Eagle3Speculator", "Eagle3DraftModel"}
)  # fmt: skip
LAYERS = "eagle_aux_hidden_state_layer_ids"
# Options that EAGLE-3 drafters may set to true, and supported values of other options.
EAGLE3_FLAGS = frozenset(
    {"norm_before_residual", "norm_output", "fc_norm", "use_aux_hidden_state", "embed_requires_grad", "enable_sp_ulysses"}
)  # fmt: skip
EAGLE3_NEUTRAL = {"num_hidden_layers": (1,), "use_sliding_window": (False,), "is_causal": (True,)}
# Keys that define the layer's shape. The other keys of a config are about training, serving or files.
LAYER_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "attention_bias", "mlp_bias",
    "hidden_act",
)  # fmt: skip


def published_config(source: str) -> dict[str, Any]:
    """Returns ``config.json`` of a folder or hub id, unchanged. Raises ``InputError`` if it is missing or not a JSON object."""
    check_place(source)
    from_cache = not Path(source).exists() and not hub_answers()
    config: Any = PreTrainedConfig.get_config_dict(source, local_files_only=from_cache)[0]
    if not isinstance(config, dict):
        raise InputError("its config.json is not a JSON object")
    return config


def own_name(key: str) -> str | None:
    """Returns our name of a published tensor; None for a tensor that is not needed here."""
    key = key.removeprefix("model.").removeprefix("logit_head.")
    return None if key.startswith("verifier_") or key.endswith("rotary_emb.inv_freq") else key


def token_ids(d2t: Tensor | None, t2d: Tensor | None, count: int, vocabulary: int) -> Tensor:
    """Returns the target's ids of the draft vocabulary, (D,) int64; D = ``count``, V = ``vocabulary``.

    d2t: (D,), for each draft id, the target's id minus the draft id.
    t2d: (V,), whether each token of the target is in the draft vocabulary.
    """
    if d2t is None:
        if count != vocabulary:
            raise InputError(f"it drafts {count} of {vocabulary} tokens, but has no d2t tensor that names them")
        return torch.arange(count)
    if d2t.shape != (count,):
        raise InputError(f"its d2t has {d2t.numel()} entries, but its draft vocabulary has {count} tokens")
    ids = torch.arange(count) + d2t.long()
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary or len(ids.unique()) < count:
        raise InputError(f"its d2t does not map to {count} different tokens; the target has {vocabulary} tokens")
    if t2d is not None and (
        t2d.shape != (vocabulary,) or int(t2d.bool().sum()) != count or not bool(t2d.bool()[ids].all())
    ):
        raise InputError("its d2t and its t2d contradict each other")
    return ids


def _load(
    source: str,
    name: Callable[[str], str | None],
    make: Callable[[Collection[str]], nn.Module],
    borrowed: Mapping[str, nn.Module],
    dtype: torch.dtype,
    rotary: Any,
) -> tuple[Any, Tensor | None, Tensor | None]:
    """Returns the network of a folder or hub id, and its maps d2t and t2d. Shapes are checked before weights are read.

    name: maps published names of tensors to ours.
    make: builds the network from the names of its tensors.
    borrowed: the target's modules by part; each replaces the drafter's part of this name if their weights are equal.
    rotary: config of the rotary embedding, whose frequencies are not stored.
    """
    files = weight_files(source)
    shapes = {own: s for key, s in tensor_shapes(files).items() if (own := name(key)) is not None and own not in MAPS}
    with torch.device("meta"):
        model = make(shapes)
    check_weights(model, shapes)
    weights = {own: tensor for key, tensor in read_weights(files).items() if (own := name(key)) is not None}
    d2t, t2d = (weights.pop(part, None) for part in MAPS)
    for part, theirs in borrowed.items():
        table, key = getattr(theirs, "weight", None), f"{part}.weight"
        if key not in weights or table is None or table.shape != weights[key].shape:
            continue
        if _same(weights[key], table):
            del weights[key]
            setattr(model, part, None)
        else:
            log.warning(
                "the drafter's own %s is used, since it differs from the target's: this part was trained, or the drafter was "
                "made for another target",
                key,
            )
    model.load_state_dict({key: weight.to(dtype) for key, weight in weights.items()}, assign=True)
    model.rotary_emb = type(model.rotary_emb)(rotary)
    check_finite(model.eval().requires_grad_(False))
    return model, d2t, t2d


def _same(one: Tensor, other: Tensor) -> bool:
    """Returns whether two tables are equal after rounding to the coarser one of their dtypes."""
    coarse = max((one.dtype, other.dtype), key=lambda d: torch.finfo(d).eps if d.is_floating_point else 1.0)
    return bool(torch.equal(one.to(coarse), other.to(one.device, coarse)))


def _save(
    folder: Path,
    config: dict[str, Any],
    model: nn.Module,
    names: Mapping[str, str],
    vocabulary: int,
    ids: Tensor | None,
) -> None:
    """Write ``config.json`` and safetensors files.

    names: our name → published name, for parameters whose names differ.
    ids: the target's ids of the draft vocabulary; None if all ``vocabulary`` tokens can be drafted.
    """
    weights = {names.get(k, k): v.detach().cpu().contiguous() for k, v in model.named_parameters()}
    if ids is not None:
        ids, present = ids.cpu(), torch.zeros(vocabulary, dtype=torch.bool)
        weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": present.index_fill(0, ids, True)}
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(weights, folder, max_shard_size=SHARD)
    # Written last: a folder with this file counts as a drafter.
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


# Block drafters.


def read_drafter(source: str, name: str, dtype: torch.dtype, target: Target | None = None) -> DFlashDraftModel:
    """Returns the drafter in a folder or hub id, on the CPU, with ``name`` as its name.

    target: if given, the drafter's embedding and LM head are dropped if they equal the target's.

    Raises ``InputError`` if config or weights are missing, unsupported or wrong.
    """
    form = read_form(published_config(source))
    config = drafter_config_of(form)

    def make(held: Collection[str]) -> DFlashDraftModel:
        return DFlashDraftModel(config, form, [part for part in BORROWED if f"{part}.weight" in held])

    theirs = {} if target is None else {"embed_tokens": target.embedding, "lm_head": target.head}
    model, d2t, t2d = _load(source, own_name, make, theirs, dtype, config)
    if form.draft_vocabulary is not None:
        model.token_ids = token_ids(d2t, t2d, form.draft_vocabulary, config.vocab_size)
    model.config.name_or_path = name
    return cast(DFlashDraftModel, model)


def drafter_config_of(form: DrafterForm) -> Qwen3Config:
    inner = {"mask_token_id": form.mask_token, "target_layer_ids": list(form.taps)}
    settings: dict[str, Any] = {"block_size": form.rows, "dflash_config": inner, "tie_word_embeddings": False}
    return Qwen3Config(**form.shape, **settings)


def reshaped(drafter: DFlashDraftModel, form: DrafterForm) -> DFlashDraftModel:
    """Returns a drafter of another form with this drafter's weights. Parameters that only the new form has are initialised."""
    made = DFlashDraftModel(drafter_config_of(form), form)
    made.load_state_dict(drafter.state_dict(), strict=False)
    made.token_ids = drafter.token_ids
    return cast(DFlashDraftModel, made.to(cast(Any, drafter.device)))


def save_speculators(model: DFlashDraftModel, folder: Path) -> None:
    """Write a drafter in speculators' form. Parts that it takes from the target (embedding, LM head) are not written."""
    form = model.form
    layer = {key: value for key, value in form.shape.items() if key != "num_target_layers"}
    vocabulary = form.shape["vocab_size"]
    published = {
        "architectures": ["DSparkSpeculator" if form.kind == "dspark" else "DFlashSpeculator"],
        "speculators_model_type": form.kind,
        "transformer_layer_config": {
            "model_type": "qwen3",
            **layer,
            "layer_types": ["full_attention"] * len(form.windows),
        },
        "block_size": form.rows,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in form.taps],
        "mask_token_id": form.mask_token,
        "draft_vocab_size": form.draft_vocabulary or vocabulary,
        "sample_from_anchor": form.reads == "next",
        **({"role": "second"} if form.second_role else {}),
        "markov_rank": form.markov_rank,
        "markov_head_type": form.markov,
        "enable_confidence_head": form.confidence is not None,
        "confidence_head_with_markov": form.confidence == "markov",
        "speculators_config": {
            "algorithm": form.kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": form.block_size - 1}],
        },
        "torch_dtype": str(model.dtype).removeprefix("torch."),
    }
    _save(folder, published, model, {}, vocabulary, model.token_ids)


# EAGLE-3 drafters.


def is_eagle3(config: Mapping[str, Any]) -> bool:
    """Returns whether a ``config.json`` belongs to an EAGLE-3 drafter."""
    if (kind := config.get("speculators_model_type")) is not None and kind != "eagle3":
        return False
    named = ARCHITECTURES & set(config.get("architectures") or ())
    keys = {"draft_vocab_size", "eagle_config", LAYERS} & set(config)
    return bool(named) or kind == "eagle3" or ("dflash_config" not in config and bool(keys))


def read_config(published: Mapping[str, Any], target: Any, name: str) -> Eagle3Config:
    """Returns the configuration of a published EAGLE-3 drafter. ``target``: the target's text config.

    Raises ``InputError`` if an option is unsupported or wrong, or the drafter does not fit the target.
    """
    nested = published.get("transformer_layer_config")
    layer = dict(nested if nested is not None else published)
    eagle = published.get("eagle_config") or {}
    if eagle.get("use_aux_hidden_state") is False:
        raise InputError(
            "its config sets use_aux_hidden_state to false: drafters that read only one layer (EAGLE-1, EAGLE-2) are not supported"
        )
    refuse_options(published, layer, eagle, flags=EAGLE3_FLAGS, neutral=EAGLE3_NEUTRAL)
    kind = layer.get("model_type", "llama")
    if kind not in ("llama", "qwen3"):
        raise InputError(f"its decoder layer is of type {kind!r}; llama and qwen3 are the supported types")
    shape = {k: layer[k] for k in LAYER_KEYS if layer.get(k) is not None}
    check_config({**shape, "model_type": kind}, ("llama", "qwen3"))
    if "rope_theta" in shape and "rope_parameters" not in shape and shape.get("rope_scaling") is None:
        shape["rope_parameters"] = {"rope_type": "default", "rope_theta": shape.pop("rope_theta")}
    made = (Qwen3Config if nested is not None and kind == "qwen3" else LlamaConfig)(**shape, num_hidden_layers=1)
    if not hasattr(made, "mlp_bias"):
        made.mlp_bias = False  # Qwen3's config has no such key, and Qwen3's MLP has no bias
    width = int(published.get("target_hidden_size") or made.hidden_size)
    if width != target.hidden_size:
        raise InputError(
            f"it reads features of width {width}, but the target's hidden size is {target.hidden_size}: they do not fit"
        )
    if made.vocab_size != target.vocab_size:
        raise InputError(
            f"it was made for a vocabulary of {made.vocab_size}, but the target has {target.vocab_size} tokens: they do not fit"
        )
    return Eagle3Config(
        layer=made,
        qk_norm=nested is not None and kind == "qwen3",
        draft_vocab_size=int(published.get("draft_vocab_size") or made.vocab_size),
        target_hidden_size=width,
        target_layer_ids=_layers(published, target.num_hidden_layers),
        norm_before_residual=bool(published.get("norm_before_residual", False)),
        norm_output=bool(published.get("norm_output", False)),
        fc_norm=bool(published.get("fc_norm", False)),
        name_or_path=name,
    )


def _layers(published: Mapping[str, Any], target_layers: int) -> tuple[int, ...]:
    """Returns the tapped layers; number n means the output of layer n.

    The key in ``eagle_config`` also numbers layers by their outputs. The same key at the top level (speculators, vLLM) numbers them
    by their inputs, so n means the output of layer n − 1.
    """
    inner, outer = (published.get("eagle_config") or {}).get(LAYERS), published.get(LAYERS)
    from_outer = None if outer is None else tuple(int(n) - 1 for n in outer)
    from_inner = None if inner is None else tuple(int(n) for n in inner)
    if from_inner and from_outer and from_inner != from_outer:
        raise InputError(
            f"its config names two different sets of layers: outputs {list(from_inner)} in eagle_config, and inputs "
            f"{list(outer or ())} at the top level"
        )
    found = from_inner or from_outer
    if not found:
        try:
            return default_eagle3_layers(target_layers)
        except ValueError as error:
            raise InputError(f"its config names no layers, and {error}") from None
    wrong = [n for n in found if not 0 <= n < target_layers]
    if wrong:
        raise InputError(
            f"it reads the output of target layer {wrong[0]}, but the target has {target_layers} layers (0 to {target_layers - 1}): "
            "they do not fit"
        )
    return found


def read_eagle3(source: str, name: str, target: Target, dtype: torch.dtype) -> Eagle3DraftModel:
    """Returns the drafter in a folder or hub id, on the CPU, for this target.

    Raises ``InputError`` if config or weights are missing or unsupported, or do not fit the target.
    """
    config = read_config(published_config(source), target.config, name)

    def make(held: Collection[str]) -> Eagle3DraftModel:
        return Eagle3DraftModel(config, own_embedding="embedding.weight" in held)

    model, d2t, t2d = _load(source, eagle3_name, make, {"embedding": target.embedding}, dtype, config.layer)
    if model.embedding is None and config.layer.hidden_size != config.target_hidden_size:
        raise InputError(
            f"it has hidden size {config.layer.hidden_size} and no embedding, and the target's embedding has width "
            f"{config.target_hidden_size}"
        )
    model.token_ids = token_ids(d2t, t2d, config.draft_vocab_size, config.layer.vocab_size)
    return cast(Eagle3DraftModel, model)


def eagle3_name(key: str) -> str | None:
    """Returns our name of a published tensor; None for a tensor that is not needed here."""
    name = own_name(key)
    for prefix in ("midlayer.", "layers.0."):
        if name is not None and name.startswith(prefix):
            return "layer." + name.removeprefix(prefix)
    return None if name is None else name.replace("embed_tokens.", "embedding.")


def save_eagle3(model: Eagle3DraftModel, folder: Path) -> None:
    """Write an EAGLE-3 drafter that uses the target's embedding, in the form of SpecForge and SGLang."""
    config = model.config
    if config.qk_norm or model.embedding is not None:
        raise ValueError("this form supports neither norms of queries and keys nor an embedding")
    c, vocabulary = config.layer, config.layer.vocab_size
    published = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{k: getattr(c, k) for k in LAYER_KEYS if k not in ("rope_theta", "rope_scaling", "rope_parameters")},
        "rope_theta": c.rope_parameters["rope_theta"],
        "rope_scaling": None if c.rope_parameters["rope_type"] == "default" else dict(c.rope_parameters),
        "num_hidden_layers": 1,
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "norm_before_residual": config.norm_before_residual,
        "norm_output": config.norm_output,
        "fc_norm": config.fc_norm,
        "eagle_config": {LAYERS: list(config.target_layer_ids), "use_aux_hidden_state": True},
        "tie_word_embeddings": False,
        "torch_dtype": str(model.dtype).removeprefix("torch."),
    }
    names = {k: k.replace("layer.", "midlayer.", 1) for k, _ in model.named_parameters() if k.startswith("layer.")}
    ids = model.token_ids if config.draft_vocab_size < vocabulary else None
    _save(folder, published, model, names, vocabulary, ids)
