"""Differences of settings, models and versions between two sets of recorded runs, from their headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d2sd.trace.text import escaped

MAX_TEXT = 60
# how texts call settings; the page and its scripts have it from here
SYMBOLS = {"num_branches": "K", "block_size": "γ", "second_block_size": "γ₂", "node_budget": "B", "temperature": "T"}
UNSAID = frozenset({"inspect", "max_new_tokens", "preset"})  # what changes no step, and names of whole sets
PART_FIELDS = ("weights", "dtype", "rope", "taps", "block_size", "mask_token_id", "chat_template")


def what_differs(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence that names the models, methods and settings in which the headers of A and B differ."""
    found = [*_models(a, b), *_settings(a, b)]
    if not found:
        return "What differs: no model, method or setting that the runs name."
    return f"What differs: {', '.join(found)}."


def weights_of(headers: Sequence[Mapping[str, Any]], part: str) -> str:
    """Returns the fingerprint of a part's weights; empty if a header lacks it or the headers name different ones.

    part: ``"target"``, ``"first_drafter"`` or ``"second_drafter"``.
    """
    found = {str(_parts([header]).get(part, {}).get("weights") or "") for header in headers}
    return found.pop() if len(found) == 1 else ""


def _models(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [_all(side, "models") for side in (a, b)]
    parts = [_parts(side) for side in (a, b)]
    for part in sorted({*names[0], *names[1]} - UNSAID):
        words, called = part.replace("_", " "), [side.get(part, "none") for side in names]
        known = [side.get(part) for side in parts]
        if known[0] and known[1]:
            other = [f for f in PART_FIELDS if known[0].get(f) != known[1].get(f)]
            if "weights" in other:
                yield f"{words} ({called[0]} → {called[1]})" if called[0] != called[1] else f"{words} (other weights)"
            elif other:
                yield f"{words} (same weights, other {', '.join(f.replace('_', ' ') for f in other)})"
        elif called[0] != called[1]:
            yield f"{words} ({called[0]} → {called[1]})"


def _settings(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    of_a, of_b = (_all(side, "config") for side in (a, b))
    for name in sorted({*of_a, *of_b} - UNSAID, key=lambda n: (n != "method", n)):
        before, after = of_a.get(name, "not named"), of_b.get(name, "not named")
        if before != after:
            yield f"{SYMBOLS.get(name, name.replace('_', ' '))} ({before} → {after})"


def _all(headers: Sequence[Mapping[str, Any]], field: str) -> dict[str, str]:
    """The values of a header's field by name, those of several runs joined."""
    found: dict[str, dict[str, None]] = {}
    for header in headers:
        inner = header.get(field)
        for name, value in inner.items() if isinstance(inner, Mapping) else ():
            if value is not None:
                found.setdefault(str(name), {})[escaped(str(value)[:MAX_TEXT])] = None
    return {name: " or ".join(values) for name, values in found.items()}


def _parts(headers: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """What the headers say of each part, where all of them say the same."""
    said = [h["parts"] if isinstance(h.get("parts"), Mapping) else {} for h in headers]
    first = said[0] if said else {}
    same = {part for part in first if all(other.get(part) == first[part] for other in said)}
    return {str(part): first[part] for part in same if isinstance(first[part], Mapping)}
