"""SGLang's figures of a request (``return_spec_tokens_details``): ``sglext.spec_tokens_details`` of a reply, or ``meta_info``
of its own interface, also as older versions name them. A histogram without an order: how many drafted tokens were right in how many steps.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.requests import Counts, check_mean
from d2sd.trace.logs.reply import read_reply
from d2sd.trace.logs.records import convert
from d2sd.trace.schema import MAX_ITEMS

ENGINE = "sglang"
OPTION = '"return_spec_tokens_details": true'


class Details(Struct):
    """The figures; ``correct`` counts drafted tokens alone, the bonus token is no part of them."""

    spec_num_correct_drafts: Count
    spec_num_proposed_drafts: Count
    spec_verify_ct: Count
    spec_correct_drafts_histogram: Annotated[list[Count], Meta(max_length=MAX_ITEMS)] | None = None
    spec_accept_rate: Annotated[float, Meta(ge=0)] | None = None


class Lengths(Struct):
    """Of ``meta_info``, what a request's length and time are."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    e2e_latency: Annotated[float, Meta(ge=0)] | None = None


def fits(record: dict[str, Any]) -> bool:
    """Whether a record is a reply of SGLang."""
    return "sglext" in record or _meta(record) is not None


def read(record: dict[str, Any], where: str) -> Counts:
    """The counts of one reply."""
    extra, said = record.get("sglext"), read_reply(record, where)
    details = extra.get("spec_tokens_details") if isinstance(extra, dict) else None
    place = f"{where}: sglext.spec_tokens_details"
    if details is None and (found := _meta(record)):
        place, details = f"{where}: {found[0]}", found[1]
        meta = convert(details, Lengths, place)
        said["completion"] = said["completion"] if said["completion"] is not None else meta.completion_tokens
        said["prompt_tokens"] = said["prompt_tokens"] if said["prompt_tokens"] is not None else meta.prompt_tokens
        said["seconds"] = meta.e2e_latency
    if details is None:
        raise InputError(f"{place}: nothing is there; send {OPTION} with the request")
    stats = convert(_renamed(details), Details, place)
    correct, proposed = stats.spec_num_correct_drafts, stats.spec_num_proposed_drafts
    check_mean(stats.spec_accept_rate, correct / proposed if proposed else None, f"{place}.spec_accept_rate")
    steps, histogram = stats.spec_verify_ct, stats.spec_correct_drafts_histogram
    longest = proposed // steps if steps and proposed % steps == 0 else None
    return Counts(
        ENGINE,
        place,
        steps,
        correct,
        proposed,
        None if histogram is None else tuple(histogram),
        longest=longest,
        **said,
    )


OLDER = {"spec_accept_token_num": "spec_num_correct_drafts", "spec_draft_token_num": "spec_num_proposed_drafts",
         "spec_accepted_tokens": "spec_num_correct_drafts", "spec_accept_histogram": "spec_correct_drafts_histogram"}  # fmt: skip


def _renamed(details: dict[str, Any]) -> dict[str, Any]:
    """Figures by their names of today; versions up to 0.5.9 had others."""
    renamed = {new: details[old] for old, new in OLDER.items() if old in details and new not in details}
    return {**details, **renamed}


def _meta(record: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The ``meta_info`` with figures of speculative decoding, of the reply or of its only choice."""
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    for place, holder in (("meta_info", record), ("choices[0].meta_info", first)):
        meta = holder.get("meta_info") if isinstance(holder, dict) else None
        if isinstance(meta, dict) and "spec_verify_ct" in meta:
            return place, meta
    return None
