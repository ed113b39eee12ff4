"""Sentences about reports and comparisons. Only significant effects are claimed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

from d2sd.calibration.boundaries import USUAL_K, DraftConfidence
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.report import Report, RunStatistics, compare_runs
from d2sd.calibration.resampling import wilson
from d2sd.calibration.scores import Bin, PositionAcceptance
from d2sd.calibration.text import (
    Columns,
    Sentence,
    Table,
    Tone,
    Write,
    change,
    count,
    decimal,
    digits,
    first_page,
    listed,
    percent,
    signed,
    signed_decimal,
    with_interval,
)
from d2sd.trace.events import html_of

MIN_POSITIONS = 200  # scored positions needed to judge a drafter
MIN_IN_BIN = 30  # positions needed to judge a bin
SHOWN_TEMPERATURES = 6
CLEAR = 2.81  # standard errors (99.5%), since ten bins are tested
MIN_STEPS = 30  # steps needed to judge boundaries or gains
TRUSTED_ERROR = 0.05
# A drafter is "slightly" over- or under-confident below the first gap between confidence and accepted share, "far" above the second.
SLIGHT, FAR = 0.03, 0.1
MAX_ROWS = 32  # rows of the table in a notebook
MAX_UNSEEN = 0.05  # a larger share of steps with unknown boundary is mentioned

# Reports.


def read_report(report: Report) -> list[Sentence]:
    """Returns sentences about a report: the verdict first, then its reasons.

    report: result of ``calibrate``.
    """
    if not report.positions and report.by_position:
        return [_without_confidences(report), *_gains(report), _unit(report)]
    if not report.positions:
        nothing = "no step drafted a block with a known boundary" if report.steps else "there are no steps"
        return [Sentence("few", f"Nothing to score: {nothing}.")]
    positions = count(report.positions, "node" if report.of_paths else "scored position")
    reliability = _reliability(report, f"{positions} from {count(report.runs, 'run')}")
    if report.of_paths:
        trees = "No block was drafted: every verified node of the trees is scored by the probability of its whole path."
        return [Sentence("note", trees), *reliability, _unit(report)]
    return [
        *reliability,
        *_boundary(report),
        *_temperature(report),
        *_head(report),
        *_gains(report),
        *_second(report),
        _unit(report),
    ]


@html_of.register
def _(report: Report) -> str:
    columns: Columns[PositionAcceptance] = {
        "position": lambda p: str(p.position),
        "steps": lambda p: str(p.count),
        "mean confidence": lambda p: percent(p.confidence),
        "accepted": lambda p: percent(p.accepted),
    }
    return first_page([s.text for s in read_report(report)], Table.of(columns, report.by_position[:MAX_ROWS]))


def _without_confidences(report: Report) -> Sentence:
    """Returns the sentence about runs without confidences. Most logs of serving engines have none."""
    first, steps = report.by_position[0], report.gains.sources[0].present
    gained = (report.gains.sources[0].tokens.value or 0.0) * report.steps / steps
    return Sentence(
        "note",
        f"Nothing to calibrate: these runs have no confidences. On average, {gained:.2f} tokens of the first draft are accepted. "
        f"Its first token is accepted in {percent(first.accepted)} of {count(first.count, 'step')} with a known outcome.",
    )


def _reliability(figures: DraftConfidence, where: str) -> Iterator[Sentence]:
    """Yields the verdict, a sentence for each group of adjacent bins that are clearly over- or under-confident, and one about bins with
    few positions.

    where: the number of positions, as text.
    """

    def kind(b: Bin) -> str:
        if b.count < MIN_IN_BIN:
            return "few" if b.count else "empty"
        low, high = wilson(b.accepted, b.count, CLEAR)
        return "over" if b.confidence > high else "under" if b.confidence < low else "fine"

    verdict = _verdict(figures, where)
    yield verdict
    ranges = defaultdict[str, list[list[tuple[int, Bin]]]](list)
    for name, adjacent in groupby(enumerate(figures.uniform), key=lambda place: kind(place[1])):
        ranges[name].append(list(adjacent))
    tones: dict[str, Tone] = {"over": "bad", "under": "mixed"}
    for word, tone in tones.items():
        for places in ranges[word]:
            n = sum(b.count for _, b in places)
            confidence = sum(b.confidence * b.count for _, b in places) / n
            accepted = sum(b.accepted * b.count for _, b in places) / n
            text = f"{word.capitalize()}-confident at confidences of {_span(places)}: mean confidence {percent(confidence)}, accepted {percent(accepted)} of {n} positions."
            yield Sentence(tone, text, "uniform", tuple(place for place, _ in places))
    clear, fine, few = ranges["over"] + ranges["under"], ranges["fine"], ranges["few"]
    if fine and not clear and verdict.tone == "good":
        yield Sentence("good", f"No bin with {MIN_IN_BIN} or more positions is clearly over- or under-confident.")
    if few and not fine and not clear:
        yield Sentence("few", f"No bin has {MIN_IN_BIN} positions yet, so single bins cannot be judged.")
    elif few:
        spans = listed(list(map(_span, few)))
        yield Sentence("few", f"Too few positions at confidences of {spans}: fewer than {MIN_IN_BIN} per bin.")


def _verdict(figures: DraftConfidence, where: str) -> Sentence:
    means = f"mean confidence {percent(figures.confidence)}, accepted {percent(figures.accepted)}"
    if figures.positions < MIN_POSITIONS:
        return Sentence(
            "few", f"Too little data for a verdict: {where}; at least {MIN_POSITIONS} are needed. So far: {means}."
        )
    gap, ece, chance = figures.gap, figures.ece.value or 0.0, figures.chance or 0.0
    off = f"ECE {with_interval(figures.ece, digits)}, expected by chance {digits(chance)}"
    if gap.excludes_zero:
        word, tone = gap_words(gap.value or 0.0)
        return Sentence(tone, f"The drafter is {word}: {means}; {off} ({where}).")
    if ece <= max(TRUSTED_ERROR, 1.5 * chance):
        return Sentence("good", f"The confidence can be trusted: {means}; {off} ({where}).")
    return Sentence("mixed", f"The confidence is right on average, but not in all bins: {means}; {off} ({where}).")


def gap_words(gap: float) -> tuple[str, Tone]:
    """Returns the description and the tone of a significant gap. gap: accepted share − mean confidence."""
    size = abs(gap)
    much = "slightly " if size < SLIGHT else "far " if size > FAR else ""
    return f"{much}{'over' if gap < 0 else 'under'}-confident", "mixed" if size < SLIGHT else "bad"


def _span(places: Sequence[tuple[int, Bin]]) -> str:
    return f"{places[0][1].left:.1f}–{places[-1][1].right:.1f}"


def _boundary(figures: DraftConfidence) -> Iterator[Sentence]:
    ranks, matrix = figures.ranks, figures.matrix
    if ranks.steps < MIN_STEPS:
        if ranks.steps:
            yield Sentence("few", f"Too few rejected drafts to judge the predicted boundaries: {ranks.steps}.")
        return
    if ranks.chosen >= MIN_STEPS and ranks.chance_used is not None and ranks.mean_used is not None:
        k, steps, chance = ranks.num_branches or max(1, round(ranks.mean_used)), ranks.chosen, ranks.chance_used
        hits, what = ranks.used, f"the {k} re-drafted prefixes"
        if not ranks.num_branches:
            what = f"the re-drafted prefixes ({ranks.mean_used:.1f} a step)"
    else:
        k, steps = min(USUAL_K, len(ranks.within)), ranks.steps
        hits, what, chance = ranks.within[k - 1], f"the {k} likeliest prefixes", ranks.chance[k - 1]
    assert hits.value is not None
    yield Sentence(
        "good" if (hits.low or hits.value) > 2 * chance else "mixed",
        f"The true boundary is among {what} in {with_interval(hits)} of {steps} steps; with random prefixes, in {percent(chance)}.",
        "ranks",
        tuple(range(k)),
    )
    if matrix.unseen > MAX_UNSEEN * (matrix.unseen + sum(map(sum, matrix.counts))):
        yield Sentence(
            "note",
            f"In {count(matrix.unseen, 'other step')}, the tree or the text ended before target and draft differed, so the boundary is unknown. "
            "These steps are not counted here, so late boundaries are underrepresented. The tokens before that end still count for the ECE.",
        )


def _temperature(report: Report) -> Iterator[Sentence]:
    advice = report.advice
    if advice is None:  # too few positions, or runs without probabilities at other temperatures
        return
    helps = (advice.improvement.low or 0.0) > 0
    shown = ", ".join(f"{t:.2f}" for t in advice.temperatures[:SHOWN_TEMPERATURES])
    more = ", …" if len(advice.temperatures) > SHOWN_TEMPERATURES else ""
    name = f"Softmax temperatures by position ({shown}{more})"
    text = (
        f"{name} {'improve' if helps else 'do not clearly improve'} the calibration. They were fitted on one half of the data. On the "
        f"other half, they change the ECE from {digits(advice.error_before)} to {digits(advice.error_after)}. This is the ECE of the "
        "probability that a draft is accepted up to a position"
    )
    if advice.changed is not None:
        text += f". {percent(advice.changed)} of the steps would select other prefixes"
    if advice.hits_before is not None:
        text += f" (boundary hit rate {percent(advice.hits_before)} before, {percent(advice.hits_after)} after)"
    yield Sentence("mixed" if helps else "note", f"{text}. These temperatures are not for sampling.")


def _head(report: Report) -> Iterator[Sentence]:
    """Yields the sentences about the confidence head, then a sentence for each difference from the softmax."""
    head = report.head
    if head is None or not head.positions:
        return
    for said in (*_reliability(head, count(head.positions, "scored position")), *[*_boundary(head)][:1]):
        chart = said.chart and f"head-{said.chart}"
        yield replace(said, text=f"Confidence head: {within(said.text)}", chart=chart)
    for d in (d for d in head.differences if d.count_a):
        of_steps = d.name == "likeliest"
        label, write = (f"True boundary among the {head.k} likeliest", percent) if of_steps else COMPARED[d.name][:2]
        better = "head" if ((d.difference.value or 0.0) > 0) == of_steps else "softmax"
        clear = f"the {better} is better" if d.difference.excludes_zero else "no clear difference"
        yield Sentence(
            "note",
            f"{label}: {with_interval(d.b, write)} by the confidence head, {with_interval(d.a, write)} by the "
            f"softmax (n = {d.count_a}); {clear}.",
        )


def _gains(report: Report) -> Iterator[Sentence]:
    redrafts = [s for s in report.gains.sources if s.branch]
    if not redrafts or report.steps < MIN_STEPS:
        return
    total, alpha = sum(s.tokens.value or 0.0 for s in redrafts), report.gains.tokens_per_step.value or 0.0
    last, last_tokens = redrafts[-1], redrafts[-1].tokens.value or 0.0
    text = f"Re-drafts add {total:.2f} of the {alpha:.2f} tokens per step"
    if total < 0.005:  # displayed as 0.00
        text += ", so the first draft alone does as well with fewer nodes"
    elif len(redrafts) > 1:
        text += (
            f"; the last one, number {last.branch}, adds {last_tokens:.2f} tokens for {last.nodes:.1f} verified nodes"
        )
        nodes = sum(s.nodes for s in report.gains.sources) or 1.0
        if 2 * last_tokens / max(alpha, 1e-9) < last.nodes / nodes:
            text += (
                ". Its share of the nodes is more than twice its share of the tokens, so a K below "
                f"{len(redrafts)} may do as well. To compare other K, use “When does it pay?” in Explore, or d2sd whatif"
            )
    yield Sentence("note", text + ".", "gains", (last.branch or 0,))


def _second(report: Report) -> Iterator[Sentence]:
    second = report.second
    if second is None or not second.positions:
        return
    where = f"{count(second.positions, 'token')} of re-drafts with a correct prefix"
    says = f"mean confidence {percent(second.confidence)}, accepted {percent(second.accepted)} ({where})"
    if second.positions < MIN_POSITIONS or second.gap.low is None:
        yield Sentence("few", f"Too few tokens to judge the second drafter: {says}.")
    elif second.gap.excludes_zero:
        word, tone = gap_words(second.gap.value or 0.0)
        yield Sentence(tone, f"The second drafter is {word}: {says}.")
    else:
        yield Sentence("good", f"The second drafter’s confidence is right on average: {says}.")


def _unit(report: Report) -> Sentence:
    if report.unit == "prompt":
        return Sentence("note", "95% intervals, by bootstrap over whole prompts.")
    return Sentence(
        "few",
        f"Only {count(report.prompts, 'prompt')}: the intervals (bootstrap by {report.unit}) do not apply to other prompts.",
    )


# Comparisons: only significant differences are claimed.

COUNTED, POINTS, RATED = ("more", "fewer"), ("points higher", "points lower"), ("higher", "lower")


class ComparedFigure(NamedTuple):
    """How a compared figure is written.

    label: name of the figure.
    write, write_change: functions that return the figure, and a difference of two figures, as text.
    words: the words for a larger and for a smaller value.
    """

    label: str
    write: Write
    write_change: Write
    words: tuple[str, str]


COMPARED = {
    "tokens": ComparedFigure("Tokens a step", decimal, signed_decimal, COUNTED),
    "speed": ComparedFigure("Tokens a second", partial(digits, places=0), partial(change, places=0), COUNTED),
    "first": ComparedFigure("Accepted of the first draft", decimal, signed_decimal, COUNTED),
    "nodes": ComparedFigure("Tokens read a step", partial(digits, places=1), partial(change, places=1), COUNTED),
    "hit": ComparedFigure("Boundary found", percent, signed, POINTS),
    "repaired": ComparedFigure("Rescued drafts", percent, signed, POINTS),
    "redraft": ComparedFigure("Tokens per re-draft", digits, change, COUNTED),
    "gap": ComparedFigure("Accepted − confidence", signed, signed, POINTS),
    "brier": ComparedFigure("Brier score", digits, change, RATED),
    "ece_above_chance": ComparedFigure("Calibration error beyond chance", digits, change, RATED),
}
TOO_FEW = "An interval needs at least four prompts or blocks of text."


def difference_words(d: Difference) -> str:
    """Returns the interval of a difference B − A in words, such as "0.2 to 0.5 more"."""
    _, _, write, (more, fewer) = COMPARED[d.name]
    low, high = d.difference.low, d.difference.high
    if low is None or high is None:
        return "no interval"
    if low == high == 0:
        return "the same"
    ends = [write(abs(end)).lstrip("+") for end in (low, high)]
    if not d.difference.excludes_zero:
        return f"not clear: {ends[0]} {fewer} to {ends[1]} {more}"
    near, far = ends if low > 0 else ends[::-1]
    return f"{near if near == far else f'{near} to {far}'} {more if low > 0 else fewer}"


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison with its description in words.

    comparison: the figures.
    title, more: the two results of ``finding``.
    how: an explanation of the intervals.
    """

    comparison: Comparison
    title: str
    more: str
    how: str


def compare_sides(a: RunStatistics, b: RunStatistics, names: Sequence[str], doubt: str = "") -> Compared:
    """Compares two sets of runs. names: names of both sides. doubt: as for ``finding``."""
    comparison = compare_runs(a, b)
    tables = [side.counted().table for side in (a, b)]
    paces = [1000 * float(t.seconds.sum()) / len(t) if len(t) and t.seconds.sum() else None for t in tables]
    title, more = finding(comparison, names, [len(t) for t in tables], paces, a.texts == b.texts, doubt)
    return Compared(comparison, title, more, how_compared(comparison))


def finding(
    comparison: Comparison,
    names: Sequence[str],
    steps: Sequence[int],
    paces: Sequence[float | None],
    same_text: bool,
    doubt: str = "",
) -> tuple[str, str]:
    """Returns a title about tokens per step, and a sentence about time. Neither claims more than the intervals support.

    names: names of both sides.
    steps: number of steps of each side.
    paces: mean time of a step of each side, in milliseconds; None if unknown.
    same_text: whether both sides wrote the same texts, so that their numbers of steps can be compared.
    doubt: a sentence that says why times cannot be compared; empty if they can.
    """
    figures = {d.name: d for d in comparison.figures}
    tokens, speed = figures["tokens"].difference, figures["speed"].difference
    ahead = int((tokens.value or 0.0) > 0)  # the side with more tokens a step
    faster = int((speed.value or 0.0) > 0)  # the side with more tokens a second
    leader, other = names[ahead], within(names[1 - ahead])
    doubt = "" if None in paces else doubt
    if tokens.low is None:
        return f"Too few steps to compare {within(names[0])} with {within(names[1])}.", f"{TOO_FEW} {doubt}".rstrip()
    if not tokens.excludes_zero:
        title = f"{names[0]} and {within(names[1])}: no clear difference in tokens a step."
    elif same_text:
        title = f"{leader} needs {steps[ahead]} steps where {other} needs {steps[1 - ahead]}."
    else:
        title = f"{leader} writes {abs(tokens.value or 0.0):.1f} more tokens a step than {other}."
    pace, other_pace = paces[ahead], paces[1 - ahead]
    if doubt or pace is None or other_pace is None:
        return title, doubt
    rates = [COMPARED["speed"].write(side.value) for side in (figures["speed"].a, figures["speed"].b)]
    speeds = f"{rates[faster]} tokens a second instead of {rates[1 - faster]}"
    takes = f"a step takes {pace:.1f} ms instead of {other_pace:.1f}"
    if not tokens.excludes_zero:
        more = f"{names[faster]} is faster: {speeds}." if speed.excludes_zero else "No clear difference in time either."
    elif not speed.excludes_zero:
        more = f"{'But' if pace > other_pace else 'And'} {takes}: no clear difference in time."
    elif faster == ahead:
        more = f"It is also faster: {speeds}{f', although {takes}' if pace > other_pace else ''}."
    else:
        more = f"But {takes}, so it is slower: {rates[ahead]} tokens a second instead of {rates[faster]}."
    return title, more


def within(name: str) -> str:
    """Returns the name of a side for the middle of a sentence: if its first word is an ordinary word, it begins with a small letter."""
    return f"{name[:1].lower()}{name[1:]}" if name.split(maxsplit=1)[0][1:].islower() else name


def how_compared(comparison: Comparison) -> str:
    together = (
        "both sides together" if comparison.paired else "each side separately, since their prompts or texts differ"
    )
    same = " Both sides have the same first drafter, so its calibration is not compared."
    return (
        f"Intervals of the differences: bootstrap by {comparison.unit}, "
        f"resampling {together}. All intervals of the differences hold simultaneously with 95% confidence."
        f"{same if comparison.same_drafter else ''}"
    )
