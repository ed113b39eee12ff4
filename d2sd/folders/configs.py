"""Reads the configs of model folders and hub ids. Of folders, without importing transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from d2sd.errors import InputError, first_line, require
from d2sd.folders.store import check_place, hub_answers
from d2sd.nets.config_checks import require_template
from d2sd.nets.layouts import Form, is_eagle3, read_eagle3, read_form

TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file of a model folder. Raises ``InputError`` if the file is missing or holds anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"it has no {path.name}") from None
    except OSError as error:
        raise InputError(f"its {path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"its {path.name} is not valid JSON ({first_line(error)})") from None
    require(isinstance(value, dict), f"its {path.name} is not a JSON object")
    return dict(value)


def published_config(source: str, **options: Any) -> dict[str, Any]:
    """Returns the content of ``config.json`` of a folder or hub id. Raises ``InputError`` if it is missing or not a JSON object.

    options: arguments of transformers' ``get_config_dict``, such as ``gguf_file``.
    """
    check_place(source)
    local = Path(source).exists()
    if local and not options:
        return read_object(Path(source, "config.json"))
    from transformers import PreTrainedConfig  # imports torch

    from_cache = not local and not hub_answers()
    config: Any = PreTrainedConfig.get_config_dict(source, local_files_only=from_cache, **options)[0]
    require(isinstance(config, dict), "its config.json is not a JSON object")
    return dict(config)


def check_template(source: str, name: str) -> None:
    """Raises ``InputError`` if a target's folder has no chat template. Hub ids and GGUF files are not checked.

    name: the target's name, for the error message.
    """
    if any(Path(source, place).exists() for place in TEMPLATES):
        return
    try:
        tokenizer = read_object(Path(source, "tokenizer_config.json"))
    except InputError:  # not a folder, or its tokenizer cannot be loaded
        return
    require_template(tokenizer.get("chat_template"), name)


def check_reachable(*drafters: str | None) -> None:
    """Raises ``InputError`` if a drafter is neither a folder nor a hub id that can be read."""
    for drafter in filter(None, drafters):
        with named_errors(drafter):
            if not Path(drafter).is_dir():
                published_config(drafter)


def drafter_form(source: str, target: Any = None) -> Form:
    """Returns a drafter's kind, sizes and settings, read from its config.

    source: folder or hub id of the drafter.
    target: the target's text config, which is needed for an EAGLE-3 drafter. None: an EAGLE-3 drafter is refused.

    Raises ``InputError`` if the config is wrong, incomplete or unsupported.
    """
    raw = published_config(source)
    return read_form(raw) if target is None or not is_eagle3(raw) else read_eagle3(raw, target.num_hidden_layers)


def trained_block_size(source: str) -> int:
    """Returns γ of a block drafter, as trained. source, errors: as for ``drafter_form``."""
    return read_form(published_config(source)).block_size


@contextmanager
def named_errors(source: str, part: str = "drafter") -> Iterator[None]:
    """Context in which any exception becomes an ``InputError`` that names the model. part: "drafter" or "target"."""
    try:
        yield
    except Exception as error:
        raise InputError(f"cannot load the {part} {source}: {first_line(error, 600)}") from error


def drafter_kind(source: str) -> Literal["first", "second", "eagle3"]:
    """Returns the kind of the drafter in a folder or hub id: a first or second block drafter, or EAGLE-3.

    Raises ``InputError`` if its config is wrong, incomplete or unsupported. What depends on the target is not checked.
    """
    with named_errors(source):
        config = published_config(source)
        if is_eagle3(config):
            return "eagle3"
        return "second" if read_form(config).second_role else "first"
