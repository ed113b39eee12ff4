"""What the figures of a server's log say about a drafter: sentences, what to try, and the public case that showed it.

A log holds acceptance by position at most, and many causes give the same profile. So a profile is named only where it is out of the
ordinary beyond chance, and causes are things to try. Where a case is named, its figures are those that were reported there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean, geometric_mean, median, variance

from d2sd.calibration.resampling import wilson
from d2sd.calibration.sentences import count, percent
from d2sd.errors import InputError
from d2sd.trace.logs import LogTotals, by_source, together
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

NONE, LOW = 0.05, 0.5  # of the steps accept position 1
LOW_LENGTH, MANY_DRAFTED = 2.0, 7  # α where acceptance by position is not known, with so many tokens drafted
DEAD = 3  # last positions that were never accepted
FALL = 0.5  # of the usual share that goes on from a position to the next
ENOUGH = 20  # steps that reach a position, to judge where it goes on
WINDOWS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # of published models, in tokens
MOST_LENGTHS = 100_000  # entries of ``AcceptanceProfile.by_length``
MAX_SOURCES = 20

# What to try, and the case that showed it.
TRIES = {
    "convention": "Which row predicts which token (fill or next): a DSpark drafter read the other way accepted under 1% (vLLM issue 56792).",
    "quantised drafter": "A drafter that took over the target's quantisation: SGLang's server does so if no other is set, and acceptance fell "
    "to 0 (SGLang pull request 35629).",
    "tokenizer": "Mask token, tokenizer and target of the drafter: `d2sd doctor TARGET DRAFTER` tries them.",
    "taps": "Taps (target layers) one layer off: 5.6 instead of 6.6 tokens accepted a step (Avarok-Cybersecurity/atlas pull request 394; "
    "vLLM pull request 42704).",
    "thinking": "Thinking on or off, as in training: with Qwen3-8B the rate was 25% with it and 60% without (z-lab/dflash issue 133), with "
    "Qwen3.5-35B-A3B it was the other way round (issue 60).",
    "template": "The chat template: EAGLE-3 drafters for Llama 3.3 accept clearly less without it (TensorRT-LLM pull request 4802).",
    "language": "Another language or domain: α 6.4 in English, 3.3 in Chinese on the same questions (z-lab/dflash issue 7).",
    "quantised": "The target in 16 bits. A quantised one is often suspected and not always the cause: from 3.5 to 5.5 bits a weight one pair "
    "kept its 8 to 9% (z-lab/dflash issue 152).",
    "engine": "The same drafter in another engine: 3 in llama.cpp, 5.5 in vLLM (z-lab/dflash issue 170). With token ids in the log, "
    "`d2sd whatif LOG --served` compares step by step.",
    "training": "The training itself, if you trained the drafter: wrong padding and hidden states left acceptance very low (SpecForge issue 471, "
    "pull request 473).",
    "window": "Sliding-window layers that are run as full attention: acceptance ended at position 2 to 5 of 15 once texts passed the window "
    "(AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-DFlash issue 6; vLLM pull request 40898). Compare short texts with long ones.",
    "position": "Position ids of the draft: one too low, acceptance fell from 0.8 in short texts to 0.22 after 12,000 tokens "
    "(ik_llama.cpp pull request 2296).",
    "block": "More tokens than the block of training: 7 where it was 5 took the rate from 35% to 4% (vLLM pull request 41834).",
    "first only": "The drafter's state after its first token: hidden states, norms, the mask of the block. Such profiles were DSpark on one "
    "target (vLLM issue 51009) and a DFlash drafter that was good in validation (vllm-project/speculators issue 613).",
}  # fmt: skip
WHAT_TO_TRY = "Things to try, each with a public case. A profile alone does not tell which of them it is:"
ORDINARY = "Nothing in acceptance by position is out of the ordinary."
NO_PROFILE = "The log holds no acceptance by position, and α alone does not show why a drafter is rejected."
RATE = (
    "The rate falls as γ grows, with the same drafter: look at α. llama.cpp showed rates of 15% with official drafters at an α of about 3 "
    "(llama.cpp issue 25792)."
)
SIMPLE_LOW = ("thinking", "template", "language", "taps", "quantised", "engine", "training")


@dataclass(frozen=True, slots=True)
class AcceptanceProfile:
    """Figures of one source of a log; None if unknown.

    steps: number of steps.
    drafted: tokens drafted a step.
    alpha: mean acceptance length.
    by_position: [k]: share of the steps that accepted token k + 1.
    by_length: pairs of the length of the text in tokens and α, one for each step or each row of the log about a single request.
    """

    engine: str
    model: str | None
    drafter: str | None
    steps: int | None
    drafted: float | None
    alpha: float | None
    by_position: tuple[float, ...]
    by_length: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a profile says.

    sentences: in order.
    named: whether something is out of the ordinary.
    tries: what to try, likeliest first.
    """

    sentences: tuple[str, ...]
    named: bool = False
    tries: tuple[str, ...] = ()


@dataclass
class _Counted:
    """Sums over the steps of traces."""

    steps: int = 0
    committed: int = 0
    drafted: int = 0
    reached: Counter[int] = field(default_factory=Counter)
    by_length: list[tuple[int, float]] = field(default_factory=list)

    def add(self, trace: Trace) -> None:
        length = len(trace.prefill.prompt_token_ids) + 1 if trace.prefill else 1
        for step in trace.steps:
            length += len(step.committed)
            if step.first_draft is None or step.actual_boundary is None:
                continue
            self.steps += 1
            self.drafted += len(step.first_draft.ids)
            self.committed += step.actual_boundary + 1
            self.reached.update(range(step.actual_boundary))
            if len(self.by_length) < MOST_LENGTHS:
                self.by_length.append((length, step.actual_boundary + 1))


def profiles_of(found: Iterable[Trace | LogTotals]) -> list[AcceptanceProfile]:
    """Returns the profile of each source of a log, at most ``MAX_SOURCES``. Raises ``InputError`` if there is none."""
    counted: dict[tuple[str, str | None], _Counted] = {}
    rows: list[LogTotals] = []
    for one in found:
        if isinstance(one, LogTotals):
            rows.append(one)
        else:
            models = one.header["models"]
            name = models.get("target") if isinstance(models, dict) else None
            counted.setdefault((str(one.header["method"]), name if isinstance(name, str) else None), _Counted()).add(
                one
            )
    profiles = []
    for (engine, model), sums in counted.items():
        if sums.steps:
            longest = -(-sums.drafted // sums.steps)
            shares = tuple(sums.reached[k] / sums.steps for k in range(max(longest, len(sums.reached))))
            drafted, alpha = sums.drafted / sums.steps, sums.committed / sums.steps
            profiles.append(
                AcceptanceProfile(engine, model, None, sums.steps, drafted, alpha, shares, tuple(sums.by_length))
            )
    for group in by_source(rows):
        all_of = together(group)
        steps, drafted = all_of["steps"], all_of["drafted"]
        shares = tuple(accumulate(all_of["by_position"], min))  # rounded, or of a file that claims anything
        each = drafted / steps if steps and drafted is not None else float(len(shares)) if shares else None
        lengths = [
            (row.held, row.mean_acceptance_length)
            for row in group
            if row.held and row.running == 1 and row.mean_acceptance_length is not None
        ]
        profiles.append(
            AcceptanceProfile(
                all_of["engine"], all_of["model"], all_of["drafter"], steps, each, all_of["mean_acceptance_length"], shares,
                tuple(lengths[:MOST_LENGTHS]),
            )
        )  # fmt: skip
    if not profiles:
        raise InputError("the log holds no step that drafted anything")
    return profiles[:MAX_SOURCES]


def read_log(found: Iterable[Trace | LogTotals]) -> list[Reading]:
    """Returns what the log of a server says, a reading for each engine and model in it. Raises ``InputError``."""
    return [read_profile(profile) for profile in profiles_of(found)]


def read_profile(profile: AcceptanceProfile) -> Reading:
    found = [*_out_of_the_ordinary(profile), *_falls_with_length(profile)]
    ordinary = ORDINARY if profile.by_position else NO_PROFILE
    sentences = [_headline(profile), *([sentence for sentence, _ in found] or [ordinary])]
    if profile.alpha and profile.drafted and profile.alpha > 2.5 and (profile.alpha - 1) / profile.drafted < 0.25:
        sentences.append(RATE)
    tries = dict.fromkeys(name for _, names in found for name in names)
    return Reading(tuple(sentences), bool(found), tuple(TRIES[name] for name in tries))


def _headline(p: AcceptanceProfile) -> str:
    names = " with ".join(escaped(name) for name in (p.model, p.drafter) if name)
    parts = [p.engine + (f", {names}" if names else "")]
    if p.steps is not None:
        parts.append(count(p.steps, "step"))
    if p.drafted is not None:
        parts.append(f"{p.drafted:.3g} tokens drafted a step")
    if p.alpha is not None:
        parts.append(f"α {p.alpha:.2f}")
    if p.by_position:
        last, most = _last(p.by_position), len(p.by_position)
        shares = [f"{k}: {percent(s)}" for k, s in enumerate(p.by_position[:last], 1)]
        if last < most:
            shares.append(f"{f'{last + 1} to ' if last + 1 < most else ''}{most}: 0%")
        parts.append(f"accepted up to position {', '.join(shares)}")
    return f"{', '.join(parts)}."


def _last(shares: Sequence[float]) -> int:
    return max((k for k, share in enumerate(shares, 1) if share >= 0.0005), default=0)


def _out_of_the_ordinary(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """What is conspicuous, each with the names of what to try; at most one about the form of the profile."""
    shares = p.by_position
    if not shares:
        if p.alpha is None:
            return
        if p.alpha < 1 + NONE:
            yield f"Almost nothing is accepted: α is {p.alpha:.2f}.", ("convention", "quantised drafter", "tokenizer")
        elif p.alpha < LOW_LENGTH and (p.drafted or 0) >= MANY_DRAFTED:
            yield f"α is {p.alpha:.2f} with {p.drafted:.3g} tokens drafted a step, which is low.", SIMPLE_LOW
        return
    first, upper = shares[0], _upper(shares[0], p.steps)
    if upper < 2 * NONE and first < NONE:
        yield (
            f"Position 1 is accepted in {percent(first)} of the steps: almost never. A drafter that is only weak gets more.",
            ("convention", "quantised drafter", "tokenizer"),
        )
        return
    yield from _form(p)
    if upper < LOW:
        yield f"Position 1 is accepted in {percent(first)} of the steps, which is low.", SIMPLE_LOW


def _upper(share: float, steps: int | None) -> float:
    """The upper end of its 95% interval; itself if the number of steps is not known."""
    if not steps:
        return share
    return wilson(share, steps)[1]


def _form(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Where acceptance by position ends or falls."""
    shares, steps = p.by_position, p.steps
    last = _last(shares)
    rest = len(shares) - last
    onward = [b / a for a, b in pairwise(shares[:last])]  # [k]: from position k + 1 to k + 2
    reach = [share * (steps or 1000) for share in shares]
    if len(shares) > 1 and reach[0] >= ENOUGH and shares[1] < 0.3 * shares[0]:
        yield (
            f"Position 1 is accepted in {percent(shares[0])} of the steps, and only {percent(shares[1] / shares[0])} of those accept "
            "position 2: the draft breaks off after its first token.",
            ("first only", "window", "block"),
        )
        return
    if last and rest >= max(DEAD, len(shares) / 3):
        usual = geometric_mean(onward) if onward else shares[0]
        expected = reach[last - 1] * usual
        chance = (
            f"With a smooth decay, about {expected:.0f} of the {steps or 'a thousand'} steps would accept position {last + 1}."
            if expected >= 3
            else f"So few steps reach position {last} that a smooth decay may end there too: a longer log would tell."
        )
        yield (
            f"Acceptance ends at position {last} of {len(shares)}: {rest} drafted positions were never accepted. γ {last + 1} "
            f"would have committed the same for less work. {chance}",
            ("window", "block", "position"),
        )
        return
    for k in range(2, len(onward)):
        usual = median(onward[:k])
        if reach[k] >= ENOUGH and _upper(onward[k], int(reach[k])) < FALL * usual:
            yield (
                f"Acceptance falls at position {k + 2}: {percent(onward[k])} of the steps that get there accept it, where "
                f"{percent(usual)} go on at the positions before.",
                ("block", "window", "position"),
            )
            return


def _falls_with_length(p: AcceptanceProfile) -> Iterator[tuple[str, Sequence[str]]]:
    """Compares acceptance up to and beyond each of ``WINDOWS``; yields the window with the largest significant fall."""
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
            f"Acceptance falls in long texts: α is {before:.2f} up to {window} tokens and {after:.2f} beyond. The long texts may be "
            "other requests than the short ones; one long answer would tell.",
            ("window", "position", "language"),
        )


def report_lines(readings: Sequence[Reading]) -> Iterator[str]:
    """Yields the readings as lines of text; what several say to try comes once, at the end."""
    for reading in readings:
        yield from reading.sentences
        yield ""
    if tries := dict.fromkeys(one for reading in readings for one in reading.tries):
        yield WHAT_TO_TRY
        yield from (f"* {one}" for one in tries)
