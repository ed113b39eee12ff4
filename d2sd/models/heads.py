"""What some block drafters add to the stack of layers: DSpark's heads, DFlash 2's convolutions and candidate selector.

Parameter names are the published ones (docs/drafter-format.md).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2sd.models.form import MarkovKind, Selector


class MarkovHead(nn.Module):
    """Corrects a row's logits by the token before it (DSpark, arXiv 2607.05147): vanilla by that token alone, gated with the
    row's hidden state, rnn with all tokens of the block before it.

    vocabulary: of the tokens before; drafted: tokens that can be drafted.
    """

    def __init__(self, kind: MarkovKind, rank: int, hidden: int, vocabulary: int, drafted: int):
        super().__init__()
        self.kind, self.rank = kind, rank
        self.markov_w1 = nn.Embedding(vocabulary, rank)
        self.markov_w2 = nn.Linear(rank, drafted, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(hidden + rank, rank)
        elif kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank)

    def start(self, hidden: Tensor) -> Tensor:
        """Returns the initial state, (…, r), for rows like (…, hidden)."""
        return hidden.new_zeros(*hidden.shape[:-1], self.rank)

    def forward(self, before: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Returns corrections (…, V) to the logits of rows (…, hidden) after the tokens ``before`` (…), and the next state."""
        e = self.markov_w1(before)
        if self.kind == "gated":
            e = torch.sigmoid(self.gate_proj(torch.cat([hidden, e], -1))) * e
        elif self.kind == "rnn":
            gate, new, out = self.joint_proj(torch.cat([state, e, hidden], -1)).chunk(3, -1)
            gate = torch.sigmoid(gate)
            state, e = gate * state + (1 - gate) * torch.tanh(new), torch.tanh(out)
        return self.markov_w2(e), state


class ConfidenceHead(nn.Module):
    """How likely a row's token is accepted if all before it were (DSpark); it reads the row's hidden state and, where the
    drafter is made so, the Markov head's entry of the token before, never the token itself."""

    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, before: Tensor | None) -> Tensor:
        """The logit of that probability, (…) float32, from (…, hidden) and (…, r)."""
        read = hidden if before is None else torch.cat([hidden, before], -1)
        return self.proj(read)[..., 0].float()


class GroupedConvolution(nn.Module):
    """Mixes a row with the ones before it in its block, before and after a sublayer (DFlash 2).

    y_t = Σ_k (base_k + dynamic_{t,k}) · x_{t−k}, with the dynamic part shared by a group of channels and computed, for both
    sides, from the sublayer's input.
    """

    def __init__(self, hidden: int, form: Selector):
        super().__init__()
        self.kernel, self.group = form.kernel, form.group
        self.base_kernel = nn.Parameter(torch.zeros(2, form.kernel, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * form.kernel * hidden // form.group, bias=False)

    def dynamic(self, x: Tensor) -> Tensor:
        """Of both sides, (2, …, R, K, H/G), from the sublayer's normed input (…, R, H)."""
        return self.kernel_projection(x).unflatten(-1, (2, self.kernel, -1)).movedim(-3, 0)

    def forward(self, x: Tensor, dynamic: Tensor, side: int) -> Tensor:
        """Mixed rows (…, R, H); side 0: before the sublayer, 1: after it."""
        out = torch.zeros_like(x)
        for k in range(min(self.kernel, x.shape[-2])):
            earlier = F.pad(x, (0, 0, k, 0))[..., : x.shape[-2], :]
            kernel = self.base_kernel[side, k] + dynamic[side, ..., k, :].repeat_interleave(self.group, -1)
            out = out + kernel * earlier
        return out


class CandidateSelector(nn.Module):
    """Scores the likeliest tokens of a row after each token that may stand before it (DFlash 2)."""

    def __init__(self, form: Selector, hidden: int, vocabulary: int):
        super().__init__()
        self.form = form
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocabulary, form.rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocabulary, form.rank))
        self.hidden_projection = nn.Linear(hidden, form.rank, bias=False)

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Of the head's logits (…, V): the likeliest tokens' own scores and their places, best first, (…, C) each."""
        scores = logits.float() * self.form.multiplier
        if self.form.cap is not None:
            scores = self.form.cap * torch.tanh(scores / self.form.cap)
        best = scores.topk(min(self.form.top, scores.shape[-1]), -1)
        return best.values, best.indices

    def forward(self, own: Tensor, tokens: Tensor, hidden: Tensor, before: Tensor) -> Tensor:
        """Scores (…, P, C) of the candidates ``tokens`` (…, C) with scores ``own`` after each of ``before`` (…, P)."""
        read = self.predecessor_codebook[before] * self.hidden_projection(hidden)[..., None, :]
        return own[..., None, :] + (read @ self.successor_codebook[tokens].transpose(-1, -2)).float()
