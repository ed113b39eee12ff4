"""Compares every method under many settings with plain greedy decoding on every prompt; counts by setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from d2sd.attention import BACKENDS
from d2sd.bench.lossless import Divergence, divergence, shortfalls, teacher_forced
from d2sd.bench.runner import Entry
from d2sd.bench.settings import BenchSetting, make_setting, uses
from d2sd.config import DecodeConfig
from d2sd.errors import InputError

GAMMAS, BRANCHES = (2, 5, 16), (1, 4, 8)


@dataclass(frozen=True, slots=True)
class Result:
    """One text: its label, prompt number, length, first divergence and, if measured, its largest shortfall."""

    label: str
    prompt: int
    tokens: int
    divergence: Divergence | None
    shortfall: float | None


def grid(
    methods: Sequence[str], gammas: Sequence[int], branches: Sequence[int], base: DecodeConfig
) -> list[BenchSetting]:
    """Returns method × γ × K × backend, each only if the method uses it; K is at most γ−1."""
    for method in methods:
        name, *fields = method.split(":")
        if fields:
            raise InputError(f"--check-lossless lays out γ and K itself; write {name} and give --gamma and --branches")
    settings: dict[str, BenchSetting] = {}
    for config, gamma, backend in product([replace(base, method=m) for m in methods], gammas, BACKENDS):
        method = config.method
        used = {f: v for f, v in {"block_size": gamma, "backend": backend}.items() if f in uses(method)}
        branched = "num_branches" in uses(method)
        for k in [k for k in branches if k < gamma] if branched else [None]:
            overrides = {**used, "num_branches": k} if branched else used
            setting = make_setting(config, overrides)
            settings.setdefault(setting.label, setting)
    return list(settings.values())


def run_check(
    plain: Entry,
    entries: Sequence[Entry],
    prompts: Sequence[tuple[int, Sequence[int]]],
    twin: Any,
    exact: bool,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[list[Result]]:
    """Yields, for every (number, ids) of ``prompts``, one result per entry, compared with ``plain``.

    ``twin`` is the stock model that reads texts again; unless ``exact`` it reads all of them.
    """
    for number, ids in prompts:
        expected = plain.run(ids).token_ids
        results = []
        for c in entries:
            got = expected if c.label == plain.label else c.run(ids).token_ids
            far = None if exact else float(shortfalls(teacher_forced(twin, ids, got), got).max())
            results.append(Result(c.label, number, len(got), divergence(twin, number, ids, expected, got), far))
            progress()
        yield results


def tally(results: Sequence[Result], labels: Sequence[str], margin: float | None) -> list[dict[str, Any]]:
    """Returns one row per setting: number of identical texts, first divergence, and whether it passed.

    ``passed`` requires identical texts, or, if a margin is given, no shortfall above it.
    """
    rows = []
    for label in labels:
        mine = sorted((r for r in results if r.label == label), key=lambda r: r.prompt)
        apart = [r.divergence for r in mine if r.divergence is not None]
        far = max((r.shortfall for r in mine if r.shortfall is not None), default=None)
        rows.append({
            "label": label,
            "texts": len(mine),
            "tokens": sum(r.tokens for r in mine),
            "identical": len(mine) - len(apart),
            "largest_shortfall": far,
            "first_divergence": asdict(apart[0]) if apart else None,
            "passed": not apart if margin is None else far is not None and far <= margin,
        })  # fmt: skip
    return rows
