"""Machines that are calculated from data sheets: a pass takes as long as reading its weights, or as its arithmetic.

The roofline model (Williams, Waterman and Patterson, 2009): seconds = max(bytes ÷ bandwidth, operations ÷ peak), plus what
launching the kernels takes. It is a lower bound for the hardware. Real kernels reach some 70 to 90% of it, for one row and for
many alike, so ratios of its times are closer to measured ones than the times themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from d2sd.costs.machines import Curve, Machine

BYTES = 2  # of a weight: bfloat16
CONTEXT = 1024  # tokens whose keys and values a pass reads
MOST_ROWS = 4096
HOW = (
    "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its "
    "arithmetic takes, whichever is longer, by the data sheet."
)
KERNELS = 12  # of a decoder layer, about: two norms, four products, rotation, three of attention, activation, gate


@dataclass(frozen=True, slots=True)
class Hardware:
    """Figures of a data sheet.

    bandwidth: of memory, in bytes per second.
    peak: of bfloat16 products that add up in float32, without sparsity, in operations per second.
    launch: seconds from one kernel to the next.
    sheet: where the figures are printed.
    """

    name: str
    bandwidth: float
    peak: float
    launch: float
    sheet: str

    @property
    def ridge(self) -> float:
        """Rows up to which a pass is bound by memory bandwidth (2 operations per weight and row)."""
        return self.peak * BYTES / (2 * self.bandwidth)


@dataclass(frozen=True, slots=True)
class Network:
    """What a pass reads and starts: weights (without the embedding table), numbers of keys and values per token, layers."""

    weights: float
    cached: int
    layers: int

    def curve(self, on: Hardware, times: int = 1, rows: int = MOST_ROWS) -> Curve:
        """Returns the seconds of this many sequential passes, over the rows of each."""
        ridge = min(max(2, int(on.ridge)), rows - 1)
        return Curve(tuple((n, times * self.seconds(on, n)) for n in sorted({1, ridge, ridge + 1, rows})))

    def seconds(self, on: Hardware, rows: int) -> float:
        """Returns the seconds of one pass."""
        reading = BYTES * (self.weights + CONTEXT * self.cached) / on.bandwidth
        return max(reading, 2 * self.weights * rows / on.peak) + on.launch * KERNELS * self.layers


def decoder_layer(hidden: int, heads: int, kv_heads: int, head_size: int, inner: int) -> int:
    """Returns the weights of a Qwen3 or Llama layer, without norms."""
    return hidden * head_size * (2 * heads + 2 * kv_heads) + 3 * hidden * inner


LAYER, HEAD = decoder_layer(4096, 32, 8, 128, 12288), 151936 * 4096
TARGET = Network(36 * LAYER + HEAD, 36 * 2 * 8 * 128, 36)  # Qwen3-8B
DRAFTER = Network(
    5 * LAYER + 5 * 4096 * 4096 + HEAD, 5 * 2 * 8 * 128, 5
)  # z-lab/Qwen3-8B-DFlash-b16, with the target's head
# one layer that reads two hidden states, the projection of three taps, and a head over 32,000 tokens
EAGLE3 = Network(LAYER + 4096 * 128 * (32 + 2 * 8) + 3 * 4096 * 4096 + 32000 * 4096, 2 * 8 * 128, 1)
SMALL = Network(28 * decoder_layer(1024, 16, 8, 128, 3072) + 151936 * 1024, 28 * 2 * 8 * 128, 28)  # Qwen3-0.6B

# A kernel of 2.9 µs took 3.4 µs each in a CUDA graph: NVIDIA, "Getting Started with CUDA Graphs", 2019.
GRAPH = 0.5e-6
HARDWARE = {
    "laptop-cpu": Hardware(
        "Laptop CPU (Ryzen 7 7840U)", 120e9, 8 * 3.3e9 * 32, 0.0,
        "AMD, Ryzen 7 7840U: LPDDR5X-7500 at 128 bits; 8 cores at 3.3 GHz, two 8-wide float32 products and sums a cycle",
    ),
    "laptop-gpu": Hardware(
        "Laptop GPU (RTX 5090 Laptop)", 896e9, 1824e12 / 16, GRAPH,
        "NVIDIA, GeForce RTX 5090 Laptop GPU: GDDR7 at 28 Gbit/s and 256 bits; 1,824 TOPS at 4 bits with sparsity, a sixteenth of it",
    ),
    "rtx-4090": Hardware("RTX 4090", 1008e9, 165.2e12, GRAPH, "NVIDIA, Ada GPU Architecture, appendix A"),
    "h100": Hardware("H100 SXM", 3.35e12, 989.4e12, GRAPH, "NVIDIA, H100 Tensor Core GPU Datasheet"),
    "h200": Hardware("H200 SXM", 4.8e12, 989.4e12, GRAPH, "NVIDIA, H200 Tensor Core GPU Datasheet"),
    "space": Hardware(
        "Spaces (RTX Pro 6000 Blackwell)", 1792e9, 503.8e12, GRAPH,
        "NVIDIA, RTX Blackwell PRO GPU Architecture; the card of ZeroGPU by the documentation of Hugging Face Spaces, used whole",
    ),
}  # fmt: skip


def calculated(hardware: Hardware) -> Machine:
    """Returns Qwen3-8B with five-layer block drafters in bfloat16 on this hardware, at 1,024 tokens of context.

    EAGLE-3 takes a pass for each of depth + 1 levels, of a few rows; the draft model is Qwen3-0.6B, a pass per token. What the
    host does between passes is taken to overlap with them.
    """
    level, token = EAGLE3.seconds(hardware, 10), SMALL.seconds(hardware, 1)
    return Machine(
        first_draft=DRAFTER.curve(hardware),
        second_draft=DRAFTER.curve(hardware),
        verify=TARGET.curve(hardware),
        name=hardware.name,
        source=f"{hardware.bandwidth / 1e9:,.0f} GB/s, {_peak(hardware.peak)}: {hardware.sheet}.",
        kind="calculated",
        drafts={
            "eagle3": Curve(((2, level), (3, 2 * level))),
            "draft_model": Curve(((2, token), (3, 2 * token))),
        },
    )


def _peak(operations: float) -> str:
    return f"{operations / 1e12:,.{0 if operations >= 1e13 else 2}f} TFLOPS"
