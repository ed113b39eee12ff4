"""Finding and loading targets and drafters: bundled presets, folders, hub ids."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Qwen3Config
from transformers.utils import logging as transformers_logging

from d2sd.errors import InputError
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.models import Models
from d2sd.models.target import Target, check_supported

BUNDLED = Path(__file__).resolve().parents[2] / "assets" / "models"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def presets() -> list[str]:
    """Names of the bundled model sets."""
    return sorted(p.name for p in BUNDLED.iterdir() if (p / "target").is_dir()) if BUNDLED.is_dir() else []


def load_models(
    name: str = "tiny",
    *,
    target: str | None = None,
    drafter: str | None = None,
    second_drafter: str | None = None,
    draft_model: str | None = None,
    dtype: str = "float32",
    device: str | None = None,
    load_in_8bit: bool = False,
) -> Models:
    """The ``Models`` of a bundled preset or a folder that holds ``target/``, ``dflash/`` and, if there, ``vp/``, ``draft/``.

    ``target``, ``drafter``, ``second_drafter`` and ``draft_model`` replace single parts by a folder or a hub id.
    device: a torch device, or "auto": the target's layers spread over all GPUs, everything else on the first one.
    load_in_8bit: the target's weights in 8 bits through bitsandbytes. Raises ``InputError`` when something is missing, broken
    or does not fit together.
    """
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}; choose one of: {', '.join(DTYPES)}")
    device = _check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if load_in_8bit:
        _check_8bit()
    label = _short(target) if target is not None else name if name in presets() else _short(name)
    if target is None:
        folder = BUNDLED / name if name in presets() else Path(name)
        if not name.strip() or not folder.is_dir():
            raise InputError(
                f"unknown model {name!r}; choose a bundled one ({', '.join(presets()) or 'none here'}) or give a folder"
            )
        if not (folder / "target").is_dir():
            raise InputError(f"{folder} has no target/ folder; it needs target/, dflash/ and, for d2sd, vp/")
        target = str(folder / "target")
        drafter = drafter or _part(folder, "dflash")
        second_drafter = second_drafter or _part(folder, "vp")
        draft_model = draft_model or _part(folder, "draft")
    loaded = load_target(target, DTYPES[dtype], device, load_in_8bit)
    near = str(loaded.device)
    first, second = (None if d is None else load_drafter(d, DTYPES[dtype], near) for d in (drafter, second_drafter))
    small = None if draft_model is None else load_target(draft_model, DTYPES[dtype], near)
    return Models(loaded, first, second, small, label)


def _part(folder: Path, part: str) -> str | None:
    return str(folder / part) if (folder / part).is_dir() else None


def load_target(source: str, dtype: torch.dtype, device: str, load_in_8bit: bool = False) -> Target:
    """Target from a folder or hub id; ``device`` and ``load_in_8bit`` as for ``load``."""
    options: dict[str, Any] = {}
    if device == "auto" or load_in_8bit:  # accelerate puts the weights in place while they are read
        options["device_map"] = "auto" if device == "auto" else {"": device}
    if load_in_8bit:
        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    try:
        # before gigabytes are fetched
        check_supported(AutoConfig.from_pretrained(source), _short(source))
        tokenizer = AutoTokenizer.from_pretrained(source)
        with _quiet():
            loader: Any = AutoModelForCausalLM
            model, info = loader.from_pretrained(source, dtype=dtype, output_loading_info=True, **options)
            _check_complete(info)
        return Target(model if options else model.to(device), tokenizer, _short(source))
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"the target {source} does not fit into the memory of {device}; choose a smaller one, --dtype bfloat16, "
            "--load-in-8bit, or --device auto for several GPUs"
        ) from error
    except Exception as error:
        raise InputError(f"cannot load the target {source}: {_first_line(error)}") from error


def _check_device(device: str) -> str:
    """The device if this machine has it; raises ``InputError``."""
    if device == "auto":
        return device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {device!r} cannot be used here ({_first_line(error)}); choose cpu or cuda") from error
    return device


def _check_8bit() -> None:
    if find_spec("bitsandbytes") is None:
        raise InputError("8-bit weights need the package bitsandbytes; install it or leave out --load-in-8bit")
    if not torch.cuda.is_available():
        raise InputError("8-bit weights need a CUDA GPU, and this machine has none; leave out --load-in-8bit")


def load_drafter(source: str, dtype: torch.dtype, device: str) -> DFlashDraftModel:
    """Drafter from a ``DFlashDraftModel`` folder or hub id; every weight must be there and nothing else."""
    try:
        config = Qwen3Config.from_pretrained(source)
        missing = [k for k in ("block_size", "dflash_config") if not hasattr(config, k)]
        if missing:
            raise InputError(f"its config.json has no {' and no '.join(missing)}")
        with _quiet():
            loader: Any = DFlashDraftModel
            model, info = loader.from_pretrained(source, config=config, dtype=dtype, output_loading_info=True)
        _check_complete(info)
    except Exception as error:
        raise InputError(f"cannot load the drafter {source}: {_first_line(error)}") from error
    model.config.name_or_path = _short(source)
    return model.to(device).eval().requires_grad_(False)


def _check_complete(info: dict[str, Any]) -> None:
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
    wrong = [f"{kind.replace('_', ' ')} {sorted(map(str, info[kind]))[:3]}" for kind in kinds if info.get(kind)]
    if wrong:
        raise InputError(f"its weights do not match its config ({'; '.join(wrong)})")


def _short(source: str) -> str:
    """Hub ids as they are; of a folder only the last two parts, so that traces name no private path."""
    path = Path(source)
    return "/".join(path.resolve().parts[-2:]) if path.is_dir() else source


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


class _quiet:
    """No progress bars and load reports of transformers while a model is read; errors still come through."""

    def __enter__(self) -> None:
        self.level = transformers_logging.get_verbosity()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    def __exit__(self, *_: Any) -> None:
        transformers_logging.set_verbosity(self.level)
        transformers_logging.enable_progress_bar()
