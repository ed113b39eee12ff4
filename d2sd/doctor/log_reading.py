"""Sentences about the figures of one source of a server's log, and things to try.

Acceptance by position is the most detailed figure of a log, but many causes lead to the same values. A profile is reported as unusual
only if chance does not explain it. Possible causes are listed as things to try, with figures quoted from public cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean, geometric_mean, median, variance
from typing import Any

from d2sd.calibration.resampling import wilson
from d2sd.calibration.sentences import count, percent
from d2sd.doctor.log_cases import TRIES, published_alpha
from d2sd.doctor.log_profiles import AcceptanceProfile, Load
from d2sd.trace.text import escaped

NONE, LOW = 0.05, 0.5  # shares of steps that accept position 1: upper limits of “almost never” and “low”
MANY_DRAFTED = 6  # drafted tokens per step from which a shorter draft may be suggested
DEAD = 3  # smallest number of last positions without acceptance that is reported
FALL = 0.5  # acceptance ÷ the usual acceptance, below which a fall is reported
ENOUGH = 20  # steps or rows needed for a judgement
FEW_STEPS = 100  # number of steps below which the report warns
HALF_FULL, FULL = 0.5, 0.9  # used share of the KV cache
MANY_RUNNING = 32  # concurrent requests
LONGER = (0.5, 0.8)  # acceptance of the last position, or acceptance rate, from which a longer draft may be better
MOST_ENGINES = 1000  # larger numbers are process ids
MOST_TRIES = 5
SHORTER = 0.6  # if this share of the draft has MOST_OF_IT[0] of the accepted tokens, a shorter draft is suggested
MOST_CHAIN = 16  # if acceptance by position is unknown, more drafted tokens than this may be a tree, not a chain
MOST_OF_IT = (0.85, 0.93)  # shares of the accepted tokens
MOST_DRAFTED = 1000
WINDOWS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # attention windows of published models, in tokens

ORDINARY = "Acceptance by position looks normal."
NO_DRAFTED = "This log has neither the number of drafted tokens per step nor acceptance by position, so it is unknown whether α is low."
NO_ALPHA = "This log has neither α nor acceptance by position."
RATE = (
    "The acceptance rate of a drafter falls as γ grows, so look at α instead. In llama.cpp, official drafters had rates of 15% "
    "at an α of about 3 (llama.cpp issue 25792)."
)
WHOLE = 0.95  # acceptance rate above which almost every token is accepted
EVERY = (
    "Almost every drafted token is accepted, as in text that repeats itself or copies its prompt: look at the generated text. On other text, "
    "α is lower."
)
WHOLE_DRAFTS = (
    "For hybrid and recurrent models, whose state cannot be partly rolled back, llama.cpp's rate counts only drafts that were accepted "
    "completely. The lines “statistics” of its log count all drafts."
)
SIMPLE_LOW = ("thinking", "template", "language", "engine", "taps")


@dataclass(frozen=True, slots=True)
class Reading:
    """A profile in words.

    profile: the figures.
    named: whether the profile is unusual.
    tries: things to try, likeliest first.
    """

    profile: AcceptanceProfile
    sentences: tuple[str, ...]
    named: bool = False
    tries: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the reading for JSON."""
        return {**asdict(self), "profile": self.profile.to_dict()}


def read_profile(profile: AcceptanceProfile) -> Reading:
    p = profile
    if not p.drafts:
        full = [sentence for sentence, _ in _server(p)]
        return Reading(p, (_headline(p), *(full or _load(p))))
    found = [*_out_of_the_ordinary(p), *_falls_with_length(p)]
    sentences = [_headline(p), *_times(p), *([sentence for sentence, _ in found] or [_ordinary(p)])]
    busy = [*_server(p)]
    sentences += [sentence for sentence, _ in busy] or (_load(p) if p.load.waiting and p.load.waiting[2] else [])
    published = published_alpha(p.drafter, p.model)
    few = p.steps is not None and p.steps < FEW_STEPS and p.alpha is not None
    if not found and (p.steps is None or p.steps >= ENOUGH):
        sentences += [*_fewer(p), *_more(p)]
    if few:
        sentences.append(f"The log has only {count(p.steps or 0, 'step')}: figures may differ on other text.")
    if p.undrafted and p.tokens and p.steps:
        sentences.append(
            f"{p.undrafted} of {p.tokens} tokens come from steps without a draft, which α excludes. Including these steps, the average is "
            f"{p.tokens / (p.steps + p.undrafted):.2f} tokens per step."
        )
    if _is_whole(p):
        sentences.append(EVERY)
    if p.engine == "llama.cpp" and p.unit == "request" and (p.rate or 0.0) > WHOLE:
        sentences.append(WHOLE_DRAFTS)
    if p.alpha and p.drafted and p.alpha > 2.5 and (p.alpha - 1) / p.drafted < 0.25:
        sentences.append(RATE)
    sentences += [published] if published else []
    tries = dict.fromkeys(name for _, names in (*busy, *found) for name in names)
    if p.remote_prefill and found:
        tries = dict.fromkeys(("handover", *tries))
    named = any(name != "busy" for name in tries)  # a high load is not a fault
    return Reading(p, tuple(sentences), named, tuple(TRIES[name] for name in [*tries][:MOST_TRIES]))


def _ordinary(p: AcceptanceProfile) -> str:
    """Returns the sentence about acceptance if nothing in the profile is unusual."""
    drafted = round(p.drafted or 0)
    if p.alpha is None:
        return NO_ALPHA
    if len(p.by_position) > 1 or (p.by_position and drafted == 1):
        return ORDINARY
    if p.drafted and drafted < 1:
        return f"Few steps have a draft: {p.drafted:.2g} tokens are drafted per step on average."
    if not 1 <= drafted <= MOST_DRAFTED:
        return NO_DRAFTED
    if abs(drafted - (p.drafted or 0.0)) > 0.1:
        return (
            f"Drafts have different lengths, {p.drafted:.3g} tokens on average. This log has no acceptance by position."
        )
    return (
        f"α is {p.alpha:.2f} of at most {drafted + 1}, as if every position were accepted "
        f"{percent(_constant_rate(p.alpha - 1, drafted))} of the time. This log has no acceptance by position."
    )


def _headline(p: AcceptanceProfile) -> str:
    names = " with ".join(escaped(name) for name in (p.model, p.drafter) if name)
    log = f"{escaped(p.log)}: " if p.log else ""
    parts = [f"{log}{p.engine}" + (f", {names}" if names else "")]
    if p.replica is not None:
        parts.append(engine_of(p))
    if not p.drafts:
        parts.append("no draft statistics")
        if p.token_seconds:
            parts.append(f"a token takes {milliseconds(p.token_seconds)}{with_requests(p)}")
    if p.steps is not None:
        parts.append(count(p.steps, "step"))
    if p.drafted is not None:
        parts.append(f"{p.drafted:.3g} drafted {'token' if p.drafted == 1 else 'tokens'} per step")
    if p.alpha is not None:
        parts.append(f"α {p.alpha:.2f}")
    elif p.rate is not None:
        parts.append(f"{percent(p.rate)} of the drafted tokens accepted, steps unknown")
    if p.by_position:
        last, most = _last(p.by_position), len(p.by_position)
        shares = [f"{k}: {percent(s)}" for k, s in enumerate(p.by_position[:last], 1)]
        if last < most:
            shares.append(f"{f'{last + 1} to ' if last + 1 < most else ''}{most}: 0%")
        parts.append(f"accepted up to position {', '.join(shares)}")
    return f"{', '.join(parts)}."


def engine_of(p: AcceptanceProfile) -> str:
    """Returns the name of one of several engines, which vLLM identifies by a number or a process id."""
    return f"{'engine' if (p.replica or 0) < MOST_ENGINES else 'process'} {p.replica}"


def _last(shares: Sequence[float]) -> int:
    return max((k for k, share in enumerate(shares, 1) if share >= 0.0005), default=0)


def _out_of_the_ordinary(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields sentences about unusual acceptance, each with keys of ``TRIES``; at most one is about the profile's shape."""
    shares = p.by_position
    if not shares:
        if p.alpha is None:
            return
        if p.alpha < 1 + 2 * NONE:
            yield f"Almost nothing is accepted: α is {p.alpha:.2f}.", ("convention", "quantised drafter", "tokenizer")
        else:
            yield from _low_alpha(p)
        return
    first, upper = shares[0], _upper(shares[0], p.steps)
    if upper < 2 * NONE and first < NONE:
        yield (
            f"Position 1 is accepted in {percent(first)} of the steps: almost never. Even a weak drafter reaches more.",
            ("convention", "quantised drafter", "tokenizer"),
        )
        return
    if not p.equally_long:
        yield (
            f"Drafts have different lengths, {p.drafted:.3g} tokens on average and at most {len(shares)}. Steps with a shorter draft "
            "do not draft the last positions, so acceptance there looks lower than it is.",
            (),
        )
        return
    yield from _form(p)
    if upper < LOW:
        yield f"Position 1 is accepted in {percent(first)} of the steps, which is low.", SIMPLE_LOW
    elif len(shares) == 1:
        yield from _low_alpha(p)


def _low_alpha(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Checks whether α is low for the number of drafted tokens, if acceptance by position is unknown."""
    drafted = round(p.drafted or 0)
    if p.alpha is None or not 1 <= drafted <= MOST_DRAFTED or (p.steps is not None and p.steps < ENOUGH):
        return
    rate = _constant_rate(p.alpha - 1, drafted)
    if rate < LOW:
        yield (
            f"α is {p.alpha:.2f} of at most {drafted + 1}, as if every position were accepted {percent(rate)} of the time. This is low and "
            "limits the gain of drafting.",
            SIMPLE_LOW,
        )


def _upper(share: float, steps: int | None) -> float:
    """Returns the upper end of a share's 95% interval, or the share itself if the number of steps is unknown."""
    if not steps:
        return share
    return wilson(share, steps)[1]


def _form(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Finds the position where acceptance ends or falls."""
    shares, steps = p.by_position, p.steps
    last = _last(shares)
    rest = len(shares) - last
    # onward[k]: of the steps that accept position k + 1, the share that also accepts position k + 2
    onward = [b / a for a, b in pairwise(shares[:last])]
    reach = [share * (steps or 1000) for share in shares]
    if len(shares) > 1 and reach[0] >= ENOUGH and shares[1] < 0.3 * shares[0]:
        yield (
            f"Position 1 is accepted in {percent(shares[0])} of the steps, but only {percent(shares[1] / shares[0])} of these steps accept "
            f"position 2: drafts break off after the first token.{' Until the cause is found, draft 1 token.' if shares[0] >= LOW else ''}",
            ("first only", "window", "block"),
        )
        return
    if last and rest >= max(DEAD, len(shares) / 3):
        usual = geometric_mean(onward) if onward else shares[0]
        expected = reach[last - 1] * usual
        if expected < 1:
            return
        chance = (
            f"With a smooth decay, about {expected:.0f} of {steps or 'a thousand'} steps would accept position {last + 1}."
            if expected >= 3
            else f"So few steps reach position {last} that a smooth decay could also end there; a longer log would show whether acceptance ends there."
        )
        yield (
            f"Acceptance ends at position {last} of {len(shares)}: {rest} drafted positions were never accepted. {count(last, 'drafted token')} "
            f"per step (γ = {last + 1}) would have committed the same tokens with less work. {chance}",
            ("window", "block", "position"),
        )
        return
    for k in range(1, len(onward)):
        usual = median(onward[:k])
        if reach[k] >= ENOUGH and _upper(onward[k], int(reach[k])) < FALL * usual:
            yield (
                f"Acceptance falls at position {k + 2}: {percent(onward[k])} of the steps that reach this position accept it, compared with "
                f"{percent(usual)} (median) at the positions before.",
                ("block", "window", "position"),
            )
            return


def _falls_with_length(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Compares α in texts up to and beyond each length of ``WINDOWS``; yields the largest significant fall."""
    falls = []
    for window in WINDOWS:
        short, long = ([alpha for n, alpha in p.by_length if (n > window) == over] for over in (False, True))
        if min(len(short), len(long)) < ENOUGH:
            continue
        before, after = fmean(short), fmean(long)
        error = sqrt(variance(short) / len(short) + variance(long) / len(long))
        if after - 1 < FALL * (before - 1) and before - after > 4 * error:
            falls.append((before - after, window, before, after))
    if falls:
        _, window, before, after = max(falls)
        yield (
            f"Acceptance falls in long texts: α is {before:.2f} in texts up to {window} tokens and {after:.2f} in longer ones. The requests may "
            "differ in more than length; the log of a single long answer would show whether length is the cause.",
            ("window", "position", "language"),
        )


# Times and load.


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{1000 * seconds:.0f} ms"


def with_requests(p: AcceptanceProfile) -> str:
    return f" with {count(p.at_once, 'request')}{' at once' if p.at_once > 1 else ''}" if p.at_once else ""


def _times(p: AcceptanceProfile) -> Iterator[str]:
    if p.step_seconds is None or p.token_seconds is None or p.alpha is None:
        return
    commits = p.step_seconds / p.token_seconds
    drafter = f" ({milliseconds(p.draft_seconds)} of it in the drafter)" if p.draft_seconds else ""
    yield (
        f"A step takes {milliseconds(p.step_seconds)}{drafter}{with_requests(p)} and commits {commits:.2f} tokens: drafting pays only if plain "
        f"decoding takes more than {milliseconds(p.token_seconds)} per token."
    )


def _server(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields sentences about the effect of the server's load on drafting."""
    running, waiting, kv = p.load.running, p.load.waiting, p.load.kv_use
    if waiting and waiting[1] > 0 and kv and kv[1] >= FULL:
        yield (
            f"The server is full ({', '.join(_load_parts(p.load))}): requests wait for space in the KV cache. Speculative decoding cannot "
            "shorten that wait, and the drafter's own cache takes part of the space.",
            ("full",),
        )
    elif running and running[1] >= MANY_RUNNING:
        yield (
            f"Many requests run at once ({', '.join(_load_parts(p.load))}): verifying drafted tokens takes time that other requests need, so "
            "drafting gains less than with one request, or even slows the server down.",
            ("busy",),
        )


def _load(p: AcceptanceProfile) -> list[str]:
    running, waiting, kv = ((values or (0, 0, 0))[2] for values in (p.load.running, p.load.waiting, p.load.kv_use))
    return [f"Load: {', '.join(_load_parts(p.load))}."] if running > 1 or waiting or kv >= HALF_FULL else []


def _load_parts(load: Load) -> Iterator[str]:
    if load.running:
        yield f"{_span(load.running)} running"
    if load.waiting and load.waiting[2]:
        yield f"{_span(load.waiting)} waiting"
    if load.kv_use and load.kv_use[2] >= 0.01:
        yield f"KV cache {_span([100 * share for share in load.kv_use])}%"


def _span(values: Sequence[float]) -> str:
    low, high = f"{values[0]:.0f}", f"{values[-1]:.0f}"
    return low if low == high else f"{low} to {high}"


# How many tokens to draft.


def _fewer(p: AcceptanceProfile) -> Iterator[str]:
    """Suggests a shorter draft if it would commit almost as many tokens as now."""
    drafted = round(p.drafted or 0)
    if not MANY_DRAFTED <= drafted <= MOST_DRAFTED or p.alpha is None or p.alpha < 1 + NONE or not p.equally_long:
        return
    if len(p.by_position) > 1:
        brought = list(accumulate(p.by_position))
    elif drafted > MOST_CHAIN:
        return
    else:
        brought = list(accumulate(_constant_rate(p.alpha - 1, drafted) ** k for k in range(1, drafted + 1)))
    low, high = (next(n for n, sum_ in enumerate(brought, 1) if sum_ >= part * brought[-1]) for part in MOST_OF_IT)
    if low > SHORTER * drafted:
        return
    assumed = "" if len(p.by_position) > 1 else ", if all positions are accepted equally often"
    which = count(low, "token") if low == high else f"{low} to {high} tokens"
    yield (
        f"The first {high} of {drafted} drafted tokens give {percent(brought[high - 1] / brought[-1])} of the accepted tokens{assumed}: draft "
        f"{which}. This leaves less to verify, and less to draft if the drafter is autoregressive."
    )


def _is_whole(p: AcceptanceProfile) -> bool:
    """Returns whether almost all drafted tokens are accepted, in drafts of several tokens."""
    return p.alpha is not None and p.drafted is not None and p.drafted > 1.5 and p.alpha - 1 > WHOLE * p.drafted


def _more(p: AcceptanceProfile) -> Iterator[str]:
    """Suggests a longer draft if most of the draft is accepted."""
    if p.alpha is None or not p.drafted or not p.equally_long or _is_whole(p):
        return
    whole = len(p.by_position) > 1 and p.by_position[-1] >= LONGER[0]
    if whole or (p.alpha - 1) / p.drafted >= LONGER[1]:
        last = (
            f"Position {len(p.by_position)} is still accepted in {percent(p.by_position[-1])} of the steps"
            if whole
            else "Most drafted tokens are accepted"
        )
        yield f"{last}: try a longer draft, if the drafter was trained for one."


def _constant_rate(accepted: float, drafted: int) -> float:
    """Returns the constant acceptance rate per position that leads to ``accepted`` = Σ rate^k over k = 1 … drafted."""
    low, high = 0.0, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        low, high = (rate, high) if sum(rate**k for k in range(1, drafted + 1)) < accepted else (low, rate)
    return low
