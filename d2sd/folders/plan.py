"""Predicts from configs alone how a target with a drafter would run. No weights are downloaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from d2sd.errors import InputError, first_line
from d2sd.folders.drafters import drafter_config_of, is_eagle3, published_config, read_config
from d2sd.folders.loading import BUILDING, target_folder
from d2sd.nets.config_checks import check_config, refuse_others
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import read_form
from d2sd.nets.models import check_eagle3, check_fit, late_taps
from d2sd.nets.passes import row_shape
from d2sd.nets.types import (
    SUPPORTED,
    TYPES,
    check_supported,
    eager_reason,
    experts,
    layer_kinds,
    text_config,
    text_part,
    window,
)

CONTEXT, NODES = 4096, 64  # tokens and tree nodes of the memory estimate
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Memory:
    """Estimated memory in bytes, in the plan's number format.

    target, drafter: weights.
    cache: keys and values of ``CONTEXT`` tokens and of the tree.
    states, tree: linear layers' states, and linear layers' buffers for a tree of ``NODES`` nodes.
    """

    target: int
    drafter: int
    cache: int
    states: int
    tree: int

    @property
    def total(self) -> int:
        return self.target + self.drafter + self.cache + self.states + self.tree


@dataclass(slots=True)
class ModelPlan:
    """Properties of a target and drafter, known from configs alone.

    refused: why the models cannot run, one sentence without a full stop; None if they can.
    layers: number of target layers by kind.
    window: number of tokens that a row of a sliding layer sees; None without sliding layers.
    experts: number of experts per layer; 0 if layers are dense.
    eager: why passes are not captured as CUDA graphs; None if they are (on a CUDA GPU, but not on ZeroGPU).
    taps: (layer number, kind) for each target layer that the drafter reads.
    drafter_layers: for each drafter layer, how much text it sees, and ", causal" if it is causal.
    mask: id of the drafter's mask token; None without a mask token.
    draft_vocabulary: number of tokens that the drafter can draft; None if it can draft all of the target's tokens.
    """

    target: str
    drafter: str
    refused: str | None = None
    type: str = ""
    layers: dict[str, int] = field(default_factory=dict)
    window: int | None = None
    experts: int = 0
    eager: str | None = None
    kind: str = ""
    taps: list[tuple[int, str]] = field(default_factory=list)
    block_size: int | None = None
    drafter_layers: list[str] = field(default_factory=list)
    mask: int | None = None
    draft_vocabulary: int | None = None
    dtype: str = "bfloat16"
    memory: Memory | None = None
    notes: list[str] = field(default_factory=list)


def plan(target: str, drafter: str | None = None, dtype: str = "bfloat16") -> ModelPlan:
    """Returns the plan of a target with a drafter. Errors in their configs are reported in ``refused``.

    target, drafter: folders or hub ids.
    dtype: number format of the memory estimate.
    """
    found, part = ModelPlan(target, drafter or "", dtype=dtype), "target"
    try:
        config = _read_target(target, found)
        whole = _meta(lambda: AutoModelForCausalLM.from_config(text_config(config)))
        own = None
        if drafter is not None:
            part = "drafter"
            own = _read_drafter(drafter, text_config(config), found)
        found.memory = _memory(whole, own, text_config(config), SIZES[dtype])
    except InputError as error:
        found.refused = str(error)
    except Exception as error:  # configs are untrusted
        found.refused = f"the {part}'s config cannot be read: {first_line(error)}"
    return found


def _read_target(source: str, into: ModelPlan) -> Any:
    raw = published_config(target_folder(source))
    into.type = str(raw.get("model_type", "unknown"))
    if into.type in (*SUPPORTED, *TYPES):
        check_config(text_part(raw), (*SUPPORTED, *TYPES))
        config = AutoConfig.for_model(**raw)
    else:  # an unsupported type, perhaps unknown to transformers; the config's keys may name the unsupported part
        config = _named(raw)
    check_supported(config, source)
    kinds = layer_kinds(config)
    into.layers, into.window, into.experts = dict(Counter(kinds)), window(config), experts(config)
    into.eager = eager_reason(config)
    method = (raw.get("quantization_config") or {}).get("quant_method")
    if method == "mxfp4":
        into.notes.append(
            "the target's weights are MXFP4 (four bits) and are dequantised on loading; the memory estimate is for dequantised "
            "weights"
        )
    elif method:
        into.notes.append(
            f"the target's weights are quantised ({method}); the memory estimate is for unquantised weights"
        )
    return config


def _named(raw: Mapping[str, Any]) -> Any:
    text = SimpleNamespace(num_hidden_layers=0, **{k: v for k, v in text_part(raw).items() if k != "num_hidden_layers"})
    text.model_type = text_part(raw).get("model_type")
    text.get_text_config = lambda decoder: text
    return SimpleNamespace(model_type=raw.get("model_type"), get_text_config=lambda decoder: text)


def _read_drafter(source: str, target: Any, into: ModelPlan) -> nn.Module:
    raw = published_config(source)
    refuse_others(raw)
    kinds = layer_kinds(target)
    if is_eagle3(raw):
        config = read_config(raw, target, source)
        level = _meta(lambda: Eagle3DraftModel(config))
        check_eagle3(SimpleNamespace(config=target), level)  # type: ignore[arg-type]
        into.kind, into.taps = "EAGLE-3", [(n, kinds[n]) for n in config.target_layer_ids]
        into.drafter_layers = ["the whole text"]
        if config.draft_vocab_size != target.vocab_size:
            into.draft_vocabulary = config.draft_vocab_size
        return level
    form = read_form(raw)
    shape = drafter_config_of(form)
    shape.name_or_path = source
    model: Any = _meta(lambda: DFlashDraftModel(shape, form))
    check_fit(SimpleNamespace(config=target), model)  # type: ignore[arg-type]
    into.kind = {"dflash": "DFlash", "dflash2": "DFlash 2", "dspark": "DSpark"}[form.kind]
    into.taps, into.block_size, into.mask = [(n, kinds[n]) for n in form.taps], form.block_size, form.mask_token
    into.draft_vocabulary = form.draft_vocabulary
    sees = ["the whole text" if w is None else f"{w} tokens" for w in form.windows]
    into.drafter_layers = [f"{s}, causal" if c else s for s, c in zip(sees, form.causal, strict=True)]
    if warning := late_taps(form.taps, target.num_hidden_layers):
        into.notes.append(f"this drafter {warning}")
    return model


def _meta(make: Any) -> Any:
    with BUILDING, torch.device("meta"):
        return make()


def _memory(target: Any, drafter: Any, config: Any, size: int) -> Memory:
    """Returns the memory of these models. ``size``: bytes per number."""
    cache = states = tree = 0
    rows = row_shape(NODES + 1)
    for layer, kind in zip(target.model.layers, layer_kinds(config), strict=True):
        if kind == "linear":
            net = layer.linear_attn
            matrix = 4 * net.num_v_heads * net.head_k_dim * net.head_v_dim
            states += matrix + size * len(net.conv1d.weight) * (net.conv_kernel_size - 1)
            tree += rows * (size * len(net.conv1d.weight) + 4 * net.num_v_heads * (net.head_k_dim + net.head_v_dim + 1))
        elif not getattr(layer.self_attn, "is_kv_shared_layer", False):
            cache += 2 * size * layer.self_attn.k_proj.out_features
    weights = [sum(p.numel() for p in net.parameters()) if net is not None else 0 for net in (target, drafter)]
    return Memory(size * weights[0], size * weights[1], (CONTEXT + rows) * cache, states, tree)


def markdown(found: ModelPlan) -> str:
    """Returns the plan as a short Markdown report."""
    pair = f"{found.target} with {found.drafter}" if found.drafter else found.target
    lines = [f"# {pair}", "", plan_verdict(found), ""]
    if found.layers:
        lines.append(f"* Target: type {found.type}, layers: {_counted(found)}")
    if found.experts:
        lines.append(f"* Experts: {found.experts} per layer")
    if found.kind:
        size = f", γ = {found.block_size}" if found.block_size else ""
        count = len(found.drafter_layers)
        sees = ", ".join(f"{kind} ({count})" for kind, count in Counter(found.drafter_layers).items())
        layers = "1 layer, which sees" if count == 1 else f"{count} layers, which see"
        lines.append(f"* Drafter: {found.kind}{size}, {layers} {sees}")
        lines.append("* It reads target layers " + ", ".join(f"{n} ({kind})" for n, kind in found.taps))
    if found.draft_vocabulary is not None:
        lines.append(f"* Its draft vocabulary has {found.draft_vocabulary} of the target's tokens")
    if found.mask is not None:
        lines.append(f"* Mask token: {found.mask}")
    if (m := found.memory) is not None:
        lines.append(f"* Memory in {found.dtype}: {_size(m.total)} (target {_size(m.target)}, drafter {_size(m.drafter)}, "
                     f"keys and values of {CONTEXT} tokens {_size(m.cache)}, states of linear layers {_size(m.states)}, "
                     f"buffers of linear layers for a tree of {NODES} nodes {_size(m.tree)})")  # fmt: skip
    lines += [f"* Note: {note}" for note in found.notes]
    return "\n".join(lines) + "\n"


def plan_verdict(found: ModelPlan) -> str:
    """Returns one line: whether the models run, run only eagerly, or are refused, and why."""
    if found.refused is not None:
        return f"refused: {found.refused}"
    if found.eager is not None:
        return f"runs eagerly, also on a GPU: {found.eager}"
    return "runs, with passes captured as CUDA graphs on a GPU"


def summary(found: ModelPlan) -> str:
    if found.refused is not None or found.memory is None:
        line = plan_verdict(found)
        return f"{line[0].upper()}{line[1:]}."
    return (
        f"Type {found.type}, layers: {_counted(found)}. It {plan_verdict(found)}. It needs {_size(found.memory.total)} in "
        f"{found.dtype} for a text of {CONTEXT} tokens."
    )


def _counted(found: ModelPlan) -> str:
    named = {"sliding": f"sliding ({found.window} tokens)"}
    return ", ".join(f"{count} {named.get(kind, kind)}" for kind, count in found.layers.items())


def _size(count: int) -> str:
    if count < 1e8:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e9:.2f} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"
