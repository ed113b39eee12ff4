"""Settings and outcomes of recorded runs and of replays, without models."""

from __future__ import annotations

from dataclasses import dataclass, replace

from d2sd.calibration.replays import Steps
from d2sd.config import DecodeConfig
from d2sd.costs.runs import works_of
from d2sd.errors import InputError, require
from d2sd.trace.metrics import Work, boundary_hit
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
    require(
        recorded_config(trace).temperature == 0,
        "a replay needs a run at temperature 0, where the text is the same for all settings",
    )
    if missing := {"prompt", "tokens", "target"}.intersection(trace.missing):
        raise InputError(
            f"this log is incomplete (missing: {', '.join(sorted(missing))}), so it cannot be replayed; vLLM returns all tokens "
            'with "return_token_ids": true'
        )


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Result of replaying a recorded text with one setting.

    config: the setting.
    committed: number of committed tokens of each step.
    works: numbers of rows in the passes of each step; ``d2sd.costs.machines`` calculates times from them.
    hits: for each step that selected prefixes and whose first draft was rejected at a known boundary, whether the boundary was
        selected.
    cut: whether the recorded text ended before the bonus token of the last step.
    others: number of tokens of a server's text that this target would not have chosen.
    """

    config: DecodeConfig
    committed: tuple[int, ...]
    works: tuple[Work, ...]
    hits: tuple[bool, ...]
    cut: bool = False
    others: int = 0

    @property
    def steps(self) -> Steps:
        return self.committed, self.cut


def recorded_outcome(trace: Trace) -> ReplayOutcome:
    """Returns the outcome of the recorded run itself, without a replay."""
    hits = [boundary_hit(step) for step in trace.steps]
    return ReplayOutcome(
        recorded_config(trace),
        tuple(len(step.committed) for step in trace.steps),
        tuple(works_of(trace)),
        tuple(hit for hit in hits if hit is not None),
        bool(trace.steps) and trace.steps[-1].committed[-1].proposer != "target",
    )
