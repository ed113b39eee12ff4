"""Hostile input from a seeded generator."""

from __future__ import annotations

import json
import random
from typing import Any

TRAP = """
window.__sprung = [];
for (const name of ["alert", "confirm", "prompt", "print", "open"]) window[name] = (...a) => window.__sprung.push([name, String(a)]);
Object.defineProperty(window, "__pwned", { set(v) { window.__sprung.push(["set", String(v)]); }, get() { return undefined; } });
"""
SCRIPTS = (
    "<script>window.__pwned=1</script>",
    "</script><script>window.__pwned=2</script>",
    "<img src=x onerror='window.__pwned=3;alert(1)'>",
    "<svg/onload=window.__pwned=4>",
    "</style><svg onload=alert(2)>",
    "${window.__pwned=5}",
    "{{constructor.constructor('window.__pwned=6')()}}",
    "javascript:alert(3)",
    "[x](javascript:window.__pwned=7)",
    "<iframe srcdoc='<script>parent.__pwned=8</script>'>",
    "<a href='http://elsewhere.invalid/'>x</a><img src='http://elsewhere.invalid/x.png'>",
    "']});alert(4);//",
    "</textarea><input autofocus onfocus=window.__pwned=9>",
    "<!--", "]]>", "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(5)>", "$$\\\\href{javascript:alert(6)}{x}$$",
)  # fmt: skip
ODD = (
    "", " ", "\x00", "\u202e\u2066abc", "\u2028\u2029", "\ufeff", "é" * 3, "日本語", "עברית", "👩‍👩‍👧‍👦", "e\u0301" * 40, "\x1b[31mred\x1b[0m\x07",
    "../../etc/passwd", "/etc/passwd", "C:\\windows\\x", "NaN", "-0", "1e999", "null", "𝟙𝟚", "~AAAA", '{"event":"StepDone"}', "\r\n", "a" * 5000,
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3.5, -0.0, 1e308, 1e-320, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**19, 10**400, 10**4200, float("nan"), float("inf"),
    float("-inf"),
)  # fmt: skip


def text(rng: random.Random) -> str:
    """Returns hostile text, odd text, or decoded random bytes."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(SCRIPTS)
    if kind < 0.6:
        return rng.choice(ODD)
    if kind < 0.7:
        return "".join(chr(rng.choice([rng.randrange(1, 128), rng.randrange(0x100, 0xD800), rng.randrange(0x10000, 0x1F000)])) for _ in range(rng.randrange(1, 60)))  # fmt: skip
    return rng.randbytes(rng.randrange(1, 80)).decode(rng.choice(["latin-1", "utf-8"]), "replace")


def value(rng: random.Random, depth: int = 0) -> Any:
    """Returns a random value of any JSON type, or one that only Python's JSON parser accepts, such as NaN."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind <= 2:
        return rng.choice(NUMBERS)
    if kind <= 5:
        return text(rng) if rng.random() < 0.95 else "a\ud800b"
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {text(rng)[:20]: value(rng, depth + 1) for _ in range(rng.randrange(4))}


def to_json(data: Any) -> bytes:
    """Returns JSON, with integers of any length and NaN."""
    return json.dumps(data, separators=(",", ":")).encode()


def nested(rng: random.Random) -> bytes:
    """Returns deeply nested JSON."""
    depth = rng.choice((10, 500, 1100, 100_000))
    return b"[" * depth + b"]" * depth if rng.random() < 0.5 else b'{"a":' * depth + b"1" + b"}" * depth


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the path of every value in nested data."""
    found = [path] if path else []
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in inner:
        found += places(part, (*path, key))
    return found


def change(rng: random.Random, data: Any, new: Any) -> None:
    """Replaces a random value in nested data by ``new``, or removes or duplicates it."""
    ways = places(data)
    if not ways:
        return
    path, holder = rng.choice(ways), data
    for key in path[:-1]:
        holder = holder[key]
    kind = rng.random()
    if kind < 0.7:
        holder[path[-1]] = new
    elif kind < 0.85:
        del holder[path[-1]]
    elif isinstance(holder, list):
        holder.insert(path[-1], holder[path[-1]])
    else:
        holder[text(rng)[:10]] = holder[path[-1]]
