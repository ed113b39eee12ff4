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
    """The additions of DFlash 2: convolutions over the block's rows around every sublayer, and a candidate selector.

    kernel: number of rows that a convolution reads.
    group: number of channels that share a dynamic kernel.
    rank: of the codebooks.
    top: number of candidates per row.
    multiplier: scale of the logits.
    cap: soft cap of the logits; None for none.
    """

    rank: int = 256
    top: int = 16
    kernel: int = 2
    group: int = 16
    multiplier: float = 1.0
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class DrafterForm:
    """Description of a block drafter. To try another convention, replace a field and pass the result to
    ``DFlashDraftModel.reformed``: all fields except the sizes are independent of the weights.

    layout: of the folder.
    kind: of the network.
    shape: keys of a Qwen3 config, including the rotary embedding as ``rope_parameters``.
    taps: decoder layers of the target whose outputs it reads, from 0.
    rows: number of rows of a drafted block, including the anchor's.
    reads: position that a row predicts: ``fill``, its own, so that ``rows`` − 1 tokens are drafted, or ``next``, the next one,
        so that ``rows`` are.
    windows: by layer, the attention window: a query sees keys fewer than so many positions back; None for all keys.
    causal: by layer, whether attention within the block is causal.
    markov, markov_rank: kind and rank of DSpark's Markov head, which corrects a row's logits by the previous token.
    confidence: input of DSpark's confidence head: a row's hidden state, alone or with the previous token; None without a head.
    draft_vocabulary: number of tokens that it can draft; None for the target's vocabulary.
    embedding_scale: scale of its input embeddings.
    visible_prefixes: whether it was trained with visible prefixes of at least one drafted token only (a VP-Drafter of
        SpecForge).
    second_role: whether it is a VP-Drafter, for the second role; ``d2sd train vp`` writes this.
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
