"""Calls between transformers and this package: argument names that changed, and refusal of unknown arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from d2sd.errors import InputError

CACHE_NAMES = ("cache", "cache_params", "past_key_values")  # ``cache`` since transformers 5.24
# Arguments that models pass to all their layers and that do not affect the results. Dropout is zero at inference.
NEUTRAL = frozenset({"dropout", "position_ids", "use_cache", "output_hidden_states", "output_router_logits"})


def cache_argument(forward: Callable[..., Any]) -> str:
    """Returns the name of the cache argument of a transformers ``forward``. Raises ``InputError`` if it has none with a known name."""
    names = inspect.signature(forward).parameters
    if name := next((name for name in CACHE_NAMES if name in names), None):
        return name
    raise InputError(
        f"layers of transformers {version('transformers')} have no cache argument with a known name; {older_version()}"
    )


def refuse_unknown(function: str, arguments: Mapping[str, Any]) -> None:
    """Raises ``InputError`` if transformers passes unknown arguments to one of our functions, except those in ``NEUTRAL``.

    function: description of our function, for the message.
    arguments: the keyword arguments that our function does not use.
    """
    if unknown := sorted(arguments.keys() - NEUTRAL):
        raise InputError(
            f"transformers {version('transformers')} calls {function} with {', '.join(unknown)}, which this version of "
            f"d2sd-explorer does not know; {older_version()}"
        )


def older_version() -> str:
    """Returns the advice to install an older transformers, as the end of a sentence."""
    return f"install transformers<{version('transformers')}"
