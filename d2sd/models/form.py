"""The description of a block drafter, independent of its folder's layout, used by the network and the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Layout = Literal["nested", "flat", "speculators"]
Kind = Literal["dflash", "dflash2", "dspark"]
Reads = Literal["fill", "next"]
MarkovKind = Literal["vanilla", "gated", "rnn"]


@dataclass(frozen=True, slots=True)
class Selector:
    """What DFlash 2 adds: convolutions of the block's rows around every sublayer, and a choice among the likeliest tokens.

    kernel: rows that a convolution reads; group: channels that share a dynamic kernel; rank: of the codebooks; top: candidates
    a row; multiplier: of the logits; cap: logits end at ± cap, softly, None: they do not.
    """

    rank: int = 256
    top: int = 16
    kernel: int = 2
    group: int = 16
    multiplier: float = 1.0
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class DrafterForm:
    """A block drafter. To ask what another convention would change, replace a field and give the result to
    ``DFlashDraftModel.reformed``: all fields but the sizes are free of the weights.

    layout: of the folder; kind: of the network.
    shape: keys of a Qwen3 config, the rotary embedding among them as ``rope_parameters``.
    taps: decoder layers of the target whose outputs it reads, from 0.
    rows: of a drafted block, the anchor's included. reads: the position that a row is about, ``fill``: its own, so that
    ``rows`` − 1 tokens are drafted, or ``next``: the one after it, so that ``rows`` are.
    windows: by layer, the keys that a query sees are fewer than so many positions back, None: all are seen;
    causal: by layer, whether a row sees no later row of its block.
    markov, markov_rank: DSpark's head that corrects a row's logits by the token before; confidence: what its head for the chance
    of acceptance reads, a row's hidden state, alone or with that token; None where there is none.
    draft_vocabulary: tokens that it can draft, None: the target's. embedding_scale: of its input.
    visible_prefixes: it was trained to draft from visible prefixes that hold at least one drafted token (a VP-Drafter of
    SpecForge).
    second_role: it is a VP-Drafter, for the second role; ``d2sd train vp`` writes so.
    """

    layout: Layout
    kind: Kind
    shape: Mapping[str, Any]
    taps: tuple[int, ...]
    rows: int
    reads: Reads
    mask_token: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    markov: MarkovKind | None = None
    markov_rank: int = 0
    confidence: Literal["hidden", "markov"] | None = None
    selector: Selector | None = None
    draft_vocabulary: int | None = None
    embedding_scale: float = 1.0
    visible_prefixes: bool = False
    second_role: bool = False

    @property
    def shift(self) -> int:
        """Offset between a token's position and the row that predicts it."""
        return int(self.reads == "next")

    @property
    def block_size(self) -> int:
        """γ: the anchor and all drafted positions."""
        return self.rows + self.shift

    @property
    def masked(self) -> bool:
        """Whether some row does not see the whole context and block."""
        return any(self.causal) or any(w is not None for w in self.windows)

    @property
    def walked(self) -> bool:
        """Whether tokens depend on the ones before them in the block, or a confidence head is present."""
        return bool(self.markov or self.confidence or self.selector)
