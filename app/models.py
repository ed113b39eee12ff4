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
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache

import d2sd
from app import machine, presets
from app.machine import ON_ZERO_GPU
from app.visitors import public, without_paths
from d2sd.folders.checks import published_config
from d2sd.folders.loading import BUNDLED, load_models
from d2sd.folders.plan import SIZES, plan
from d2sd.folders.store import REMOTE, Remote, found, hub_answers
from d2sd.nets.layouts import read_form
from d2sd.trace.metrics import weights_of

VARIABLE = "D2SD_MODELS"
PARTS = ("target", "drafter", "vp", "eagle3")
FIELDS = ("name", *PARTS, "dtype")
MAX_BYTES = 200_000
MAX_TEXT = 300
FOLDER = "folder"
ROOM = 1.2  # needed memory (weights, drafters and caches) ÷ size of the target's weights


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its drafters, each a hub id or a folder.

    parameters: number of the target's parameters in billions, from its model card; None if unknown.
    fault: why the pair cannot be used, as a clause; empty if the pair can be used.
    """

    name: str
    target: str = ""
    drafter: str = ""
    vp: str = ""
    eagle3: str = ""
    dtype: str = "bfloat16"
    parameters: float | None = None
    fault: str = ""


PUBLISHED = (
    Pair("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16", parameters=4.0),
    Pair("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16", parameters=8.2),
)


TINY = BUNDLED / "tiny"
DSPARK = Pair(presets.DSPARK, str(TINY / "target"), str(TINY / "dspark"), str(TINY / "vp"), dtype="float32")


@cache
def pairs() -> dict[str, Pair]:
    """Returns all pairs by name, including unusable ones of the owner's list, which have a ``fault``."""
    known = {p.name: p for p in (DSPARK, *PUBLISHED)}
    for pair in listed(os.environ.get(VARIABLE, "")):
        taken = pair.name in known or pair.name in d2sd.presets()
        name = f"{pair.name} (again)" if taken else pair.name
        known[name] = Pair(name, fault="this name is already taken; choose another name") if taken else pair
    return known


def listed(source: str) -> list[Pair]:
    """Returns the pairs of the owner's list. Invalid entries become pairs with a ``fault``, which the page shows.

    source: value of ``D2SD_MODELS``, a path or the list as JSON.
    """
    source = source.strip()
    if not source:
        return []
    try:
        rows = json.loads(source if source[0] in "[{" else _beginning(Path(source).expanduser()))
    except json.JSONDecodeError as error:
        return [Pair(VARIABLE, fault=f"line {error.lineno} of the list of models is not JSON ({error.msg})")]
    except OSError as error:
        return [Pair(VARIABLE, fault=f"the list of models cannot be read: {error.strerror or error}")]
    if not isinstance(rows, list):
        return [Pair(VARIABLE, fault="the list of models must be a JSON list: [{…}, …]")]
    return [_read(row, number) for number, row in enumerate(rows, 1)]


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_BYTES)


def _read(row: Any, number: int) -> Pair:
    if not isinstance(row, Mapping):
        return Pair(f"entry {number} of the list", fault="it must be an object with target and drafter")
    texts = {name: row[name].strip() for name in FIELDS if isinstance(row.get(name), str)}
    target = texts.get("target", "")
    target = "/".join(Path(target).parts[-2:]) if is_folder(target) else target  # visitors must not see the path
    name = (texts.get("name") or target or f"entry {number} of the list")[:MAX_TEXT]
    if fault := _fault(row):
        return Pair(name, fault=fault)
    sources = (texts.get(part, "") for part in PARTS)
    target, drafter, vp, eagle3 = (str(Path(s).expanduser()) if is_folder(s) else s for s in sources)
    return Pair(name, target, drafter, vp, eagle3, dtype=texts.get("dtype") or Pair(name).dtype)


def _fault(row: Mapping[str, Any]) -> str:
    """Returns the fault of an entry; empty if it is valid."""
    unknown = [str(key)[:40] for key in row if key not in FIELDS]
    if unknown:
        return f"unknown field {unknown[0]!r}; an entry has {', '.join(FIELDS)}"
    for field in FIELDS:
        value = row.get(field)
        if value is not None and (not isinstance(value, str) or len(value) > MAX_TEXT):
            return f"{field} must be a string"
    if not (row.get("target") or "").strip():
        return "it needs a target: a hub id or a folder"
    if not any((row.get(part) or "").strip() for part in ("drafter", "eagle3")):
        return "it needs a drafter or an eagle3: a hub id or a folder"
    if row.get("dtype") and row["dtype"] not in SIZES:
        return f"dtype must be one of {', '.join(SIZES)}"
    for field in PARTS:
        path = (row.get(field) or "").strip()
        if is_folder(path) and not Path(path).expanduser().is_dir():
            return f"the folder of its {field}, {path}, does not exist"
    return ""


def is_folder(source: str) -> bool:
    """Returns whether a source is a folder, not a hub id. A hub id is one name, or two names with a slash between them."""
    return source.startswith(("/", ".", "~")) or source.count("/") > 1


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """An entry of the list of models. ``obstacle``: why these models cannot run on this machine, or None. ``note``: a remark in the list."""

    id: str
    label: str
    obstacle: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen models: ``model``, a name or folder, and optionally ``vp``, the folder or hub id of a VP-Drafter."""

    model: str
    vp: str = ""

    @classmethod
    def read(cls, model: str | None, folder: str | None, vp: str | None) -> Chosen:
        source = folder if model == FOLDER else model
        return cls((source or "").strip(), (vp or "").strip())


def offers() -> list[ModelOffer]:
    """Returns all entries of the list. An entry whose models cannot run here states the reason."""
    remotes = [
        ModelOffer(r.name, r.title, note="" if found(r.name) else "not downloaded yet") for r in offered_remotes()
    ]
    bundled = [ModelOffer(name, f"{name} (bundled)") for name in d2sd.presets() if name not in REMOTE]
    folder = [] if public() else [ModelOffer(FOLDER, "a folder of your own")]
    return remotes + bundled + list(map(_offer, pairs().values())) + folder


def offered_remotes() -> list[Remote]:
    """Returns the downloadable targets (already downloaded or not) whose drafters are bundled."""
    return [remote for remote in REMOTE.values() if (BUNDLED / remote.name / "dflash").is_dir()]


def to_get() -> Remote | None:
    """Returns a target that is not downloaded yet, or None. A public page downloads nothing."""
    return None if public() else next((r for r in offered_remotes() if found(r.name) is None), None)


def _offer(pair: Pair) -> ModelOffer:
    reason = obstacle(pair)
    slow = reason is None and pair is not DSPARK and not torch.cuda.is_available() and not ON_ZERO_GPU
    return ModelOffer(pair.name, pair.name, reason and without_paths(reason), "on the CPU: slow" if slow else "")


def templated(model: str) -> bool:
    """Returns whether an offered model is a chat model, for which the page applies the chat template by default."""
    return model in REMOTE or model in {pair.name for pair in PUBLISHED}


def _weight_bytes(pair: Pair) -> float | None:
    """Returns the size of the target's weights in bytes, from its model card or folder; None if unknown."""
    if pair.parameters is not None:
        return pair.parameters * 1e9 * SIZES[pair.dtype]
    folder = Path(pair.target)
    sizes = [f.stat().st_size for f in folder.glob("*.safetensors")] if is_folder(pair.target) else []
    return float(sum(sizes)) if sizes else None


def obstacle(pair: Pair) -> str | None:
    """Returns why this machine cannot run a pair, as a clause, or None."""
    if pair.fault:
        return pair.fault
    weights = _weight_bytes(pair)
    card = torch.cuda.is_available()
    memory = float(torch.cuda.get_device_properties(0).total_memory) if card else machine.memory()
    if weights is not None and weights * ROOM > memory and not ON_ZERO_GPU:
        where = "the GPU has only" if card else "this machine has no CUDA GPU and only"
        return f"its weights take {weights / 1e9:.0f} GB, and {where} {memory / 1e9:.0f} GB{'' if card else ' of free memory'}"
    sources = [s for s in (pair.target, pair.drafter, pair.vp, pair.eagle3) if s and not is_folder(s)]
    if not all(map(_complete, sources)) and not hub_answers():
        return "not in the local hub cache, and there is no network"
    return None


def _cached(source: str, name: str = "config.json") -> Path | None:
    """Returns a file of a hub id in the local cache, or None."""
    path = try_to_load_from_cache(source, name)
    return Path(path) if isinstance(path, str) else None


def _complete(source: str) -> bool:
    """Returns whether config and all weights of a hub id are in the local cache."""
    weights = {"model.safetensors"}
    if index := _cached(source, "model.safetensors.index.json"):
        weights = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all(_cached(source, name) for name in ("config.json", *weights))


def check(chosen: Chosen) -> None:
    """Raise ``InputError`` if a choice cannot run here. Folders are checked when they are loaded."""
    model = chosen.model
    offered = {offer.id: offer for offer in offers()}
    if public() and model not in offered:
        raise d2sd.InputError(f"this page offers only: {', '.join(offered)}")
    if public() and chosen.vp:
        raise d2sd.InputError("this page does not open folders; leave the VP-Drafter folder empty")
    if model in REMOTE and model in offered and found(model) is None:
        raise d2sd.InputError(
            f"{offered[model].label} is not downloaded yet; get it first, or choose {presets.BUNDLED}"
        )
    if model in offered and (reason := offered[model].obstacle):
        raise d2sd.InputError(f"{model}: {reason}; choose other models")


def second_drafter(model: str, vp: str) -> str:
    """Returns a sentence about the second drafter of the chosen models."""
    if vp:
        return f"Second drafter: the VP-Drafter in {vp}."
    if model in pairs():
        own = pairs()[model].vp
        if own and Path(own).is_relative_to(BUNDLED):
            return "Second drafter: the bundled VP-Drafter."
        if own:
            return f"Second drafter: the VP-Drafter in {own}."
        return "There is no VP-Drafter for these models, so the first drafter is also used as the second drafter."
    if model in d2sd.presets():
        return "Second drafter: the bundled VP-Drafter."
    return "Second drafter: vp/ in that folder, or the first drafter if there is no vp/."


def drafter_folder(chosen: Chosen) -> str:
    """Returns the folder or hub id of the first drafter of loaded models; of the EAGLE-3 drafter if there is no first drafter."""
    if chosen.model in pairs():
        return pairs()[chosen.model].drafter or pairs()[chosen.model].eagle3
    folder = BUNDLED / chosen.model if chosen.model in d2sd.presets() else Path(chosen.model)
    return str(folder / ("dflash" if (folder / "dflash").is_dir() else "eagle3"))


def block_size(model: str | None, folder: str | None) -> int | None:
    """Returns the trained γ of the chosen models' first drafter; None if its config cannot be read here."""
    if model == FOLDER and public():
        return None
    source = drafter_folder(Chosen.read(model, folder, None))
    path = Path(source, "config.json") if is_folder(source) else _cached(source)
    try:
        return read_form(published_config(str(path.parent))).block_size if path else None
    except (OSError, d2sd.InputError):
        return None


# Engines of all bundled models used so far, and of the latest models that are not bundled.
_engines: dict[Chosen, d2sd.Engine] = {}
_loading = threading.Lock()


def _bundled(chosen: Chosen) -> bool:
    return chosen.model in d2sd.presets() and not chosen.vp


def loaded(chosen: Chosen) -> bool:
    return chosen in _engines


def loaded_for(header: Mapping[str, Any]) -> Chosen | None:
    """Returns the loaded models whose weights match the fingerprints in a run's header, or None."""
    parts = ("target", "first_drafter", "second_drafter")
    wanted = {part: digest for part in parts if (digest := weights_of([header], part))}
    for chosen, engine in list(_engines.items()):
        own = {"parts": engine.parts}
        if "target" in wanted and all(weights_of([own], part) == digest for part, digest in wanted.items()):
            return chosen
    return None


def engine(chosen: Chosen) -> d2sd.Engine:
    """Returns the engine of the chosen models, and loads them if needed. Without a VP-Drafter, the first drafter is also the
    second drafter.

    Before models that are not bundled are loaded, earlier such models are dropped: memory need not hold two large targets.
    After loading, ``gc.freeze`` is called: otherwise, garbage collection would sometimes pause runs for a third of a second.

    Raises ``InputError`` if the models cannot run here or cannot be loaded.
    """
    if not loaded(chosen):
        check(chosen)
    with _loading:
        if chosen not in _engines:
            if not _bundled(chosen):
                for other in [c for c in _engines if not _bundled(c)]:
                    del _engines[other]
                gc.unfreeze()
                gc.collect()  # models and their hooks form reference cycles
            try:
                _engines[chosen] = _load(chosen)
            finally:
                gc.freeze()
        return _engines[chosen]


def _load(chosen: Chosen) -> d2sd.Engine:
    model, vp = chosen.model, chosen.vp
    if _bundled(chosen):
        return d2sd.load(model)
    if model in pairs():
        pair = pairs()[model]
        loaded = load_models(
            target=pair.target, drafter=pair.drafter or None, second_drafter=vp or pair.vp or None,
            eagle3=pair.eagle3 or None, dtype=pair.dtype,
        )  # fmt: skip
    else:
        loaded = load_models(model, second_drafter=vp or None, dtype=_own_dtype())
    return d2sd.Engine(loaded if loaded.second else replace(loaded, second=loaded.first))


def _own_dtype() -> str | None:
    return "bfloat16" if torch.cuda.is_available() else None


def planned(model: str, folder: str) -> str:
    """Returns a one-line summary of models that are not bundled, from their configs alone; empty if there is no config yet.

    model: id of an entry of the list.
    folder: the user's folder, used if ``model`` is ``FOLDER``.
    """
    if model == FOLDER:
        own = Path(folder.strip()).expanduser()
        if public() or not folder.strip() or not (own / "target" / "config.json").is_file():
            return ""
        drafter = next((part for part in ("dflash", "eagle3") if (own / part / "config.json").is_file()), None)
        # without a dtype, weights are loaded in float32
        return _summary(str(own / "target"), drafter and str(own / drafter), _own_dtype() or "float32")
    if model in d2sd.presets() or model not in pairs():
        return ""
    pair = pairs()[model]
    sources = pair.target, pair.drafter or pair.eagle3
    # read configs from the local cache only, without waiting for a network
    if pair.fault or not all(is_folder(source) or _cached(source) for source in sources):
        return ""
    return _summary(*sources, pair.dtype)


@lru_cache(32)
def _summary(target: str, drafter: str | None, dtype: str) -> str:
    checks = plan(target, drafter, dtype)
    refused = [f"refused: {check.finding}" for check in checks if check.state == "fault"]
    said = refused or [check.finding for check in checks if check.name in ("target", "passes", "memory")]
    return without_paths(" ".join(f"{finding[0].upper()}{finding[1:]}." for finding in said))
