"""The settings of recorded runs, and whether a run can be replayed."""

from __future__ import annotations

from dataclasses import replace

from d2sd.config import DecodeConfig
from d2sd.errors import InputError
from d2sd.trace.trace import Trace


def recorded_config(trace: Trace) -> DecodeConfig:
    """Returns the settings of a recorded run, but without inspection and with the default backend, so that any machine can replay it.

    Fields that ``DecodeConfig`` does not have are dropped. Raises ``InputError`` if a value is invalid.
    """
    fields = {k: v for k, v in trace.header["config"].items() if k in DecodeConfig.__dataclass_fields__}
    try:
        return replace(DecodeConfig(**fields), inspect=False, backend="auto")
    except (TypeError, ValueError) as error:
        raise InputError(f"the trace's settings cannot be read: {error}") from None


def check_replayable(trace: Trace) -> None:
    """Raises ``InputError`` if a run cannot be replayed with any models."""
    if recorded_config(trace).temperature != 0:
        raise InputError("a replay needs a run at temperature 0, where the text is the same for all settings")
    if missing := {"prompt", "tokens", "target"}.intersection(trace.missing):
        raise InputError(
            f"this log is incomplete (missing: {', '.join(sorted(missing))}), so it cannot be replayed; vLLM returns all tokens "
            'with "return_token_ids": true'
        )
