"""Which models to load: presets, folders and the options of a command are resolved to a ``ModelSet``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from d2sd.__about__ import HOME
from d2sd.config import DTYPE_NAMES, DecodeConfig, check_choice, check_device
from d2sd.errors import InputError
from d2sd.folders.configs import check_template, drafter_kind, named_errors, published_config, trained_block_size
from d2sd.folders.store import REMOTE, check_place, downloaded
from d2sd.methods import METHODS

BUNDLED = HOME / "assets" / "models"
MODEL_CHAIN = 16  # maximum and default γ of an autoregressive draft model, which was not trained with a block size
# part of a ``ModelSet`` → its folder in the folder of the set
FOLDERS = {"first": "dflash", "second": "vp", "eagle3": "eagle3", "draft_model": "draft"}


@dataclass(frozen=True, slots=True)
class ModelSet:
    """A target and its drafters, each given as a folder or hub id. They are not loaded yet.

    name: name of the set, for lists of models and in traces; contains no private paths.
    target: also a GGUF file, a preset or a name in ``d2sd get``. Empty if the set is unusable.
    first: first drafter. If this is an EAGLE-3 drafter, it counts as ``eagle3``.
    second: second drafter, a VP-Drafter.
    draft_model: a small causal LM with the target's vocabulary.
    dtype: one of ``d2sd.config.DTYPE_NAMES``; None means mixed if the target has at least 50 million parameters and runs on a CPU
        that supports mixed, else float32.
    source: where the set comes from: "bundled" (its target may have to be downloaded), "published" on the hub, an entry of the
        page's "list", named by the "user", or "unknown" if there are no models with the name that the user gave.
    obstacle: why the models cannot be used, as a clause (if ``source`` is "unknown": as a sentence without a full stop); None if
        they can be used. Two sets that differ only in ``obstacle`` are equal.
    """

    name: str
    target: str = ""
    first: str | None = None
    second: str | None = None
    eagle3: str | None = None
    draft_model: str | None = None
    dtype: str | None = None
    source: Literal["bundled", "published", "list", "user", "unknown"] = "user"
    obstacle: str | None = field(default=None, compare=False)

    @property
    def drafter(self) -> str:
        """The first drafter; without one, the EAGLE-3 drafter. Empty if there is neither."""
        return self.first or self.eagle3 or ""


def presets() -> list[str]:
    """Returns the names of the bundled model sets whose target is bundled too, or was downloaded (``d2sd.folders.store``)."""
    sets = BUNDLED.iterdir() if BUNDLED.is_dir() else ()
    return sorted(folder.name for folder in sets if _target_of(folder) or downloaded(folder.name))


def resolve(
    name: str = "tiny",
    *,
    target: str | None = None,
    drafter: str | None = None,
    second_drafter: str | None = None,
    draft_model: str | None = None,
    dtype: str | None = None,
) -> ModelSet:
    """Returns the model set ``name``. A part that is given (a folder or hub id) replaces the set's own part.

    name: a preset, or a folder with ``target/`` (or a text file ``target`` with a path or hub id) and optionally ``dflash/``,
        ``vp/``, ``draft/`` and ``eagle3/``. Not used if ``target`` is given.
    drafter: becomes ``first`` or ``eagle3``, depending on its config.

    Raises ``InputError`` if there is no such set or dtype, or if the drafter's config is wrong.
    """
    if dtype:
        check_choice("dtype", dtype, DTYPE_NAMES)
    models = _named(name) if target is None else ModelSet(short_name(target), target)
    given: dict[str, Any] = {"second": second_drafter, "draft_model": draft_model, "dtype": dtype}
    if drafter is not None:
        given["eagle3" if drafter_kind(drafter) == "eagle3" else "first"] = drafter
    return replace(models, **{part: value for part, value in given.items() if value is not None})


def check_models(models: ModelSet, *configs: DecodeConfig, device: str | None = None) -> None:
    """Raises ``InputError`` for faults that can be found without loading models. Only for hub ids, torch is imported.

    These are unsupported devices, missing folders, targets without a readable ``config.json``, and drafters with a wrong one.

    configs: settings of generations. It is a fault if the models cannot run with one of them, or lack the chat template that it needs.
    device: as for ``d2sd.load``.
    """
    if device is not None:
        check_device(device)
    target = target_folder(models.target)
    for folder in (target, target_folder(models.draft_model or target)):
        if Path(folder).is_dir():
            with named_errors(folder, "target"):
                published_config(folder)
    for part in ("second", "eagle3", "first"):
        if (source := getattr(models, part)) and check_role(part, source) == "eagle3" != part:
            models = replace(models, first=None, eagle3=source)
    for config in configs:
        if reason := obstacle(models, config.method):
            raise InputError(reason)
        if longest := longest_block(models, config.method, trained_block_size):
            config.for_drafter(longest)
        if config.chat:
            check_template(target, short_name(target))


def check_role(part: str, source: str) -> str:
    """Returns the kind of a drafter, as ``drafter_kind``. Raises ``InputError`` if it cannot be this part of a ``ModelSet``."""
    kind = drafter_kind(source)
    if part == "second" and kind == "eagle3":
        raise InputError(
            f"{source} is an EAGLE-3 drafter, which drafts alone; only block drafters can be the second drafter"
        )
    if part == "eagle3" != kind:
        raise InputError(f"{source} holds no EAGLE-3 drafter; give a block drafter with --drafter")
    return kind


def longest_block(models: Any, method: str, block_size: Callable[[Any], int]) -> int | None:
    """Returns the maximum γ of a method, which is also the default; None if the method drafts no blocks.

    models, method: as for ``obstacle``.
    block_size: function that returns the trained γ of a block drafter.
    """
    wanted = METHODS[method]
    if wanted.draft_model:
        return MODEL_CHAIN
    used = (wanted.first_drafter and models.first, wanted.second_drafter == "vp" and models.second)
    return min((block_size(drafter) for drafter in used if drafter), default=None)


def obstacle(models: Any, method: str) -> str | None:
    """Returns the reason why models cannot run a method, as a sentence; None if they can.

    models: a ``ModelSet``, or the loaded ``Models``.
    method: id of the method.
    """
    wanted = METHODS[method]
    needs = (
        (wanted.draft_model, models.draft_model, "a draft model", "--draft-model", "another method"),
        (wanted.eagle3, models.eagle3, "an EAGLE-3 drafter", "--drafter", "another method"),
        (wanted.first_drafter, models.first, "a drafter", "--drafter", "method autoregressive"),
        (wanted.second_drafter == "vp", models.second, "a VP-Drafter", "--second-drafter", "method dflash_twice"),
    )
    for needed, there, what, option, instead in needs:
        if needed and there is None:
            if what == "a drafter" and models.eagle3 is not None:
                return f"method {method!r} needs a block drafter, but the drafter of {models.name} is an EAGLE-3 drafter; use method eagle3"
            return (
                f"method {method!r} needs {what}, which {models.name} does not have; load models that have one (or add one on the "
                f"command line with {option}), or use {instead}"
            )
    return None


def _named(name: str) -> ModelSet:
    bundled = name.isidentifier() and (BUNDLED / name).is_dir()
    folder = BUNDLED / name if bundled else Path(name)
    if not name.strip() or not folder.is_dir():
        raise InputError(
            f"unknown model {name!r}; choose a bundled one ({', '.join(presets()) or 'none here'}) or give a folder"
        )
    target = _target_of(folder) or (str(downloaded(name) or name) if bundled else None)
    if target is None:
        raise InputError(f"{folder} has no target/ folder; it needs target/, dflash/ and, for the method d2sd, vp/")
    parts = {part: str(folder / place) for part, place in FOLDERS.items() if (folder / place).is_dir()}
    return ModelSet(name if bundled else short_name(name), target, **parts, source="bundled" if bundled else "user")


def _target_of(folder: Path) -> str | None:
    """Returns the target of a set: its folder ``target/``, or the path or hub id in its file ``target``; None if it has neither.

    Raises ``InputError`` if the file names a path that does not exist.
    """
    place = folder / "target"
    if not place.is_file():
        return str(place) if place.is_dir() else None
    with place.open(encoding="utf-8-sig", errors="replace") as file:
        source = file.readline(4096).strip()
    if not source or (folder / source).exists():
        return str(folder / source) if source else None
    try:
        check_place(source)
    except InputError as error:
        raise InputError(f"{place} names the target {source}, but {error}; write its path or hub id into this file") from None  # fmt: skip
    return source


def named_from(out: Path, target: str | Path) -> str:
    """Returns how the file ``target`` in the folder ``out`` names a target, so that the folder can be moved.

    The name is relative to ``out`` if the target lies in ``out`` or beside it. Other paths are absolute. A hub id or a name is
    unchanged.
    """
    if not Path(target).exists():
        return str(target)
    path, out = Path(target).resolve(), out.resolve()
    near = out in path.parents or out.parent == path.parent
    return (Path(os.path.relpath(path, out)) if near else path).as_posix()


def target_folder(source: str) -> str:
    """Returns the folder of a target that is given as a preset or a name in ``d2sd get``. Any other source is returned unchanged.

    Raises ``InputError`` if the target has not been downloaded, or if the source is a path that does not exist.
    """
    if Path(source).exists():
        return source
    if source in REMOTE:
        if (folder := downloaded(source)) is None:
            raise InputError(f"the target {source} is not downloaded yet; get it with: d2sd get {source}")
        return str(folder)
    if source in presets():
        return _named(source).target
    with named_errors(source, "target"):
        check_place(source)
    return source


def short_name(source: str) -> str:
    """Returns a name for traces, without private paths: a hub id, the last two parts of a folder's path, or a file's name."""
    path = Path(source)
    if path.is_file():
        return path.name
    return "/".join(path.resolve().parts[-2:]) if path.is_dir() else source
