"""Charts of a comparison as plain SVG, without a plotting package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10
from xml.sax.saxutils import escape

from d2sd.drawing.colours import CATEGORIES, COLOURS

WIDTH, TOP, BOTTOM, LINE, RIGHT = 760, 64, 30, 26, 70
LETTER = 7.2  # width of a letter of the labels, in pixels
INK, FAINT, GRID = COLOURS["ink"], COLOURS["muted"], COLOURS["line"]


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A value with its interval, both in the unit of the chart."""

    label: str
    value: float
    low: float
    high: float


def interval_chart(title: str, unit: str, points: Sequence[ChartPoint], over: str = "over prompts") -> str:
    """One line per point: a dot with its 95% interval and value, on an axis from 0. ``over``: kind of interval."""
    left, x, axis = _axis([p.label for p in points], max(p.high for p in points))
    parts = [axis]
    for row, p in enumerate(points):
        y = TOP + LINE * (row + 0.5)
        tip = f"{p.label}: {_short(p.value)} ({_short(p.low)} to {_short(p.high)}) {unit}"
        parts.append(
            f"<g><title>{escape(tip)}</title>{_label(left, y, p.label)}"
            f'<path d="M{x(p.low):.1f} {y:.1f}H{x(p.high):.1f}" stroke="{CATEGORIES[0]}" stroke-width="3" '
            f'stroke-opacity="0.45"/><circle cx="{x(p.value):.1f}" cy="{y:.1f}" r="5" fill="{CATEGORIES[0]}"/>'
            f'<text x="{x(p.high) + 10:.1f}" y="{y + 4:.1f}" fill="{INK}">{_short(p.value)}</text></g>'
        )
    return _svg(title, f"{unit}; bar: 95% interval {over}", len(points), parts)


def stacked_chart(title: str, unit: str, parts_of: Sequence[tuple[str, dict[str, float]]]) -> str:
    """One bar per row, of named parts stacked from 0; the total stands after it."""
    names = list(dict.fromkeys(name for _, parts in parts_of for name in parts))
    left, x, axis = _axis([label for label, _ in parts_of], max(sum(p.values()) for _, p in parts_of))
    parts = [axis]
    at = 20.0
    for number, name in enumerate(names):
        parts.append(
            f'<rect x="{at:.0f}" y="44" width="11" height="11" fill="{CATEGORIES[number % len(CATEGORIES)]}"/>'
            f'<text x="{at + 16:.0f}" y="54" fill="{FAINT}">{escape(name)}</text>'
        )
        at += 34 + LETTER * len(name)
    for row, (label, values) in enumerate(parts_of):
        y, start = TOP + LINE * row, 0.0
        parts.append(_label(left, y + LINE / 2, label))
        for number, name in enumerate(names):
            value = values.get(name, 0.0)
            parts.append(
                f'<rect x="{x(start):.1f}" y="{y + 5:.1f}" width="{x(start + value) - x(start):.1f}" '
                f'height="{LINE - 10}" fill="{CATEGORIES[number % len(CATEGORIES)]}">'
                f"<title>{escape(f'{label}, {name}: {_short(value)} {unit}')}</title></rect>"
            )
            start += value
        parts.append(f'<text x="{x(start) + 8:.1f}" y="{y + LINE / 2 + 4:.1f}" fill="{INK}">{_short(start)}</text>')
    return _svg(title, unit, len(parts_of), parts)


def _axis(labels: Sequence[str], largest: float) -> tuple[float, Callable[[float], float], str]:
    """Left edge of the plot, the map from values to pixels, and the grid with its numbers."""
    left = min(WIDTH / 2, 24 + LETTER * max(map(len, labels)))
    rough = (largest or 1.0) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough)
    end = step * -(-(largest or 1.0) // step)

    def x(value: float) -> float:
        return left + (WIDTH - RIGHT - left) * value / end

    bottom = TOP + LINE * len(labels)
    ticks = [i * step for i in range(round(end / step) + 1)]
    grid = "".join(
        f'<path d="M{x(t):.1f} {TOP}V{bottom}" stroke="{GRID}"/>'
        f'<text x="{x(t):.1f}" y="{bottom + 18}" text-anchor="middle" fill="{FAINT}">{t:g}</text>'
        for t in ticks
    )
    return left, x, grid


def _label(left: float, y: float, label: str) -> str:
    room = int((left - 20) / LETTER)
    shown = label if len(label) <= room else label[: room - 1] + "…"
    return f'<text x="{left - 10:.1f}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{escape(shown)}</text>'


def _svg(title: str, note: str, rows: int, parts: Sequence[str]) -> str:
    height = TOP + LINE * rows + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="20" y="24" font-size="15" font-weight="600" fill="{INK}">{escape(title)}</text>'
        f'<text x="{WIDTH - 20}" y="24" text-anchor="end" fill="{FAINT}">{escape(note)}</text>'
        f"{''.join(parts)}</svg>\n"
    )


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
