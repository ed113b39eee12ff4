"""One training loop for the target and for the drafters: schedule, clipping, checkpoints that resume bit-exactly.

Every random choice of a step is drawn from a generator seeded by (seed, step, process), and rows come from a
permutation seeded by (seed, epoch): nothing but weights, optimizer state and the step number has to be stored.
Runs in one process or in many (``accelerate launch -m d2sd train …``).
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.tracking import get_available_trackers
from torch import Tensor, nn

from d2sd.errors import InputError
from d2sd.models.numbers import quick_bfloat16
from d2sd.trace.progress import progress
from d2sd.train.checkpoint import keep_metrics_before, load_checkpoint, save_checkpoint
from d2sd.train.muon import Float32Muon

Sample = Callable[[Tensor, torch.Generator], dict[str, Tensor]]


TRACKERS = ("none", "tensorboard", "trackio")
PRECISIONS = ("auto", "float32", "bfloat16")
TABLES = ("embed", "lm_head", "markov_w")  # one row a token


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """Settings of one run. ``batch_size`` counts rows per process and micro-step; times are in steps.

    precision: of the drafter's products, ``float32`` or ``bfloat16`` autocast; ``auto``: bfloat16 where this machine is quick
    with it (``d2sd.models.numbers.quick_bfloat16``).
    save_every: a checkpoint to resume from, the newest alone; keep_every: a result that stays (0: none but the last).
    """

    steps: int
    batch_size: int = 16
    accumulate: int = 1
    learning_rate: float = 2e-3
    min_rate: float = 0.02
    warmup: int = 50
    weight_decay: float = 0.05
    clip: float = 1.0
    seed: int = 0
    precision: str = "auto"
    optimizer: str = "muon"
    compile: bool = False
    save_every: int = 200
    keep_every: int = 0
    log_every: int = 10
    report_to: str = "none"

    def __post_init__(self) -> None:
        if min(self.steps, self.batch_size, self.accumulate, self.save_every, self.log_every) < 1:
            raise InputError("steps, batch size, accumulation and intervals must be at least 1")
        if self.keep_every < 0:
            raise InputError(f"keep-every must be at least 0 (0: keep no results on the way), not {self.keep_every}")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"precision must be {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, not {self.precision!r}"
            )
        if self.optimizer not in ("muon", "adamw"):
            raise InputError(f"optimizer must be muon or adamw, not {self.optimizer!r}")
        if self.report_to not in TRACKERS:
            raise InputError(f"metrics go to {', '.join(TRACKERS)}, not to {self.report_to!r}")
        if self.report_to != "none" and self.report_to not in [t.value for t in get_available_trackers()]:
            raise InputError(
                f"{self.report_to} is not installed; run `pip install {self.report_to}` or leave out --report-to"
            )


def settings(config: LoopConfig) -> dict[str, Any]:
    """The settings that must be the same to resume a run."""
    free = ("save_every", "keep_every", "log_every", "compile", "report_to")
    return {k: v for k, v in asdict(config).items() if k not in free}


def rate_at(config: LoopConfig, step: int) -> float:
    """Learning rate at a step: linear warm-up, then a cosine down to ``min_rate`` of the peak."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    floor = config.min_rate
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def rows_at(count: int, index: int, size: int, seed: int) -> Tensor:
    """Row numbers of the ``index``-th batch of ``size`` rows when ``count`` rows are read in shuffled epochs."""
    wanted = torch.arange(index * size, (index + 1) * size)
    out = torch.empty_like(wanted)
    for epoch in (wanted // count).unique().tolist():
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
        here = wanted // count == epoch
        out[here] = order[wanted[here] % count]
    return out


def processes() -> PartialState:
    """The processes of ``accelerate launch``, or just this one; on CPUs they speak gloo."""
    return PartialState(cpu=not torch.cuda.is_available())


def train(
    objective: nn.Module,
    count: int,
    sample: Sample,
    out: Path,
    config: LoopConfig,
    evaluate: Callable[[], dict[str, float]] | None = None,
    note: str = "train",
    identity: dict[str, Any] | None = None,
    keep: Callable[[Path], None] | None = None,
) -> bool:
    """Train ``objective`` in place; it maps a sampled batch to ``(loss, metrics)``.

    Returns whether this is the main process, the one that should save the result.

    ``sample(rows, generator)`` makes the batch of those row numbers. Writes ``metrics.jsonl`` and
    ``checkpoint/`` under ``out``, reports to the tracker of ``config`` and continues from the checkpoint found there; ``identity`` is whatever else
    (objective, data) must be the same for that; more ``steps`` may be asked for. ``keep`` writes the result so far into a
    folder, ``step-N`` under ``out``.
    """
    # under autocast torch's RMSNorm takes its slower path, and says so once
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight", category=UserWarning)
    precision = config.precision if config.precision != "auto" else ("bfloat16" if quick_bfloat16() else "float32")
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        mixed_precision="bf16" if precision == "bfloat16" else "no",
        gradient_accumulation_steps=config.accumulate,
        log_with=None if config.report_to == "none" else config.report_to,
        project_dir=out,
    )
    parameters = {n: p for n, p in objective.named_parameters() if p.requires_grad}
    optimizers = make_optimizers(parameters, config)
    if accelerator.is_main_process:
        names = ", ".join(type(optimizer).__name__ for optimizer in optimizers)
        print(f"Training in {precision}; optimizers: {names}.", file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    identity = {**settings(config), "processes": accelerator.num_processes, "rows": count, **(identity or {})}
    start = load_checkpoint(out, parameters, optimizers, identity)
    module = torch.compile(objective) if config.compile else objective
    wrapped, *prepared = accelerator.prepare(module, *optimizers)
    if config.report_to != "none":
        accelerator.init_trackers(note, settings(config))
    metrics_file = out / "metrics.jsonl"
    if accelerator.is_main_process:
        keep_metrics_before(metrics_file, start)
    bar = progress(range(start, config.steps), initial=start, total=config.steps, desc=note, mininterval=1,
               disable=not accelerator.is_main_process)  # fmt: skip
    world, began, seen = accelerator.num_processes, time.monotonic(), 0
    for step in bar:
        for group in (g for o in optimizers for g in o.param_groups):
            group["lr"] = rate_at(config, step)
        logged: dict[str, float] = {}
        for micro in range(config.accumulate):
            index = (step * config.accumulate + micro) * world + accelerator.process_index
            generator = torch.Generator().manual_seed((config.seed * 7_919 + index) % 2**63)
            batch = sample(rows_at(count, index, config.batch_size, config.seed), generator)
            batch = {k: v.to(accelerator.device) for k, v in batch.items()}
            last = micro + 1 == config.accumulate
            with accelerator.autocast(), nullcontext() if last else accelerator.no_sync(wrapped):
                loss, metrics = wrapped(**batch)
                accelerator.backward(loss / config.accumulate * accelerator.gradient_accumulation_steps)
            for key, value in {"loss": loss.detach(), **metrics}.items():
                logged[key] = logged.get(key, 0.0) + float(value) / config.accumulate
            seen += next(iter(batch.values())).numel()
        norm = accelerator.clip_grad_norm_(wrapped.parameters(), config.clip)
        for optimizer in prepared:
            optimizer.step()
            optimizer.zero_grad()
        done = step + 1
        saves = done % config.save_every == 0 or done == config.steps
        if accelerator.is_main_process and (saves or done % config.log_every == 0):
            row = {"step": done, "rate": rate_at(config, step), "grad_norm": float(norm), **logged,
                   "tokens_per_second": seen * world / (time.monotonic() - began)}  # fmt: skip
            row.update(evaluate() if evaluate and saves else {})
            with metrics_file.open("a") as f:
                f.write(json.dumps({k: round(v, 6) for k, v in row.items()}) + "\n")
            accelerator.log(row, step=done)
            bar.set_postfix({k: f"{v:.3g}" for k, v in logged.items()}, refresh=False)
        if saves:
            if accelerator.is_main_process:
                save_checkpoint(out, parameters, optimizers, identity, done)
            accelerator.wait_for_everyone()
        if keep and config.keep_every and done % config.keep_every == 0 and accelerator.is_main_process:
            keep(out / f"step-{done}")
    accelerator.wait_for_everyone()
    for tracker in accelerator.trackers:  # end_training() would part the processes, which may train something else next
        tracker.finish()
    return bool(accelerator.is_main_process)


def make_optimizers(parameters: dict[str, nn.Parameter], config: LoopConfig) -> list[torch.optim.Optimizer]:
    """Muon for the hidden weight matrices and AdamW for the rest, or AdamW for everything."""
    matrices = {n for n, p in parameters.items() if p.ndim == 2 and not any(part in n for part in TABLES)}
    muon = config.optimizer == "muon"
    rest = [(n, p) for n, p in parameters.items() if not (muon and n in matrices)]
    groups = [
        {"params": [p for n, p in rest if n in matrices], "weight_decay": config.weight_decay},
        {"params": [p for n, p in rest if n not in matrices], "weight_decay": 0.0},
    ]
    optimizers: list[torch.optim.Optimizer] = []
    if rest:
        groups = [g for g in groups if g["params"]]
        optimizers.append(torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98)))
    if muon and matrices:
        chosen = [parameters[n] for n in sorted(matrices)]
        rate, decay = config.learning_rate, config.weight_decay
        if quick_bfloat16():
            optimizers.append(torch.optim.Muon(chosen, rate, decay, adjust_lr_fn="match_rms_adamw"))
        else:
            optimizers.append(Float32Muon(chosen, rate, decay))
    return optimizers
