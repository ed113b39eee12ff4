"""Loads targets and drafters from folders and hub ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import RLock
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GgufConfig,
)
from transformers import modeling_gguf_pytorch_utils as gguf_reading
from transformers.utils import logging as transformers_logging
from transformers.utils.quantization_config import Mxfp4Config

from d2sd.errors import InputError, first_line, require
from d2sd.folders.checks import (
    MAPS,
    network,
    own_name,
    target_checks,
    tensor_checks,
)
from d2sd.folders.configs import drafter_form, named_errors, published_config
from d2sd.folders.model_sets import ModelSet, check_models, check_role, resolve, short_name, target_folder
from d2sd.folders.weights import read_weights, tensor_shapes, weight_files
from d2sd.nets.config_checks import MISMATCH, Raw, check_config, check_finite, check_shapes, check_token_ids
from d2sd.nets.dtypes import DTYPES, can_mix, halve, mixes_by_default
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import DrafterForm, Eagle3Form
from d2sd.nets.models import Models
from d2sd.nets.packed import PackedLayers
from d2sd.nets.self_check import check_passes
from d2sd.nets.target import Target
from d2sd.nets.types import (
    OTHER_PARTS,
    SUPPORTED,
    TYPES,
    check_supported,
    text_config,
    text_key,
    text_options,
    text_part,
)

log = logging.getLogger(__name__)
GGUF_TYPES = ("llama", "qwen2", "qwen3", "gemma3", "gemma3_text")  # types covered by tests
SAFE = {"trust_remote_code": False}  # code of a folder is never run, and the user is not asked
# While transformers builds a model, torch's default dtype of the whole process is the model's dtype. Two concurrent builds could
# leave the default changed, and modules that another thread builds meanwhile would get the wrong dtype.
BUILDING = RLock()


def load_models(models: ModelSet, device: str | None = None, load_in_8bit: bool = False) -> Models:
    """Loads the models of a set.

    device: a torch device; None for a CUDA GPU if there is one, else the CPU. "auto" spreads the target's layers over all GPUs and
        puts everything else on the first GPU.
    load_in_8bit: whether the target's weights are quantised to 8 bits with bitsandbytes.

    Raises ``InputError`` if something is missing or broken, or if parts do not fit together.
    """
    check_models(models, device=device)
    device = _check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if load_in_8bit:
        require(
            find_spec("bitsandbytes") is not None,
            "8-bit weights need the package bitsandbytes; install it or leave out --load-in-8bit",
        )
        require(
            torch.cuda.is_available(),
            "8-bit weights need a CUDA GPU, and this machine has none; leave out --load-in-8bit",
        )
    drafters = {part: source for part in ("eagle3", "first", "second") if (source := getattr(models, part)) is not None}
    target = load_target(models.target, models.dtype, device, load_in_8bit)
    draft_model = None
    if models.draft_model is not None:
        dtype = "float32" if target.mixed else target.numbers
        draft_model = load_target(models.draft_model, dtype, str(target.device))
    return _with_drafters(Models(target, draft_model=draft_model, name=models.name), drafters, models.dtype)


def load_alone(target: str, dtype: str | None = None, device: str | None = None) -> Models:
    """Loads a target without drafters. Raises the errors of ``resolve`` and ``load_models``."""
    return load_models(resolve(target=target, dtype=dtype), device)


def with_drafter(models: Models, source: str, dtype: str | None = None, second: bool = False) -> Models:
    """Loads a drafter. Returns the models with this drafter in place of the present one.

    A block drafter replaces ``first``, or ``second`` if the parameter ``second`` is True. An EAGLE-3 drafter replaces ``eagle3``,
    and ``first`` becomes None.

    source: folder or hub id of the drafter.
    dtype: as in ``ModelSet``, but None means float32; must match the target's.

    Raises ``InputError`` if the drafter cannot be loaded, does not fit the target, or is EAGLE-3 and ``second`` is True.
    """
    part = "second" if second else "first"
    check_role(part, source)
    return _with_drafters(models, {part: source}, dtype)


def _with_drafters(models: Models, sources: Mapping[str, str], dtype: str | None) -> Models:
    nets: dict[str, Any] = {}
    for part, source in sources.items():
        net = load_drafter(source, DTYPES[dtype or "float32"], str(models.target.device), models.target)
        nets |= {part: None, "eagle3": net} if isinstance(net, Eagle3DraftModel) else {part: net}
    return replace(models, **nets)


def _mixes(target: Target, dtype: str | None, batched: bool) -> bool:
    """Returns whether a target runs in the dtype ``mixed``. Raises ``InputError`` if this was requested and is not possible.

    dtype, batched: as for ``load_target``.
    """
    if dtype not in (None, "mixed"):
        return False
    packed = batched or PackedLayers.possible(target.base, target.config)
    possible = can_mix() and target.device.type == "cpu" and packed
    if dtype == "mixed" and not possible:
        raise InputError(
            "--dtype mixed needs torch's FBGEMM products, a CPU and a target of at most 1 GiB without biases; "
            "choose float32 or bfloat16"
        )
    return possible and (dtype == "mixed" or mixes_by_default(target.model))


def load_target(
    source: str, dtype: str | None = None, device: str | None = None, load_in_8bit: bool = False, batched: bool = False
) -> Target:
    """Loads a target from a folder, a hub id, a GGUF file, the name of a preset, or a name in ``d2sd get``.

    dtype: one of ``d2sd.config.DTYPE_NAMES``; None: as in ``ModelSet``.
    device, load_in_8bit: as for ``load_models``.
    batched: whether the target runs batches of texts, with transformers' own modules. For ``mixed``, its linear layers are then
        replaced.

    Raises ``InputError`` if the target cannot be loaded.
    """
    source, device = target_folder(source), device or ("cuda" if torch.cuda.is_available() else "cpu")
    path, folder = Path(source), source
    gguf = {}
    if path.suffix.lower() == ".gguf":
        folder, gguf = str(path.resolve().parent), {"gguf_file": path.name}
    options: dict[str, Any] = {}
    if device == "auto" or load_in_8bit:  # accelerate moves the weights to their devices while reading
        options["device_map"] = "auto" if device == "auto" else {"": device}
    if load_in_8bit:
        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    try:
        if gguf and load_in_8bit:
            raise InputError("GGUF weights are dequantised on loading; leave out --load-in-8bit")
        raw = published_config(folder, **gguf)
        if gguf and raw.get("model_type") not in GGUF_TYPES:
            raise InputError(
                f"GGUF files of type {raw.get('model_type')!r} are not supported; choose {', '.join(GGUF_TYPES)}"
            )
        config = supported_config(raw, short_name(source))  # before the weights are downloaded
        tokenizer = AutoTokenizer.from_pretrained(folder, **gguf, **SAFE)
        loader: Any = AutoModelForCausalLM
        if gguf:
            options |= {"config": config, "quantization_config": GgufConfig(dequantize=True), **gguf}
        elif raw.get("quantization_config") is None and path.is_dir():
            stored = {text_key(name): shape for name, shape in tensor_shapes(weight_files(source)).items()}
            check_shapes(stored, target_network(config))
        with BUILDING, quiet():
            if (raw.get("quantization_config") or {}).get("quant_method") == "mxfp4":  # gpt-oss
                options["quantization_config"] = Mxfp4Config(dequantize=True)
            options |= text_options(config) | SAFE
            options |= {"dtype": DTYPES[dtype or "float32"], "output_loading_info": True, "use_safetensors": True}
            model, info = loader.from_pretrained(folder, **options)
            if "key_mapping" in options:  # only the text part is loaded
                info["unexpected_keys"] = [k for k in info["unexpected_keys"] if not OTHER_PARTS.match(k)]
            kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
            if wrong := [f"{k.replace('_', ' ')} {sorted(map(str, info[k]))[:3]}" for k in kinds if info.get(k)]:
                raise InputError(f"{MISMATCH} ({'; '.join(wrong)})")
        check_finite(model)
        target = Target(model if "device_map" in options else model.to(device), tokenizer, short_name(source))
        check_token_ids(target.end_ids, target.config.vocab_size, "eos_token_id")
        require(
            tokenizer("a")["input_ids"], "it has no tokenizer; put the tokenizer files of its model into the folder"
        )
        check_token_ids([max(tokenizer.get_vocab().values())], target.config.vocab_size, "tokenizer's id")
        check_passes(target)
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"the target {source} does not fit into the memory of {device}; choose a smaller target, --dtype bfloat16, "
            "--load-in-8bit, or, with several GPUs, --device auto"
        ) from error
    except Exception as error:
        mismatched = "ignore_mismatched_sizes" in str(error)
        reason = MISMATCH if mismatched else first_line(error, 400)
        if gguf and not isinstance(error, InputError):
            reason = f"the GGUF file is truncated, damaged or of an unknown kind; download it again ({reason})"
        raise InputError(f"cannot load the target {source}: {reason}") from error
    target.mixed = _mixes(target, dtype, batched)
    if target.mixed and batched:
        halve(target.base.layers)
    return target


def supported_config(raw: Raw, name: str) -> Any:
    """Returns the transformers config of a target. Raises ``InputError`` if the target is not supported.

    raw: content of the target's config.json.
    name: name of the target, for the error message.
    """
    kind, text = raw.get("model_type"), text_part(raw)
    if kind in (*SUPPORTED, *TYPES):
        check_config(text, (*SUPPORTED, *TYPES))
    if kind in CONFIG_MAPPING:
        config: Any = AutoConfig.for_model(**raw)
    else:  # unknown to transformers; check_supported refuses it
        config = SimpleNamespace(**{**text, "model_type": kind, "num_hidden_layers": 0})
    check_supported(config, name)
    return config


def target_network(config: Any) -> Any:
    """Returns a target's network on torch's device "meta", which allocates no memory."""
    with BUILDING, torch.device("meta"):
        return AutoModelForCausalLM.from_config(text_config(config))


def _check_device(device: str) -> str:
    """Returns the device. Raises ``InputError`` if this machine does not have it."""
    if device == "auto":
        return device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(
                f"there is no CUDA GPU that this torch ({torch.__version__}) can use; choose cpu"
            ) from error
        raise InputError(f"device {device!r} cannot be used here ({first_line(error)}); choose cpu or cuda") from error
    return device


def load_drafter(source: str, dtype: torch.dtype, device: str, target: Target | None = None) -> Any:
    """Loads a drafter from a folder or hub id in a published format, as ``DFlashDraftModel`` or ``Eagle3DraftModel``.

    Weights must be complete and in safetensors files. Names and shapes are checked before weights are read.

    target: the target for which the drafter is checked. If the drafter's embedding or a block drafter's LM head equals the
        target's, it is dropped, and the target's is used. None: EAGLE-3 is refused, and nothing is dropped.

    Raises ``InputError`` with the first fault of the folder (``d2sd.folders.checks``).
    """
    with named_errors(source), BUILDING:
        form, files = drafter_form(source, target and target.config), weight_files(source)
        fit = () if target is None else target_checks(form, target.config, second=True)
        for check in chain(fit, tensor_checks(files, form)):
            require(check.state != "fault", "; ".join(filter(None, (check.finding, check.fix))))
        weights = {name: w for key, w in read_weights(files).items() if (name := own_name(key))}
        d2t, _ = (weights.pop(part, None) for part in MAPS)
        model = network(form, weights)
        if target is not None:
            _drop_copy("embed_tokens", target.embedding, model, weights)
            if isinstance(form, DrafterForm):
                _drop_copy("lm_head", target.head, model, weights)
        model.load_state_dict({key: weight.to(dtype) for key, weight in weights.items()}, assign=True)
        model.rotary_emb = type(model.rotary_emb)(model.config)  # frequencies are not stored
        check_finite(model.eval().requires_grad_(False))
        if isinstance(form, Eagle3Form) or form.draft_vocabulary is not None:
            model.token_ids = torch.arange(form.drafted) + (0 if d2t is None else d2t.long())
    model.config.name_or_path = short_name(source)
    model.mixed = target is not None and target.mixed
    return model.to(device)


def _drop_copy(part: str, targets: Any, model: Any, weights: dict[str, Tensor]) -> None:
    """Removes a part from a drafter, and its weight, if they equal the target's after rounding to the coarser of both number
    formats.

    part: "embed_tokens" or "lm_head".
    targets: the target's module.
    weights: the drafter's weights by name.
    """
    table, stored = getattr(targets, "weight", None), weights.get(f"{part}.weight")
    if stored is None or table is None or table.shape != stored.shape:
        return
    coarse = max((stored.dtype, table.dtype), key=lambda d: torch.finfo(d).eps if d.is_floating_point else 1.0)
    if torch.equal(stored.to(coarse), table.to(stored.device, coarse)):
        del weights[f"{part}.weight"]
        setattr(model, part, None)
    else:
        log.warning(
            "the drafter's own %s.weight is used, since it differs from the target's: this part was trained, or the "
            "drafter was made for another target",
            part,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Context in which transformers prints neither progress bars nor loading reports. Errors are still printed."""
    level, bar = transformers_logging.get_verbosity(), gguf_reading.tqdm
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    gguf_reading.tqdm = transformers_logging.tqdm  # the GGUF reader's progress bar cannot be disabled otherwise
    try:
        yield
    finally:
        gguf_reading.tqdm = bar
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
