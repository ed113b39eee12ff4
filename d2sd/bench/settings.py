"""Settings to compare: methods with overrides, written like ``d2sd:K=8:gamma=8``, sweeps over a field, grids and baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from d2sd.config import PLAIN_BACKENDS, SETTINGS, DecodeConfig, check_choice
from d2sd.errors import InputError, require
from d2sd.methods import METHODS
from d2sd.methods.base import TREE_SETTINGS

if TYPE_CHECKING:  # imports torch
    from d2sd.engine import Engine

FIELDS = tuple(name for name in SETTINGS if name in TREE_SETTINGS or name == "backend")
NAMES = {name: SETTINGS[name].symbol for name in FIELDS if SETTINGS[name].symbol}
SYMBOLS = {symbol: name for name, symbol in NAMES.items()}
SYNTAX = (
    "a method, optionally with values of fields, for example d2sd:K=8:gamma=8. Fields: "
    + ", ".join(f"{NAMES[f]} ({f})" if f in NAMES else f for f in FIELDS)
    + "."
)
BASELINES = {
    "generate": "transformers' generate, plain greedy decoding",
    "assistant": "transformers' generate with the draft model as assistant_model, and default settings",
    "assistant_chain": "like assistant, but drafts as many tokens as the method draft_model, even if the draft model is unsure",
    "dflash": "transformers' DFlash speculation with the first drafter's weights",
}
GAMMAS, BRANCHES = (2, 5, 16), (1, 4, 8)  # of ``grid``
DEFAULT_MARGIN = 0.25
MARGIN_REASON = (
    "the margin is in standard deviations of all logits at a token's position. Rounding changes the last hidden state by "
    "a few per cent, so each logit changes by a few per cent of this standard deviation"
)


class BenchSetting(NamedTuple):
    """A method with its settings.

    label: the method and the changed settings, as they are written on the command line.
    config: all settings.
    """

    label: str
    config: DecodeConfig


def uses(method: str) -> frozenset[str]:
    """Returns the fields of ``FIELDS`` that affect this method. The attention backend affects only methods that verify trees."""
    settings = METHODS[method].settings
    return settings | {"backend"} if settings else settings


def parse_settings(methods: str, sweeps: Sequence[str], base: DecodeConfig) -> list[BenchSetting]:
    """Returns the settings that the command line asks for, without duplicates.

    methods: "all", or a comma-separated list of methods with their settings, such as ``d2sd:K=8:gamma=8``.
    sweeps: texts of the form ``field=value,value,…``. The values apply to each method that uses the field and does not set it.
    base: the settings that are not given.

    Raises ``InputError`` if a text cannot be read.
    """
    entries = list(METHODS) if methods == "all" else [m.strip() for m in methods.split(",")]
    swept = {}
    for sweep in sweeps:
        name, _, values = sweep.partition("=")
        field = _field(name, sweep)
        swept[field] = [_value(field, v.strip()) for v in values.split(",")]
    settings = {}
    for entry in entries:
        method, *pairs = entry.split(":")
        config = replace(base, method=method)
        explicit = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            field = _field(name, entry)
            require(field in uses(method), f"method {method!r} does not use {name}; leave it out of {entry!r}")
            explicit[field] = _value(field, value)
        free = {f: v for f, v in swept.items() if f in uses(method) and f not in explicit}
        for chosen in product(*free.values()):
            setting = make_setting(config, {**explicit, **dict(zip(free, chosen, strict=True))})
            settings[setting.label] = setting
    return list(settings.values())


def make_setting(base: DecodeConfig, overrides: dict[str, object]) -> BenchSetting:
    """Returns the base settings with some fields replaced. The label names the method and the replaced fields."""
    written = {f: str(v).lower() if isinstance(v, bool) else str(v) for f, v in overrides.items()}
    parts = [base.method, *(f"{NAMES.get(f, f)}={written[f]}" for f in FIELDS if f in written)]
    return BenchSetting(":".join(parts), replace(base, **overrides))  # type: ignore[arg-type]


def _field(name: str, where: str) -> str:
    field = SYMBOLS.get(name.strip(), name.strip())
    require(field in FIELDS, f"cannot read {where!r}: {name.strip()!r} is not one of {', '.join((*SYMBOLS, *FIELDS))}")
    return field


def _value(field: str, text: str) -> object:
    kind = SETTINGS[field].kind
    if kind == "choice":
        return text
    try:
        return {"true": True, "false": False}[text] if kind == "flag" else int(text)
    except (KeyError, ValueError):
        form = "true or false" if kind == "flag" else "a whole number"
        raise InputError(f"{NAMES.get(field, field)} must be {form}, not {text!r}") from None


def runnable(
    engine: Engine, settings: Sequence[BenchSetting], lenient: bool
) -> tuple[list[BenchSetting], dict[str, str]]:
    """Returns the settings that can run with the engine's models, resolved, and the reasons why others cannot, by label.

    lenient: whether settings that cannot run are left out.

    Raises ``InputError`` if no setting can run, or if one cannot run and ``lenient`` is false.
    """
    resolved, left_out = [], {}
    for setting in settings:
        try:
            resolved.append(setting._replace(config=engine.resolve(setting.config)))
        except InputError as error:
            if not lenient:
                raise
            left_out[setting.label] = str(error)
    if not resolved:
        raise InputError(next(iter(left_out.values())))
    return resolved, left_out


def parse_baselines(names: str) -> list[str]:
    """Returns the names of the baselines in a comma-separated list, or of all of them for "all". Raises ``InputError`` for others."""
    chosen = list(BASELINES) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        check_choice("baseline", name, BASELINES)
    return chosen


def grid(
    methods: Sequence[str], gammas: Sequence[int], branches: Sequence[int], base: DecodeConfig
) -> list[BenchSetting]:
    """Returns all combinations of method, γ, K and backend with K < γ. If a method does not use γ, K or backends, they do not vary.

    methods: ids of methods, without overrides.
    base: the other settings.

    Raises ``InputError`` for a method with overrides.
    """
    for method in methods:
        name, *fields = method.split(":")
        if fields:
            raise InputError(f"--check-lossless varies γ and K itself; write {name} and give --gamma and --branches")
    settings: dict[str, BenchSetting] = {}
    for config, gamma, backend in product([replace(base, method=m) for m in methods], gammas, PLAIN_BACKENDS):
        used = uses(config.method)
        for k in (k for k in branches if k < gamma) if "num_branches" in used else (0,):
            values: dict[str, object] = {"block_size": gamma, "backend": backend, "num_branches": k}
            setting = make_setting(config, {field: value for field, value in values.items() if field in used})
            settings.setdefault(setting.label, setting)
    return list(settings.values())
