"""Measures the times of D²SD and of plain decoding after contexts of given lengths, and of passes through packed layers on a CPU.

A "cycle" is one step of D²SD: drafts, verification and commit. Caches are set to the context's length but not filled, since times
do not depend on their contents. Every figure is a median over repeats. Cycles run without a pause between them, as in a generation.
All other measurements start and end with an idle device.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
from msgspec import structs
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from d2sd.bench.runner import Row
from d2sd.bench.shapes import LAYERS, SHAPES
from d2sd.config import DecodeConfig
from d2sd.decoding.drafters import slots
from d2sd.decoding.verifier import Verifier
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.nets.drafter import DFlashDraftModel, drafter_config
from d2sd.nets.dtypes import DTYPES
from d2sd.nets.models import Models
from d2sd.nets.packed import PackedLayers, weight_bytes
from d2sd.nets.passes import Passes
from d2sd.nets.target import Target
from d2sd.tree.tree import TokenTree, path_tree

WARM_UP = 3
BANDWIDTH_BYTES = {"cuda": 1 << 30, "cpu": 1 << 26}
COPIES = 10
PROFILED = 4  # number of profiled steps
NO_COUNTS: Sequence[float | None] = (None, None)  # of kernels and launches
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")


def median_times(works: Sequence[Callable[[], object]], repeats: int, device: torch.device) -> list[float]:
    """Returns the median time of each function in seconds. The functions take turns, so that a disturbance affects all of them."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
    times: list[list[float]] = [[] for _ in works]
    for turn in range(WARM_UP + repeats):
        for work, measured in zip(works, times, strict=True):
            wait(device)
            began = time.perf_counter()
            work()
            wait(device)
            if turn >= WARM_UP:
                measured.append(time.perf_counter() - began)
    return list(map(median, times))


def bandwidth(device: torch.device, repeats: int) -> float:
    """Returns the memory bandwidth of the device in bytes per second, measured by copying. Read and written bytes both count."""
    count = BANDWIDTH_BYTES[device.type]
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copies() -> None:  # several copies, so that launching and waiting take a small share of the time
        for _ in range(COPIES):
            target.copy_(source)

    return 2 * COPIES * count / median_times([copies], repeats, device)[0]


def verify(verifier: Verifier, tree: TokenTree) -> list[int]:
    """Verifies a tree and returns the target's choices."""
    return verifier.logits(tree).argmax(-1).tolist()


class Floors(NamedTuple):
    """Lower bounds of times: how long it takes to read weights and caches at the memory bandwidth.

    rate: memory bandwidth in bytes per second.
    target, drafters, head: bytes of the weights of the target's layers, of both drafters, and of the LM head.
    target_slot, drafter_slot: bytes of one token in the target's cache, and in the cache of one drafter.
    """

    rate: float
    target: int
    drafters: int
    head: int
    target_slot: int
    drafter_slot: int

    @classmethod
    def of(cls, engine: Engine, rate: float) -> Floors:
        """Returns the floors of an engine with two drafters."""
        first, second, target = engine.models.first, engine.models.second, engine.models.target
        assert first is not None
        assert second is not None
        size, c = target.embedding.weight.element_size(), first.config
        # only a few rows of the embedding table are read
        return cls(
            rate,
            weight_bytes(target.base) - weight_bytes(target.embedding),
            weight_bytes(first) + weight_bytes(second),
            weight_bytes(target.head),
            size * sum(part.numel() for pair in target.new_cache(1).parts for part in pair),
            size * 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim,
        )

    def plain(self, context: int) -> float:
        return (self.target + self.head + context * self.target_slot) / self.rate

    def cycle(self, context: int) -> float:
        """Returns the lower bound for a D²SD cycle in seconds: two drafts, each with the LM head, and a target pass."""
        drafts = self.drafters + 2 * self.head + 2 * context * self.drafter_slot
        return self.plain(context) + drafts / self.rate


class Bench:
    """Measures an engine after a context of given length.

    The first cycle begins a little before the end of the context, so that all cycles fit into passes with the shapes for this length.

    context: number of tokens before the measured cycles.
    mode: as for ``Passes``.
    layers: one of ``LAYERS``.
    """

    def __init__(self, engine: Engine, config: DecodeConfig, context: int, mode: str, repeats: int, layers: str):
        self.repeats, self.device = repeats, engine.models.target.device
        turns, config = WARM_UP + repeats + PROFILED, engine.resolve(config)
        begin = max(1, context - turns)
        self.config = replace(config, max_new_tokens=turns * (1 + (config.second_block_size or 0)))
        needed = slots(self.config, context + self.config.max_new_tokens)
        self.passes = Passes(mode, self.config.backend, needed, self.device, layers == "fused")  # type: ignore[arg-type]
        self.run = engine.generation([1] * (begin + 1), self.config, self.passes)
        for cache in (self.run.verifier.cache, *(d.cache for d in self.run.drafters.block_drafters)):
            cache.length = begin

    def cycle(self) -> tuple[dict[str, float], int]:
        """Returns the median milliseconds of each stage and of a whole cycle, by name, and the median number of verified nodes."""
        seconds, nodes = [], []
        for turn in range(WARM_UP + self.repeats):
            began = time.perf_counter()
            event = self.run.step()()
            if turn >= WARM_UP:
                seconds.append({**structs.asdict(event.seconds), "cycle": time.perf_counter() - began})
                nodes.append(len(event.nodes))
        times = {f"{name}_ms": 1e3 * median(one[name] for one in seconds) for name in seconds[0]}
        return times, int(median(nodes))

    def kernels(self) -> Sequence[float | None]:
        """Returns the numbers of kernels and of launches per step; None for both without a GPU. A launch starts one kernel or one CUDA graph.

        To be called after ``cycle``, whose steps capture all passes.
        """
        if self.device.type != "cuda":
            return NO_COUNTS
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            for _ in range(PROFILED):
                self.run.step()()
            torch.cuda.synchronize(self.device)
        return count_launches((event.name, event.device_type.name) for event in recorded.events())


def count_launches(events: Iterable[tuple[str, str]]) -> tuple[float, float]:
    """Returns the numbers of kernels and of launches per step. events: (name, device) of all profiled events of ``PROFILED`` steps.

    Copies and fills by the driver do not count as kernels.
    """
    kernels = launches = 0
    for name, device in events:
        kernels += device == "CUDA" and not name.startswith(("Memcpy", "Memset"))
        launches += device == "CPU" and name.startswith(LAUNCHES)
    return kernels / PROFILED, launches / PROFILED


@torch.inference_mode()
def context_row(engine: Engine, config: DecodeConfig, context: int, floors: Floors, repeats: int, layers: str) -> Row:
    """Returns the row of the main table for one context: times in milliseconds, number of nodes, and memory in gigabytes.

    Figures that need a GPU are None without one.

    context: number of tokens before the measured steps.
    layers: one of ``LAYERS``.
    """
    device, mode = engine.models.target.device, engine.mode
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    plain = replace(config, method="autoregressive")
    eager = Bench(engine, plain, context, "eager", repeats, layers).cycle()[0]["cycle_ms"]
    captured, counts = None, NO_COUNTS
    if mode == "captured":
        bench = Bench(engine, plain, context, mode, repeats, layers)
        times, _ = bench.cycle()
        if bench.passes.mode == mode:  # differs if capture failed midway
            captured, counts = times["cycle_ms"], bench.kernels()
    bench = Bench(engine, config, context, mode, repeats, layers)
    times, nodes = bench.cycle()
    of_cycle = bench.kernels()
    return {
        "context": context,
        "layers": layers,
        "plain_eager_ms": eager,
        "plain_captured_ms": captured,
        **times,
        "floor_ms": 1e3 * floors.cycle(context),
        "plain_floor_ms": 1e3 * floors.plain(context),
        "plain_kernels": counts[0],
        "plain_launches": counts[1],
        "cycle_kernels": of_cycle[0],
        "cycle_launches": of_cycle[1],
        "nodes": nodes,
        "passes": bench.passes.mode,
        "backend": bench.config.backend,
        "memory_gb": torch.cuda.max_memory_allocated(device) / 1e9 if cuda else None,
    }


def ratios(rows: Sequence[Row]) -> list[Row]:
    """Returns, for each context that was measured with both kinds of layers, the ratio of every time: plain ÷ fused layers.

    rows: results of ``context_row``.
    """
    fused, plain = ({row["context"]: row for row in rows if row["layers"] == layers} for layers in LAYERS)
    names = [n for n in (rows[0] if rows else ()) if n.endswith("_ms") and "floor" not in n and n != "plain_eager_ms"]
    return [
        {"context": context, **{n: row[n] and fused[context][n] and row[n] / fused[context][n] for n in names}}
        for context, row in plain.items()
        if context in fused
    ]


@torch.inference_mode()
def cost_rows(engine: Engine, config: DecodeConfig, context: int, repeats: int, layers: str) -> list[Row]:
    """Returns one row for each of several settings with the times of a cycle, and one for each of several tree sizes with the time
    of verification."""
    block = config.block_size or 16
    changes: list[tuple[str, Row]] = [
        *((f"K = {k}", {"num_branches": k}) for k in (1, 2, 3, 4, 8) if k < block),
        *((f"K = {k}, recording off", {"num_branches": k, "inspect": False}) for k in (3, 4) if k < block),
        *((f"γ = {g}", {"block_size": g, "num_branches": min(4, g - 1)}) for g in (4, 8, 16) if g <= block),
    ]
    rows = []
    for label, change in changes:
        bench = Bench(engine, replace(config, **change), context, engine.mode, repeats, layers)
        times, nodes = bench.cycle()
        rows.append({"setting": label, **times, "nodes": nodes, "passes": bench.passes.mode})
    bench = Bench(engine, config, context, engine.mode, repeats, layers)
    for count in (16, 32, 64, 128):
        work = partial(verify, bench.run.verifier, path_tree(count))
        (seconds,) = median_times([work], repeats, bench.device)
        row = {"setting": f"{count} nodes", "verify_ms": 1e3 * seconds, "nodes": count, "passes": bench.passes.mode}
        rows.append(row)
    return rows


# Times of passes through packed layers on a CPU, compared with a lower bound: the time of their matrix products alone.

TREES = (4, 8, 16, 24)  # numbers of nodes of the measured trees


def operations(works: dict[str, Callable[[], object]]) -> dict[str, int]:
    """Returns how many torch operations each function calls. Operations that another operation calls do not count."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for name, work in works.items():
            with record_function(name):
                work()
    parents = Counter(event.cpu_parent.name for event in recorded.events() if event.cpu_parent is not None)
    return {name: parents[name] for name in works}


@torch.inference_mode()
def pass_rows(engine: Engine, config: DecodeConfig, context: int, repeats: int) -> list[Row]:
    """Returns one row for a one-token pass, one for a draft, and one for each tree size in ``TREES``, after ``context`` tokens.

    In a row, ``ms`` is the time of the pass including the choice of tokens, and ``floor_ms`` the time of its matrix products alone.

    Raises ``InputError`` if the layers of the target or of the drafter are not packed.
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
        name = "one-token pass" if nodes == 1 else f"tree of {nodes}"
        cases.append((name, packed, nodes, partial(verify, verifier, path_tree(nodes))))
    draft = partial(drafter.draft, 1, [()], size, 1)
    cases.insert(1, (f"draft of γ = {size}", drafting, size - drafter.shift, draft))
    rows: list[Row] = []
    for name, layers, count, work in cases:
        head = torch.zeros(count if layers is packed else size - 1, layers.hidden, dtype=torch.float32)
        products = layers.products(count, partial(target.scores, head))
        pass_, floor = median_times([work, products], repeats, target.device)
        times = {"ms": 1e3 * pass_, "floor_ms": 1e3 * floor, "ratio": pass_ / floor}
        rows.append({"pass": name, **times, "layers": len(layers.layers)})
    # counted after the measurement, since first passes do more work
    counts = operations({name: work for name, _, _, work in cases})
    return [{**row, "operations": counts[row["pass"]]} for row in rows]


# Models of published shapes with random weights, since times do not depend on the values of weights.


def random_engine(name: str, dtype: str, device: str, passes: str, positions: int) -> Engine:
    """Returns an engine with a target and two drafters of random weights. Its tokenizer writes tokens as numbers.

    name: name of the shape, a key of ``SHAPES``.
    dtype: a key of ``DTYPES``.
    passes: as for ``Engine``.
    positions: maximum number of tokens of a text.

    Raises ``InputError`` if there is not enough memory.
    """
    shape = SHAPES[name]._asdict()
    kind, layers = shape.pop("kind"), shape.pop("drafter_layers")
    config = (Qwen3Config if kind == "qwen3" else LlamaConfig)(
        **shape, max_position_embeddings=positions, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    torch.manual_seed(0)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
            words = {str(number): number for number in range(config.vocab_size)}
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words)))
            target = Target(model, tokenizer, f"random {name}")
            of_drafter = drafter_config(config, layers=layers, block_size=16, mask_token_id=config.vocab_size - 1)
            drafters = [DFlashDraftModel(of_drafter) for _ in range(2)]
        for drafter in drafters:
            drafter.to(dtype=DTYPES[dtype]).eval().requires_grad_(False)  # type: ignore[call-arg]
        first, second = drafters
        return Engine(Models(target, first, second, name=target.name), passes)
    except torch.OutOfMemoryError as error:
        raise InputError(f"models of shape {name} do not fit into the memory of {device}") from error
