"""Attention in two levels, norms, activations and RoPE with flashinfer's kernels, which are compiled at first use on a machine.

In level 1, all rows attend to the shared prefix without a mask. The prefix is read from the cache and not copied.
In level 2, rows attend to their own block under the tree mask. Both levels return their log-sum-exp to base 2, from which
flashinfer's ``merge_state`` computes weights. For a single row whose key and value are already in the cache, level 1 is sufficient.

flashinfer plans a level on the host when its lengths change: once per pass of a model, not once per layer. The mask stays on the
device. flashinfer is imported at first use, so this module can be imported on any machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from d2sd.__about__ import on_zero_gpu
from d2sd.nets.lean import Kernels, KeyValue, Write

WORKSPACE = 128 << 20  # bytes, as flashinfer recommends
HALF_DTYPES = (torch.float16, torch.bfloat16)
HEAD_DIMS = (64, 128, 256)
MIN_CAPABILITY = (7, 5)
SCRIPTS = os.path.dirname(sys.executable)
FIRST_USE = (
    "flashinfer compiles its kernels. This takes minutes on a few cores, but only the first time on this machine."
)


def obstacle(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Returns why flashinfer cannot be used, as the end of a sentence that begins with "flashinfer"; None if it can be used."""
    if device.type != "cuda":
        return f"needs a CUDA GPU, and these models are on the {device.type}"
    if find_spec("flashinfer") is None:
        return "needs the package flashinfer-python (pip install -r requirements-gpu.txt)"
    if compiler() is None:
        return "compiles its kernels with nvcc, which is not on this machine (install the CUDA toolkit)"
    if shutil.which("ninja") is None and shutil.which("ninja", path=SCRIPTS) is None:
        return "builds its kernels with ninja, which is not on this machine (pip install ninja)"
    if on_zero_gpu():
        return "would spend ZeroGPU's limited GPU time on compiling"
    if torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        return "needs a GPU of compute capability 7.5 or newer"
    if dtype not in HALF_DTYPES:
        return f"works in bfloat16 and float16, not in {str(dtype).removeprefix('torch.')}"
    if head_dim not in HEAD_DIMS:
        return f"has no kernels for head size {head_dim}, only for {', '.join(map(str, HEAD_DIMS))}"
    return None


def compiler() -> str | None:
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [os.path.join(home, "bin") for home in (*homes, "/usr/local/cuda") if home]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places))


def compiled_before() -> bool:
    """Returns whether kernels were compiled on this machine before. flashinfer caches them under ~/.cache/flashinfer."""
    base = Path(os.environ.get("FLASHINFER_WORKSPACE_BASE", Path.home())) / ".cache" / "flashinfer"
    return any(base.glob("**/*.so"))


@cache
def _library() -> Any:
    if shutil.which("ninja") is None:  # flashinfer calls ninja by name; a virtual environment has it next to python
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), SCRIPTS])
    import flashinfer

    return flashinfer


def pack_mask(mask: Tensor, batch: int = 1) -> Tensor:
    """Returns a (R, R) bool mask packed into bytes (uint8) for flashinfer, on the mask's device: row-major, lowest bit first.

    Rows are not aligned to bytes. For several branches, the mask is repeated on the diagonal, since their rows form one request.
    """
    whole = torch.kron(torch.eye(batch, dtype=torch.uint8, device=mask.device), mask.to(torch.uint8)).flatten()
    bits = torch.nn.functional.pad(whole, (0, -len(whole) % 8)).view(-1, 8)
    shifts = torch.arange(8, dtype=torch.uint8, device=mask.device)
    return (bits << shifts).sum(-1, dtype=torch.uint8)


# Layer operations other than matrix products.


class FlashInferKernels(Kernels):
    """flashinfer's kernels. They treat the rows of all branches as one list, (B·R, …)."""

    in_place = True

    def norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        if weight is None:
            return super().norm(x, weight, eps)
        return _library().rmsnorm(x.view(-1, x.shape[-1]), weight, eps).view(x.shape)

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
        size = x.shape[-1]
        _library().fused_add_rmsnorm(x.view(-1, size), residual.view(-1, size), weight, eps)
        return residual, x

    def gated(self, gate_up: Tensor) -> Tensor:
        return _library().silu_and_mul(gate_up)

    def table(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        half = cos.shape[1] // 2
        return (torch.cat([cos[:, :half], sin[:, :half]], 1),)

    def rotation(self, table: tuple[Tensor, ...], positions: Tensor, branches: int) -> tuple[Tensor, ...]:
        return positions if branches == 1 else positions.repeat(branches), *table

    def heads(
        self, projected: Tensor, heads: int, kv_heads: int, norms: Tensor | None, rotation: tuple[Tensor, ...] | None,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        batch, size = projected.shape[0], projected.shape[-1]
        query, key, value = projected.flatten(0, 1).split([heads, kv_heads, kv_heads], 1)
        if norms is not None:  # norm weights: the first row for all query heads, the last one for all key heads
            query, key = _library().rmsnorm(query, norms[0], eps), _library().rmsnorm(key, norms[-1], eps)
        if rotation is not None:
            positions, table = rotation
            flat = (part.view(len(part), -1) for part in (query, key))
            _library().apply_rope_with_cos_sin_cache_inplace(positions, *flat, size, table)
        query, key, value = (part.unflatten(0, (batch, -1)) for part in (query, key, value))
        return query, key, value

    def writer(self, slots: Tensor, capacity: int) -> Write:
        """Returns a function as ``Kernels.writer`` does.

        A layer's buffers are one page of ``capacity`` slots. Indices are int32; other types would be converted in every layer.
        """
        places, ends = slots.int(), torch.arange(2, dtype=torch.int32, device=slots.device)
        zeros = torch.zeros_like(places)
        filled = torch.full((1,), capacity, dtype=torch.int32, device=slots.device)

        def write(keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
            rows = key[0].transpose(0, 1), value[0].transpose(0, 1)
            _library().append_paged_kv_cache(
                *rows, zeros, places, (keys, values), zeros[:1], ends, filled, kv_layout="HND"
            )

        return write


KERNELS = FlashInferKernels()


# The backend.


@dataclass(slots=True)
class _Stage:
    """The two levels of one kind of pass, their current plans, and the packed mask. ``block``: None without level 2."""

    prefix: Any
    block: Any
    bits: Tensor | None
    prefix_planned: tuple[float, ...] = ()
    block_planned: tuple[float, ...] = ()
    mask: Tensor | None = None


class FlashInfer:
    """The backend for one generation. ``fixed``: whether each shape keeps its buffers, so that passes can be captured.

    A captured pass does not plan. Call ``plan`` before the capture and before every replay. Inside the pass, call ``show`` with
    the mask before the layers run.
    """

    def __init__(self, fixed: bool = False):
        self.fixed = fixed
        self._stages: dict[Hashable, _Stage] = {}
        self._workspaces: dict[torch.device, Tensor] = {}

    def __call__(
        self,
        query: Tensor,
        prefix: KeyValue,
        block: KeyValue | None,
        block_mask: Tensor | None,
        scale: float,
        joined: KeyValue | None = None,
        seen: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Shapes are as in ``d2sd.nets.attention``, whose ``choose`` refuses unsupported targets. Fixed-shape passes use the plan's
        context length.

        block: None if the prefix ends with the rows' own keys and values.
        """
        batch, heads, rows, dim = query.shape
        kv_heads, context = prefix[0].shape[1:3]
        masked = None if block is None else block_mask is not None
        if seen is None:
            self.plan(query, kv_heads, context, masked, scale, block_mask)
        stage = self._stage(query, kv_heads, masked)
        flat = query.transpose(1, 2).reshape(batch * rows, heads, dim)
        shared = [part[0].transpose(0, 1) for part in prefix]
        if block is None:
            out = stage.prefix.run(flat, *shared)
        else:
            separate = [part.transpose(1, 2).reshape(batch * rows, kv_heads, dim) for part in block]
            out, lse = stage.block.run(flat, *separate, return_lse=True)
            if context:
                out, _ = _library().merge_state(*stage.prefix.run(flat, *shared, return_lse=True), out, lse)
        return out.view(batch, rows, heads, dim).transpose(1, 2)

    def plan(
        self, query: Tensor, kv_heads: int, context: int, masked: bool | None, scale: float, mask: Tensor | None = None
    ) -> None:
        """Plans both levels of attention for queries of this shape, type and device, unless the current plan fits.

        query: (B, H, R, D); its values are not read.
        context: number of prefix slots.
        masked: whether the block has a mask; None if there is no block.
        mask: (R, R) bool, must not be modified later; None if there is no mask or ``show`` will set it.
        """
        batch, heads, rows, dim = query.shape
        stage, whole = self._stage(query, kv_heads, masked), [0, batch * rows]
        shape = (heads, kv_heads, dim)
        options = {"causal": False, "sm_scale": scale, "q_data_type": query.dtype}
        if masked is not None and (stage.block_planned != (batch, rows, scale) or stage.mask is not mask):
            packed = stage.bits if mask is None else pack_mask(mask, batch)
            # one request per branch over its block, or a single request if a mask separates the branches
            ranges = whole if masked else list(range(0, batch * rows + 1, rows))
            _plan(stage.block, ranges, ranges, shape, packed_custom_mask=packed, **options)
            stage.block_planned, stage.mask = (batch, rows, scale), mask
        if context and stage.prefix_planned != (batch, rows, context, scale):
            # one request for the rows of all branches, so that the prefix is read only once
            _plan(stage.prefix, whole, [0, context], shape, **options)
            stage.prefix_planned = (batch, rows, context, scale)

    def show(self, mask: Tensor) -> None:
        """Sets the (R, R) bool mask of fixed-shape passes that were planned for R rows."""
        packed = pack_mask(mask)
        for stage in self._stages.values():
            if stage.bits is not None and stage.block_planned[:2] == (1, len(mask)):
                stage.bits.copy_(packed)

    def _stage(self, query: Tensor, kv_heads: int, masked: bool | None) -> _Stage:
        (batch, heads, rows, dim), device = query.shape, query.device
        # ``masked`` is always part of the key, since a wrapper that once had a mask keeps using it
        key = device, query.dtype, heads, kv_heads, dim, masked, (batch, rows) if self.fixed else None
        if key not in self._stages:
            if device not in self._workspaces:
                # one workspace for both levels, since their kernels never run at the same time
                self._workspaces[device] = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
            bits = None
            if masked and self.fixed:
                bits = torch.zeros(-(-((batch * rows) ** 2) // 8), dtype=torch.uint8, device=device)
            block = None if masked is None else self._wrapper(device, 1 if masked else batch, bits)
            self._stages[key] = _Stage(self._wrapper(device, 1, None), block, bits)
        return self._stages[key]

    def _wrapper(self, device: torch.device, requests: int, bits: Tensor | None) -> Any:
        """Returns flashinfer's wrapper for a level. If ``fixed``, its buffers for ranges and mask bits keep their addresses."""
        options: dict[str, Any] = {"backend": "fa2"}  # fa3 does not support custom masks
        if self.fixed:
            rows, keys, masks = (torch.zeros(requests + 1, dtype=torch.int32, device=device) for _ in range(3))
            options |= {"use_cuda_graph": True, "qo_indptr_buf": rows, "kv_indptr_buf": keys}
            if bits is not None:
                options |= {"custom_mask_buf": bits, "mask_indptr_buf": masks}
        return _library().BatchPrefillWithRaggedKVCacheWrapper(self._workspaces[device], "NHD", **options)


def _plan(wrapper: Any, rows: list[int], keys: list[int], shape: tuple[int, int, int], **options: Any) -> None:
    """Plans requests. Request i has the query rows rows[i] … rows[i+1] − 1 and the keys keys[i] … keys[i+1] − 1."""
    wrapper.plan(*(torch.tensor(ranges, dtype=torch.int32) for ranges in (rows, keys)), *shape, **options)
