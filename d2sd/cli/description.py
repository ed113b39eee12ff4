"""Describes a recorded run on the terminal. Texts of models are escaped, so that they cannot control the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from d2sd.logs import UNKNOWN
from d2sd.trace.description import WIDTH
from d2sd.trace.metrics import verdict
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

# Descriptions of what a log may lack, by the name in ``Trace.missing``.
MISSING = {
    "prompt": "prompts",
    "tokens": "tokens",
    "rejected": "rejected drafted tokens",
    "target": "the target's own tokens",
    "confidence": "confidences",
    "times": "times of steps",
}


def describe_run(trace: Trace) -> Iterator[str]:
    """Yields a few lines about the run, then a line for every step."""
    header, totals = trace.header, trace.totals
    models = ", ".join(escaped(f"{k} {v}") for k, v in header["models"].items() if v)[:WIDTH]
    yield f"{escaped(header['method'])}, {totals.steps} steps, {totals.tokens} tokens, mean acceptance length {totals.mean_acceptance_length:.2f}"
    if models:
        yield f"models   {models}"
    prompt = header["prompt"] or ("".join(trace.prefill.texts) if trace.prefill else "")
    yield f"prompt   {escaped(prompt[:WIDTH])}"
    if lacks := not_logged(trace.missing):
        yield lacks
    yield ""
    yield " step  tokens  nodes      ms  boundary     re-drafted from   text"
    for step in trace.steps:
        text = "".join(c.text for c in step.committed)
        seconds = step.seconds.total
        spent = f"{1e3 * seconds:.1f}" if seconds else "–"
        boundary = "–" if step.actual_boundary is None else f"{step.actual_boundary} {verdict(step) or ''}"
        predicted = " ".join(map(str, step.selected_prefixes)) or "–"
        yield (
            f"{step.step + 1:5d}  {len(step.committed):6d}  {len(step.nodes):5d}  {spent:>6}  "
            f"{boundary:<11}  {predicted[:16]:<16}  {escaped(text[:60])}"
        )


def not_logged(missing: Collection[str]) -> str:
    """Returns a line that lists what a log lacks; empty if it lacks nothing. missing: as in ``Trace.missing``."""
    if not any(what in missing for what in MISSING):
        return ""
    unknown = f"; {UNKNOWN} marks an unknown token" if {"tokens", "rejected", "target"} & set(missing) else ""
    return f"not in this log: {', '.join(words for what, words in MISSING.items() if what in missing)}{unknown}"
