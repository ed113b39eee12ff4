"""A picture of the training curves: plain SVG, no plotting package needed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 260, 60, 40
COLOURS = ("#3b6fb6", "#c9792a", "#2a7f6a", "#8a4f9e")


def draw_curves(metrics: Path, out: Path) -> None:
    """One panel per logged metric (loss, held-out loss, draft length, accuracy) against the step."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines() if line]
    names = [n for n in ("loss", "held_out_loss", "draft_length", "first_accuracy") if any(n in r for r in rows)]
    panels = [_panel(rows, name, i) for i, name in enumerate(names)]
    height = HEIGHT * max(1, len(names))
    out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{height}" fill="#ffffff"/>{"".join(panels)}</svg>\n'
    )


def _panel(rows: list[dict[str, float]], name: str, index: int) -> str:
    points = [(r["step"], r[name]) for r in rows if name in r]
    last = max(step for step, _ in points)
    low, high = min(v for _, v in points), max(v for _, v in points)
    span = high - low or 1.0
    top, inner = index * HEIGHT + 30, HEIGHT - 30 - BOTTOM

    def place(step: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - 20) * step / last
        return f"{x:.1f},{top + inner * (high - value) / span:.1f}"

    line = " ".join(place(s, v) for s, v in points)
    return (
        f'<text x="{LEFT}" y="{top - 10}" fill="#222222">{escape(name.replace("_", " "))}</text>'
        f'<text x="{LEFT - 8}" y="{top + 4}" text-anchor="end" fill="#555555">{high:.3g}</text>'
        f'<text x="{LEFT - 8}" y="{top + inner}" text-anchor="end" fill="#555555">{low:.3g}</text>'
        f'<text x="{WIDTH - 20}" y="{top + inner + 18}" text-anchor="end" fill="#555555">step {last}</text>'
        f'<path d="M{LEFT} {top}V{top + inner}H{WIDTH - 20}" fill="none" stroke="#999999"/>'
        f'<polyline points="{line}" fill="none" stroke="{COLOURS[index % 4]}" stroke-width="1.5"/>'
    )
