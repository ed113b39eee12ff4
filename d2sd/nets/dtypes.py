"""The number formats in which models run: float32, mixed, bfloat16 and float16.

``mixed`` computes in float32 with weight matrices in float16. Passes over few rows are limited by reading the weights, so half the
bytes take about half the time. Only the weights are rounded, and only once. As in float32, every method therefore writes the text
that plain decoding with the rounded weights writes.

In float32 and mixed, passes over one row and over several rows may differ in the last bits (they do on processors with AVX2). This
matters only if two tokens tie within float32's rounding. bfloat16 and float16 round every intermediate result, and the rounding
depends on the shape of the pass. Methods may therefore decide near ties between two tokens differently.
"""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._script import RecursiveScriptClass
from torch.nn import functional as F

from d2sd.config import DTYPE_NAMES

DTYPES = {name: getattr(torch, "float32" if name == "mixed" else name) for name in DTYPE_NAMES}
SIXTEEN_BITS = ("bfloat16", "float16")
NEAR_TIES = (
    "In float32 and mixed precision, every method writes the same text as plain decoding, except after a tie within float32's "
    "rounding. bfloat16 and float16 round more coarsely, and passes over one token round differently than passes over many tokens. "
    "If the large model finds two tokens almost equally good, a method may then choose another token than plain decoding. The "
    "two texts differ from this token on; both are equally good."
)
MIXED_FROM = 50_000_000  # parameters; the weights of smaller targets are quick to read in any format
SMALL = 1 << 18  # numbers per matrix; weight matrices up to this size keep torch's layout
_PACKED_FOR = 16  # rows; oneDNN's layout for 16 rows also suits one row and many rows


def taken_here() -> str:
    """Returns a sentence about which dtype this machine's CPU uses by default, and why."""
    if can_mix():
        return (
            "On this machine's CPU, models with 50 million parameters or more run in mixed precision: float32 with weights in "
            "float16, which halves the memory reads per token."
        )
    return (
        "On this machine's CPU, every model runs in float32, because torch cannot multiply float32 by float16 weights here "
        "(FBGEMM is missing). bfloat16 is never chosen automatically, since many CPUs multiply it slowly."
    )


@cache
def can_mix() -> bool:
    """Returns whether torch can multiply float32 by float16 weights on this machine's CPU (with FBGEMM)."""
    try:
        sums = half_product(torch.ones(8, 8, dtype=torch.float32))(torch.ones(1, 8, dtype=torch.float32))
    except (AttributeError, RuntimeError):
        return False
    return bool((sums == 8).all())


@cache
def quick_bfloat16() -> bool:
    """Returns whether this machine multiplies bfloat16 matrices about as fast as float32 ones.

    This is True with a CUDA GPU. On a CPU, products of 512 × 512 matrices are timed (a fraction of a second, once per process).
    CPUs without bfloat16 instructions take many times as long in bfloat16. In each format, the fastest of three products counts.
    """
    if torch.cuda.is_available():
        return True
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(512, 512, dtype=dtype)
        x @ x  # warm-up: the first product also sets up the kernel
        seconds[dtype] = min(timeit.repeat(partial(torch.mm, x, x), number=1, repeat=3))
    return seconds[torch.bfloat16] < 1.5 * seconds[torch.float32]


def quick_autocast(device: torch.device, enabled: bool | None = None) -> torch.autocast:
    """Returns an autocast context for bfloat16. enabled: None enables it if bfloat16 is quick on this machine."""
    # torch's RMSNorm warns once that it uses its slower path under autocast
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight", category=UserWarning)
    return torch.autocast(device.type, torch.bfloat16, enabled=quick_bfloat16() if enabled is None else enabled)


class _Packed(RecursiveScriptClass):
    """A weight packed for FBGEMM, in a wrapper that makes calls of torch's operators faster.

    In every call, the operators look up an attribute that packed weights lack. Without the wrapper, the resulting exception takes
    10 µs.
    """

    def __init__(self, weight: Tensor):
        self.__dict__["_c"] = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def half_product(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns the function x → x · weightᵀ in float32, with a float16 weight in FBGEMM's layout. Requires ``can_mix``."""
    # ``_op`` is faster than calling the overload, which inspects its arguments in Python
    return partial(torch.ops.quantized.linear_dynamic_fp16.default._op, W_prepack=_Packed(weight))


def product(weight: Tensor, half: bool = False) -> Callable[[Tensor], Tensor]:
    """Returns the function x → x · weightᵀ in the weight's dtype, with a copy of the weight.

    Large matrices are copied to oneDNN's layout. Small ones keep torch's layout, since their product takes less time than a call
    of oneDNN. If torch was built without oneDNN, all matrices keep torch's layout.

    half: whether the copy of a float32 weight is in float16 (``half_product``).
    """
    if half:
        return half_product(weight)
    try:
        if weight.numel() > SMALL:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR)
            run = torch.ops.mkldnn._linear_pointwise.default
            return partial(run, W=packed, B=None, attr="none", scalars=[], algorithm="")
    except (AttributeError, RuntimeError):
        pass
    return partial(F.linear, weight=weight.T.contiguous().T)  # column-major, faster for a single row


class HalfLinear(nn.Module):
    """A frozen linear layer without bias, with its weight in float16; inputs and sums are float32. Requires ``can_mix``.

    Under autocast, products are in bfloat16, as those of ``nn.Linear``.
    """

    def __init__(self, weight: Tensor):
        """weight: (out, in) float32."""
        super().__init__()
        self.out_features, self.in_features = weight.shape  # attributes of nn.Linear; cache sizes depend on them
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)  # read by fingerprints
        self._run = half_product(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Returns x · weightᵀ, (…, out), for x (…, in): float32, or bfloat16 under autocast."""
        return self._coarse(x.bfloat16()) if torch.is_autocast_enabled("cpu") else self._run(x)

    @cached_property
    def _coarse(self) -> Callable[[Tensor], Tensor]:
        return product(self.weight.bfloat16())


def mixes_by_default(model: nn.Module) -> bool:
    """Returns whether a model runs in ``mixed`` by default.

    It does if it is in float32, has at least ``MIXED_FROM`` parameters, and is on a CPU that supports ``mixed``.
    """
    weight = next(model.parameters())
    cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return cpu and can_mix() and sum(p.numel() for p in model.parameters()) >= MIXED_FROM


def halve(layers: nn.Module) -> None:
    """Replaces the linear layers without bias in frozen float32 decoder layers by ``HalfLinear``, in place."""
    for module in list(layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child.bias is None:
                setattr(module, name, HalfLinear(child.weight))


def halved(layers: nn.Module) -> bool:
    return any(isinstance(module, HalfLinear) for module in layers.modules())
