"""Sentences about the figures of one source of a log, and suggestions of what to try.

Acceptance by position is the most detailed figure of a log, but many causes lead to the same values. A figure is reported as
unusual only if chance does not explain it. Possible causes are listed as things to try, with figures quoted from public cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean, geometric_mean, median, variance
from typing import Any, NamedTuple

from d2sd.calibration.resampling import wilson
from d2sd.calibration.text import count, percent
from d2sd.logs.figures import ENOUGH, Figures, milliseconds, span
from d2sd.trace.text import aligned

ALMOST_NONE, LOW = 0.05, 0.5  # shares of steps that accept position 1: upper limits of “almost never” and “low”
MANY_DRAFTED = 6  # drafted tokens per step from which a shorter draft may be suggested
MIN_UNACCEPTED = 3  # smallest number of last positions without acceptance that is reported
FALL = 0.5  # acceptance ÷ the usual acceptance, below which a fall is reported
FEW_STEPS = 100  # number of steps below which the report warns
HALF_FULL, FULL = 0.5, 0.9  # used share of the KV cache
MUCH_TOO_LONG = 0.2  # acceptance rate below which a draft is far longer than what is accepted
MIN_ALPHA = 1.25  # α below which even a short draft gains too little to be suggested before the cause is found
NEARLY_ALL = 0.95  # acceptance rate above which almost every token is accepted
MANY_RUNNING = 32  # concurrent requests
LONGER = (0.5, 0.8)  # acceptance of the last position, or acceptance rate, from which a longer draft may be better
MOST_TRIES = 5
SHORTER = 0.6  # a shorter draft is suggested if this share of the draft gives MOST_OF_IT[0] of the accepted tokens
MOST_CHAIN = 16  # if acceptance by position is unknown, more drafted tokens than this may be a tree, not a chain
MOST_OF_IT = (0.85, 0.93)  # shares of the accepted tokens
MOST_DRAFTED = 1000
WINDOWS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # attention windows of published models, in tokens

NO_DRAFTED = "This log has neither the number of drafted tokens per step nor acceptance by position, so it is unknown whether α is low."
NO_ALPHA = "This log has neither α nor acceptance by position."
RATE = (
    "The acceptance rate falls as γ grows, so look at α instead: official drafters had rates of 15% at an α of about 3 (llama.cpp "
    "issue 25792)."
)
TRY_LONGER = "try a longer draft, if the drafter was trained for one."
# Keys of ``TRIES`` for acceptance that is almost zero, that is low at all positions, that ends after position 1, and that falls later.
NEVER = ("convention", "quantised drafter", "tokenizer")
SIMPLE_LOW = ("thinking", "template", "language", "engine", "taps")
BREAKS_OFF = ("first only", "window", "block")
FALLS = ("block", "window", "position")


class Sentence(NamedTuple):
    """A sentence, and what to try because of it.

    tries: keys of ``TRIES``, likeliest first; empty if the sentence reports nothing unusual.
    """

    text: str
    tries: tuple[str, ...] = ()


def tries(said: Sequence[Sentence]) -> list[str]:
    return [TRIES[name] for name in [*dict.fromkeys(name for one in said for name in one.tries)][:MOST_TRIES]]


def names_fault(said: Sequence[Sentence]) -> bool:
    """Returns whether any sentence reports something unusual. A high load does not count."""
    return any(name != "busy" for one in said for name in one.tries)


def sentences(source: Figures) -> Iterator[Sentence]:
    """Yields the sentences about the figures of one source."""
    yield Sentence(f"{source}.")
    if source.failures:
        yield Sentence(
            f"The drafter failed {count(source.failures, 'time')} (“llama_decode returned -1”), and nothing was drafted in these steps.",
            ("drafter fails",),
        )
    if not source.drafts:
        yield from _load(source)
        return
    yield from _times(source)
    said = [*_acceptance(source), *_nothing_at_times(source), *_falls_with_length(source)]
    unusual = [one.tries for one in said if one.tries]
    for one in said:
        yield Sentence(one.text, ("handover", *one.tries)) if one.tries and source.remote_prefill else one
    yield from _load(source)
    if all(names == SIMPLE_LOW for names in unusual):
        yield from _shorter_draft(source)
    elif _too_long(source) and (source.alpha or 0.0) >= MIN_ALPHA and {*unusual} <= {SIMPLE_LOW, BREAKS_OFF, FALLS}:
        yield from _shorter_draft(source, "until the cause is found, ")
    if not unusual and (source.steps is None or source.steps >= ENOUGH):
        yield from _longer_draft(source)
    if source.steps and source.steps < FEW_STEPS and source.alpha:
        yield Sentence(f"The log has only {count(source.steps, 'step')}: figures may differ on other text.")
    if source.undrafted:
        yield Sentence(
            f"{source.undrafted} of {source.tokens} tokens come from steps without a draft, which α excludes. Including these steps, the average is "
            f"{source.tokens_per_step:.2f} tokens per step."
        )
    if _nearly_all_accepted(source):
        yield Sentence(
            "Almost every drafted token is accepted, as in text that repeats itself or copies its prompt: look at the generated text. On other "
            "text, α is lower."
        )
    if source.kind == ("llama.cpp", "request") and max(source.rate or 0.0, source.stated_rate or 0.0) > NEARLY_ALL:
        yield Sentence(
            "For hybrid and recurrent models, llama.cpp's rate counts only drafts that were accepted completely. The “statistics” lines of its "
            "log count all drafts."
        )
    if source.alpha and source.alpha > 2.5 and source.draft_length and (source.rate or 1.0) < 0.25:
        yield Sentence(RATE)
    yield from map(Sentence, published_alpha(source.drafter, source.model))


def _acceptance(source: Figures) -> Iterator[Sentence]:
    """Yields sentences about acceptance. At most one of them is about how acceptance changes with the position."""
    shares = source.by_position
    if not shares:
        yield _of_alpha(source)
        return
    share, upper = shares[0], _upper(shares[0], source.steps)
    if upper < 2 * ALMOST_NONE and share < ALMOST_NONE:
        yield Sentence(
            f"Position 1 is accepted in {percent(share)} of the steps: almost never. Even a weak drafter reaches more.",
            NEVER,
        )
        return
    if not source.equally_long:
        yield Sentence(
            f"Drafts have different lengths, {source.draft_length:.3g} tokens on average and at most {len(shares)}. In steps with a shorter draft, "
            "the last positions are not drafted, so acceptance there looks lower than it is."
        )
        return
    shape = [*_shape(source)]
    yield from shape
    if upper < LOW:
        yield Sentence(f"Position 1 is accepted in {percent(share)} of the steps, which is low.", SIMPLE_LOW)
    elif len(shares) == 1 and round(source.draft_length or 0) != 1:
        yield _of_alpha(source)
    elif not shape:
        yield Sentence("Acceptance by position looks normal.")


def _of_alpha(source: Figures) -> Sentence:
    """Returns a sentence about α, for a log without acceptance by position."""
    length = source.draft_length or 0.0
    drafted = round(length)
    if source.alpha is None:
        return Sentence(NO_ALPHA)
    if source.alpha < 1 + 2 * ALMOST_NONE and not source.by_position:
        return Sentence(f"Almost nothing is accepted: α is {source.alpha:.2f}.", NEVER)
    if length and drafted < 1:
        return Sentence(f"Few steps have a draft: {length:.2g} tokens are drafted per step on average.")
    if not 1 <= drafted <= MOST_DRAFTED:
        return Sentence(NO_DRAFTED)
    rate = _constant_rate(source.alpha - 1, drafted)
    said = f"α is {source.alpha:.2f} of at most {drafted + 1}, as if every position were accepted {percent(rate)} of the time."
    if rate < LOW and (source.steps is None or source.steps >= ENOUGH):
        return Sentence(f"{said} This is low and limits the gain of drafting.", SIMPLE_LOW)
    if abs(drafted - length) > 0.1:
        said = f"Drafts have different lengths, {length:.3g} tokens on average."
    return Sentence(f"{said} This log has no acceptance by position.")


def _upper(share: float, steps: int | None) -> float:
    """Returns the upper end of the 95% interval of ``share``, or ``share`` itself if the number of steps is unknown."""
    return wilson(share, steps)[1] if steps else share


def _shape(source: Figures) -> Iterator[Sentence]:
    """Yields a sentence about the position at which acceptance ends or falls suddenly, if there is one."""
    shares, steps, last = source.by_position, source.steps, source.last_accepted
    rest = len(shares) - last
    # onward[k]: of the steps that accept position k + 1, the share that also accepts position k + 2
    onward = [b / a for a, b in pairwise(shares[:last])]
    reach = [share * (steps or 1000) for share in shares]
    if len(shares) > 1 and reach[0] >= ENOUGH and shares[1] < 0.3 * shares[0]:
        yield Sentence(
            f"Position 1 is accepted in {percent(shares[0])} of the steps, but only {percent(shares[1] / shares[0])} of these steps accept "
            f"position 2: drafts break off after the first token.{' Until the cause is found, draft 1 token.' if shares[0] >= LOW and not _too_long(source) else ''}",
            BREAKS_OFF,
        )
        return
    if last and rest >= max(MIN_UNACCEPTED, len(shares) / 3):
        usual = geometric_mean(onward) if onward else shares[0]
        expected = reach[last - 1] * usual
        if expected < 1:
            return
        chance = (
            f"With a smooth decay, about {expected:.0f} of {steps or 'a thousand'} steps would accept position {last + 1}."
            if expected >= 3
            else f"So few steps reach position {last} that a smooth decay could also end there; a longer log would show whether it does."
        )
        yield Sentence(
            f"Acceptance ends at position {last} of {len(shares)}: {rest} drafted positions were never accepted. {count(last, 'drafted token')} "
            f"per step (γ = {last + 1}) would have written the same tokens with less work. {chance}",
            ("window", "block", "position"),
        )
        return
    for k in range(1, len(onward)):
        usual = median(onward[:k])
        if reach[k] >= ENOUGH and _upper(onward[k], int(reach[k])) < FALL * usual:
            yield Sentence(
                f"Acceptance falls at position {k + 2}: {percent(onward[k])} of the steps that reach this position accept it, compared with "
                f"{percent(usual)} (median) at the positions before.",
                FALLS,
            )
            return


def _nothing_at_times(source: Figures) -> Iterator[Sentence]:
    """Yields a sentence if nothing is accepted in some intervals, while tokens are accepted in others."""
    others = [alpha for alpha in source.alphas if alpha >= 1 + ALMOST_NONE]
    times = len(source.alphas) - len(others)
    if source.unit == "interval" and times > 1 and others:
        yield Sentence(
            f"In {times} of {len(source.alphas)} intervals, nothing is accepted; in the others, α is {fmean(others):.2f} on average.",
            ("drafter fails",),
        )


def _falls_with_length(source: Figures) -> Iterator[Sentence]:
    """Yields a sentence if α is significantly lower in long texts. It names the length of ``WINDOWS`` at which the fall is largest."""
    falls = []
    for window in WINDOWS:
        short, long = ([alpha for n, alpha in source.by_length if (n > window) == over] for over in (False, True))
        if min(len(short), len(long)) < ENOUGH:
            continue
        before, after = fmean(short), fmean(long)
        error = sqrt(variance(short) / len(short) + variance(long) / len(long))
        if after - 1 < FALL * (before - 1) and before - after > 4 * error:
            falls.append((before - after, window, before, after))
    if falls:
        _, window, before, after = max(falls)
        yield Sentence(
            f"Acceptance falls in long texts: α is {before:.2f} in texts up to {window} tokens and {after:.2f} in longer ones. The requests may "
            "differ in more than length; the log of a single long answer would show whether length is the cause.",
            ("window", "position", "language"),
        )


# Times and load.


def _times(source: Figures) -> Iterator[Sentence]:
    if source.step_seconds and source.token_seconds and source.alpha:
        drafter = f" ({milliseconds(source.draft_seconds)} of it in the drafter)" if source.draft_seconds else ""
        yield Sentence(
            f"A step takes {milliseconds(source.step_seconds)}{drafter}{source.with_requests} and writes {source.tokens_per_step:.2f} tokens: drafting pays only if a "
            f"token takes more than {milliseconds(source.token_seconds)} one by one."
        )


def _load(source: Figures) -> Iterator[Sentence]:
    """Yields a sentence about the server's load if it affects drafting, if requests wait, or if nothing is drafted."""
    (_, running, most), (_, waiting, _), (_, kv_use, fullest) = map(
        span, (source.running, source.waiting, source.kv_use)
    )
    parts = [f"{_range(source.running)} running"] if source.running else []
    parts += [f"{_range(source.waiting)} waiting"] if any(source.waiting) else []
    parts += [f"KV cache {_range([100 * share for share in source.kv_use])}%"] if fullest >= 0.01 else []
    load = ", ".join(parts)
    if waiting > 0 and kv_use >= FULL:
        yield Sentence(
            f"The server is full ({load}): requests wait for space in the KV cache, and the drafter's own "
            "cache takes part of it.",
            ("full",),
        )
    elif running >= MANY_RUNNING:
        yield Sentence(
            f"Many requests run at once ({load}): verifying drafted tokens takes time that other requests need, so "
            "drafting gains less, or even slows the server down.",
            ("busy",),
        )
    elif any(source.waiting) or (not source.drafts and (most > 1 or fullest >= HALF_FULL)):
        yield Sentence(f"Load: {load}.")


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


# How many tokens to draft.


def _too_long(source: Figures) -> bool:
    return (source.draft_length or 0.0) >= MANY_DRAFTED and (source.rate or 1.0) < MUCH_TOO_LONG


def _shorter_draft(source: Figures, until: str = "") -> Iterator[Sentence]:
    """Yields a suggestion of a shorter draft, if it would commit almost as many tokens as now. ``until``: words before the
    suggestion.
    """
    drafted = round(source.draft_length or 0)
    measured = len(source.by_position) > 1
    most = MOST_DRAFTED if measured else MOST_CHAIN
    if (
        not MANY_DRAFTED <= drafted <= most
        or source.alpha is None
        or source.alpha < 1 + ALMOST_NONE
        or not source.equally_long
    ):
        return
    rate = _constant_rate(source.alpha - 1, drafted)
    brought = list(accumulate(source.by_position if measured else (rate**k for k in range(1, drafted + 1))))
    low, high = (next(n for n, sum_ in enumerate(brought, 1) if sum_ >= part * brought[-1]) for part in MOST_OF_IT)
    if low <= SHORTER * drafted:
        far = (
            f"{drafted} drafted tokens per step are far too many for α {source.alpha:.2f}. "
            if _too_long(source)
            else ""
        )
        share_words = f"{high} of {drafted} drafted tokens give" if high > 1 else f"of {drafted} drafted tokens gives"
        yield Sentence(
            f"{far}The first {share_words} {percent(brought[high - 1] / brought[-1])} of the accepted tokens"
            f"{'' if measured else ', if all positions are accepted equally often'}: {until}draft "
            f"{count(low, 'token') if low == high else f'{low} to {high} tokens'}."
        )


def _nearly_all_accepted(source: Figures) -> bool:
    return (source.draft_length or 0.0) > 1.5 and (source.rate or 0.0) > NEARLY_ALL


def _longer_draft(source: Figures) -> Iterator[Sentence]:
    """Yields a suggestion of a longer draft, if most of the draft is accepted."""
    last = source.by_position[-1] if len(source.by_position) > 1 else 0.0
    if not source.draft_length or not source.equally_long or _nearly_all_accepted(source):
        return
    if last >= LONGER[0]:
        yield Sentence(
            f"Position {len(source.by_position)} is still accepted in {percent(last)} of the steps: {TRY_LONGER}"
        )
    elif (source.rate or 0.0) >= LONGER[1]:
        yield Sentence(f"Most drafted tokens are accepted: {TRY_LONGER}")


def _constant_rate(accepted: float, drafted: int) -> float:
    """Returns the acceptance rate that gives ``accepted`` = Σ rate^k over k = 1 … ``drafted``, if it is the same at every position."""
    low, high = 0.0, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        low, high = (rate, high) if sum(rate**k for k in range(1, drafted + 1)) < accepted else (low, rate)
    return low


# Answers to logs.

Answer = tuple[Figures, list[Sentence]]  # figures of a source, and what they say
ONCE = (NO_ALPHA, NO_DRAFTED, RATE)  # sentences that are not repeated for every source


def answers(sources: Sequence[Figures]) -> list[Answer]:
    """Returns each source with the sentences about it. The sentences include comparisons with the other sources."""
    return [
        (source, [*sentences(source), *_unequal_engines(source, sources), *_with_and_without(source, sources)])
        for source in sources
    ]


def as_dict(answer: Answer) -> dict[str, Any]:
    """Returns the answer about one source for JSON."""
    source, said = answer
    return {
        "figures": source.to_dict(),
        "sentences": [one.text for one in said],
        "named": names_fault(said),
        "tries": tries(said),
    }


def _unequal_engines(source: Figures, sources: Sequence[Figures]) -> Iterator[Sentence]:
    """Yields a sentence if another engine that serves the same model accepts far more tokens."""
    same = [other for other in sources if other.replica and (other.kind, other.model) == (source.kind, source.model)]
    best = max(same, key=lambda other: other.alpha or 0.0, default=source)
    # only if every engine is a single source; otherwise the sources differ in another setting too
    single = len({other.replica for other in same}) == len(same)
    if source.replica and single and source.alpha and best.alpha and source.alpha - 1 < FALL * (best.alpha - 1):
        yield Sentence(
            f"{source.replica.capitalize()} accepts far fewer tokens than {best.replica} of the same model: α {source.alpha:.2f} compared with "
            f"{best.alpha:.2f}.",
            ("replica",),
        )


def _with_and_without(source: Figures, sources: Sequence[Figures]) -> Iterator[Sentence]:
    """Yields a comparison of the times of a source with drafts with each source without drafts, under the same load."""
    for other in sources:
        alike = (
            other.unit == source.unit
            and (other.model == source.model or None in (source.model, other.model))
            and (other.at_once or 1) == (source.at_once or 1)
        )
        if (
            other.drafts
            or not source.drafts
            or not alike
            or not (source.token_seconds and source.step_seconds and other.token_seconds)
        ):
            continue
        times = other.token_seconds / source.token_seconds
        result = f"is {times:.2f} times as fast" if times >= 1 else f"takes {1 / times:.2f} times as long"
        begin = f"{other.with_requests}, a token".strip(", ").capitalize()
        yield Sentence(
            f"{begin} takes {milliseconds(source.token_seconds)} with drafts and {milliseconds(other.token_seconds)} without: drafting {result}. "
            f"A step costs as much as {source.step_seconds / other.token_seconds:.2f} one-token passes and writes {source.tokens_per_step:.2f} tokens. "
            "This comparison is valid only if machine, model and kind of prompts were the same."
        )


COLUMNS = ("log", "drafted", "α", "position 1", "step", "token", "tokens/s", "at once")


def side_by_side(sources: Sequence[Figures]) -> list[tuple[str, ...]]:
    """Returns a table of the sources: the column names, then one row per source. It is empty if there is only one source."""
    rows = []
    for source in sources:
        figures = (
            (source.draft_length, "{:.3g}".format), (source.alpha, "{:.2f}".format), (next(iter(source.by_position), None), percent), (source.step_seconds, milliseconds),
            (source.token_seconds, milliseconds), (source.tokens_per_second, "{:.4g}".format), (source.at_once, "{}".format),
        )  # fmt: skip
        rows.append((source.origin, *("–" if value is None else write(value) for value, write in figures)))
    return [COLUMNS, *rows] if len(rows) > 1 else []


def report_lines(answered: Sequence[Answer]) -> Iterator[str]:
    """Yields the lines of a report: the sentences about each source, a table of the sources, and things to try."""
    before = set()
    for _, said in answered:
        yield from (one.text for one in said if one.text not in before)
        before |= {one.text for one in said if one.text in ONCE}
        yield ""
    if table := side_by_side([source for source, _ in answered]):
        yield from (*aligned(table, str.rjust), "")
    yield from what_to_try(answered)


def what_to_try(answered: Sequence[Answer]) -> list[str]:
    """Returns a title line and the things to try, each only once, as the lines of a list; empty if there is nothing to try."""
    ideas = dict.fromkeys(one for _, said in answered for one in tries(said))
    title = "Things to try, with public cases. The figures alone do not show the cause:"
    return [title, *(f"* {one}" for one in ideas)] if ideas else []


# Public cases.

# Things to try, each with a public case.
TRIES = {
    "convention": "Anchor convention (fill or next): with the wrong one, under 1% of a DSpark drafter's tokens were accepted (vLLM issue 56792).",
    "quantised drafter": "Quantisation of the drafter: SGLang quantises it like the target by default; acceptance fell to 0 (SGLang pull request 35629).",
    "tokenizer": "Mask token, tokenizer and target of the drafter: `d2sd doctor TARGET DRAFTER` tests them.",
    "taps": "Taps that are off by one layer: 5.6 instead of 6.6 accepted tokens (Avarok-Cybersecurity/atlas pull request 394; vLLM pull request 42704).",
    "thinking": "Thinking on or off, as in training: the acceptance rate of Qwen3-8B was 25% with thinking and 60% without (z-lab/dflash issue 133); for "
    "Qwen3.5-35B-A3B, it was higher with thinking (issue 60).",
    "template": "Chat template: EAGLE-3 drafters for Llama 3.3 have fewer tokens accepted without it (TensorRT-LLM pull request 4802).",
    "language": "Language and domain of the texts: α was 6.4 in English and 3.3 in Chinese (z-lab/dflash issue 7).",
    "engine": "Another engine: the acceptance length was 3 in llama.cpp and 5.5 in vLLM (z-lab/dflash issue 170). If the log has token "
    "ids, `d2sd whatif LOG --drafter DRAFTER` compares the server's steps with the same drafter here.",
    "window": "Sliding-window layers that run as full attention: acceptance ended at position 2 to 5 of 15 in texts longer than the "
    "window (AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-DFlash issue 6; vLLM pull request 40898).",
    "position": "Position ids of the draft: when they were one too low, acceptance fell from 0.8 in short texts to 0.22 after 12,000 tokens (ik_llama.cpp pull request 2296).",
    "block": "More drafted tokens than in training: with 7 instead of 5, the acceptance rate fell from 35% to 4% (vLLM pull request 41834).",
    "handover": "Prompts are processed on another server: check that the drafter receives its KV cache or the target's hidden states of the prompt "
    "(vllm-ascend issue 13665; SGLang issues 7927 and 34285).",
    "full": "Fewer requests at once, a larger KV cache, or no drafts: compare tokens/s over all requests (vLLM issue 43295).",
    "busy": "The same load without drafts, and with fewer drafted tokens: compare tokens/s over all requests.",
    "replica": "Weights and settings of the drafter on that engine, and whether it gets other kinds of text.",
    "drafter fails": "The first error of the drafter in the log; context size, KV cache and memory of the drafter.",
    "first only": "The drafter's state after its first token: hidden states, norms, attention mask of the block (DSpark: vLLM issue 51009; DFlash: "
    "vllm-project/speculators issue 613).",
}  # fmt: skip

OF_VLLM = 3, "MT-bench", "vLLM's tests of acceptance length"
# Published α by a part of the drafter's name: (α, drafted tokens per step, texts, source).
PUBLISHED = {
    "llama-3.1-8b-instruct-speculator.eagle3": (2.60, *OF_VLLM),
    "qwen3-8b-speculator.eagle3": (2.26, *OF_VLLM),
    "gpt-oss-20b-speculator.eagle3": (2.56, *OF_VLLM),
    "eagle3-llama3.1-instruct-8b": (3.53, 7, "MT-bench", "vLLM issue 26191"),
    "eagle3-qwen3-235b-a22b-instruct-2507": (3.18, 7, "MT-bench at temperature 1", "its model card"),
    "qwen3-8b-dflash-b16": (6.96, 15, "GSM8K", "D²SD, arXiv 2606.04446"),
    "qwen3.5-4b-dflash": (6.75, 15, "GSM8K", "its model card, quoted in vLLM issue 49730"),
}


def published_alpha(*names: str | None) -> list[str]:
    """Returns at most one sentence about a published α.

    names: names of the drafter and of other models; names that ``PUBLISHED`` does not list have no effect.
    """
    return [
        f"Published for {part}: α {alpha:.2f} with {drafted} drafted tokens per step on {texts} ({source})."
        for part, (alpha, drafted, texts, source) in PUBLISHED.items()
        if any(part in name.lower() for name in names if name)
    ][:1]
