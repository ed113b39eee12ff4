"""Finds and loads targets and drafters: bundled presets, folders and hub ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import RLock
from types import SimpleNamespace
from typing import Any, Literal

import torch
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

from d2sd.__about__ import HOME
from d2sd.errors import InputError, first_line
from d2sd.folders.checks import (
    MAPS,
    drafter_form,
    network,
    own_name,
    published_config,
    target_checks,
    tensor_checks,
)
from d2sd.folders.store import found, located
from d2sd.folders.weights import read_weights, tensor_shapes, weight_files
from d2sd.nets.config_checks import check_config, check_finite, check_shapes, check_token_ids
from d2sd.nets.dtypes import DTYPES, can_mix, mixes_by_default
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import DrafterForm, Eagle3Form, is_eagle3, read_form
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
BUNDLED = HOME / "assets" / "models"
GGUF_TYPES = ("llama", "qwen2", "qwen3", "gemma3", "gemma3_text")  # types covered by tests
DEVICES = ("cpu", "cuda")  # devices covered by tests
SAFE = {"trust_remote_code": False}  # code of a folder is never run, and the user is not asked
# While transformers builds a model, torch's default dtype of the whole process is the model's dtype. Two concurrent builds could
# leave the default changed, and modules that another thread builds meanwhile would get the wrong dtype.
BUILDING = RLock()


def presets() -> list[str]:
    """Returns the names of the bundled model sets whose target is bundled or was downloaded (``d2sd.folders.store``)."""
    sets = BUNDLED.iterdir() if BUNDLED.is_dir() else ()
    return sorted(p.name for p in sets if _target_of(p) or found(p.name))


def _target_of(folder: Path) -> str | None:
    """Returns a model set's target: its folder ``target/``, or the path or hub id in its file ``target``. None if it has
    neither."""
    own = _part(folder, "target")
    if own is None and (folder / "target").is_file():
        with (folder / "target").open(encoding="utf-8", errors="replace") as file:
            named = file.readline(4096).strip()
        own = str(folder / named) if named and (folder / named).exists() else named or None
    return own


def target_folder(source: str) -> str:
    """Returns the target's folder for the name of a preset or a name in ``d2sd get``; any other source is returned unchanged."""
    if source in presets() and not Path(source).exists():
        source = _target_of(BUNDLED / source) or source
    return located(source)


def load_models(
    name: str = "tiny",
    *,
    target: str | None = None,
    drafter: str | None = None,
    second_drafter: str | None = None,
    draft_model: str | None = None,
    eagle3: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    load_in_8bit: bool = False,
) -> Models:
    """Returns the ``Models`` of a model set.

    name: a preset, or a folder with ``target/`` (or a text file ``target`` with a path or hub id) and optionally ``dflash/``,
        ``vp/``, ``draft/`` and ``eagle3/``.
    target, drafter, second_drafter, draft_model, eagle3: a folder or hub id that replaces this part of the set. The config of
        ``drafter`` determines whether it is a block drafter or EAGLE-3. ``target``: also a GGUF file, a preset or a name in
        ``d2sd get``, without the drafters of the set.
    dtype: one of ``d2sd.nets.dtypes.DTYPES``; None means mixed if the target has at least 50 million parameters and
        runs on a CPU that supports mixed, else float32.
    device: a torch device; None for a CUDA GPU if there is one, else the CPU. "auto" spreads the target's layers over all GPUs and
        puts everything else on the first GPU.
    load_in_8bit: whether the target's weights are quantised to 8 bits with bitsandbytes.

    Raises ``InputError`` if something is missing or broken, or if parts do not fit together.
    """
    if (kind := dtype or "float32") not in DTYPES:
        raise InputError(f"unknown dtype {kind!r}; choose one of: {', '.join(DTYPES)}")
    device = _check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if load_in_8bit:
        if find_spec("bitsandbytes") is None:
            raise InputError("8-bit weights need the package bitsandbytes; install it or leave out --load-in-8bit")
        if not torch.cuda.is_available():
            raise InputError("8-bit weights need a CUDA GPU, and this machine has none; leave out --load-in-8bit")
    own = None
    label = name if target is None and name in presets() else _short(target or name)
    if target is None:
        folder = BUNDLED / name if name.isidentifier() and (BUNDLED / name).is_dir() else Path(name)
        if not name.strip() or not folder.is_dir():
            raise InputError(
                f"unknown model {name!r}; choose a bundled one ({', '.join(presets()) or 'none here'}) or give a folder"
            )
        target = _target_of(folder) or (str(found(name) or name) if folder.parent == BUNDLED else None)
        if target is None:
            raise InputError(f"{folder} has no target/ folder; it needs target/, dflash/ and, for the method d2sd, vp/")
        own, eagle3 = _part(folder, "dflash"), eagle3 or _part(folder, "eagle3")
        drafter = drafter or own
        second_drafter = second_drafter or _part(folder, "vp")
        draft_model = draft_model or _part(folder, "draft")
    # Drafters' configs are read first, since loading the target may take long.
    if second_drafter is not None:
        _refuse_second(second_drafter)
    if eagle3 is not None and drafter_kind(eagle3) != "eagle3":
        raise InputError(f"{eagle3} holds no EAGLE-3 drafter; give a block drafter with --drafter")
    if draft_model is not None:
        target_folder(draft_model)
    if drafter is not None and drafter_kind(drafter) == "eagle3":
        eagle3, drafter = drafter, own
    loaded = load_target(target, DTYPES[kind], device, load_in_8bit)
    loaded.mixed = _mixes(loaded, dtype)
    near = str(loaded.device)
    first, second, level = (
        None if d is None else load_drafter(d, DTYPES[kind], near, loaded) for d in (drafter, second_drafter, eagle3)
    )
    small = None if draft_model is None else load_target(draft_model, DTYPES[kind], near)
    return Models(loaded, first, second, small, label, level)


def load_alone(target: str, dtype: str | None = None, device: str | None = None) -> Models:
    """Returns a target without drafters. Arguments and errors as for ``load_models``."""
    return load_models(target=target, dtype=dtype, device=device)


def with_drafter(models: Models, source: str, dtype: str | None = None, second: bool = False) -> Models:
    """Returns these models with the drafter of a folder or hub id. A block drafter becomes ``first``. An EAGLE-3 drafter becomes
    ``eagle3``, and ``first`` becomes None.

    dtype: as for ``load_models``, but None means float32; must match the target's.
    second: whether a block drafter becomes ``second`` instead, and ``first`` stays.

    Raises ``InputError`` if the drafter cannot be loaded, does not fit the target, or is EAGLE-3 and ``second`` is True.
    """
    target, kind = models.target, DTYPES[dtype or "float32"]
    if second:
        _refuse_second(source)
    drafter = load_drafter(source, kind, str(target.device), target)
    if isinstance(drafter, Eagle3DraftModel):
        return replace(models, first=None, eagle3=drafter)
    return replace(models, second=drafter) if second else replace(models, first=drafter)


def _refuse_second(source: str) -> None:
    if drafter_kind(source) == "eagle3":
        raise InputError(
            f"{source} is an EAGLE-3 drafter, which drafts alone; only block drafters can be the second drafter"
        )


def _mixes(target: Target, dtype: str | None) -> bool:
    """Returns whether a target runs in ``mixed``; raises ``InputError`` if ``mixed`` was requested and is not possible."""
    if dtype not in (None, "mixed"):
        return False
    possible = can_mix() and PackedLayers.possible(target.base, target.config)
    if dtype == "mixed" and not possible:
        raise InputError(
            "--dtype mixed needs torch's FBGEMM products, a CPU and a target of at most 1 GiB without biases; "
            "choose float32 or bfloat16"
        )
    return possible and (dtype == "mixed" or mixes_by_default(target.model))


def _part(folder: Path, part: str) -> str | None:
    return str(folder / part) if (folder / part).is_dir() else None


def load_target(source: str, dtype: torch.dtype, device: str, load_in_8bit: bool = False) -> Target:
    """Returns a target from a folder, a hub id, a GGUF file, the name of a preset, or a name in ``d2sd get``.

    device, load_in_8bit: as for ``load_models``.

    Raises ``InputError`` if the target cannot be loaded.
    """
    source = target_folder(source)
    path, place, gguf = Path(source), source, dict[str, Any]()
    if path.suffix.lower() == ".gguf":
        place, gguf = str(path.resolve().parent), {"gguf_file": path.name}
    options: dict[str, Any] = {}
    if device == "auto" or load_in_8bit:  # accelerate moves the weights to their devices while reading
        options["device_map"] = "auto" if device == "auto" else {"": device}
    if load_in_8bit:
        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    try:
        if gguf and load_in_8bit:
            raise InputError("GGUF weights are dequantised on loading; leave out --load-in-8bit")
        raw = published_config(place, **gguf)
        if gguf and raw.get("model_type") not in GGUF_TYPES:
            raise InputError(
                f"GGUF files of type {raw.get('model_type')!r} are not supported; choose {', '.join(GGUF_TYPES)}"
            )
        config = supported_config(raw, _short(source))  # before the weights are downloaded
        tokenizer = AutoTokenizer.from_pretrained(place, **gguf, **SAFE)
        loader: Any = AutoModelForCausalLM
        if gguf:
            options |= {"config": config, "quantization_config": GgufConfig(dequantize=True), **gguf}
        elif raw.get("quantization_config") is None and path.is_dir():
            held = {text_key(name): shape for name, shape in tensor_shapes(weight_files(source)).items()}
            check_shapes(held, target_network(config))
        with BUILDING, quiet():
            options |= text_options(config) | widened_experts(raw) | SAFE
            options |= {"dtype": dtype, "output_loading_info": True, "use_safetensors": True}
            model, info = loader.from_pretrained(place, **options)
            if "key_mapping" in options:  # only the text part is loaded
                info["unexpected_keys"] = [k for k in info["unexpected_keys"] if not OTHER_PARTS.match(k)]
            kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
            if wrong := [f"{k.replace('_', ' ')} {sorted(map(str, info[k]))[:3]}" for k in kinds if info.get(k)]:
                raise InputError(f"its weights do not match its config ({'; '.join(wrong)})")
        check_finite(model)
        target = Target(model if "device_map" in options else model.to(device), tokenizer, _short(source))
        check_token_ids(target.end_ids, target.config.vocab_size, "eos_token_id")
        if not tokenizer("a")["input_ids"]:
            raise InputError("it has no tokenizer; put the tokenizer files of its model into the folder")
        check_token_ids([max(tokenizer.get_vocab().values())], target.config.vocab_size, "tokenizer's id")
        check_passes(target)
        return target
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"the target {source} does not fit into the memory of {device}; choose a smaller target, --dtype bfloat16, "
            "--load-in-8bit, or, with several GPUs, --device auto"
        ) from error
    except Exception as error:
        mismatched = "ignore_mismatched_sizes" in str(error)
        reason = "its weights do not match its config" if mismatched else first_line(error, 400)
        if gguf and not isinstance(error, InputError):
            reason = f"the GGUF file is truncated, damaged or of an unknown kind; download it again ({reason})"
        raise InputError(f"cannot load the target {source}: {reason}") from error


def supported_config(raw: dict[str, Any], name: str) -> Any:
    """Returns a target's transformers config for its config.json. Raises ``InputError`` if the target is not supported."""
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
    """Returns a target's network without memory, on torch's device meta."""
    with BUILDING, torch.device("meta"):
        return AutoModelForCausalLM.from_config(text_config(config))


def widened_experts(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the option that makes transformers dequantise MXFP4 weights (gpt-oss) on loading, on every machine."""
    mxfp4 = (raw.get("quantization_config") or {}).get("quant_method") == "mxfp4"
    return {"quantization_config": Mxfp4Config(dequantize=True)} if mxfp4 else {}


def _check_device(device: str) -> str:
    """Returns the device if it is a CPU or CUDA GPU of this machine; raises ``InputError`` otherwise."""
    if device == "auto":
        return device
    try:
        if torch.device(device).type not in DEVICES:
            raise InputError(
                f"device {device!r} is not supported: losslessness was never tested on it; choose cpu or cuda"
            )
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(
                f"there is no CUDA GPU that this torch ({torch.__version__}) can use; choose cpu"
            ) from error
        raise InputError(f"device {device!r} cannot be used here ({first_line(error)}); choose cpu or cuda") from error
    return device


def load_drafter(source: str, dtype: torch.dtype, device: str, target: Target | None = None) -> Any:
    """Returns the ``DFlashDraftModel`` or ``Eagle3DraftModel`` of a folder or hub id in a published layout.

    Weights must be complete and in safetensors files. Names and shapes are checked before weights are read.

    target: the drafter's target, for which it is checked. The drafter's embedding and a block drafter's LM head are dropped if they
        equal the target's. None: EAGLE-3 is refused, and nothing is dropped.

    Raises ``InputError`` with the first fault of the folder (``d2sd.folders.checks``).
    """
    with _named_errors(source), BUILDING:
        config = target and target.config
        form, files = drafter_form(source, config), weight_files(source)
        of_target = () if config is None else target_checks(form, config, second=True)
        for check in chain(of_target, tensor_checks(files, form)):
            if check.state == "fault":
                raise InputError("; ".join(filter(None, (check.finding, check.fix))))
        weights = {name: w for key, w in read_weights(files).items() if (name := own_name(key))}
        d2t, _ = (weights.pop(part, None) for part in MAPS)
        model, theirs = network(form, weights), dict[str, Any]()
        if target is not None:
            theirs = {"embed_tokens": target.embedding}
            if isinstance(form, DrafterForm):
                theirs["lm_head"] = target.head
        for part, module in theirs.items():
            table, own = getattr(module, "weight", None), weights.get(f"{part}.weight")
            if own is None or table is None or table.shape != own.shape:
                continue
            coarse = max((own.dtype, table.dtype), key=lambda d: torch.finfo(d).eps if d.is_floating_point else 1.0)
            if torch.equal(own.to(coarse), table.to(own.device, coarse)):
                del weights[f"{part}.weight"]
                setattr(model, part, None)
            else:
                log.warning(
                    "the drafter's own %s.weight is used, since it differs from the target's: this part was trained, or the "
                    "drafter was made for another target",
                    part,
                )
        model.load_state_dict({key: weight.to(dtype) for key, weight in weights.items()}, assign=True)
        model.rotary_emb = type(model.rotary_emb)(model.config)  # frequencies are not stored
        check_finite(model.eval().requires_grad_(False))
        if isinstance(form, Eagle3Form) or form.draft_vocabulary is not None:
            model.token_ids = torch.arange(form.drafted) + (0 if d2t is None else d2t.long())
    model.config.name_or_path = _short(source)
    model.mixed = target is not None and target.mixed
    return model.to(device)


def drafter_kind(source: str) -> Literal["first", "second", "eagle3"]:
    """Returns the kind of the drafter in a folder or hub id: a first or second block drafter, or EAGLE-3.

    Raises ``InputError`` if its config is wrong, incomplete or unsupported. What depends on the target is not checked.
    """
    with _named_errors(source):
        config = published_config(source)
        if is_eagle3(config):
            return "eagle3"
        return "second" if read_form(config).second_role else "first"


@contextmanager
def _named_errors(source: str) -> Iterator[None]:
    """Context in which any exception becomes an ``InputError`` that names the drafter."""
    try:
        yield
    except Exception as error:
        raise InputError(f"cannot load the drafter {source}: {first_line(error, 600)}") from error


def _short(source: str) -> str:
    """Returns a name for traces, without private paths: a hub id, the last two parts of a folder's path, or a file's name."""
    path = Path(source)
    if path.is_file():
        return path.name
    return "/".join(path.resolve().parts[-2:]) if path.is_dir() else source


@contextmanager
def quiet() -> Iterator[None]:
    """Context in which transformers shows neither progress bars nor loading reports; errors still appear."""
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
