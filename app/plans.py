"""A summary of the chosen models before they are loaded, from their configs alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import d2sd
from app import models
from app.pairs import is_folder, pairs
from app.visitors import public, without_paths
from d2sd.folders.plan import plan, summary


def planned(model: str, folder: str) -> str:
    """Returns a one-line summary of chosen models that are not bundled; empty if nothing is known yet.

    model: the choice; folder: what was written for one's own models.
    """
    if model in d2sd.presets():
        return ""
    if model == models.FOLDER:
        own = Path(folder.strip()).expanduser()
        if public() or not folder.strip() or not (own / "target" / "config.json").is_file():
            return ""
        drafter = next((part for part in ("dflash", "eagle3") if (own / part / "config.json").is_file()), None)
        return _said(str(own / "target"), "" if drafter is None else str(own / drafter), "bfloat16")
    pair = pairs().get(model)
    if pair is None or pair.fault or not all(map(_readable, (pair.target, pair.drafter or pair.eagle3))):
        return ""
    return _said(pair.target, pair.drafter or pair.eagle3, pair.dtype)


def _readable(source: str) -> bool:
    """Returns whether the config is available without the network."""
    return is_folder(source) or models.config_cached(source)


@lru_cache(32)
def _said(target: str, drafter: str, dtype: str) -> str:
    return without_paths(summary(plan(target, drafter or None, dtype)))
