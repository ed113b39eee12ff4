"""The break-even map of a comparison as SVG: tokens per step against cost per step, with lines of equal speedup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from d2sd.drawing.colours import COLOURS

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 56, 48
SPEEDUPS = (0.5, 1, 2, 4, 8)
MOST = 20.0  # plain steps or tokens: what lies beyond stands at the edge
INK, FAINT, GRID, SLOW = (COLOURS[name] for name in ("ink", "muted", "line", "reject"))


@dataclass(frozen=True, slots=True)
class MapPoint:
    """A method: its α, and the cost of its step in plain steps, measured here and on another machine; None if unknown."""

    label: str
    alpha: float
    here: float | None
    there: float | None


def break_even_map(points: Sequence[MapPoint], machine: str) -> str:
    """The map of these methods; ``machine``: what the other one is called. A point above the line is faster than plain
    decoding."""
    costs = [cost for p in points for cost in (p.here, p.there) if cost]
    wide = min(MOST, 1.15 * max([3.0, *costs]))
    high = min(MOST, 1.2 * max([3.0, *(p.alpha for p in points)]))

    def x(cost: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(cost, wide) / wide

    def y(alpha: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(alpha, high) / high

    parts = []
    for gain in SPEEDUPS:
        cost = min(wide, high / gain)
        colour = SLOW if gain == 1 else GRID
        name = "breaks even" if gain == 1 else f"{gain:g}×"
        at_top = cost < wide
        parts.append(
            f'<path d="M{x(0):.1f} {y(0):.1f}L{x(cost):.1f} {y(cost * gain):.1f}" stroke="{colour}"/>'
            f'<text x="{x(cost) + (4 if at_top else -4):.1f}" y="{y(cost * gain) + (12 if at_top else -5):.1f}" '
            f'text-anchor="{"start" if at_top else "end"}" fill="{SLOW if gain == 1 else FAINT}">{name}</text>'
        )
    parts += [_tick(x(n), HEIGHT - BOTTOM + 18, n, "middle") for n in range(0, int(wide) + 1, max(1, int(wide) // 6))]
    parts += [_tick(LEFT - 8, y(n) + 4, n, "end") for n in range(1, int(high) + 1, max(1, int(high) // 6))]
    for p in points:
        level = y(p.alpha)
        if p.here and p.there:
            parts.append(
                f'<path d="M{x(p.here):.1f} {level:.1f}H{x(p.there):.1f}" stroke="{FAINT}" stroke-dasharray="3 3"/>'
            )
        for price, fill in ((p.there, "#ffffff"), (p.here, INK)):
            if price:
                tip = f"{p.label}: α {p.alpha:.2f} for {price:.2f} plain steps, {p.alpha / price:.2f} times as fast"
                parts.append(
                    f'<circle cx="{x(price):.1f}" cy="{level:.1f}" r="5" fill="{fill}" stroke="{INK}" stroke-width="2">'
                    f"<title>{escape(tip)}</title></circle>"
                )
        if end := p.here or p.there:
            parts.append(f'<text x="{x(end) + 9:.1f}" y="{level - 7:.1f}" fill="{INK}">{escape(p.label)}</text>')
    note = f"● here, ○ 8B model on {machine}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img"><title>Where drafting pays</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/><text x="20" y="24" font-size="15" font-weight="600" '
        f'fill="{INK}">Where drafting pays</text><text x="{WIDTH - 20}" y="24" text-anchor="end" fill="{FAINT}">{escape(note)}</text>'
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="{FAINT}"/>{"".join(parts)}'
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle" fill="{FAINT}">a step costs, in plain steps</text>'
        f'<text x="18" y="{TOP - 12}" fill="{FAINT}">tokens a step, α</text></svg>\n'
    )


def _tick(x: float, y: float, value: int, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{FAINT}">{value}</text>'
