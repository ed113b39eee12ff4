"""Links that restore the page: prompt, models, settings, step and node as query parameters.

A query string is untrusted. Every value is checked; invalid values are ignored, and a sentence names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlencode

from app import models
from app.settings import SETTINGS, read_setting, used_by
from d2sd import METHODS, DecodeConfig, InputError
from d2sd.config import Setting
from d2sd.errors import require

MAX_PROMPT = 20_000
MAX_LINK = 8000  # characters of a query; longer links may be truncated in transit
# Fields of links that define a run, and fields that select a place in a run. assets/viewer/constants.js has the same lists.
RUN_FIELDS = ("prompt", "model", "method", *(s.name for s in SETTINGS))
PLACE_FIELDS = (
    "tab",
    "run",
    "step",
    "node",
    "stage",
    "present",
    "chapter",
    "stop",
    "quiz",
    "draft",
    "beat",
    "play",
    "embed",
    "theme",
)
FLAGS = {"true": True, "false": False}
# Stricter than int(), which also accepts non-ASCII digits, spaces and underscores.
NUMBERS = {"whole": re.compile(r"-?[0-9]{1,19}"), "real": re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,18})?")}


@dataclass(frozen=True, slots=True)
class Link:
    """The content of a link.

    values: values of controls by name: ``prompt``, ``model``, ``method`` or a setting.
    selection: the place to select: ``step``, counted from 0, and ``node``. Its ``text`` is a hash of the original run's text,
        which the page compares with the text of the shown run. None if the link has no step.
    ignored: the invalid values, each with the reason.
    of_run: whether the link was made from a run or race. A setting that such a link lacks was not set.
    """

    values: dict[str, Any] = field(default_factory=dict)
    selection: dict[str, int | str | None] | None = None
    ignored: tuple[str, ...] = ()
    of_run: bool = False

    @property
    def sentence(self) -> str:
        """A sentence about the ignored values; empty if there are none."""
        return f"Some values of this link could not be used: {'; '.join(self.ignored)}." if self.ignored else ""

    @property
    def sampling_note(self) -> str:
        """A warning that a new run of this link may give a different text; empty at temperature 0."""
        temperature = self.values.get("temperature", 0)
        return f"The text is sampled at temperature {temperature:g}: a new run may differ." if temperature else ""

    def fits(self, header: Mapping[str, Any]) -> bool:
        if not header or not self.values:
            return False
        defaults = {s.name: s.default for s in SETTINGS}  # older recordings lack newer settings
        run = {**defaults, **header["config"], "prompt": header["prompt"], "model": header["models"].get("preset")}
        method = self.values.get("method", DecodeConfig().method)
        requested = {k: v for k, v in defaults.items() if k in used_by(method)} | {"method": method} | self.values
        # the engine chose the settings whose value is None
        return all(run.get(name) == value for name, value in requested.items() if value is not None)


def read_link(query: Mapping[str, str]) -> Link:
    """Returns the link in a query string. Unknown names are ignored."""
    ignored = []

    def take(name: str, parse: Callable[[str], Any]) -> Any:
        if name not in query:
            return None
        try:
            return parse(query[name])
        except InputError as error:
            ignored.append(f"{name} ({error})")
            return None

    parsers = {"prompt": _prompt, "model": _model, "method": _method}
    parsers |= {s.name: partial(_setting, s) for s in SETTINGS}
    values = {name: value for name, parse in parsers.items() if (value := take(name, parse)) is not None}
    if "model" in values and "chat" not in query:
        values["chat"] = models.templated(values["model"])
    step = take("step", lambda text: _at_least(1, text) - 1)
    node = take("node", lambda text: text if text == "bonus" else _at_least(0, text))
    selection = None if step is None else {"step": step, "node": node, "text": query.get("text", "")[:20]}
    return Link(values, selection, tuple(ignored), of_run="method" in values or "methods" in query)


def query_fields(header: Mapping[str, Any]) -> dict[str, str]:
    """Returns the query fields that repeat a recorded run: the prompt, models and settings in the run's header."""
    model, method = header["models"].get("preset"), header["method"]
    values = {**header["config"], "prompt": header["prompt"], "model": model, "method": method}
    return {name: _written(values[name]) for name in RUN_FIELDS if values.get(name) is not None}


def query(fields: Mapping[str, str]) -> str:
    """Returns the query string of these fields; empty if it is too long."""
    text = urlencode(fields)
    return text if len(text) <= MAX_LINK else ""


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def check_length(prompt: str) -> None:
    """Raise ``InputError`` if a prompt is longer than ``MAX_PROMPT`` characters."""
    require(
        len(prompt) <= MAX_PROMPT, f"the prompt has {len(prompt)} characters; the page accepts at most {MAX_PROMPT}"
    )


def _prompt(text: str) -> str:
    require(text.strip() and len(text) <= MAX_PROMPT, f"it must have 1 to {MAX_PROMPT} characters")
    return text


def _model(text: str) -> str:
    offered = models.offered()
    require(text in offered, "these models are not offered here")
    if reason := offered[text].obstacle:
        raise InputError(reason)
    return text


def _method(text: str) -> str:
    require(text in METHODS, "unknown method")
    return text


def _setting(setting: Setting, text: str) -> Any:
    if setting.kind == "flag":
        require(text in FLAGS, "it must be true or false")
        return FLAGS[text]
    if setting.kind == "choice":
        return read_setting(setting, text)
    real = setting.kind == "real"
    require(NUMBERS[setting.kind].fullmatch(text), f"it must be a {'' if real else 'whole '}number")
    value = read_setting(setting, float(text) if real else int(text))
    DecodeConfig(**{setting.name: value})
    return value


def _at_least(least: int, text: str) -> int:
    require(
        NUMBERS["whole"].fullmatch(text) and least <= int(text) < 10**9, f"it must be a whole number, at least {least}"
    )
    return int(text)
