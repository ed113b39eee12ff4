"""Reads servers' logs: sentences about each source, comparisons of sources, and the report as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from d2sd.calibration.sentences import percent
from d2sd.doctor.log_cases import TRIES
from d2sd.doctor.log_profiles import AcceptanceProfile, profiles_of
from d2sd.doctor.log_reading import (
    FALL,
    NO_ALPHA,
    NO_DRAFTED,
    RATE,
    Reading,
    engine_of,
    milliseconds,
    read_profile,
    with_requests,
)
from d2sd.trace.logs import LogTotals
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

ONCE = (NO_ALPHA, NO_DRAFTED, RATE)  # sentences that are not repeated for every source
WHAT_TO_TRY = "Things to try, with public cases. The profile alone does not show the cause:"


def read_log(found: Iterable[Trace | LogTotals]) -> list[Reading]:
    """Returns a reading for each engine, model and setting in a server's log. Raises ``InputError`` for a log without figures."""
    return read_profiles(profiles_of(found))


def read_profiles(profiles: Sequence[AcceptanceProfile]) -> list[Reading]:
    """Returns a reading of each profile, with comparisons of several profiles."""
    readings = [read_profile(profile) for profile in profiles]
    for sentence, names, at in (*_unequal_engines(profiles), *_with_and_without(profiles)):
        one = readings[at]
        tries = dict.fromkeys((*one.tries, *(TRIES[name] for name in names)))
        readings[at] = replace(
            one, sentences=(*one.sentences, sentence), named=one.named or bool(names), tries=tuple(tries)
        )
    return readings


def _unequal_engines(profiles: Sequence[AcceptanceProfile]) -> Iterator[tuple[str, Sequence[str], int]]:
    """Compares engines that serve one model side by side. Yields (sentence, keys of ``TRIES``, index of the profile)."""
    for at, p in enumerate(profiles):
        same = [
            q for q in profiles if q.replica is not None and (q.unit, q.engine, q.model) == (p.unit, p.engine, p.model)
        ]
        best = max(same, key=lambda q: q.alpha or 0.0, default=p)
        # only if every engine has a single profile; otherwise the profiles differ in another setting too
        single = len({q.replica for q in same}) == len(same)
        if p.replica is not None and single and p.alpha and best.alpha and p.alpha - 1 < FALL * (best.alpha - 1):
            yield (
                f"{engine_of(p).capitalize()} accepts far fewer tokens than {engine_of(best)} of the same model: α {p.alpha:.2f} compared with "
                f"{best.alpha:.2f}.",
                ("replica",),
                at,
            )


def _with_and_without(profiles: Sequence[AcceptanceProfile]) -> Iterator[tuple[str, Sequence[str], int]]:
    """Compares sources with drafts and sources without, under the same load. Yields tuples like ``_unequal_engines``."""
    for at, p in enumerate(profiles):
        for q in profiles:
            same_model = q.model == p.model or None in (p.model, q.model)
            if (
                q.drafts
                or not p.drafts
                or q.unit != p.unit
                or not same_model
                or (q.at_once or 1) != (p.at_once or 1)
                or not p.step_seconds
            ):
                continue
            if p.token_seconds and q.token_seconds:
                times = q.token_seconds / p.token_seconds
                same = (
                    "the requests were alike in text and length"
                    if p.unit == "request"
                    else "machine, model and prompts were the same"
                )
                result = f"is {times:.2f} times as fast" if times >= 1 else f"takes {1 / times:.2f} times as long"
                begin = f"W{with_requests(q)[2:]}, a token" if q.at_once else "A token"
                yield (
                    f"{begin} takes {milliseconds(p.token_seconds)} with drafts and {milliseconds(q.token_seconds)} without: drafting {result}. "
                    f"A step costs as much as {p.step_seconds / q.token_seconds:.2f} plain steps and commits {p.step_seconds / p.token_seconds:.2f} tokens. "
                    f"This comparison is valid only if {same}.",
                    (),
                    at,
                )


COLUMNS = ("log", "drafted", "α", "position 1", "step", "token", "tokens/s", "at once")


def side_by_side(readings: Sequence[Reading]) -> list[tuple[str, ...]]:
    """Returns a table of the sources, with the column names as first row; empty if there is only one source."""
    rows = [
        (
            ", ".join([f"{escaped(p.log)}: {p.engine}" if p.log else p.engine, *(escaped(name) for name in (p.model, p.drafter) if name)])
            + (f", {engine_of(p)}" if p.replica is not None else ""),
            "–" if p.drafted is None else f"{p.drafted:.3g}",
            "–" if p.alpha is None else f"{p.alpha:.2f}",
            percent(p.by_position[0]) if p.by_position else "–",
            milliseconds(p.step_seconds) if p.step_seconds else "–",
            milliseconds(p.token_seconds) if p.token_seconds else "–",
            f"{p.tokens_per_second:.4g}" if p.tokens_per_second else "–",
            "–" if p.at_once is None else str(p.at_once),
        )
        for p in (reading.profile for reading in readings)
    ]  # fmt: skip
    return [COLUMNS, *rows] if len(rows) > 1 else []


def report_lines(readings: Sequence[Reading]) -> Iterator[str]:
    """Yields the readings as lines of text. Things to try are listed at the end, each only once."""
    for number, reading in enumerate(readings):
        before = {sentence for earlier in readings[:number] for sentence in earlier.sentences}
        yield from (sentence for sentence in reading.sentences if sentence not in ONCE or sentence not in before)
        yield ""
    if table := side_by_side(readings):
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = (
                f"{cell:<{width}}" if not n else f"{cell:>{width}}"
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            yield "  ".join(cells).rstrip()
        yield ""
    if tries := dict.fromkeys(one for reading in readings for one in reading.tries):
        yield WHAT_TO_TRY
        yield from (f"* {one}" for one in tries)
