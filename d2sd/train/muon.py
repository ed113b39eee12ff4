"""Muon (Jordan et al. 2024) with its Newton–Schulz iteration in float32.

``torch.optim.Muon`` iterates in bfloat16. A CPU without bfloat16 instructions multiplies those numbers many times slower than
float32 ones, so that the optimizer takes most of a training step there.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration, as in torch.optim.Muon
STEPS = 5


def orthogonalized(matrix: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly: all singular values of a (m, n) matrix moved near 1."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(1e-7)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Float32Muon(torch.optim.Optimizer):
    """``torch.optim.Muon`` with Nesterov momentum and ``adjust_lr_fn="match_rms_adamw"``, computed in float32."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, weight_decay: float, momentum: float = 0.95):
        """params: matrices."""
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of all matrices that have a gradient."""
        for group in self.param_groups:
            momentum, rate = group["momentum"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                average = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p.grad))
                average.lerp_(p.grad, 1 - momentum)
                update = orthogonalized(p.grad.lerp(average, momentum))
                p.mul_(1 - rate * group["weight_decay"])
                p.add_(update, alpha=-rate * 0.2 * max(p.shape) ** 0.5)
