"""Baselines: transformers' ``generate`` with the same target.

``generate`` runs without speculation, with a draft model (``assistant_model``), or with its DFlash speculation. All baselines use a
"twin" of the target: a transformers model that shares the target's weight tensors, but has the stock attention and no hooks. Only
time and tokens after prefill count.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import transformers
from accelerate import init_empty_weights
from transformers import GenerationConfig

from d2sd.bench.runner import BenchRun, Entry, Row
from d2sd.bench.settings import BASELINES
from d2sd.config import check_choice
from d2sd.engine import Engine
from d2sd.errors import InputError, require
from d2sd.folders.model_sets import MODEL_CHAIN
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

STOCK_ATTENTION = "sdpa"


def stock_twin(target: Target) -> Any:
    """Returns a new transformers model that shares the target's weights. It has the stock attention and no hooks."""
    transformers.logging.set_verbosity_error()  # ``generate`` warns about each option that a method ignores
    config = copy.deepcopy(target.config)
    # drafters read raw outputs of decoder layers; by default, transformers normalises the last layer's output
    config.tie_last_hidden_states = False
    with init_empty_weights():
        stock = type(target.model)
        twin = stock._from_config(config, attn_implementation=STOCK_ATTENTION if stock._supports_sdpa else "eager")
    twin.load_state_dict(target.model.state_dict(), assign=True)
    twin.tie_weights()
    return twin.to(target.device).eval().requires_grad_(False)


def make_baselines(
    engine: Engine, twin: Any, names: Sequence[str], max_new_tokens: int
) -> tuple[list[Entry], dict[str, str]]:
    """Returns the greedy baselines that can run with these models, and the reasons why others cannot, by label.

    twin: result of ``stock_twin`` for the target.
    names: names of the baselines, from ``BASELINES``.
    max_new_tokens: maximum number of generated tokens.

    Raises ``InputError`` for an unknown name.
    """
    made, left_out = [], {}
    for name in names:
        check_choice("baseline", name, BASELINES)
        label, options = f"transformers {name}", {}
        try:
            if name.startswith("assistant"):
                options = {"assistant_model": _draft_model(engine, fixed_length=name == "assistant_chain")}
            elif name == "dflash":
                options = {"assistant_model": _stock_drafter(engine.models.first), "speculation_type": "dflash"}
        except InputError as error:
            left_out[label] = str(error)
            continue
        made.append(Entry(label, partial(_generate, engine.models.target, twin, max_new_tokens, options)))
    return made, left_out


@torch.inference_mode()
def _generate(target: Target, twin: Any, max_new_tokens: int, options: Row, ids: Sequence[int]) -> BenchRun:
    """Continues the prompt ``ids`` with ``twin.generate``.

    options: arguments of ``generate`` for speculation: ``assistant_model``, ``speculation_type``.
    """
    ends = sorted(target.end_ids)
    twin.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
    )
    prompt = torch.tensor([list(ids)], device=target.device)
    passes: list[float] = []
    # position ids of the second pass, whose first row is the last token that prefill committed
    begins = []

    def count(_: Any, __: Any, given: Row, ___: Any) -> None:
        if not passes and prompt.is_cuda:
            torch.cuda.synchronize(prompt.device)
        passes.append(time.perf_counter())
        if len(passes) == 2:
            begins.append(given["position_ids"])

    handle = twin.register_forward_hook(count, with_kwargs=True)
    try:
        out = twin.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        output = out[0, len(ids) :].tolist()
        ended = time.perf_counter()
    finally:
        handle.remove()
    first = int(begins[0][0, 0]) + 1 - len(ids) if begins else len(output)
    return BenchRun(tuple(output), len(output) - first, len(passes) - 1, ended - passes[0])


def _draft_model(engine: Engine, fixed_length: bool) -> Any:
    """Returns a ``stock_twin`` of the draft model.

    fixed_length: whether it drafts ``MODEL_CHAIN`` − 1 tokens in every step, as the method ``draft_model`` does by default. Otherwise, it
        drafts as many tokens as transformers chooses for each step.
    """
    if engine.models.draft_model is None:
        raise InputError(f"{engine.models.name} has no draft model; give one with --draft-model")
    twin = stock_twin(engine.models.draft_model)
    if fixed_length:
        settings = twin.generation_config
        settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = MODEL_CHAIN - 1, "constant"
        settings.assistant_confidence_threshold = 0.0
    return twin


def _stock_drafter(drafter: DFlashDraftModel | None) -> Any:
    """Returns a DFlash network of transformers that shares the drafter's weights.

    transformers does not read ``DFlashDraftModel`` folders, but its DFlash loop runs any drafter of this form. The networks of
    transformers and d2sd differ only in two parameter names.
    """
    if drafter is None:
        raise InputError("there is no first drafter")
    try:
        from transformers.generation import DFlashTokenCandidateGenerator  # noqa: F401
        from transformers.models.muse_glimmer_assistant import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
    except ImportError:
        raise InputError(f"transformers {transformers.__version__} has no DFlash speculation (5.23 has it)") from None
    form = drafter.form
    require(
        form.kind == "dflash"
        and not form.masked
        and not form.shift
        and not form.draft_vocabulary
        and drafter.lm_head is None,
        "transformers' DFlash network runs only DFlash v1 drafters with full attention",
    )
    ours = drafter.config
    require(not ours.attention_bias, "transformers' DFlash network has no attention biases, but this drafter has them")
    shared = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "rms_norm_eps", "rope_parameters", "max_position_embeddings", "hidden_act", "block_size",
    )  # fmt: skip
    config = MuseGlimmerAssistantConfig(
        **{name: getattr(ours, name) for name in shared},
        layer_types=["full_attention"] * ours.num_hidden_layers,
        mask_token_id=drafter.mask_token_id,
        target_layer_ids=drafter.target_layer_ids,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with init_empty_weights():
        model = MuseGlimmerAssistantModel._from_config(config, attn_implementation=STOCK_ATTENTION)
    renamed = {"fc.": "encoder.fc.", "hidden_norm.": "encoder.output_norm_enc."}
    weights = {
        next((new + key[len(old) :] for old, new in renamed.items() if key.startswith(old)), key): tensor
        for key, tensor in drafter.state_dict().items()
    }
    model.load_state_dict(weights, assign=True)
    return model.to(drafter.device).eval().requires_grad_(False)
