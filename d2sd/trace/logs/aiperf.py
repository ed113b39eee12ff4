"""NVIDIA AIPerf's record of a request, the same for every engine: by itself, or as ``spec_decode_acceptance`` of a record.

Fields: github.com/ai-dynamo/aiperf, src/aiperf/common/models/spec_decode_models.py.
"""

from __future__ import annotations

from typing import Any

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.counts import Counts
from d2sd.trace.logs.rows import convert
from d2sd.trace.logs.vllm import Stats, counts

INNER = "spec_decode_acceptance"


class Acceptance(Stats, kw_only=True):
    """vLLM's figures, with the engine and the length of the output; the histogram is sparse."""

    engine: str
    completion_tokens: Count | None = None


def fits(record: dict[str, Any]) -> bool:
    """Whether a record is AIPerf's."""
    return INNER in record or ("engine" in record and "acceptance_histogram" in record)


def read(record: dict[str, Any], where: str) -> Counts:
    """The counts of one record."""
    inside = INNER in record
    place = f"{where}: {INNER}" if inside else f"{where}: record"
    data = record[INNER] if inside else record
    if data is None:
        raise InputError(f"{place}: it is null, so the server reported nothing for this request")
    found = convert(data, Acceptance, place)
    return counts(found.engine[:100], found, place, {"completion": found.completion_tokens})
