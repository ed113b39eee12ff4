"""The training loop of all drafters: learning rate, optimizers, clipping, and checkpoints that resume bit-exactly.

The random choices of a step depend only on the seed and the step number. The order of the rows depends only on the seed and the
epoch. Checkpoints therefore contain no states of random generators.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from d2sd.errors import InputError, require
from d2sd.folders.fingerprint import write_fingerprint
from d2sd.nets.dtypes import quick_autocast, quick_bfloat16
from d2sd.trace.files import append_line, write_whole, writing
from d2sd.trace.text import duration, progress
from d2sd.train.files import whole_lines
from d2sd.train.settings import Clock, LoopConfig

FREE = ("save_every", "keep_every", "log_every")  # settings that may change when a run is resumed
TABLES = ("embed", "lm_head", "markov_w")  # parameters with one row per token


@dataclass(eq=False)
class Loop:
    """Training of a module, in place.

    It writes ``metrics.jsonl`` and ``checkpoint/`` into a folder, and continues from a checkpoint that is there. Raises
    ``InputError`` if that checkpoint belongs to another run.

    objective: module that returns ``(loss, metrics)`` for a sampled batch.
    count: number of rows of the training data.
    sample: function that makes a batch from row numbers and a random generator. Its tensors are on the module's device; the first are
        the token ids.
    identity: values of objective and data. Like the settings, they must equal those of the checkpoint.
    clock: function that returns the time in seconds, for ``config.seconds``.
    step, rows: numbers of steps trained so far, and of rows in them.
    """

    objective: nn.Module
    count: int
    sample: Callable[[Tensor, torch.Generator], dict[str, Tensor]]
    out: Path
    config: LoopConfig
    identity: dict[str, Any] = field(default_factory=dict)
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        config, out = self.config, self.out
        self._halves = quick_bfloat16() if config.precision == "auto" else config.precision == "bfloat16"
        self._parameters = {n: p for n, p in self.objective.named_parameters() if p.requires_grad}
        self._optimizers = make_optimizers(self._parameters, config)
        names = ", ".join(type(optimizer).__name__ for optimizer in self._optimizers)
        print(f"Training in {'bfloat16' if self._halves else 'float32'}; optimizers: {names}.", file=sys.stderr)
        out.mkdir(parents=True, exist_ok=True)
        fixed = {n: value for n, value in asdict(config).items() if n not in FREE}
        self.identity = {**fixed, "rows": self.count, **self.identity}
        before = load_checkpoint(out, self._parameters, self._optimizers, self.identity)
        self.step, self.rows, self._spent = (before.get(name, 0) for name in ("step", "rows", "seconds"))
        self._metrics = out / "metrics.jsonl"
        # a killed run may have left lines of later steps; the file marks the folder as a training folder
        lines = (line for line in whole_lines(self._metrics) if json.loads(line)["step"] <= self.step)
        write_whole(self._metrics, b"".join(lines))
        # time at which this process began, its tokens, and the rows of a batch
        self._began, self._seen, self._size = self.clock(), 0, config.batch_size

    def run(
        self,
        evaluate: Callable[[bool], dict[str, float]] | None = None,
        keep: Callable[[int], None] | None = None,
    ) -> None:
        """Trains until the end. After Ctrl-C, ends the current step, saves it, and raises ``KeyboardInterrupt``.

        evaluate: called at every scheduled save, with True at the last one and else False; returns figures to log.
        keep: called with the number of the step every ``config.keep_every`` steps, to save the current drafters.
        """
        config, now = self.config, self.position
        form = {} if config.seconds is None else {"bar_format": "{desc}{postfix}"}
        bar = progress(initial=int(now), total=config.steps, desc=self._label(now), mininterval=1, **form)
        with interruptions() as interrupted:
            while now < config.steps:
                figures = self._advance(rate_at(config, now))
                after = self.position
                ended = after >= config.steps
                saves = after // config.save_every > now // config.save_every or ended
                # save the drafter first: a run resumed from this step's checkpoint does not repeat the step
                if keep and config.keep_every and self.step % config.keep_every == 0:
                    keep(self.step)
                if saves or self.step % config.log_every == 0:
                    figures = {name: float(value) for name, value in figures.items()}
                    bar.set_postfix({k: f"{v:.3g}" for k, v in figures.items()}, refresh=False)
                    figures["tokens_per_second"] = self._seen / (self.clock() - self._began)
                    if saves and evaluate:
                        figures |= evaluate(ended)
                    row = {"step": self.step} | {name: round(value, 6) for name, value in figures.items()}
                    append_line(self._metrics, json.dumps(row))
                if saves or interrupted():
                    done = {"step": self.step, "seconds": self.seconds, "rows": self.rows, "identity": self.identity}
                    save_checkpoint(self.out, self._parameters, self._optimizers, done)
                bar.set_description_str(self._label(after), refresh=False)
                bar.update(min(config.steps, int(after)) - bar.n)
                if interrupted():
                    raise KeyboardInterrupt
                now = after
        bar.close()

    @property
    def seconds(self) -> float:
        """Seconds of training, also before an interruption."""
        return self._spent + self.clock() - self._began

    @property
    def position(self) -> float:
        """Position in the schedule, from 0 to ``config.steps``."""
        config = self.config
        return self.step if config.seconds is None else config.steps * self.seconds / config.seconds

    def _label(self, now: float) -> str:
        config = self.config
        if config.seconds is None:
            return "training"
        passed = duration(min(1, now / config.steps) * config.seconds)
        return f"training: {passed} of {duration(config.seconds)}, step {self.step}"

    def _advance(self, rate: float) -> dict[str, Any]:
        """Trains one step, with halved batches if memory does not suffice. Returns its figures.

        rate: the learning rate.
        """
        try:
            figures = self._gradients()
        except torch.OutOfMemoryError:
            if self._size == 1:
                raise
            figures = None
        if figures is None:  # outside of the exception, which refers to the tensors of the batch
            self._size //= 2
            self.objective.zero_grad()
            torch.cuda.empty_cache()
            print(f"Not enough memory: continuing with batches of {self._size} rows.", file=sys.stderr)
            return self._advance(rate)
        norm = nn.utils.clip_grad_norm_(self._parameters.values(), self.config.clip)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        self.objective.zero_grad()
        self.step, self.rows = self.step + 1, self.rows + self._size
        return {**figures, "rate": rate, "grad_norm": norm}

    def _gradients(self) -> dict[str, Any]:
        """Computes the gradients of the next batch. Returns the loss and the metrics."""
        seed = self.config.seed
        generator = torch.Generator().manual_seed((seed * 7_919 + self.step) % 2**63)
        batch = self.sample(rows_at(self.count, self.step, self._size, seed), generator)
        ids = next(iter(batch.values()))
        with quick_autocast(ids.device, self._halves):
            loss, metrics = self.objective(**batch)
        loss.backward()
        self._seen += ids.numel()
        return {"loss": loss.detach(), **metrics}


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Context in which the first Ctrl-C raises no exception, so that the current step can finish.

    Yields a function that returns whether Ctrl-C was pressed. The second Ctrl-C raises ``KeyboardInterrupt``.
    """
    before, asked = signal.getsignal(signal.SIGINT), False

    def ask(*_: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        print("Stopping after this step. Press Ctrl-C again to stop immediately without saving.", file=sys.stderr)

    # SIGINT is ignored, or this is another thread than the main thread (only the main thread can set handlers)
    ignored = before in (signal.SIG_IGN, None) or threading.current_thread() is not threading.main_thread()
    if not ignored:
        signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, before)


def rate_at(config: LoopConfig, step: float) -> float:
    """Returns the learning rate at a step.

    It rises linearly over the first 5% of the steps, then falls along a cosine to ``min_rate`` times its peak.
    """
    warmup = config.steps // 20
    if step < warmup:
        return config.learning_rate * min(1.0, (step + 1) / warmup)
    progress = (step - warmup) / max(1, config.steps - warmup)
    floor = config.min_rate
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def rows_at(count: int, index: int, size: int, seed: int) -> Tensor:
    """Returns the row numbers of one batch. Rows are shuffled anew in every epoch.

    count: number of rows of the data.
    index: number of the batch, from 0.
    size: number of rows of a batch.
    """
    wanted = torch.arange(index * size, (index + 1) * size)
    out = torch.empty_like(wanted)
    for epoch in (wanted // count).unique().tolist():
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
        in_epoch = wanted // count == epoch
        out[in_epoch] = order[wanted[in_epoch] % count]
    return out


# Optimizers.


def make_optimizers(parameters: dict[str, nn.Parameter], config: LoopConfig) -> list[torch.optim.Optimizer]:
    """Returns Muon for the hidden weight matrices, if any, and AdamW for the other parameters."""
    matrices = [n for n, p in parameters.items() if p.ndim == 2 and not any(part in n for part in TABLES)]
    rest = [p for n, p in parameters.items() if n not in matrices]
    optimizers: list[torch.optim.Optimizer] = []
    if rest:
        optimizers.append(torch.optim.AdamW(rest, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.0))
    if matrices:
        kind, chosen = torch.optim.Muon if quick_bfloat16() else Float32Muon, [parameters[n] for n in sorted(matrices)]
        optimizers.append(kind(chosen, config.learning_rate, config.weight_decay, adjust_lr_fn="match_rms_adamw"))
    return optimizers


class Float32Muon(torch.optim.Muon):
    """Muon (Jordan et al. 2024) with its Newton–Schulz iteration in float32.

    Otherwise, it equals ``torch.optim.Muon`` with Nesterov momentum and ``adjust_lr_fn="match_rms_adamw"``. torch's Muon iterates
    in bfloat16. On a CPU without bfloat16 instructions, bfloat16 products are many times slower than float32 products, and torch's
    Muon would take most of a training step.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Updates all matrices that have a gradient."""
        for group in self.param_groups:
            momentum, rate = group["momentum"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                average = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p.grad))
                average.lerp_(p.grad, 1 - momentum)
                update = orthogonalized(p.grad.lerp(average, momentum), group["ns_coefficients"], group["ns_steps"])
                p.mul_(1 - rate * group["weight_decay"])
                p.add_(update, alpha=-rate * 0.2 * max(p.shape) ** 0.5)


def orthogonalized(matrix: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """Returns an approximation of the semi-orthogonal matrix nearest to ``matrix`` (m, n): all its singular values are close to 1.

    coefficients, steps: those of the quintic Newton–Schulz iteration.
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


# Checkpoints: weights, optimizer state and the identity of the run, as safetensors and JSON.


def save_checkpoint(
    out: Path, parameters: dict[str, nn.Parameter], optimizers: list[Any], done: dict[str, Any]
) -> None:
    """Writes ``out/checkpoint`` atomically. Raises ``InputError`` if it cannot be written.

    done: content of ``state.json``: ``step``, ``seconds``, ``rows`` and ``identity``.
    """
    fresh, final, old = out / "checkpoint.new", out / "checkpoint", out / "checkpoint.old"
    states = _states_of(optimizers)
    weights = {name: p.detach().contiguous() for name, p in parameters.items()}
    state = {
        f"{name}|{key}": torch.as_tensor(value).contiguous()
        for name, parameter in parameters.items()
        for key, value in states[parameter].items()
    }
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        save_file(weights, fresh / "weights.safetensors")
        save_file(state, fresh / "optimizer.safetensors")
        (fresh / "state.json").write_text(json.dumps(done), encoding="utf-8")
        shutil.rmtree(old, ignore_errors=True)
        if final.exists():
            final.rename(old)
        fresh.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot write a checkpoint under {out}: {getattr(error, 'strerror', None) or error}; the previous "
            "checkpoint is kept, and the same command resumes from it"
        ) from None


def save_marked(save: Callable[[Any, Path], None], drafter: Any, folder: Path, mark: Mapping[str, Any]) -> None:
    """Saves a copy of a drafter in bfloat16, and its fingerprint. Raises ``InputError`` if that fails.

    save: function that writes a drafter into a folder.
    mark: result of ``fingerprint``.
    """
    with writing(folder, SafetensorError):
        save(copy.deepcopy(drafter).bfloat16(), folder)
        write_fingerprint(folder, mark)


def load_checkpoint(
    out: Path, parameters: dict[str, nn.Parameter], optimizers: list[Any], identity: dict[str, Any]
) -> dict[str, Any]:
    """Restores the newest complete checkpoint under ``out``. Returns the content of its ``state.json``; {} if there is no
    checkpoint.

    Raises ``InputError`` if the parameters or ``identity`` differ from the checkpoint's. Only ``steps`` may be larger than in the
    checkpoint.
    """
    folder, old = out / "checkpoint", out / "checkpoint.old"
    if not folder.exists() and old.exists():
        old.rename(folder)
    if not folder.exists():
        return {}
    state: dict[str, Any] = json.loads((folder / "state.json").read_bytes())
    before, now = state.get("identity", {}), json.loads(json.dumps(identity))
    further = before.get("steps", 0) < now.get("steps", 0)
    changed = sorted(k for k in {*before, *now} if before.get(k) != now.get(k) and not (k == "steps" and further))
    require(
        not changed,
        f"{folder} was made with other settings ({', '.join(changed)}); "
        "give the same settings to resume, or another output folder to start again",
    )
    states = _states_of(optimizers)
    with torch.no_grad(), safe_open(folder / "weights.safetensors", "pt") as f:
        require(
            parameters.keys() == {*f.keys()},
            f"{folder} was written by another version of this program, with other names of the weights; finish the run "
            "with that version, or give another output folder to start again",
        )
        for name, parameter in parameters.items():
            parameter.copy_(f.get_tensor(name))
    with safe_open(folder / "optimizer.safetensors", "pt") as f:
        for key in f.keys():  # noqa: SIM118 (not a dict)
            name, field = key.rsplit("|", 1)
            parameter, value = parameters[name], f.get_tensor(key)
            states[parameter][field] = value if field == "step" else value.to(parameter.device)
    return state


def _states_of(optimizers: list[Any]) -> dict[nn.Parameter, dict[str, Any]]:
    return {
        p: optimizer.state[p] for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
    }
