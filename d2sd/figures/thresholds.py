"""Advice on where drafting should stop: sentences, settings of serving engines, and a figure.

The engines' settings are as of September 2026. Sources: llama.cpp's ``common/arg.cpp`` and ``common/speculative.cpp``, vLLM's
``SpeculativeConfig``, SGLang's ``arg_groups/fields/spec.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Estimate, Sentence
from d2sd.calibration.sentences import Write, count, decimal, digits, percent, with_interval
from d2sd.calibration.steps import MIN_PROMPTS
from d2sd.calibration.thresholds import KEPT, THRESHOLDS, DraftCosts, Stop, Stops
from d2sd.costs.machines import StageCosts
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    INK,
    FigureTable,
    Panel,
    Trace,
    axis,
    cut,
    draw,
    places_axis,
    safe,
    scatter,
    values_of,
    whiskers,
)
from d2sd.trace.metrics import Work

CHAINLESS = ("autoregressive", "eagle3")  # methods without a first draft, or whose first draft is not a chain
EXAMPLE = "product", 0.05  # rule and threshold, shown if there are too few prompts to choose a cut
LOOKS = {  # by rule: name, colour, dash pattern, marker
    "product": ("product of confidences", "first", "solid", "circle"),
    "single": ("single confidence", "second", "dash", "diamond"),
    "length": ("fixed length", "target", "dot", "square"),
}
RING = "chosen on half the prompts"
MOST_TIME = 1.5  # upper end of the time axis (1: time with whole drafts); very short drafts exceed it
HALVES = "This cut was chosen on one half of the prompts and measured on the other half."
tenths = partial(digits, places=1)


def draft_costs(machine: StageCosts, method: str) -> DraftCosts | None:
    """Returns the costs of steps that verify only the first draft; None for the methods in ``CHAINLESS``.

    Raises ``InputError`` if the machine's costs of the method are unknown.
    """
    if method in CHAINLESS:
        return None
    known = machine.of(method)
    return DraftCosts(machine.name, lambda rows, nodes: known.seconds(method, Work(rows, (), nodes)) or 0.0)


def milliseconds(seconds: float | None) -> str:
    return digits(None if seconds is None else 1e3 * seconds)


# Sentences.


def caption(stops: Stops) -> str:
    """Returns sentences about the assumptions of the figures."""
    kind = (
        "does not shrink when drafting stops earlier"
        if not stops.sequential
        else "shrinks with every token that is not drafted"
    )
    time = f" Drafting time {kind}." if stops.machine else ""
    return (
        "Only the first draft of each step counts, as if it were verified alone. Cuts are applied to the recorded steps; a real run "
        f"with cuts would have other steps.{time}"
    )


def _figure_words(figure: Estimate, write: Write = percent) -> str:
    """Returns a value with its interval. The interval is left out if it is a single point."""
    return write(figure.value) if figure.low == figure.high else with_interval(figure, write)


def place_words(stop: Stop) -> str:
    """Returns a clause that states where a cut ends drafts."""
    if stop.rule == "length":
        return f"after {count(int(stop.value), 'drafted token')}"
    if stop.rule == "single":
        return f"at the first confidence below {stop.value:g}"
    return f"when the product of confidences falls below {stop.value:g}"


def stop_words(stop: Stop, whole: Stop, machine: str) -> str:
    """Returns a clause that compares a cut with whole drafts; with times, a sentence follows."""
    before, after = decimal(whole.alpha.value), decimal(stop.alpha.value)
    alpha = f"α stays at {after}" if before == after else f"α falls from {before} to {after}"
    if stop.kept.low is not None and stop.kept.low < 1:
        alpha += f" (at worst {percent(stop.kept.low)} of {before})"
    words = f"if drafting stops {place_words(stop)}, a step verifies {tenths(stop.nodes.value)} nodes instead of {tenths(whole.nodes.value)}; {alpha}"
    if stop.slowdown.value is None:
        return words
    times = f"{milliseconds(stop.seconds.value)} ms instead of {milliseconds(whole.seconds.value)} ms with whole drafts"
    return f"{words}. Calculated for {cut(machine)}, a token takes {times}: {with_interval(stop.slowdown)} of that time"


def verdict(stops: Stops) -> Sentence:
    """Returns a sentence about the best cut. It states whether the cut is clearly better than whole drafts."""
    whole = stops.stops[-1]
    if stops.advice is None:
        stop = next(s for s in stops.stops if (s.rule, s.value) == EXAMPLE)
        words = stop_words(stop, whole, stops.machine)
        more = f"Choosing a threshold needs at least {MIN_PROMPTS} prompts."
        return Sentence("few", f"{words[0].upper()}{words[1:]}. {more}")
    if not stops.advice:
        why = "shortens the time per token" if stops.machine else f"keeps {percent(KEPT)} of α with fewer nodes"
        text = (
            f"Nothing is better than whole drafts: on one half of the prompts, no threshold and no shorter draft {why}."
        )
        return Sentence("note", text)
    best = stops.advice[0]
    words = stop_words(best.stop, best.whole, stops.machine)
    if best.clear:
        return Sentence("good", f"{words[0].upper()}{words[1:]}. {HALVES}")
    return Sentence("note", f"Nothing is clearly better than whole drafts. The best cut found: {words}. {HALVES}")


def stop_sentences(stops: Stops | None, has_head: bool = False) -> Iterator[Sentence]:
    """Yields the verdict, then the sentences of ``engine_settings``.

    has_head: whether the drafter also has a confidence head, like a DSpark drafter.
    """
    if stops is None:
        return
    yield verdict(stops)
    for text in engine_settings(stops, has_head):
        yield Sentence("note", text)


def engine_settings(stops: Stops, has_head: bool = False) -> Iterator[str]:
    """Yields sentences about the cuts that are clearly better than whole drafts: the settings with which serving engines apply
    them, or that an engine has no such setting.

    For a DSpark drafter (``has_head``), a setting is left out if the engine compares the threshold with the output of the
    confidence head instead of the softmax, or if the engine does not accept the length.
    """
    clear = {a.stop.rule: a.stop for a in stops.advice or () if a.clear}
    drafted = int(stops.stops[-1].value)
    if "single" in clear and not has_head:
        yield (
            f"llama.cpp: --spec-draft-n-max {drafted} --spec-draft-p-min {clear['single'].value:g}. llama.cpp compares this "
            "threshold with the token’s share of the probability of the ten likeliest tokens. That share is never below the confidence "
            "used here, so drafts are somewhat longer."
        )
    elif "length" in clear:
        yield f"llama.cpp: --spec-draft-n-max {clear['length'].value:g}."
    if "length" in clear and not has_head:
        n = int(clear["length"].value)
        steps = f"--speculative-num-steps {n} --speculative-eagle-topk 1 " if stops.sequential else ""
        yield f'vLLM: "num_speculative_tokens": {n} in --speculative-config; this number does not include the anchor.'
        yield f"SGLang: {steps}--speculative-num-draft-tokens {n + 1}; this number includes the anchor."
    if has_head and clear:
        yield (
            "vLLM has no threshold for a DSpark drafter. With enable_adaptive_verification, the confidence head and the server’s load decide "
            "how many tokens are verified."
        )
    if clear and "length" not in clear and not has_head:
        yield f"vLLM and SGLang have no setting for {'this cut' if len(clear) == 1 else 'these cuts'}: neither takes a threshold on the draft’s confidence."
    if set(clear) == {"product"}:
        yield "llama.cpp has no such setting either: its threshold applies to single confidences, not to their product."


# The figure.


def stops_panel(stops: Stops) -> Panel:
    title, question = "Where should drafting stop?", f"{verdict(stops).text} {caption(stops)}"
    return Panel("stops", title, question, stops_figure(stops), FigureTable(*stop_rows(stops)))


def stop_rows(stops: Stops) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Returns the head and the rows of the table: whole drafts, every cut, and the first cut of ``stops.advice`` by prompt group."""
    timed = bool(stops.machine)
    whole, others = stops.stops[-1], stops.stops[:-1]
    rows = [("whole drafts", *_cells(whole, timed)), *((_name(s), *_cells(s, timed)) for s in others)]
    for name, uncut, stop in stops.groups:
        rows.append((f"{cut(name)}: whole drafts", *_cells(uncut, timed)))
        if (stop.rule, stop.value) != (uncut.rule, uncut.value):
            rows.append((f"{cut(name)}: {_name(stop)}", *_cells(stop, timed)))
    head = ("Stop at", "Nodes a step", "α", "Share of α", *(("ms per token", "Share of the time") if timed else ()))
    return head, tuple(rows)


def _name(stop: Stop) -> str:
    return count(int(stop.value), "token") if stop.rule == "length" else f"{stop.rule} < {stop.value:g}"


def _cells(stop: Stop, timed: bool) -> tuple[str, ...]:
    cells = _figure_words(stop.nodes, tenths), _figure_words(stop.alpha, decimal), _figure_words(stop.kept)
    return (*cells, _figure_words(stop.seconds, milliseconds), _figure_words(stop.slowdown)) if timed else cells


def stops_figure(stops: Stops) -> go.Figure:
    """Draws α, nodes and, if costs are known, time per token. The left half is by threshold, the right half by draft length."""
    whole = stops.stops[-1]
    chosen = {(advice.stop.rule, advice.stop.value) for advice in stops.advice or ()}
    lines: list[Trace] = []
    rings: list[Trace] = []
    for rule in LOOKS:
        own = [s for s in stops.stops if s.rule == rule]
        shown = own if rule == "length" else [whole, *own]
        at = [s.value if rule == "length" else float(n) for n, s in enumerate(shown)]
        lines += _lines(rule, at, shown)
        rings += _rings(rule, [(x, s) for x, s in zip(at, shown, strict=True) if (s.rule, s.value) in chosen])
    for ring in rings[1:]:
        ring["showlegend"] = False
    ticks = [name if n % 3 == 0 else "" for n, name in enumerate(["none", *(f"{t:g}" for t in THRESHOLDS)])]
    bottom, heights = ("y3", [(0.62, 1), (0.33, 0.55), (0, 0.26)]) if stops.machine else ("y2", [(0.42, 1), (0, 0.34)])
    across: dict[str, Any] = {
        "showgrid": False,
        "range": [0.5, whole.value + 0.5],
        "dtick": max(1, round(whole.value / 5)),
    }
    axes: dict[str, Any] = {
        "xaxis": places_axis(ticks, "threshold", anchor=bottom, domain=[0, 0.56]),
        "xaxis2": axis("drafted tokens", anchor=bottom, domain=[0.6, 1], **across),
        "yaxis": axis("α", domain=heights[0], nticks=6),
        "yaxis2": axis("nodes", domain=heights[1], rangemode="tozero", nticks=4),
    }
    if stops.machine:
        ends = [end for s in stops.stops for end in (s.slowdown.low, s.slowdown.high) if end is not None]
        span = [min(ends, default=0.9) - 0.05, min(MOST_TIME, max(ends, default=1.1) + 0.02)]
        axes["yaxis3"] = axis("time/token", domain=heights[2], nticks=4, tickformat=".0%", range=span)
    height = 460 if stops.machine else 360
    return draw([*lines, *rings], height=height, margin={"l": 46, "r": 12, "t": 24, "b": 90}, **axes)


def _figures(shown: Sequence[Stop]) -> Iterator[tuple[str, list[Estimate]]]:
    """Yields the y axis and the values of each row of the plot, if all of the row's values are known."""
    rows = {"y": [s.alpha for s in shown], "y2": [s.nodes for s in shown], "y3": [s.slowdown for s in shown]}
    yield from ((yaxis, figures) for yaxis, figures in rows.items() if all(f.value is not None for f in figures))


def _lines(rule: str, at: Sequence[float], shown: Sequence[Stop]) -> Iterator[Trace]:
    """Yields the line of a rule for every row of the plot."""
    name, colour, dash, symbol = LOOKS[rule]
    words = list(map(_hover, shown))
    for yaxis, figures in _figures(shown):
        yield scatter(
            "lines+markers",
            at,
            values_of(figures),
            words,
            name=name,
            legendgroup=rule,
            showlegend=yaxis == "y",
            xaxis="x2" if rule == "length" else "x",
            yaxis=yaxis,
            line={"color": COLOURS[colour], "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 6, "color": COLOURS[colour]},
            **whiskers(figures, color=EDGE, thickness=1, width=2),
        )


def _rings(rule: str, chosen: Sequence[tuple[float, Stop]]) -> Iterator[Trace]:
    """Yields rings around the chosen cuts, one trace for every row of the plot."""
    at = [x for x, _ in chosen]
    for yaxis, figures in _figures([s for _, s in chosen]) if chosen else ():
        ring = {"symbol": "circle-open", "size": 14, "color": INK, "line": {"width": 1.5}}
        across = "x2" if rule == "length" else "x"
        yield scatter(
            "markers", at, values_of(figures), name=RING, legendgroup=RING, xaxis=across, yaxis=yaxis, marker=ring
        )


def _hover(stop: Stop) -> str:
    time = (
        ""
        if stop.seconds.value is None
        else f"<br>{with_interval(stop.seconds, milliseconds)} ms per token, calculated"
    )
    alpha = with_interval(stop.alpha, decimal)
    return f"{safe(_name(stop))}<br>α {alpha}, {with_interval(stop.nodes, tenths)} nodes a step<br>{with_interval(stop.kept)} of the α of whole drafts{time}"
