"""Number formats that models run in, by name: float32, mixed, bfloat16 and float16.

``mixed`` computes in float32 with the weight matrices in float16. A pass over few rows is limited by reading the weights, so
half the bytes take about half the time. Only weights are rounded, once: the texts are those of the target with rounded
weights, and all methods agree as they do in float32. In both formats, products and attention of one row and of several may
differ in the last bits (on processors with AVX2 they do). That matters only if two tokens are tied within float32's rounding.
bfloat16 rounds every intermediate result, and passes of different shapes round differently, so a near tie between two tokens
may be decided differently.
"""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._script import RecursiveScriptClass

DTYPES = {
    "float32": torch.float32,
    "mixed": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
SIXTEEN_BITS = ("bfloat16", "float16")
NEAR_TIES = (
    "In float32, and with mixed numbers, every method writes the text of plain decoding: only a tie within float32's rounding "
    "could go the other way. In bfloat16 and float16 intermediate results are rounded, and passes over one token and over many are rounded differently. Where the target "
    "finds two tokens almost equally good, the other one may then win, and the text goes on another way from there: it is "
    "as good, but not the same."
)
MIXED_FROM = 50_000_000  # parameters of a target; weights of smaller ones are read quickly in any case


def taken_here() -> str:
    """Returns a sentence that says which dtype this machine's CPU uses by default, and why."""
    if can_mix():
        return (
            "On this machine's CPU, targets of 50 million parameters or more run in mixed numbers: float32 with weights in "
            "float16, so that half as much is read for every token."
        )
    return (
        "On this machine's CPU every target runs in float32: torch comes without FBGEMM's products here, which multiply "
        "float32 by float16 weights. bfloat16 is not taken by itself, since many CPUs multiply it slowly."
    )


@cache
def can_mix() -> bool:
    """Returns whether torch has float32 × float16-weight products on this machine's processor (FBGEMM's)."""
    try:
        found = half_product(torch.ones(8, 8, dtype=torch.float32))(torch.ones(1, 8, dtype=torch.float32))
    except (AttributeError, RuntimeError):
        return False
    return bool((found == 8).all())


@cache
def quick_bfloat16() -> bool:
    """Returns whether this machine multiplies bfloat16 matrices about as fast as float32 ones.

    True where there is a GPU. On a CPU products of 512 × 512 are timed (a fraction of a second, once a process): without
    instructions for bfloat16 they take many times as long. The fastest of three counts, since other work may disturb one.
    """
    if torch.cuda.is_available():
        return True
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(512, 512, dtype=dtype)
        x @ x  # the first one also sets up the kernel
        seconds[dtype] = min(timeit.repeat(partial(torch.mm, x, x), number=1, repeat=3))
    return seconds[torch.bfloat16] < 1.5 * seconds[torch.float32]


def quick_autocast(device: torch.device) -> torch.autocast:
    """Returns a context of bfloat16 products where these are quick, otherwise one that changes nothing."""
    # torch's RMSNorm takes its slower path there, and says so once
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight", category=UserWarning)
    return torch.autocast(device.type, torch.bfloat16, enabled=quick_bfloat16())


class _Packed(RecursiveScriptClass):
    """A weight packed for FBGEMM, wrapped so that torch's operators accept it quickly.

    They first look for an attribute that the packed object lacks, and raising that exception takes about 10 µs.
    """

    def __init__(self, weight: Tensor):
        self.__dict__["_c"] = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def half_product(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """x → x · weightᵀ in float32, from a float16 copy of the weight, laid out for FBGEMM, which widens it again while it multiplies.

    Needs ``can_mix``.
    """
    # not the overload itself, which looks through its arguments in Python
    return partial(torch.ops.quantized.linear_dynamic_fp16.default._op, W_prepack=_Packed(weight))


class HalfLinear(nn.Module):
    """A frozen linear layer without bias whose weight is kept in float16; rows and sums stay float32 (``can_mix``)."""

    def __init__(self, weight: Tensor):
        """weight: (out, in) float32."""
        super().__init__()
        self.out_features, self.in_features = weight.shape  # as nn.Linear has them: caches are sized by these
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)  # fingerprints read it
        self._run = half_product(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out), float32."""
        return self._run(x)


def mixes_by_default(model: nn.Module) -> bool:
    """Returns whether a target uses mixed numbers by default: on a CPU that has them, from ``MIXED_FROM`` parameters on."""
    weight = next(model.parameters())
    cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return cpu and can_mix() and sum(p.numel() for p in model.parameters()) >= MIXED_FROM


def halve(layers: nn.Module) -> None:
    """Replace the linear layers inside frozen float32 decoder layers by ``HalfLinear``, in place, but for those with a bias."""
    for module in list(layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child.bias is None:
                setattr(module, name, HalfLinear(child.weight))


def halved(layers: nn.Module) -> bool:
    return any(isinstance(module, HalfLinear) for module in layers.modules())
