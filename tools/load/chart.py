"""Draws memory and open files over time as SVG."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, TOP = 760, 150, 60, 30


def chart(samples: Sequence[tuple[float, float, int]], title: str) -> str:
    """Returns the SVG. ``samples``: time in seconds, megabytes, number of open files."""
    end = max((t for t, *_ in samples), default=1.0) or 1.0
    panels = [("memory, MB", [m for _, m, _ in samples]), ("open files", [float(f) for *_, f in samples])]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 20}" height="{2 * (HEIGHT + 50) + TOP}" '
             'font-family="sans-serif" font-size="12" fill="#333">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="18" font-size="14">{title}</text>']  # fmt: skip
    for number, (name, values) in enumerate(panels):
        base, most = TOP + number * (HEIGHT + 50) + HEIGHT, max(values, default=1.0) or 1.0
        points = " ".join(f"{LEFT + WIDTH * t / end:.1f},{base - HEIGHT * v / most:.1f}" for (t, *_), v in zip(samples, values, strict=True))  # fmt: skip
        parts += [
            f'<path d="M{LEFT} {base - HEIGHT}V{base}H{LEFT + WIDTH}" fill="none" stroke="#999"/>',
            f'<polyline points="{points}" fill="none" stroke="#2b6cb0" stroke-width="1.5"/>',
            f'<text x="{LEFT}" y="{base - HEIGHT - 6}">{name}</text>',
            f'<text x="{LEFT - 6}" y="{base - HEIGHT + 10}" text-anchor="end">{most:.0f}</text>',
            f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0</text>',
            f'<text x="{LEFT + WIDTH}" y="{base + 16}" text-anchor="end">{end:.0f} s</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
