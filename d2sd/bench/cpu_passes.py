"""Times of passes through packed layers on a CPU, compared with a lower bound: the time of their matrix products alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from d2sd.bench.gpu_stages import median_times, verify
from d2sd.config import DecodeConfig
from d2sd.decoding.drafters import slots
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.nets.packed import PackedLayers
from d2sd.nets.passes import Passes
from d2sd.nets.target import Target
from d2sd.tree.tree import path_tree

TREES = (4, 8, 16, 24)  # nodes


def operations(works: dict[str, Callable[[], object]]) -> dict[str, int]:
    """Returns how many torch operations each function calls, without nested operations."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for name, work in works.items():
            with record_function(name):
                work()
    parents = Counter(event.cpu_parent.name for event in recorded.events() if event.cpu_parent is not None)
    return {name: parents[name] for name in works}


@torch.inference_mode()
def pass_rows(engine: Engine, config: DecodeConfig, context: int, repeats: int) -> list[dict[str, Any]]:
    """Returns one row for a plain step, one for a draft, and one for each tree size in ``TREES``, after ``context`` tokens.

    ``ms`` is the time of the pass including the choice of tokens; ``floor_ms`` is the time of the pass's matrix products alone. Raises
    ``InputError`` if the layers of the target or of the drafter are not packed.
    """
    config = engine.resolve(config)
    passes = Passes("eager", config.backend, slots(config, context), engine.models.target.device)
    run = engine.generation([1] * (context + 1), config, passes)
    target, verifier, drafter = engine.models.target, run.verifier, run.drafters.first
    packed, drafting = target.packed, None if drafter is None else drafter.model.packed()
    if packed is None or drafting is None or drafter is None:
        raise InputError(
            "bench cpu needs a target and a drafter with packed layers: small models on a CPU, in float32 or mixed precision"
        )
    for cache in (verifier.cache, drafter.cache):
        cache.length = context
    size = config.block_size or 1
    cases: list[tuple[str, PackedLayers, int, Callable[[], object]]] = []
    for nodes in (1, *TREES):
        name = "plain step" if nodes == 1 else f"tree of {nodes}"
        cases.append((name, packed, nodes, partial(verify, verifier, path_tree(nodes))))
    draft = partial(drafter.draft, 1, [()], size, 1)
    cases.insert(1, (f"draft of γ = {size}", drafting, size - drafter.shift, draft))
    rows: list[dict[str, Any]] = []
    for name, layers, count, work in cases:
        head = torch.zeros(count if layers is packed else size - 1, layers.hidden, dtype=torch.float32)
        pass_, floor = median_times(
            [work, partial(_multiply, layers.products(count), target, head)], repeats, target.device
        )
        times = {"ms": 1e3 * pass_, "floor_ms": 1e3 * floor, "ratio": pass_ / floor}
        rows.append({"pass": name, **times, "layers": len(layers.layers)})
    counts = operations({name: work for name, _, _, work in cases})  # after the first passes, which do more
    return [{**row, "operations": counts[row["pass"]]} for row in rows]


def _multiply(products: Callable[[], None], target: Target, head: Tensor) -> Tensor:
    products()
    return target.scores(head)
