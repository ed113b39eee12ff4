"""The models that the page offers, the reasons why some of them cannot run here, and the loading of models.

The page's owner can add models to the bundled and published ones. The environment variable ``D2SD_MODELS`` is a JSON list, or
the path of a file with the list::

    [{"name": "mine", "target": "Qwen/Qwen3-4B", "drafter": "/models/my-drafter", "vp": "/models/my-vp", "dtype": "bfloat16"}]

``target``, ``drafter``, ``eagle3`` and ``vp`` (a VP-Drafter) are hub ids or folders. The target and at least one of ``drafter``
and ``eagle3`` are required.
"""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache

import d2sd
from app import machine, presets
from app.machine import ON_ZERO_GPU
from app.visitors import public, without_paths
from d2sd.bench.timings import bandwidth
from d2sd.errors import InputError, require
from d2sd.folders.configs import trained_block_size
from d2sd.folders.loading import load_models
from d2sd.folders.model_sets import BUNDLED, ModelSet, resolve
from d2sd.folders.plan import SIZES, plan
from d2sd.folders.store import REMOTE, Remote, downloaded, hub_answers
from d2sd.trace.metrics import weights_of

VARIABLE = "D2SD_MODELS"
# field of an entry → field of a ``ModelSet``
PARTS = {"target": "target", "drafter": "first", "vp": "second", "eagle3": "eagle3"}
FIELDS = ("name", *PARTS, "dtype")
MAX_BYTES = 200_000
MAX_TEXT = 300
FOLDER = "folder"  # value in the list of models for a folder of the user
_bandwidth = cache(bandwidth)
ROOM = 1.2  # needed memory (weights, drafters and caches) ÷ size of the target's weights

# Published targets with a drafter of z-lab, and their parameters in billions, from the model cards.
PUBLISHED = {
    "Qwen/Qwen3-4B": ("z-lab/Qwen3-4B-DFlash-b16", 4.0),
    "Qwen/Qwen3-8B": ("z-lab/Qwen3-8B-DFlash-b16", 8.2),
}
TINY = BUNDLED / "tiny"
DSPARK = ModelSet(
    presets.DSPARK, str(TINY / "target"), str(TINY / "dspark"), str(TINY / "vp"), dtype="float32", source="list"
)


def _listed() -> dict[str, ModelSet]:
    """Returns the model sets of the page's list by name, in its order. Whether this machine can run them is not checked."""
    names = dict.fromkeys([*(remote.name for remote in offered_remotes()), *d2sd.presets()])
    sets = {**{name: resolve(name) for name in names}, DSPARK.name: DSPARK}
    for target, (drafter, _) in PUBLISHED.items():
        sets[target] = ModelSet(target, target, drafter, dtype="bfloat16", source="published")
    for models in read_list(os.environ.get(VARIABLE, "")):
        if models.name in sets:
            models = _invalid(f"{models.name} (again)", "this name is already taken; choose another name")
        sets[models.name] = models
    return sets


@cache
def read_list(source: str) -> list[ModelSet]:
    """Returns the model sets of the owner's list. An invalid entry becomes a set whose ``obstacle`` says what is wrong.

    source: value of ``D2SD_MODELS``: a path, or the list as JSON.
    """
    source = source.strip()
    if not source:
        return []
    try:
        if source[0] not in "[{":
            with Path(source).expanduser().open(encoding="utf-8-sig", errors="replace") as file:
                source = file.read(MAX_BYTES)
        entries = json.loads(source)
    except json.JSONDecodeError as error:
        return [_invalid(VARIABLE, f"line {error.lineno} of the list of models is not JSON ({error.msg})")]
    except OSError as error:
        return [_invalid(VARIABLE, f"the list of models cannot be read: {error.strerror or error}")]
    if not isinstance(entries, list):
        return [_invalid(VARIABLE, "the list of models must be a JSON list: [{…}, …]")]
    return [_read_entry(entry, f"entry {number} of the list") for number, entry in enumerate(entries, 1)]


def _invalid(name: str, fault: str) -> ModelSet:
    return ModelSet(name, source="list", obstacle=fault)


def _read_entry(entry: Any, name: str) -> ModelSet:
    """Returns the model set of an entry. name: used if the entry has no name and no target."""
    if not isinstance(entry, Mapping):
        return _invalid(name, "it must be an object with target and drafter")
    texts = {field: text.strip() for field in FIELDS if isinstance(text := entry.get(field), str)}
    target = texts.get("target", "")
    target = "/".join(Path(target).parts[-2:]) if is_folder(target) else target  # visitors must not see the path
    name = (texts.get("name") or target or name)[:MAX_TEXT]
    if fault := _fault(entry, texts):
        return _invalid(name, fault)
    parts = {PARTS[field]: text for field, text in texts.items() if field in PARTS and text}
    parts = {part: os.path.expanduser(source) if is_folder(source) else source for part, source in parts.items()}
    return ModelSet(name, dtype=texts.get("dtype") or "bfloat16", source="list", **parts)


def _fault(entry: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Returns what is wrong with an entry; empty if nothing is. texts: the entry's strings, by field."""
    for field, value in entry.items():
        if field not in FIELDS:
            return f"unknown field {str(field)[:40]!r}; an entry has {', '.join(FIELDS)}"
        if value is not None and (field not in texts or len(texts[field]) > MAX_TEXT):
            return f"{field} must be a string"
    if not texts.get("target"):
        return "it needs a target: a hub id or a folder"
    if not (texts.get("drafter") or texts.get("eagle3")):
        return "it needs a drafter or an eagle3: a hub id or a folder"
    if texts.get("dtype", "") not in ("", *SIZES):
        return f"dtype must be one of {', '.join(SIZES)}"
    for field in PARTS:
        source = texts.get(field, "")
        if is_folder(source) and not Path(os.path.expanduser(source)).is_dir():
            return f"the folder of its {field}, {source}, does not exist"
    return ""


def is_folder(source: str) -> bool:
    """Returns whether a source is a folder, not a hub id. A hub id is one name, or two names with a slash between them."""
    return source.startswith(("/", ".", "~")) or source.count("/") > 1


def offered() -> dict[str, ModelSet]:
    """Returns the model sets of the page's list by name. A set that this machine cannot run has an ``obstacle``."""
    return {name: _with_obstacle(models) for name, models in _listed().items()}


def title(name: str) -> str:
    """Returns the name of a model set of the list as shown on the page."""
    return REMOTE[name].title if name in REMOTE else name


def label(models: ModelSet) -> str:
    """Returns the text for a model set in the page's list: its title, and its obstacle or a remark."""
    remark = models.obstacle
    if models.name in REMOTE:
        remark = None if downloaded(models.name) else "not downloaded yet"
    elif models.source == "bundled":
        remark = "bundled"
    elif not (remark or torch.cuda.is_available() or ON_ZERO_GPU or _is_bundled(models.target)):
        # a pass takes at least the time of reading the weights
        ms = 1000 * (_weight_bytes(models) or 0) / _bandwidth(torch.device("cpu"), 1)
        remark = f"about {ms:.{int(ms < 9.95)}f} ms a token on this CPU" if ms else None
    return f"{title(models.name)} ({remark})" if remark else title(models.name)


def _is_bundled(source: str) -> bool:
    return Path(source).is_relative_to(BUNDLED)


def offered_remotes() -> list[Remote]:
    """Returns the downloadable targets (already downloaded or not) whose drafters are bundled."""
    return [remote for remote in REMOTE.values() if (BUNDLED / remote.name / "dflash").is_dir()]


def to_get() -> Remote | None:
    """Returns a target that can be downloaded and has not been downloaded yet; None if there is none, or if the page is public."""
    return None if public() else next((r for r in offered_remotes() if downloaded(r.name) is None), None)


def templated(model: str) -> bool:
    """Returns whether an offered model is a chat model, for which the page applies the chat template by default."""
    return model in REMOTE or model in PUBLISHED


def _weight_bytes(models: ModelSet) -> float | None:
    """Returns the size of the target's weights in bytes, from its model card or folder; None if unknown."""
    if models.source == "published":
        return PUBLISHED[models.name][1] * 1e9 * SIZES[models.dtype or "float32"]
    config = _stored_config(models.target)
    files = config.parent.glob("*.safetensors") if config else ()
    return float(sum(file.stat().st_size for file in files)) or None


def _with_obstacle(models: ModelSet) -> ModelSet:
    reason = models.obstacle or (None if models.source == "bundled" else _obstacle(models))
    return replace(models, obstacle=reason and without_paths(reason))


def _obstacle(models: ModelSet) -> str | None:
    weights = _weight_bytes(models)
    card = torch.cuda.is_available()
    memory = float(torch.cuda.get_device_properties(0).total_memory) if card else machine.memory()
    if weights is not None and weights * ROOM > memory and not ON_ZERO_GPU:
        where = "the GPU has only" if card else "this machine has no CUDA GPU and only"
        return f"its weights take {weights / 1e9:.0f} GB, and {where} {memory / 1e9:.0f} GB{'' if card else ' of free memory'}"
    sources = (models.target, models.first, models.second, models.eagle3)
    if not all(_wholly_cached(source) for source in sources if source and not is_folder(source)) and not hub_answers():
        return "not in the local hub cache, and there is no network"
    return None


def _cached_file(source: str, name: str = "config.json") -> Path | None:
    path = try_to_load_from_cache(source, name)
    return Path(path) if isinstance(path, str) else None


def _wholly_cached(source: str) -> bool:
    weights = {"model.safetensors"}
    if index := _cached_file(source, "model.safetensors.index.json"):
        weights = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all(_cached_file(source, name) for name in ("config.json", *weights))


def from_form(model: str | None, folder: str | None, vp: str | None) -> ModelSet:
    """Returns the model set that the form's values name. folder: the folder, if ``model`` is ``FOLDER``."""
    name = ((folder if model == FOLDER else model) or "").strip()
    if not name:
        return ModelSet("", source="unknown", obstacle="There is no folder yet; give one, or choose other models")
    return model_set(name, (vp or "").strip())


def model_set(name: str, vp: str = "") -> ModelSet:
    """Returns the model set of this name in the list, or of this folder. If it cannot be used, its ``obstacle`` says why.

    vp: folder or hub id of a VP-Drafter that replaces the set's second drafter; empty to keep it.
    """
    listed = _listed()
    try:
        if public():
            require(name in listed, f"this page offers only: {', '.join(listed)}")
            require(not vp, "this page does not open folders; leave the VP-Drafter folder empty")
        dtype = "bfloat16" if torch.cuda.is_available() else None
        if name in listed:
            models = _with_obstacle(listed[name])
        else:
            models = resolve(os.path.expanduser(name), dtype=dtype)
    except (InputError, OSError) as error:
        return ModelSet(name, second=vp or None, source="unknown", obstacle=str(error))
    return replace(models, second=vp, dtype=models.dtype or dtype, source="user") if vp else models


def second_drafter(models: ModelSet) -> str:
    """Returns a sentence about the second drafter of a model set."""
    if not models.second:
        return "There is no VP-Drafter for these models, so the first drafter is also used as the second drafter."
    which = "bundled VP-Drafter" if _is_bundled(models.second) else f"VP-Drafter in {models.second}"
    return f"Second drafter: the {which}."


def _stored_config(source: str) -> Path | None:
    """Returns the path of a config; None if it is neither in the folder nor in the local hub cache, or if ``source`` is empty."""
    path = Path(source, "config.json")
    if source and path.is_file():
        return path
    return _cached_file(source) if source and not is_folder(source) else None


def block_size(model: str | None, folder: str | None) -> int | None:
    """Returns the trained γ of the first drafter of the models in the form; None if its config cannot be read here."""
    drafter = from_form(model, folder, None).drafter
    try:
        config = _stored_config(drafter)
        return trained_block_size(str(config.parent)) if config else None
    except (OSError, InputError):
        return None


# Engines of all bundled models used so far, and of the latest models that are not bundled.
_engines: dict[ModelSet, d2sd.Engine] = {}
_loading = threading.Lock()


def loaded(models: ModelSet) -> bool:
    return models in _engines


def loaded_for(header: Mapping[str, Any]) -> ModelSet | None:
    """Returns the loaded models, if their weights match the fingerprints in a run's header; otherwise None."""
    parts = ("target", "first_drafter", "second_drafter")
    wanted = {part: digest for part in parts if (digest := weights_of([header], part))}
    for models, engine in list(_engines.items()):
        description = [{"parts": engine.parts}]
        if "target" in wanted and all(weights_of(description, part) == digest for part, digest in wanted.items()):
            return models
    return None


def engine(models: ModelSet) -> d2sd.Engine:
    """Returns the engine of these models, and loads them if needed. Without a VP-Drafter, the first drafter is also the second
    drafter.

    Before models that are not bundled are loaded, earlier such models are dropped: memory need not hold two large targets.
    After loading, ``gc.freeze`` is called: otherwise, garbage collection would sometimes pause runs for a third of a second.

    Raises ``InputError`` if the models cannot run here or cannot be loaded.
    """
    if not loaded(models):
        _check(models)
    with _loading:
        if models not in _engines:
            if models.source != "bundled":
                for other in [other for other in _engines if other.source != "bundled"]:
                    del _engines[other]
                gc.unfreeze()
                gc.collect()  # models and their hooks form reference cycles
            try:
                _engines[models] = _load(models)
            finally:
                gc.freeze()
        return _engines[models]


def _check(models: ModelSet) -> None:
    if reason := models.obstacle:
        raise InputError(reason if models.source == "unknown" else f"{models.name}: {reason}; choose other models")
    if models.name in REMOTE:
        require(
            downloaded(models.name),
            f"{REMOTE[models.name].title} is not downloaded yet; get it first, or choose other models",
        )


def _load(models: ModelSet) -> d2sd.Engine:
    loaded = load_models(models)
    return d2sd.Engine(loaded if loaded.second else replace(loaded, second=loaded.first))


def planned(models: ModelSet) -> str:
    """Returns a line that says how the models would run, from their configs alone; empty if a config is not stored here."""
    if not _stored_config(models.target) or (models.drafter and not _stored_config(models.drafter)):
        return ""
    # without a dtype, weights are loaded in float32
    return _summary(models.target, models.drafter or None, models.dtype or "float32")


@lru_cache(32)
def _summary(target: str, drafter: str | None, dtype: str) -> str:
    checks = plan(target, drafter, dtype)
    refused = [f"refused: {check.finding}" for check in checks if check.state == "fault"]
    findings = refused or [check.finding for check in checks if check.name in ("target", "passes", "memory")]
    return without_paths(" ".join(f"{finding[0].upper()}{finding[1:]}." for finding in findings))
