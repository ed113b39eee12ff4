"""Checkpoints of a training run: weights, optimizer state and settings, as safetensors and JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from d2sd.errors import InputError
from d2sd.trace.files import write_whole


def keep_metrics_before(path: Path, step: int) -> None:
    """Drop the metrics that a killed run logged after its last checkpoint."""
    if path.exists():
        kept = [line for line in path.read_text().splitlines() if line and json.loads(line)["step"] <= step]
        write_whole(path, "".join(line + "\n" for line in kept))


def save_checkpoint(
    out: Path, parameters: dict[str, nn.Parameter], optimizers: list[Any], identity: dict[str, Any], step: int
) -> None:
    """Write ``out/checkpoint`` atomically. Raises ``InputError`` if it cannot be written."""
    try:
        _save(out, parameters, optimizers, {"step": step, "identity": identity})
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot write a checkpoint under {out}: {getattr(error, 'strerror', None) or error}; the one before is still "
            "there, and the same command goes on from it"
        ) from None


def _save(out: Path, parameters: dict[str, nn.Parameter], optimizers: list[Any], about: dict[str, Any]) -> None:
    fresh, final, old = out / "checkpoint.new", out / "checkpoint", out / "checkpoint.old"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    state = {}
    for name, parameter in parameters.items():
        for key, value in _state_of(optimizers, parameter).items():
            state[f"{name}|{key}"] = torch.as_tensor(value).detach().clone().contiguous()
    save_file({n: p.detach().clone().contiguous() for n, p in parameters.items()}, fresh / "weights.safetensors")
    save_file(state, fresh / "optimizer.safetensors")
    (fresh / "state.json").write_text(json.dumps(about))
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    fresh.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(
    out: Path, parameters: dict[str, nn.Parameter], optimizers: list[Any], identity: dict[str, Any]
) -> int:
    """Restore the newest complete checkpoint under ``out``. Returns the step to continue at, 0 if there is none.

    Raises ``InputError`` if the checkpoint belongs to another run; a run with more steps may continue from it.
    """
    folder = out / "checkpoint"
    if not folder.exists() and (out / "checkpoint.old").exists():
        (out / "checkpoint.old").rename(folder)
    if not folder.exists():
        return 0
    state = json.loads((folder / "state.json").read_text())
    before, now = state.get("identity", {}), json.loads(json.dumps(identity))
    further = before.get("steps", 0) < now.get("steps", 0)
    changed = sorted(k for k in {*before, *now} if before.get(k) != now.get(k) and not (k == "steps" and further))
    if changed:
        raise InputError(
            f"{folder} was made with other settings ({', '.join(changed)}); "
            "give the same ones to resume, or another output folder to start again"
        )
    with torch.no_grad(), safe_open(folder / "weights.safetensors", "pt") as f:
        for name, parameter in parameters.items():
            parameter.copy_(f.get_tensor(name))
    with safe_open(folder / "optimizer.safetensors", "pt") as f:
        for key in f.keys():  # noqa: SIM118 (not a dict)
            name, field = key.rsplit("|", 1)
            value = f.get_tensor(key)
            value = value if field == "step" else value.to(parameters[name].device)
            _state_of(optimizers, parameters[name])[field] = value
    return int(state["step"])


def _state_of(optimizers: list[Any], parameter: nn.Parameter) -> dict[str, Any]:
    """The state that its optimizer keeps for this parameter (empty before the first step)."""
    for optimizer in optimizers:
        if any(parameter is p for g in optimizer.param_groups for p in g["params"]):
            state: dict[str, Any] = optimizer.state[parameter]
            return state
    raise KeyError("a parameter has no optimizer")
